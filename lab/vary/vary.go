// SPDX-License-Identifier: Apache-2.0

// Package vary generates links that vary as mobile ones do: LTE rates over time, a WLAN between
// walking people, handoffs, and journeys past masts. It also reads recorded links. A Profile becomes
// a schedule and outages of a link in the lab, or the rates of a cell.
//
//	LTE, WLAN (+ Handoffs), Travel.Rides ───┐
//	ReadMahimahi, ReadPerSecond, ReadTimed ─┴─▶ Profile ─▶ schedule, outages of a lab.LinkDir
//
// The package is pure: a random generator in the same state gives the same profile. MaxLength
// bounds memory.
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

// MaxLength bounds the time of a profile. Longer profiles are cut.
const MaxLength = time.Hour

// Step is the step of generated profiles.
const Step = 100 * time.Millisecond

// Profile describes how a link varies from time zero on.
type Profile struct {
	Step  time.Duration
	Rates []unit.Rate // of IP bytes; each holds for Step, the last one for ever
	// Handoffs, in order. Neither Gaps nor Holds overlap: in Gaps all packets are lost, in Holds the
	// link carries nothing and keeps its queue.
	Gaps, Holds []Gap
}

// Gap is a time in which a link carries nothing, as in a handoff.
type Gap struct{ From, Length time.Duration }

// End returns when the gap ends.
func (g Gap) End() time.Duration { return g.From + g.Length }

// Rand returns the random generator of a name under a seed. Links with different names do not
// depend on each other, nor on the order in which they are generated.
func Rand(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Mean returns the mean rate of the first length. It ignores gaps.
func (p Profile) Mean(length time.Duration) unit.Rate {
	n := min(len(p.Rates), countTimeSteps(length, p.Step))
	if n == 0 {
		return 0
	}
	sum := 0.0
	for _, r := range p.Rates[:n] {
		sum += float64(r)
	}
	return unit.Rate(sum / float64(n))
}

// Clipped returns the profile with rates limited to most.
func (p Profile) Clipped(most unit.Rate) Profile {
	p.Rates = slices.Clone(p.Rates)
	for i := range p.Rates {
		p.Rates[i] = min(p.Rates[i], most)
	}
	return p
}

// Rotated returns a profile of the given length that begins at step from and repeats. It has no
// gaps.
func (p Profile) Rotated(from int, length time.Duration) Profile {
	all := make([]unit.Rate, countTimeSteps(length, p.Step))
	for i := range all {
		all[i] = p.Rates[(from+i)%len(p.Rates)]
	}
	return Profile{Step: p.Step, Rates: all}
}

// Downsampled returns the profile in steps of n times its own, with their mean rates. It has no
// gaps. An incomplete step at the end is dropped.
func (p Profile) Downsampled(n int) Profile {
	all := Profile{Step: time.Duration(n) * p.Step}
	for i := range len(p.Rates) / n {
		part := Profile{Step: p.Step, Rates: p.Rates[i*n : (i+1)*n]}
		all.Rates = append(all.Rates, part.Mean(all.Step))
	}
	return all
}

// Scaled returns the profile with all rates multiplied by one factor, so that their mean is the
// given one. A profile of zeros stays as it is.
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

// After a handoff, each direction has handoffExtraDelay for handoffExtraTime while routes in the
// network settle: 40 ms of round trip for 1 s. This is an assumption, as are the values of
// Handoffs.
const (
	handoffExtraDelay = 20 * time.Millisecond
	handoffExtraTime  = time.Second
)

// Schedule returns the profile as the Schedule of a lab.LinkDir with a one-way delay: its rates,
// which are 0 in holds, and the delays after handoffs.
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
		at := time.Duration(i) * p.Step
		if (i == 0 || r != p.Rates[i-1]) && !isWithinGap(p.Holds, at) {
			add(at, "rate %d", int64(r))
		}
	}
	for _, h := range p.Holds {
		if len(p.Rates) == 0 {
			break // the rate after it is not known
		}
		add(h.From, "rate %d", 0)
		add(h.End(), "rate %d", int64(p.Rates[min(int(h.End()/p.Step), len(p.Rates)-1)]))
	}
	handoffs := slices.Concat(p.Gaps, p.Holds)
	slices.SortFunc(handoffs, func(a, b Gap) int { return cmp.Compare(a.From, b.From) })
	for i, g := range handoffs {
		add(g.End(), "delay %v", delay+handoffExtraDelay)
		if i+1 == len(handoffs) || handoffs[i+1].End() > g.End()+handoffExtraTime {
			add(g.End()+handoffExtraTime, "delay %v", delay)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	for _, c := range all {
		changes = append(changes, c.text)
	}
	return changes
}

// isWithinGap reports whether a time is within a gap, its end excluded.
func isWithinGap(gaps []Gap, at time.Duration) bool {
	return slices.ContainsFunc(gaps, func(g Gap) bool { return g.From <= at && at < g.End() })
}

// Outages returns the gaps as the Outages of a lab.LinkDir.
func (p Profile) Outages() (all []string) {
	for _, g := range p.Gaps {
		all = append(all, fmt.Sprintf("%v+%v", g.From, g.Length))
	}
	return all
}

// countTimeSteps returns the number of steps in a time, rounded up.
func countTimeSteps(length, step time.Duration) int {
	if step <= 0 || length <= 0 {
		return 0
	}
	return int((min(length, MaxLength) + step - 1) / step)
}

// drawExponential draws an exponentially distributed time.
func drawExponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(mean))
}

// Handoffs between base stations at 280 to 310 km/h. The time from the end of one to the next is
// Exp(handoffInterval). The share handoffFailureShare fails and takes U(handoffFailureMin,
// handoffFailureMax). The others take LogNormal with median handoffMedian and handoffSigma. These
// values are assumptions, guided by Li et al., "A Measurement Study on Multi-path TCP with Multiple
// Cellular Carriers on High Speed Rails", SIGCOMM 2018.
const (
	handoffInterval     = 11 * time.Second
	handoffFailureShare = 0.12
	handoffFailureMin   = 1500 * time.Millisecond
	handoffFailureMax   = 6 * time.Second
	handoffMedian       = 150 * time.Millisecond
	handoffSigma        = 0.8
)

// Handoffs draws the gaps of a time.
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
