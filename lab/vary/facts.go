// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// FactStep is the step of the rates of a Record.
const FactStep = 500 * time.Millisecond

// Record holds the handoffs of one carrier's link in order, and its rates in steps of FactStep. They
// are generated or measured.
type Record struct {
	Handoffs []Gap
	Rates    []unit.Rate
}

// Record returns the downlink of a ride as a record.
func (r Ride) Record() (x Record) {
	for _, h := range r.Handoffs {
		x.Handoffs = append(x.Handoffs, h.Gap)
	}
	perStep := int(FactStep / r.Down.Step)
	for i := range len(r.Down.Rates) / perStep {
		sum := 0.0
		for k := range perStep {
			at := time.Duration(i*perStep+k) * r.Down.Step
			sum += float64(r.Down.Rates[i*perStep+k]) * (1 - r.Down.lostShare(at, r.Down.Step))
		}
		x.Rates = append(x.Rates, unit.Rate(sum/float64(perStep)))
	}
	return x
}

// lostShare returns the share of a step that handoffs take.
func (p Profile) lostShare(at, step time.Duration) (share float64) {
	for _, g := range slices.Concat(p.Gaps, p.Holds) {
		if overlap := min(at+step, g.End()) - max(at, g.From); overlap > 0 {
			share += float64(overlap) / float64(step)
		}
	}
	return min(share, 1)
}

// totalTime returns how long the record lasts.
func (x Record) totalTime() time.Duration { return time.Duration(len(x.Rates)) * FactStep }

// Facts describe handoffs and what surrounds them.
type Facts struct {
	Handoffs int
	// Interval is the time for each handoff of a carrier. MedianInterval is the median time from one
	// to the next: it is less if they come in bursts.
	Interval, MedianInterval time.Duration
	MedianLength, Longest    time.Duration
	Over200ms, Over500ms     float64 // shares of handoffs that are longer
	// Coincide holds the shares of handoffs that begin within each of CoincidenceTimes of one of the
	// other carrier. Independent holds the same, of the other carrier half of the time later.
	Coincide, Independent [3]float64
	// Around holds the mean rate at each of AroundSteps from the begin of a handoff, relative to the
	// mean from 20 to 6 s before.
	Around [8]float64
	// StallInterval is the time for each stretch of at least a second without data, 0 if there is none.
	// StallsNear is the share of them within a second of a handoff.
	StallInterval time.Duration
	StallsNear    float64
}

// Positions of Facts.
var (
	CoincidenceTimes = [3]time.Duration{500 * time.Millisecond, time.Second, 3 * time.Second}
	AroundSteps      = [8]int{-6, -4, -2, -1, 0, 1, 2, 6}
)

const (
	beforeFrom, beforeTo = 40, 12 // steps before a handoff
	stallSteps           = 2
	nearHandoff          = time.Second
)

// FactsOf returns the facts of pairs of carriers, recorded at the same time.
func FactsOf(pairs [][Carriers]Record) (f Facts) {
	var lengths, intervals []time.Duration
	var total time.Duration
	var around, before [len(AroundSteps)]float64
	stalls, near := 0, 0
	for _, pair := range pairs {
		for c, x := range pair {
			other := pair[1-c]
			total += x.totalTime()
			for i, h := range x.Handoffs {
				lengths = append(lengths, h.Length)
				if i > 0 {
					intervals = append(intervals, h.From-x.Handoffs[i-1].From)
				}
				for k, limit := range CoincidenceTimes {
					if other.hasHandoffWithin(h.From, limit) {
						f.Coincide[k]++
					}
					if other.shifted().hasHandoffWithin(h.From, limit) {
						f.Independent[k]++
					}
				}
			}
			x.addRatesAround(&around, &before)
			all, some := x.countStalls()
			stalls, near = stalls+all, near+some
		}
	}
	if f.Handoffs = len(lengths); f.Handoffs == 0 {
		return f
	}
	n := float64(f.Handoffs)
	slices.Sort(lengths)
	slices.Sort(intervals)
	f.Interval = total / time.Duration(f.Handoffs)
	f.MedianLength, f.Longest = lengths[len(lengths)/2], lengths[len(lengths)-1]
	if len(intervals) > 0 {
		f.MedianInterval = intervals[len(intervals)/2]
	}
	for _, l := range lengths {
		if l > 200*time.Millisecond {
			f.Over200ms += 1 / n
		}
		if l > 500*time.Millisecond {
			f.Over500ms += 1 / n
		}
	}
	for k := range CoincidenceTimes {
		f.Coincide[k] /= n
		f.Independent[k] /= n
	}
	for k := range AroundSteps {
		f.Around[k] = around[k] / math.Max(before[k], 1)
	}
	if stalls > 0 {
		f.StallInterval, f.StallsNear = total/time.Duration(stalls), float64(near)/float64(stalls)
	}
	return f
}

// hasHandoffWithin reports whether a handoff begins within a limit of a time.
func (x Record) hasHandoffWithin(at, limit time.Duration) bool {
	return slices.ContainsFunc(x.Handoffs, func(g Gap) bool { return (g.From - at).Abs() <= limit })
}

// shifted returns the handoffs as if the record had begun in its middle.
func (x Record) shifted() (y Record) {
	length := max(x.totalTime(), FactStep)
	for _, h := range x.Handoffs {
		y.Handoffs = append(y.Handoffs, Gap{(h.From + length/2) % length, h.Length})
	}
	return y
}

// addRatesAround adds the rates at AroundSteps from each handoff, and those before it.
func (x Record) addRatesAround(around, before *[len(AroundSteps)]float64) {
	for _, h := range x.Handoffs {
		at := int(h.From / FactStep)
		if at < beforeFrom {
			continue
		}
		sum := 0.0
		for i := at - beforeFrom; i < at-beforeTo && i < len(x.Rates); i++ {
			sum += float64(x.Rates[i]) / (beforeFrom - beforeTo)
		}
		for k, step := range AroundSteps {
			if i := at + step; i < len(x.Rates) {
				around[k] += float64(x.Rates[i])
				before[k] += sum
			}
		}
	}
}

// countStalls returns how many stretches without data there are, and how many of them are near a
// handoff.
func (x Record) countStalls() (all, near int) {
	for i := 0; i < len(x.Rates); i++ {
		from := i
		for i < len(x.Rates) && x.Rates[i] == 0 {
			i++
		}
		if i-from < stallSteps {
			continue
		}
		all++
		begin, end := time.Duration(from)*FactStep-nearHandoff, time.Duration(i)*FactStep+nearHandoff
		if slices.ContainsFunc(x.Handoffs, func(g Gap) bool { return g.End() >= begin && g.From <= end }) {
			near++
		}
	}
	return all, near
}
