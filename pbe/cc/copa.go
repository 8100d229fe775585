// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// Specification of Copa: Arun, Balakrishnan: Copa: Practical Delay-Based
// Congestion Control for the Internet, NSDI 2018, sections 2 and 3.
const (
	copaDelta        = 0.5 // default mode, 2.1
	copaMinRTTWindow = 10 * time.Second
	copaEmptyShare   = 0.1 // share of RTTmax−RTTmin; below it the queue counts as nearly empty, 2.2
	copaEmptyRTTs    = 5   // round trips without a nearly empty queue show competing flows
	copaMaxRTTs      = 4   // round trips over which RTTmax is taken
	copaSameRTTs     = 3   // round trips in one direction before the velocity doubles
	copaMinWindow    = 2   // packets
)

// Copa keeps about 1/δ packets of each flow in the queue.
type Copa struct {
	baseDelta     float64 // δ of the default mode
	delta         float64
	window        float64 // packets
	velocity      float64
	up            bool
	sameDirection int
	roundWindow   float64 // window at the beginning of the round
	slowStart     bool
	srtt          ewma
	standingRTT   windowedExtreme
	minRTT        windowedExtreme
	maxRTT        windowedExtreme
	emptyTime     time.Duration // when the queue was last nearly empty
	competing     bool
	reactionTime  time.Duration
	lostInRound   bool // a packet was lost in this round
}

// NewCopa returns a controller with that δ. Zero selects the default, 0.5; the paper also evaluates
// bulk flows with 0.1.
func NewCopa(delta float64) *Copa {
	if delta <= 0 {
		delta = copaDelta
	}
	least := windowedExtreme{keepsLeast: true}
	return &Copa{
		baseDelta: delta, delta: delta, window: 10, velocity: 1, up: true, slowStart: true,
		standingRTT: least, minRTT: least,
	}
}

// OnSent implements Controller.
func (c *Copa) OnSent(now time.Duration, size, inFlight unit.Bytes) {}

// OnAck implements Controller.
func (c *Copa) OnAck(a Ack) {
	if a.RTT <= 0 {
		return
	}
	c.srtt.addWeightedDelay(a.RTT, 0.125)
	now, rtt := int64(a.Now), int64(a.RTT)
	c.standingRTT.addSampleAt(now, rtt, int64(c.srtt.value/2))
	c.minRTT.addSampleAt(now, rtt, int64(copaMinRTTWindow))
	c.maxRTT.addSampleAt(now, rtt, int64(copaMaxRTTs*c.srtt.value))
	queue := time.Duration(c.standingRTT.extremeValue() - c.minRTT.extremeValue())
	// Our change: a queue below one packet also counts as nearly empty. On slow links a tenth of
	// the range is too short to measure, and the mode would change at random.
	packet := time.Duration(float64(c.standingRTT.extremeValue()) / c.window)
	if queue <= max(time.Duration(copaEmptyShare*float64(c.maxRTT.extremeValue()-c.minRTT.extremeValue())), packet) ||
		c.emptyTime == 0 {
		c.emptyTime = a.Now
	}
	if a.Round {
		c.updateRound(a.Now)
	}
	acked := float64(a.Bytes) / float64(MSS)
	target := math.Inf(1)
	if queue > 0 {
		target = 1 / (c.delta * queue.Seconds())
	}
	rate := c.window / time.Duration(c.standingRTT.extremeValue()).Seconds()
	if c.slowStart {
		if rate < target {
			c.window += acked // doubles each round trip
			return
		}
		c.slowStart = false
	}
	if up := rate <= target; up != c.up && c.velocity > 1 {
		// A velocity gained in the other direction would overshoot the target. The paper resets it
		// only at the end of the window.
		c.velocity, c.sameDirection, c.up, c.roundWindow = 1, 0, up, c.window
	}
	step := c.velocity / (c.delta * c.window) * acked
	if rate <= target {
		c.window += step
	} else {
		c.window = max(c.window-step, copaMinWindow)
	}
}

// updateRound updates mode and velocity once each round trip.
func (c *Copa) updateRound(now time.Duration) {
	c.competing = now-c.emptyTime > copaEmptyRTTs*c.srtt.value
	if !c.competing {
		c.delta = c.baseDelta
	} else if !c.lostInRound {
		c.delta = 1 / (1/c.delta + 1) // additive increase of 1/δ
	}
	c.lostInRound = false
	up := c.window > c.roundWindow
	if up == c.up && c.window != c.roundWindow {
		if c.sameDirection++; c.sameDirection >= copaSameRTTs {
			c.velocity *= 2
		}
	} else {
		c.velocity, c.sameDirection, c.up = 1, 0, up
	}
	// More than twice the window in a round trip would not be probing.
	c.velocity = min(c.velocity, max(1, c.window*c.delta))
	c.roundWindow = c.window
}

// OnLoss implements Controller. Losses count when other flows fill the queue (2.2).
func (c *Copa) OnLoss(l Loss) {
	if l.PersistentCongestion {
		c.window, c.velocity, c.slowStart = copaMinWindow, 1, false
		return
	}
	if l.Sent <= c.reactionTime {
		return
	}
	c.reactionTime, c.lostInRound = l.Now, true
	if c.competing {
		c.delta = min(2*c.delta, c.baseDelta)
	}
}

// Limits implements Controller. Packets are paced at twice the rate (2.1).
func (c *Copa) Limits(time.Duration) Limits {
	l := Limits{Window: unit.Bytes(c.window * float64(MSS))}
	if !c.standingRTT.hasNoSamples() {
		l.Rate = 2 * unit.RateOf(l.Window, time.Duration(c.standingRTT.extremeValue()))
	}
	return l
}
