// SPDX-License-Identifier: Apache-2.0

package network

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/congestion"
	"mpbond/pbe/cc"
)

// ChosenByHop is the congestion control that mpbond uses by default: each sender of the bond
// chooses between CUBIC and BBR by what its hop shows (package link/congestion). Plain TCP uses
// CUBIC.
const ChosenByHop = "default"

// windowControl is the congestion control of one direction: a controller of package cc as Linux
// runs it.
type windowControl struct {
	controller cc.Controller
	cubic      *cc.CUBIC // nil: another controller
	saved      cc.CUBIC  // cubic before the last reduction, to undo it
	seed       uint64

	selector *congestion.Selector // nil: the controller stays

	// HyStart's train of acknowledgements (net/ipv4/tcp_cubic.c), which cc.CUBIC lacks.
	roundEnd   uint64
	roundStart time.Duration
	lastAck    time.Duration
	minDelay   time.Duration
	found      bool
}

func newWindowControl(name string, seed uint64) windowControl {
	c := windowControl{controller: cc.New(name, seed), seed: seed}
	if name == ChosenByHop {
		c.selector = &congestion.Selector{}
	}
	if c.controller == nil {
		c.controller = cc.NewCUBIC()
	}
	c.cubic, _ = c.controller.(*cc.CUBIC)
	return c
}

// reselectController gives the selector a sample, as link/tcp does after each write. It reports
// whether the controller has changed. The new one keeps the window, and begins in slow start as in
// Linux.
func (c *windowControl) reselectController(s congestion.Sample) (changed bool) {
	if c.selector == nil || !c.selector.Add(s) {
		return false
	}
	window := c.congestionLimits(s.At).Window
	c.found, c.roundEnd = false, 0
	if c.selector.Choice().Algorithm == congestion.BBR {
		b := cc.NewBBR(c.seed)
		b.SetWindow(window)
		c.controller, c.cubic = b, nil
	} else {
		c.cubic = cc.NewCUBIC()
		c.cubic.SetWindow(window)
		c.controller = c.cubic
	}
	return true
}

// pacesPackets reports whether packets are paced. Without the queueing discipline fq, Linux paces
// for BBR alone.
func (c *windowControl) pacesPackets() bool { return c.cubic == nil }

func (c *windowControl) congestionLimits(now time.Duration) cc.Limits {
	return c.controller.Limits(now)
}

func (c *windowControl) recordPacketSent(now time.Duration, inFlight unit.Bytes) {
	c.controller.OnSent(now, cc.MSS, inFlight)
}

// restartIdleWindow reduces the window after idle timeouts. BBR restarts by itself.
func (c *windowControl) restartIdleWindow(timeouts int) {
	if c.cubic != nil {
		c.cubic.RestartAfterIdle(timeouts)
	}
}

// hystartAckGap is the longest gap within a train of acknowledgements. hystartWindow is the window
// in packets below which slow start goes on.
const (
	hystartAckGap = 2 * time.Millisecond
	hystartWindow = 16
)

// applyAckSample passes an acknowledgement on. Linux grows no window while it reduces it.
func (c *windowControl) applyAckSample(a cc.Ack, reduces bool, unacked, next uint64) {
	if c.cubic == nil {
		c.controller.OnAck(a)
		return
	}
	if a.RTT > 0 && (c.minDelay == 0 || a.RTT < c.minDelay) {
		c.minDelay = a.RTT
	}
	if reduces {
		return
	}
	c.checkAckTrain(a, unacked, next)
	c.controller.OnAck(a)
}

// checkAckTrain ends slow start when acknowledgements have come close to each other for half of the
// least round trip (hystart_update).
func (c *windowControl) checkAckTrain(a cc.Ack, unacked, next uint64) {
	if !c.cubic.InSlowStart() || c.found || a.RTT == 0 {
		return
	}
	if unacked > c.roundEnd {
		c.roundEnd, c.roundStart, c.lastAck = next, a.Now, a.Now
		return
	}
	if a.Now-c.lastAck > hystartAckGap {
		return
	}
	c.lastAck = a.Now
	if a.Now-c.roundStart > (c.minDelay+time.Millisecond)/2 &&
		c.controller.Limits(a.Now).Window >= hystartWindow*cc.MSS {
		c.found = true
		c.cubic.EndSlowStart()
	}
}

// reduceWindow reacts to losses. It returns the new threshold in packets.
func (c *windowControl) reduceWindow(l cc.Loss) int {
	if c.cubic != nil {
		c.saved = *c.cubic
	}
	c.controller.OnLoss(l)
	return max(2, int(c.controller.Limits(l.Now).Window/cc.MSS))
}

// undoReduction takes the last reduction back.
func (c *windowControl) undoReduction() {
	if c.cubic != nil {
		*c.cubic = c.saved
	}
}
