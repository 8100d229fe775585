package cc

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// Specification of Copa: Arun, Balakrishnan: Copa: Practical Delay-Based
// Congestion Control for the Internet, NSDI 2018, sections 2 and 3.
const (
	copaDelta     = 0.5 // default mode, 2.1
	copaRTTMin    = 10 * time.Second
	copaEmpty     = 0.1 // of RTTmax−RTTmin: a queue that is nearly empty, 2.2
	copaEmptyRTTs = 5   // without one: somebody else fills the queue
	copaMaxRTTs   = 4   // RTTmax is over so many
	copaSame      = 3   // round trips in one direction before the velocity doubles
	copaMin       = 2   // packets
)

// Copa keeps the queue at 1/δ packets of each flow. Delta 0 is the default 0.5;
// the paper's figures for bulk flows have 0.1 too.
type Copa struct {
	base     float64 // δ of the default mode
	delta    float64
	window   float64 // packets
	velocity float64
	up       bool
	same     int
	atRound  float64 // window when the round began
	slow     bool
	srtt     smooth
	standing extreme
	least    extreme
	most     extreme
	empty    time.Duration // when the queue was nearly empty last
	compete  bool
	reacted  time.Duration
	lossed   bool // in this round
}

// NewCopa has δ, 0 for the default.
func NewCopa(delta float64) *Copa {
	if delta <= 0 {
		delta = copaDelta
	}
	return &Copa{base: delta, delta: delta, window: 10, velocity: 1, up: true, slow: true, standing: extreme{less: true}, least: extreme{less: true}}
}

// OnSent implements Controller.
func (c *Copa) OnSent(now time.Duration, size, inFlight unit.Bytes) {}

// OnAck implements Controller.
func (c *Copa) OnAck(a Ack) {
	if a.RTT <= 0 {
		return
	}
	c.srtt.add(a.RTT, 0.125)
	now, rtt := int64(a.Now), int64(a.RTT)
	c.standing.add(now, rtt, int64(c.srtt.v/2))
	c.least.add(now, rtt, int64(copaRTTMin))
	c.most.add(now, rtt, int64(copaMaxRTTs*c.srtt.v))
	queue := time.Duration(c.standing.get() - c.least.get())
	// Less than a packet (ours): where one takes long, a tenth is less than can be
	// seen, and the mode would change for nothing.
	packet := time.Duration(float64(c.standing.get()) / c.window)
	if queue <= max(time.Duration(copaEmpty*float64(c.most.get()-c.least.get())), packet) || c.empty == 0 {
		c.empty = a.Now
	}
	if a.Round {
		c.round(a.Now)
	}
	acked := float64(a.Bytes) / float64(MSS)
	target := math.Inf(1)
	if queue > 0 {
		target = 1 / (c.delta * queue.Seconds())
	}
	rate := c.window / time.Duration(c.standing.get()).Seconds()
	if c.slow {
		if rate < target {
			c.window += acked // doubles in a round trip
			return
		}
		c.slow = false
	}
	if up := rate <= target; up != c.up && c.velocity > 1 {
		// A velocity made for the other direction would shoot far over the target;
		// the paper says only at the end of the window that it ends.
		c.velocity, c.same, c.up, c.atRound = 1, 0, up, c.window
	}
	step := c.velocity / (c.delta * c.window) * acked
	if rate <= target {
		c.window += step
	} else {
		c.window = max(c.window-step, copaMin)
	}
}

// round is done once in a round trip: mode and velocity.
func (c *Copa) round(now time.Duration) {
	c.compete = now-c.empty > copaEmptyRTTs*c.srtt.v
	if !c.compete {
		c.delta = c.base
	} else if !c.lossed {
		c.delta = 1 / (1/c.delta + 1) // additive increase of 1/δ
	}
	c.lossed = false
	up := c.window > c.atRound
	if up == c.up && c.window != c.atRound {
		if c.same++; c.same >= copaSame {
			c.velocity *= 2
		}
	} else {
		c.velocity, c.same, c.up = 1, 0, up
	}
	// More than twice the window within a round trip would be no probing.
	c.velocity = min(c.velocity, max(1, c.window*c.delta))
	c.atRound = c.window
}

// OnLoss implements Controller: losses matter where others fill the queue (2.2).
func (c *Copa) OnLoss(l Loss) {
	if l.Timeout {
		c.window, c.velocity, c.slow = copaMin, 1, false
		return
	}
	if l.Sent <= c.reacted {
		return
	}
	c.reacted, c.lossed = l.Now, true
	if c.compete {
		c.delta = min(2*c.delta, c.base)
	}
}

// Limits implements Controller: paced at twice the rate (2.1).
func (c *Copa) Limits(time.Duration) Limits {
	l := Limits{Window: unit.Bytes(c.window * float64(MSS))}
	if !c.standing.empty() {
		l.Rate = 2 * unit.RateOf(l.Window, time.Duration(c.standing.get()))
	}
	return l
}
