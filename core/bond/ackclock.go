package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

const (
	ackDelay = 10 * time.Millisecond
	ackBytes = 64 << 10
	// subflowAckDelay is within what time an ACK goes on the subflow itself that it is
	// about, if others travelled elsewhere: they may have been lost with a
	// subflow whose silence has not been noticed, or cannot be. If the TCP of a
	// direct subflow, with its queue, needs longer to tell that one arrived, it is
	// waited for up to maxSubflowAckDelay: then the far end does not take its bytes for
	// stuck yet, see silenceDetector.
	subflowAckDelay    = 200 * time.Millisecond
	maxSubflowAckDelay = 300 * time.Millisecond
)

// ackClock says when ACKs are due and by which subflow. An ACK is about all subflows: it is
// due ackDelay after the first byte that asks for one, or at ackBytes, and goes by the fastest
// subflow. Each subflow on which frames came must besides carry one itself within subflowAckDelay,
// unless the TCP of a direct subflow reports that a later ACK arrived. The clock sends
// nothing; its owner asks what is due, fills in the frame and reports that it was sent. Not
// safe for concurrent use.
type ackClock struct {
	subflows *subflowTable
	timer    *wakeTimer

	pending      bool
	pendingBytes unit.Bytes // that the next ACK is the first to cover
	dueAt        time.Time  // valid while pending
	newestByte   time.Time  // arrival of the newest byte that asks for an ACK
	ackBuffer    []wire.SubflowAck
}

// ackDebt is a subflow's part of the ackClock.
type ackDebt struct {
	// owed tells that frames came on the subflow that no ACK sent on it, or known to have
	// arrived, covers; one is due at dueAt.
	owed  bool
	dueAt time.Time
	// confirmAt is what the hop's own TCP will have had acknowledged when the ACK sent at
	// sentAt on this direct subflow has arrived; 0: none is awaited.
	confirmAt uint64
	sentAt    time.Time
	inSegment bool // the segment that is being filled has that ACK
}

// requestAck asks for an ACK soon, of n bytes more.
func (c *ackClock) requestAck(now time.Time, n unit.Bytes) {
	c.newestByte = now
	c.pendingBytes += n
	if !c.pending {
		c.pending, c.dueAt = true, now.Add(ackDelay)
		c.timer.wakeAt(c.dueAt)
	}
}

// recordFrame notes a frame of n bytes on p that asks for an ACK.
func (c *ackClock) recordFrame(p *subflow, n unit.Bytes, now time.Time) {
	c.requestAck(now, n)
	if !p.ack.owed {
		p.ack.markOwed(now)
		c.timer.wakeAt(p.ack.dueAt)
	}
}

// reacknowledge asks for ACKs again, on all subflows too: the last ones may have been lost.
func (c *ackClock) reacknowledge(now time.Time) {
	c.requestAck(now, 0)
	for _, p := range c.subflows.list {
		if p.bytesReceived > 0 {
			p.ack.markOwed(now)
		}
	}
	c.timer.wakeAt(now.Add(subflowAckDelay))
}

// markOwed lets the next ACKs not do unless one travels on the subflow itself.
func (d *ackDebt) markOwed(now time.Time) {
	if !d.owed {
		d.owed, d.dueAt = true, now.Add(subflowAckDelay)
	}
}

// isAckDue reports whether an ACK must leave now, by any subflow.
func (c *ackClock) isAckDue(now time.Time) bool {
	return c.pending && (c.pendingBytes >= ackBytes || !now.Before(c.dueAt))
}

// subflowOwingAck returns an idle subflow that must carry an ACK itself now, or nil.
func (c *ackClock) subflowOwingAck(now time.Time) *subflow {
	for _, p := range c.subflows.list {
		if p.idle && p.ack.owed && !now.Before(p.ack.dueAt) && !c.awaitsConfirmation(now) {
			return p
		}
	}
	return nil
}

// awaitsConfirmation reports whether an ACK is under way on a direct subflow whose TCP has not yet
// had the time that it needs to confirm it.
func (c *ackClock) awaitsConfirmation(now time.Time) bool {
	for _, p := range c.subflows.list {
		if p.ack.confirmAt > 0 && !p.isSilent() && now.Sub(p.ack.sentAt) < min(hopSilenceLimit(p.est.LastHop()), maxSubflowAckDelay) {
			return true
		}
	}
	return false
}

// buildAck returns the ACK of all that came, for a segment of p that is sent for sure. It is
// valid until the next call.
func (c *ackClock) buildAck(p *subflow, now time.Time) wire.Ack {
	c.pending, c.pendingBytes, p.ack.owed = false, 0, false
	c.ackBuffer = c.ackBuffer[:0]
	for _, q := range c.subflows.list[max(0, len(c.subflows.list)-wire.MaxAcks):] {
		c.ackBuffer = append(c.ackBuffer, wire.SubflowAck{Subflow: q.id, Received: q.bytesReceived})
	}
	p.ack.inSegment = !p.est.Helped && p.ack.confirmAt == 0
	return wire.Ack{Delay: now.Sub(c.newestByte), Subflows: c.ackBuffer}
}

// recordSegment notes that a segment of n bytes was given to p, which may have an ACK.
func (c *ackClock) recordSegment(p *subflow, n int, now time.Time) {
	if p.ack.inSegment {
		h := p.est.LastHop()
		p.ack.confirmAt, p.ack.sentAt, p.ack.inSegment = h.Acked+uint64(h.Queue)+uint64(n), now, false
	}
}

// confirmByHop takes note, after a sample of p's own hop, that an ACK sent on it has arrived: then
// no other subflow has to carry one itself for what came before. So the radio of a helper
// that only drains its buffer to us is not woken. What came since has time for the next one.
func (c *ackClock) confirmByHop(p *subflow, now time.Time) {
	if p.ack.confirmAt == 0 || p.est.LastHop().Acked < p.ack.confirmAt {
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

// shiftDeadlines notes that this process itself did not run for a time.
func (c *ackClock) shiftDeadlines(late time.Duration) {
	for _, p := range c.subflows.list {
		p.ack.dueAt = p.ack.dueAt.Add(late)
	}
}

// scheduleWake sets the timer to what is due next. What is overdue waits for an idle subflow.
func (c *ackClock) scheduleWake(now time.Time) {
	for _, p := range c.subflows.list {
		if p.ack.owed && p.ack.dueAt.After(now) {
			c.timer.wakeAt(p.ack.dueAt)
		}
	}
	if c.pending && c.dueAt.After(now) {
		c.timer.wakeAt(c.dueAt)
	}
}
