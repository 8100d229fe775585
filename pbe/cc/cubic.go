// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// Specification of CUBIC: RFC 9438, sections 4.1 to 4.9; HyStart's delay
// increase as in Ha, Rhee: Hybrid Slow Start (2011) with Linux' constants
// (net/ipv4/tcp_cubic.c), since RFC 9406 has HyStart++ with other ones.
const (
	cubicC             = 0.4
	cubicBeta          = 0.7
	cubicMinWindow     = 2 * MSS
	cubicInitialWindow = 10 * MSS // RFC 6928
	hystartLowWindow   = 16       // packets; below it slow start continues
	hystartMinDelay    = 4 * time.Millisecond
	hystartMaxDelay    = 16 * time.Millisecond
	hystartSamples     = 8
)

// CUBIC is Linux's default controller, which reacts to losses.
type CUBIC struct {
	window             float64 // packets
	slowStartThreshold float64
	maxWindow          float64 // W_max
	priorWindow        float64 // window before the last loss
	k                  float64 // seconds
	epoch              time.Duration
	inEpoch            bool
	renoWindow         float64 // W_est of the Reno-friendly region
	rtt                ewma
	minRTT             time.Duration
	recoveryTime       time.Duration // losses of packets sent before it are ignored
	hasLoss            bool

	roundMinRTT time.Duration // minimum of the first samples of this round
	samples     int
}

// NewCUBIC returns a controller that starts with ten packets in slow start.
func NewCUBIC() *CUBIC {
	return &CUBIC{window: float64(cubicInitialWindow / MSS), slowStartThreshold: math.Inf(1)}
}

// SetWindow sets the congestion window of a new controller that continues a connection.
func (c *CUBIC) SetWindow(n unit.Bytes) {
	c.window = max(float64(n)/float64(MSS), float64(cubicMinWindow/MSS))
}

// OnSent implements Controller.
func (c *CUBIC) OnSent(now time.Duration, size, inFlight unit.Bytes) {}

// OnAck implements Controller.
func (c *CUBIC) OnAck(a Ack) {
	if a.RTT > 0 {
		c.rtt.addWeightedDelay(a.RTT, 0.125)
		if c.minRTT == 0 || a.RTT < c.minRTT {
			c.minRTT = a.RTT
		}
	}
	if a.Round {
		c.roundMinRTT, c.samples = 0, 0
	}
	acked := float64(a.Bytes) / float64(MSS)
	// A window that is not used does not grow (RFC 9438 section 5.8).
	if float64(a.InFlight+a.Bytes) < c.window*float64(MSS)/2 {
		c.inEpoch = false
		return
	}
	if c.window < c.slowStartThreshold {
		c.updateHystart(a)
		c.window += acked
		return
	}
	c.growInAvoidance(a.Now, acked)
}

// updateHystart ends slow start when the first RTT samples of a round have increased.
func (c *CUBIC) updateHystart(a Ack) {
	if a.RTT == 0 || c.window < hystartLowWindow || c.samples >= hystartSamples {
		return
	}
	if c.samples == 0 || a.RTT < c.roundMinRTT {
		c.roundMinRTT = a.RTT
	}
	if c.samples++; c.samples == hystartSamples {
		if c.roundMinRTT > c.minRTT+min(max(c.minRTT/8, hystartMinDelay), hystartMaxDelay) {
			c.slowStartThreshold = c.window
		}
	}
}

// growInAvoidance grows the window in congestion avoidance.
func (c *CUBIC) growInAvoidance(now time.Duration, acked float64) {
	if !c.inEpoch {
		c.inEpoch, c.epoch, c.renoWindow = true, now, c.window
		if c.window < c.maxWindow {
			c.k = math.Cbrt((c.maxWindow - c.window) / cubicC)
		} else {
			c.k, c.maxWindow = 0, c.window
		}
	}
	cubic := func(t time.Duration) float64 { return cubicC*math.Pow(t.Seconds()-c.k, 3) + c.maxWindow }
	target := min(max(cubic(now-c.epoch+c.rtt.value), c.window), 1.5*c.window) // section 4.2
	// Section 4.3: at least as fast as Reno.
	alpha := 3 * (1 - cubicBeta) / (1 + cubicBeta)
	if c.renoWindow >= c.priorWindow {
		alpha = 1
	}
	c.renoWindow += alpha * acked / c.window
	if cubic(now-c.epoch) < c.renoWindow {
		c.window = max(c.window, c.renoWindow)
		return
	}
	c.window += (target - c.window) / c.window * acked
}

// OnLoss implements Controller.
func (c *CUBIC) OnLoss(l Loss) {
	if c.hasLoss && l.Sent <= c.recoveryTime && !l.PersistentCongestion {
		return // of the same round
	}
	c.hasLoss, c.recoveryTime, c.inEpoch, c.priorWindow = true, l.Now, false, c.window
	if c.window < c.maxWindow {
		c.maxWindow = c.window * (1 + cubicBeta) / 2 // fast convergence, section 4.7
	} else {
		c.maxWindow = c.window
	}
	c.window = max(c.window*cubicBeta, float64(cubicMinWindow/MSS))
	c.slowStartThreshold = c.window
	if l.PersistentCongestion {
		// The next epoch begins with K = 0 when slow start ends (section 4.8).
		c.window, c.maxWindow = 1, 0
	}
}

// Limits implements Controller. Packets are paced as by Linux with the queueing discipline fq: at
// twice the rate of the window in slow start, and at 1.2 times the rate after it. So bursts of a
// transport do not affect comparisons.
func (c *CUBIC) Limits(time.Duration) Limits {
	l := Limits{Window: unit.Bytes(c.window * float64(MSS))}
	if c.rtt.valid {
		gain := 1.2
		if c.window < c.slowStartThreshold/2 {
			gain = 2
		}
		l.Rate = scaleRate(unit.RateOf(l.Window, c.rtt.value), gain)
	}
	return l
}

// InSlowStart reports whether the window still doubles with each round trip.
func (c *CUBIC) InSlowStart() bool { return c.window < c.slowStartThreshold }

// SlowStartThreshold returns the window in packets at which slow start ends; +Inf before it is
// known.
func (c *CUBIC) SlowStartThreshold() float64 { return c.slowStartThreshold }

// EndSlowStart ends slow start with the present window.
func (c *CUBIC) EndSlowStart() { c.slowStartThreshold = min(c.slowStartThreshold, c.window) }

// RestartAfterIdle halves the window for each retransmission timeout of an idle period, down to the
// initial window, as Linux does before it sends again (RFC 2861, tcp_cwnd_restart). Slow start then
// leads back to three quarters of the former window.
func (c *CUBIC) RestartAfterIdle(timeouts int) {
	if !c.InSlowStart() {
		c.slowStartThreshold = max(c.slowStartThreshold, c.window*3/4)
	}
	initial := min(c.window, float64(cubicInitialWindow/MSS))
	for ; timeouts > 0 && c.window > initial; timeouts-- {
		c.window /= 2
	}
	c.window, c.inEpoch = max(c.window, initial), false
}
