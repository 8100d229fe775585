package cc

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// What both generations of PCC have in common.
const (
	pccMinRate      = 500 * unit.Kbps // kMinSendingRate of the authors' code
	pccInFlightGain = 2.5             // round trips' worth in flight at most (its bytes_in_flight_gain)
	pccInitialRTT   = 100 * time.Millisecond
)

type pccState uint8

const (
	pccStarting pccState = iota // doubles while the utility grows
	pccProbing                  // pairs of intervals, one at a rate ε above, one ε below, in random order
	pccMoving                   // steps while the utility grows
)

// intervalOutcome is what came of one interval.
type intervalOutcome struct {
	up      bool    // of a pair: the one above
	rate    float64 // Mbit/s
	utility float64
}

// pcc is the machine: it sends monitor intervals, judges them, and hands what
// came of them to who learns from it. An interval is useful if the state waits for
// it; between useful ones go others at the same rate, until these are judged (as
// in the authors' code, github.com/PCCproject/PCC-Uspace, of which no line is
// here).
type pcc struct {
	intervals        intervalList
	random           *rand.Rand
	rate             unit.Rate // central rate of pairs
	state            pccState
	pairs            int
	epsilon          float64
	startedIntervals int    // useful intervals of this state
	up               []bool // of those
	outcomes         []intervalOutcome
	lastOutcome      intervalOutcome // the one before, while it starts or moves

	// intervalRTTs is how many round trips an interval lasts.
	intervalRTTs func() float64
	// utility judges an interval.
	utility func(m *monitorInterval) float64
	// applyOutcomes takes what came of a whole probe, or of the interval of a move, and
	// sets rate and state. The first utility that does not grow ends the start.
	applyOutcomes func(list []intervalOutcome)
}

func newPCC(seed uint64) pcc {
	return pcc{random: rand.New(rand.NewPCG(seed, 2)), rate: unit.RateOf(10*MSS, pccInitialRTT)} // RFC 6928's window
}

// intervalsNeeded is how many useful intervals the state has.
func (c *pcc) intervalsNeeded() int {
	if c.state == pccProbing {
		return 2 * c.pairs
	}
	return 1
}

// OnSent implements Controller.
func (c *pcc) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	if m := c.intervals.current(); m == nil || now >= m.end {
		c.startInterval(now)
	}
	c.intervals.onSent(now)
}

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
	c.intervals.start(now, max(r, pccMinRate), c.intervalRTTs()).useful = useful
}

// OnAck implements Controller.
func (c *pcc) OnAck(a Ack) {
	c.intervals.onAcked(a)
	c.evaluateIntervals(a.Now)
}

// OnLoss implements Controller.
func (c *pcc) OnLoss(l Loss) {
	c.intervals.onLost(l)
	if l.Timeout {
		c.enterState(l.Now, pccProbing, c.rate/2) // as the code that the paper of 2018 comes with
	}
	c.evaluateIntervals(l.Now)
}

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
			c.enterState(now, c.state, c.rate)
			continue
		}
		if c.lastOutcome.rate == 0 || o.utility > c.lastOutcome.utility {
			c.lastOutcome = o
			c.enterState(now, pccStarting, 2*c.rate)
		} else {
			c.enterState(now, pccProbing, c.rate/2)
		}
	}
}

// enterState begins a state, or the same one again, at a rate, at once: what is being
// sent is of no use any more.
func (c *pcc) enterState(now time.Duration, s pccState, r unit.Rate) {
	c.state, c.rate = s, max(r, pccMinRate)
	c.startedIntervals, c.up, c.outcomes = 0, c.up[:0], c.outcomes[:0]
	for _, m := range c.intervals.list {
		m.useful = false
	}
	if m := c.intervals.current(); m != nil && now < m.end {
		m.end = now
	}
}

// Limits implements Controller.
func (c *pcc) Limits(now time.Duration) Limits {
	r := c.rate
	if m := c.intervals.current(); m != nil && now < m.end {
		r = m.rate
	}
	w := 100 * MSS
	if c.intervals.smoothedRTT.valid {
		w = max(unit.Bytes(pccInFlightGain*float64(r.Bytes(c.intervals.smoothedRTT.value))), pccMinPackets*MSS)
	}
	return Limits{Rate: r, Window: w}
}
