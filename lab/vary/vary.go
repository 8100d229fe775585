// Package vary makes links that vary as mobile ones do: rates of LTE over time, of
// a WLAN between people who walk, handoffs; and it reads recorded ones. It stands
// before the lab: a Profile becomes a schedule and outages of one of its links.
//
//	LTE, WLAN (+ Handoffs) ─┐
//	Mahimahi, ReadPerSecond ────┴─▶ Profile ─▶ schedule, outages of a lab.LinkSettings
//
// All is pure: the same generator of random numbers, in the same state, gives the
// same profile. Memory is bounded by Longest.
package vary

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"mpbond/base/unit"
)

// MaxLength is the most time that a profile spans: longer ones are cut.
const MaxLength = time.Hour

// Step is that of generated profiles.
const Step = 100 * time.Millisecond

// Profile is how a link varies from a time zero on.
type Profile struct {
	Step  time.Duration
	Rates []unit.Rate // of IP bytes; each holds for Step, the last one for ever
	Gaps  []Gap       // in order, none within another
}

// Gap is a time in which all that is sent is lost, as in a handoff.
type Gap struct{ From, Length time.Duration }

// Rand is the random numbers of a name under a seed: links that have names of
// their own do not depend on each other, nor on the order in which they are made.
func Rand(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Mean is the mean rate of the first length, gaps counted as if all passed.
func (p Profile) Mean(length time.Duration) unit.Rate {
	n := min(len(p.Rates), stepCount(length, p.Step))
	if n == 0 {
		return 0
	}
	sum := 0.0
	for _, r := range p.Rates[:n] {
		sum += float64(r)
	}
	return unit.Rate(sum / float64(n))
}

// Clipped returns the profile with rates above most taken as most.
func (p Profile) Clipped(most unit.Rate) Profile {
	p.Rates = slices.Clone(p.Rates)
	for i := range p.Rates {
		p.Rates[i] = min(p.Rates[i], most)
	}
	return p
}

// Rotated returns so many steps' time of the profile, without gaps, from a step on: after
// its end it begins again.
func (p Profile) Rotated(from int, length time.Duration) Profile {
	all := make([]unit.Rate, stepCount(length, p.Step))
	for i := range all {
		all[i] = p.Rates[(from+i)%len(p.Rates)]
	}
	return Profile{Step: p.Step, Rates: all}
}

// Downsampled returns the profile in steps of n of its own, with their mean rates, without
// gaps. What is left over at its end is left out.
func (p Profile) Downsampled(n int) Profile {
	all := Profile{Step: time.Duration(n) * p.Step}
	for i := range len(p.Rates) / n {
		part := Profile{Step: p.Step, Rates: p.Rates[i*n : (i+1)*n]}
		all.Rates = append(all.Rates, part.Mean(all.Step))
	}
	return all
}

// Scaled returns the profile with all rates changed by one factor, to a mean; one
// without any stays as it is.
func (p Profile) Scaled(mean unit.Rate) Profile {
	now := p.Mean(MaxLength)
	p.Rates = slices.Clone(p.Rates)
	for i, r := range p.Rates {
		if now > 0 {
			p.Rates[i] = unit.Rate(float64(r) / float64(now) * float64(mean))
		}
	}
	return p
}

// After a handoff, until the routes inside the network have settled, each way
// takes handoffExtraDelay longer for handoffExtraTime: 40 ms of round trip for 1 s, an assumption as
// those of Handoffs.
const (
	handoffExtraDelay = 20 * time.Millisecond
	handoffExtraTime  = time.Second
)

// Schedule is the profile as a lab.LinkSettings's Schedule, of a link with a one-way
// delay: its rates, and the delays after gaps.
func (p Profile) Schedule(delay time.Duration) (changes []string) {
	type change struct {
		at   time.Duration
		text string
	}
	var all []change
	add := func(at time.Duration, format string, v any) {
		all = append(all, change{at, fmt.Sprintf("at %v: "+format, at, v)})
	}
	for i, r := range p.Rates {
		if i == 0 || r != p.Rates[i-1] {
			add(time.Duration(i)*p.Step, "rate %d", int64(r))
		}
	}
	for i, g := range p.Gaps {
		end := g.From + g.Length
		add(end, "delay %v", delay+handoffExtraDelay)
		if i+1 == len(p.Gaps) || p.Gaps[i+1].From+p.Gaps[i+1].Length > end+handoffExtraTime {
			add(end+handoffExtraTime, "delay %v", delay)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	for _, c := range all {
		changes = append(changes, c.text)
	}
	return changes
}

// Outages are the gaps as a lab.LinkSettings's Outages.
func (p Profile) Outages() (all []string) {
	for _, g := range p.Gaps {
		all = append(all, fmt.Sprintf("%v+%v", g.From, g.Length))
	}
	return all
}

// stepCount is how many steps of a length there are in a time, a part counted whole.
func stepCount(length, step time.Duration) int {
	if step <= 0 || length <= 0 {
		return 0
	}
	return int((min(length, MaxLength) + step - 1) / step)
}

// drawExponential is a random time of a mean.
func drawExponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(mean))
}

// Handoffs between base stations, at 280 to 310 km/h: from the end of one to the
// next Exp(handoffInterval); of them handoffFailureShare fail and take U(handoffFailureMin,
// handoffFailureMax), the others LogNormal with median handoffMedian and handoffSigma.
// Assumptions, for what Li et al. measured ("A Measurement Study on Multi-path TCP
// with Multiple Cellular Carriers on High Speed Rails", SIGCOMM 2018).
const (
	handoffInterval     = 11 * time.Second
	handoffFailureShare = 0.12
	handoffFailureMin   = 1500 * time.Millisecond
	handoffFailureMax   = 6 * time.Second
	handoffMedian       = 150 * time.Millisecond
	handoffSigma        = 0.8
)

// Handoffs are the gaps of a time.
func Handoffs(rng *rand.Rand, length time.Duration) (all []Gap) {
	length = min(length, MaxLength)
	for at := drawExponential(rng, handoffInterval); at < length; at += drawExponential(rng, handoffInterval) {
		took := time.Duration(float64(handoffMedian) * math.Exp(handoffSigma*rng.NormFloat64()))
		if rng.Float64() < handoffFailureShare {
			took = handoffFailureMin + time.Duration(rng.Float64()*float64(handoffFailureMax-handoffFailureMin))
		}
		at, took = at.Truncate(time.Millisecond), max(took.Truncate(time.Millisecond), time.Millisecond)
		all = append(all, Gap{at, took})
		at += took
	}
	return all
}
