// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Common to both generations of PCC.
const (
	pccMinRate      = 500 * unit.Kbps // kMinSendingRate in the authors' code
	pccInFlightGain = 2.5             // maximum round trips' worth in flight (bytes_in_flight_gain there)
	pccInitialRTT   = 100 * time.Millisecond
)

// pccState is a state of PCC.
type pccState uint8

const (
	pccStarting pccState = iota // doubles while the utility grows
	pccProbing                  // pairs of intervals at rates ε above and ε below, in random order
	pccMoving                   // changes the rate in one direction while the utility grows
)

// intervalOutcome is the result of one interval.
type intervalOutcome struct {
	up      bool    // the interval with the higher rate of a pair
	rate    float64 // Mbit/s
	utility float64
}

// pcc is the common state machine. It sends monitor intervals, evaluates them and passes their
// outcomes to applyOutcomes. An interval is useful if the state needs its outcome. Between useful
// intervals others are sent at the same rate until the useful ones are complete. The authors' code
// does the same (github.com/PCCproject/PCC-Uspace; no line of it is used).
type pcc struct {
	intervals        intervalList
	random           *rand.Rand
	rate             unit.Rate // central rate of pairs
	state            pccState
	pairs            int
	epsilon          float64
	startedIntervals int    // useful intervals started in this state
	up               []bool // of each useful interval
	outcomes         []intervalOutcome
	lastOutcome      intervalOutcome // previous outcome in pccStarting and pccMoving

	// intervalRTTs returns the length of an interval in round trips.
	intervalRTTs func() float64
	// utility evaluates an interval.
	utility func(m *monitorInterval) float64
	// applyOutcomes handles the outcomes of a whole probe, or of one interval of pccMoving. It sets
	// rate and state.
	applyOutcomes func(list []intervalOutcome)
}

// newPCC returns the initial state. seed orders trials.
func newPCC(seed uint64) pcc {
	// initial window of RFC 6928
	return pcc{random: rand.New(rand.NewPCG(seed, 2)), rate: unit.RateOf(10*MSS, pccInitialRTT)}
}

// intervalsNeeded returns the number of useful intervals of the state.
func (c *pcc) intervalsNeeded() int {
	if c.state == pccProbing {
		return 2 * c.pairs
	}
	return 1
}

// OnSent implements Controller.
func (c *pcc) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	if m := c.intervals.currentInterval(); m == nil || now >= m.end {
		c.startInterval(now)
	}
	c.intervals.countSentPacket(now)
}

// startInterval starts the next interval.
func (c *pcc) startInterval(now time.Duration) {
	r, useful := c.rate, c.startedIntervals < c.intervalsNeeded() && c.intervals.smoothedRTT.valid
	if useful {
		if c.state == pccProbing {
			if c.startedIntervals%2 == 0 {
				c.up = append(c.up, c.random.IntN(2) == 0)
			} else {
				c.up = append(c.up, !c.up[c.startedIntervals-1])
			}
			by := -c.epsilon
			if c.up[c.startedIntervals] {
				by = c.epsilon
			}
			r = scaleRate(r, 1+by)
		}
		c.startedIntervals++
	}
	c.intervals.appendInterval(now, max(r, pccMinRate), c.intervalRTTs()).useful = useful
}

// OnAck implements Controller.
func (c *pcc) OnAck(a Ack) {
	c.intervals.countAckedPackets(a)
	c.evaluateIntervals(a.Now)
}

// OnLoss implements Controller.
func (c *pcc) OnLoss(l Loss) {
	c.intervals.countLostPackets(l)
	if l.PersistentCongestion {
		c.enterPCCState(l.Now, pccProbing, c.rate/2) // as in the authors' code of 2018
	}
	c.evaluateIntervals(l.Now)
}

// evaluateIntervals handles all complete intervals.
func (c *pcc) evaluateIntervals(now time.Duration) {
	for m := c.intervals.takeComplete(now); m != nil; m = c.intervals.takeComplete(now) {
		if !m.useful {
			continue
		}
		o := intervalOutcome{rate: m.sendingRate(), utility: c.utility(m)}
		if c.state == pccProbing {
			o.up = c.up[len(c.outcomes)]
		}
		c.outcomes = append(c.outcomes, o)
		if len(c.outcomes) < c.intervalsNeeded() {
			continue
		}
		if c.state != pccStarting {
			c.applyOutcomes(c.outcomes)
			c.enterPCCState(now, c.state, c.rate)
			continue
		}
		if c.lastOutcome.rate == 0 || o.utility > c.lastOutcome.utility {
			c.lastOutcome = o
			c.enterPCCState(now, pccStarting, 2*c.rate)
		} else {
			c.enterPCCState(now, pccProbing, c.rate/2)
		}
	}
}

// enterPCCState begins a state, or the same state again, with a rate. The current interval ends and
// becomes useless.
func (c *pcc) enterPCCState(now time.Duration, s pccState, r unit.Rate) {
	c.state, c.rate = s, max(r, pccMinRate)
	c.startedIntervals, c.up, c.outcomes = 0, c.up[:0], c.outcomes[:0]
	for _, m := range c.intervals.list {
		m.useful = false
	}
	if m := c.intervals.currentInterval(); m != nil && now < m.end {
		m.end = now
	}
}

// Limits implements Controller.
func (c *pcc) Limits(now time.Duration) Limits {
	r := c.rate
	if m := c.intervals.currentInterval(); m != nil && now < m.end {
		r = m.rate
	}
	w := 100 * MSS
	if c.intervals.smoothedRTT.valid {
		w = max(unit.Bytes(pccInFlightGain*float64(r.Bytes(c.intervals.smoothedRTT.value))), pccMinPackets*MSS)
	}
	return Limits{Rate: r, Window: w}
}
