package cc

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// What both generations of PCC have in common.
const (
	pccLeast  = 500 * unit.Kbps // kMinSendingRate of the authors' code
	pccWindow = 2.5             // round trips' worth in flight at most (its bytes_in_flight_gain)
	pccGuess  = 100 * time.Millisecond
)

type pccState uint8

const (
	pccStart pccState = iota // doubles while the utility grows
	pccProbe                 // pairs of intervals, one at a rate ε above, one ε below, in random order
	pccMove                  // steps while the utility grows
)

// outcome is what came of one interval.
type outcome struct {
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
	v     intervals
	rnd   *rand.Rand
	rate  unit.Rate // central rate of pairs
	state pccState
	pairs int
	eps   float64
	begun int    // useful intervals of this state
	up    []bool // of those
	out   []outcome
	last  outcome // the one before, while it starts or moves

	// rtts is how many round trips an interval lasts.
	rtts func() float64
	// utility judges an interval.
	utility func(m *interval) float64
	// learn takes what came of a whole probe, or of the interval of a move, and
	// sets rate and state. The first utility that does not grow ends the start.
	learn func(list []outcome)
}

func newPCC(seed uint64) pcc {
	return pcc{rnd: rand.New(rand.NewPCG(seed, 2)), rate: unit.RateOf(10*MSS, pccGuess)} // RFC 6928's window
}

// wanted is how many useful intervals the state has.
func (c *pcc) wanted() int {
	if c.state == pccProbe {
		return 2 * c.pairs
	}
	return 1
}

// OnSent implements Controller.
func (c *pcc) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	if m := c.v.newest(); m == nil || now >= m.end {
		c.begin(now)
	}
	c.v.sent(now)
}

func (c *pcc) begin(now time.Duration) {
	r, useful := c.rate, c.begun < c.wanted() && c.v.rtt.set
	if useful {
		if c.state == pccProbe {
			if c.begun%2 == 0 {
				c.up = append(c.up, c.rnd.IntN(2) == 0)
			} else {
				c.up = append(c.up, !c.up[c.begun-1])
			}
			by := -c.eps
			if c.up[c.begun] {
				by = c.eps
			}
			r = scale(r, 1+by)
		}
		c.begun++
	}
	c.v.begin(now, max(r, pccLeast), c.rtts()).useful = useful
}

// OnAck implements Controller.
func (c *pcc) OnAck(a Ack) {
	c.v.acked(a)
	c.judge(a.Now)
}

// OnLoss implements Controller.
func (c *pcc) OnLoss(l Loss) {
	c.v.lost(l)
	if l.Timeout {
		c.enter(l.Now, pccProbe, c.rate/2) // as the code that the paper of 2018 comes with
	}
	c.judge(l.Now)
}

func (c *pcc) judge(now time.Duration) {
	for m := c.v.take(now); m != nil; m = c.v.take(now) {
		if !m.useful {
			continue
		}
		o := outcome{rate: m.throughput(), utility: c.utility(m)}
		if c.state == pccProbe {
			o.up = c.up[len(c.out)]
		}
		c.out = append(c.out, o)
		if len(c.out) < c.wanted() {
			continue
		}
		if c.state != pccStart {
			c.learn(c.out)
			c.enter(now, c.state, c.rate)
			continue
		}
		if c.last.rate == 0 || o.utility > c.last.utility {
			c.last = o
			c.enter(now, pccStart, 2*c.rate)
		} else {
			c.enter(now, pccProbe, c.rate/2)
		}
	}
}

// enter begins a state, or the same one again, at a rate, at once: what is being
// sent is of no use any more.
func (c *pcc) enter(now time.Duration, s pccState, r unit.Rate) {
	c.state, c.rate = s, max(r, pccLeast)
	c.begun, c.up, c.out = 0, c.up[:0], c.out[:0]
	for _, m := range c.v.list {
		m.useful = false
	}
	if m := c.v.newest(); m != nil && now < m.end {
		m.end = now
	}
}

// Limits implements Controller.
func (c *pcc) Limits(now time.Duration) Limits {
	r := c.rate
	if m := c.v.newest(); m != nil && now < m.end {
		r = m.rate
	}
	w := 100 * MSS
	if c.v.rtt.set {
		w = max(unit.Bytes(pccWindow*float64(r.Bytes(c.v.rtt.v))), pccPackets*MSS)
	}
	return Limits{Rate: r, Window: w}
}
