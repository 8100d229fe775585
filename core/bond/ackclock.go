// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

const (
	ackDelay = 10 * time.Millisecond
	ackBytes = 64 << 10
	// If other ACKs travelled elsewhere, each subflow must carry an ACK itself within
	// subflowAckDelay: the others may be lost with a subflow whose silence is not detected yet, or
	// cannot be. The TCP of a direct subflow, with its queue, may need longer to confirm that one
	// arrived. The clock waits for that up to maxSubflowAckDelay, before the far end takes the
	// bytes of the subflow for stalled; see silenceDetector.
	subflowAckDelay    = 200 * time.Millisecond
	maxSubflowAckDelay = 300 * time.Millisecond
)

// ackClock decides when ACKs are due and on which subflow. One ACK covers all subflows, or the
// newest wire.MaxAcks of them. It is due ackDelay after the first byte that needs one, or at
// ackBytes, on the fastest subflow. Besides, each subflow that received frames must carry an ACK
// within subflowAckDelay, unless the TCP of a direct subflow confirms that a later ACK arrived. The
// clock sends nothing: its owner asks what is due, builds the frame and records that it was sent.
// Not safe for concurrent use.
type ackClock struct {
	subflows *subflowTable
	timer    *wakeTimer

	pending      bool
	pendingBytes unit.Bytes // bytes that no ACK covers yet
	dueAt        time.Time  // valid while pending
	newestByteAt time.Time  // arrival of the newest byte that needs an ACK
	ackBuffer    []wire.SubflowAck
}

// ackDebt is the state of one subflow in the ackClock.
type ackDebt struct {
	// owed reports that frames arrived on the subflow that are not covered by an ACK sent on it or
	// known to have arrived. That ACK is due at dueAt.
	owed  bool
	dueAt time.Time
	// The ACK sent at sentAt on this direct subflow has arrived once the hop's own TCP has had
	// confirmAt bytes acknowledged; 0: none is awaited.
	confirmAt uint64
	sentAt    time.Time
	inSegment bool // the segment being filled holds that ACK
}

// requestAck asks for an ACK of n more bytes within ackDelay.
func (c *ackClock) requestAck(now time.Time, n unit.Bytes) {
	c.newestByteAt = now
	c.pendingBytes += n
	if !c.pending {
		c.pending, c.dueAt = true, now.Add(ackDelay)
		c.timer.requestWakeAt(c.dueAt)
	}
}

// recordArrivedFrame records the arrival of a frame of n bytes on p that needs an ACK.
func (c *ackClock) recordArrivedFrame(p *subflow, n unit.Bytes, now time.Time) {
	c.requestAck(now, n)
	if !p.ack.owed {
		p.ack.markAckOwed(now)
		c.timer.requestWakeAt(p.ack.dueAt)
	}
}

// reacknowledge asks for new ACKs, also on each subflow: the last ones may have been lost.
func (c *ackClock) reacknowledge(now time.Time) {
	c.requestAck(now, 0)
	for _, p := range c.subflows.list {
		if p.bytesReceived > 0 {
			p.ack.markAckOwed(now)
		}
	}
	c.timer.requestWakeAt(now.Add(subflowAckDelay))
}

// markAckOwed demands that the subflow itself carry an ACK.
func (d *ackDebt) markAckOwed(now time.Time) {
	if !d.owed {
		d.owed, d.dueAt = true, now.Add(subflowAckDelay)
	}
}

// isSharedAckDue reports whether an ACK of all subflows is due now, on the fastest idle one. It
// does not count ACKs that one subflow must carry itself: see subflowOwingAck.
func (c *ackClock) isSharedAckDue(now time.Time) bool {
	return c.pending && (c.pendingBytes >= ackBytes || !now.Before(c.dueAt))
}

// subflowOwingAck returns an idle subflow that must carry an ACK now, or nil.
func (c *ackClock) subflowOwingAck(now time.Time) *subflow {
	for _, p := range c.subflows.list {
		if p.idle && p.ack.owed && !now.Before(p.ack.dueAt) && !c.awaitsConfirmation(now) {
			return p
		}
	}
	return nil
}

// awaitsConfirmation reports whether an ACK is in flight on a direct subflow whose TCP may still
// confirm it in time.
func (c *ackClock) awaitsConfirmation(now time.Time) bool {
	for _, p := range c.subflows.list {
		if p.ack.confirmAt > 0 && !p.isSilent() && now.Sub(p.ack.sentAt) < min(hopSilenceLimit(p.est.LocalHop()),
			maxSubflowAckDelay) {
			return true
		}
	}
	return false
}

// buildAckFrame returns the ACK of everything received, for a segment of p that will be sent. It is
// valid until the next call.
func (c *ackClock) buildAckFrame(p *subflow, now time.Time) wire.Ack {
	c.pending, c.pendingBytes, p.ack.owed = false, 0, false
	c.ackBuffer = c.ackBuffer[:0]
	for _, q := range c.subflows.list[max(0, len(c.subflows.list)-wire.MaxAcks):] {
		c.ackBuffer = append(c.ackBuffer, wire.SubflowAck{Subflow: q.id, Received: q.bytesReceived})
	}
	p.ack.inSegment = !p.est.Helped && p.ack.confirmAt == 0
	return wire.Ack{Delay: now.Sub(c.newestByteAt), Subflows: c.ackBuffer}
}

// recordAckInSegment records that p was given a segment of n bytes, which may hold an ACK.
func (c *ackClock) recordAckInSegment(p *subflow, n int, now time.Time) {
	if p.ack.inSegment {
		h := p.est.LocalHop()
		p.ack.confirmAt, p.ack.sentAt, p.ack.inSegment = h.Acked+uint64(h.Queue)+uint64(n), now, false
	}
}

// confirmByHop checks, after a sample of p's local hop, whether an ACK sent on it has arrived. If
// so, no other subflow needs to carry an ACK for earlier frames, and the radio of a helper that
// only drains its buffer to us sleeps on. The deadline for later frames moves to the next ACK.
func (c *ackClock) confirmByHop(p *subflow, now time.Time) {
	if p.ack.confirmAt == 0 || p.est.LocalHop().Acked < p.ack.confirmAt {
		return
	}
	p.ack.confirmAt = 0
	for _, q := range c.subflows.list {
		d := &q.ack
		if !d.owed {
			continue
		}
		if !d.dueAt.Add(-subflowAckDelay).After(p.ack.sentAt) {
			d.owed = false
		} else if next := now.Add(subflowAckDelay); d.dueAt.Before(next) {
			d.dueAt = next
		}
	}
}

// shiftSubflowDeadlines moves the deadlines of subflows by a pause of this process.
func (c *ackClock) shiftSubflowDeadlines(late time.Duration) {
	for _, p := range c.subflows.list {
		p.ack.dueAt = p.ack.dueAt.Add(late)
	}
}

// scheduleNextAck sets the timer to the next deadline. An overdue ACK waits for an idle subflow.
func (c *ackClock) scheduleNextAck(now time.Time) {
	for _, p := range c.subflows.list {
		if p.ack.owed && p.ack.dueAt.After(now) {
			c.timer.requestWakeAt(p.ack.dueAt)
		}
	}
	if c.pending && c.dueAt.After(now) {
		c.timer.requestWakeAt(c.dueAt)
	}
}
