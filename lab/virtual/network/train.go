// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/vary"
	"mpbond/link/estimate"
)

// Train is a network of two carriers' links on a journey, and what their modems report.
type Train struct {
	Network *Network
	Rides   [vary.Carriers]vary.Ride
}

// Links of a train: round trips as in rows h0 to h8 of the lab, and queues of mobile links.
var trainDelays = [vary.Carriers]time.Duration{30 * time.Millisecond, 40 * time.Millisecond}

const (
	trainQueue      = 400 * time.Millisecond
	leastTrainQueue = 96 * unit.KB
)

// NewTrain draws a journey. The same seed gives the same one.
func NewTrain(seed uint64, travel vary.Travel, length time.Duration) *Train {
	t := &Train{Network: &Network{Seed: seed, Changing: true}, Rides: travel.Rides(seed, "virtual train", length)}
	for c, r := range t.Rides {
		hop := Hop{Name: []string{"m", "u"}[c], Up: linkOfProfile(r.Up, trainDelays[c]),
			Down: linkOfProfile(r.Down, trainDelays[c])}
		t.Network.Paths = append(t.Network.Paths, Path{Name: hop.Name, Hops: []Hop{hop}})
	}
	return t
}

// linkOfProfile returns a link with the rates, holds and outages of a profile, which begins with the
// first object.
func linkOfProfile(p vary.Profile, delay time.Duration) Link {
	mean := p.Mean(vary.MaxLength)
	l := Link{Delay: delay, Queue: max(leastTrainQueue, mean.Bytes(trainQueue)), Rates: []RateStep{{0, mean}}}
	var times []time.Duration
	for i := range p.Rates {
		times = append(times, time.Duration(i)*p.Step)
	}
	for _, h := range p.Holds {
		times = append(times, h.From, h.End())
	}
	slices.Sort(times)
	hold := 0
	for _, at := range slices.Compact(times) {
		for hold < len(p.Holds) && p.Holds[hold].End() <= at {
			hold++
		}
		rate := p.Rates[min(int(at/p.Step), len(p.Rates)-1)]
		if hold < len(p.Holds) && p.Holds[hold].From <= at {
			rate = 0
		}
		if at += startAt; rate != l.Rates[len(l.Rates)-1].Rate {
			l.Rates = append(l.Rates, RateStep{at, rate})
		}
	}
	if last := &l.Rates[len(l.Rates)-1]; last.Rate == 0 {
		last.Rate = mean // a link that never works again would hide what follows
	}
	for _, g := range p.Gaps {
		l.Outages = append(l.Outages, Outage{startAt + g.From, startAt + g.End()})
	}
	return l
}

// Forecasts returns the hints that a device with these modems gets from HandoffForecast.
func (t *Train) Forecasts() (hints []Hint) {
	for c, r := range t.Rides {
		var f estimate.HandoffForecast
		for _, s := range r.Signals {
			at := epoch.Add(s.At)
			handedOff := f.AddSignal(estimate.CellSignal{At: at, RSRP: s.Serving, Neighbour: s.Neighbour,
				Cell: strconv.Itoa(s.Cell), SpeedKmh: 3.6 * s.Speed})
			hints = append(hints, Hint{At: s.At, Path: c, Probability: f.ProbabilityAt(at), HandedOff: handedOff,
				ValidFor: estimate.SignalLifetime})
		}
	}
	return hints
}

// Distortions are ways in which modems can be wrong about powers: none; those of other times; the serving
// cell and its neighbour swapped; always, or never, those before a handoff; no neighbour.
var Distortions = []string{"", "shuffled", "inverted", "always", "never", "no neighbour"}

// Distort makes the modems wrong.
func (t *Train) Distort(how string) {
	random := rand.New(rand.NewPCG(t.Network.Seed, 77))
	for c := range t.Rides {
		list := slices.Clone(t.Rides[c].Signals)
		for i := range list {
			switch s := &list[i]; how {
			case "shuffled":
				o := &list[random.IntN(i+1)]
				s.Serving, s.Neighbour, o.Serving, o.Neighbour = o.Serving, o.Neighbour, s.Serving, s.Neighbour
			case "inverted":
				s.Serving, s.Neighbour = s.Neighbour, s.Serving
			case "always":
				s.Neighbour = s.Serving + 30
			case "never":
				s.Neighbour = s.Serving - 30
			case "no neighbour":
				s.Neighbour = 0
			}
		}
		t.Rides[c].Signals = list
	}
}

// ForecastOutcome is a forecast and whether the link changed its cell within the horizon.
type ForecastOutcome struct {
	Probability float64
	Handoff     bool
}

// Outcomes returns the outcomes of all forecasts that end before the journey.
func (t *Train) Outcomes() (all []ForecastOutcome) {
	hints := t.Forecasts()
	for len(hints) > 0 {
		n := slices.IndexFunc(hints, func(h Hint) bool { return h.Path != hints[0].Path })
		if n < 0 {
			n = len(hints)
		}
		link := hints[:n]
		for i, h := range link {
			o := ForecastOutcome{Probability: h.Probability}
			k := i + 1
			for ; k < n && link[k].At-h.At <= estimate.HandoffHorizon; k++ {
				o.Handoff = o.Handoff || link[k].HandedOff
			}
			if k < n {
				all = append(all, o)
			}
		}
		hints = hints[n:]
	}
	return all
}

// AreaUnderCurve returns how likely a forecast with a handoff is above one without (AUC), 0.5 if there
// are none to compare.
func AreaUnderCurve(all []ForecastOutcome) float64 {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b ForecastOutcome) int { return cmp.Compare(a.Probability, b.Probability) })
	with, ranks := 0.0, 0.0
	for i, o := range all {
		if o.Handoff {
			with++
			ranks += float64(i + 1)
		}
	}
	without := float64(len(all)) - with
	if with == 0 || without == 0 {
		return 0.5
	}
	return (ranks - with*(with+1)/2) / (with * without)
}

// ShareWithHandoff returns which share of the forecasts of a probability in [from, to) had a handoff.
func ShareWithHandoff(all []ForecastOutcome, from, to float64) float64 {
	n, with := 0.0, 0.0
	for _, o := range all {
		if o.Probability >= from && o.Probability < to {
			if n++; o.Handoff {
				with++
			}
		}
	}
	return with / max(n, 1)
}
