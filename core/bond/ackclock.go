package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

const (
	ackDelay = 10 * time.Millisecond
	ackBytes = 64 << 10
	// ackOwn is within what time an ACK goes on the subflow itself that it is
	// about, if others travelled elsewhere: they may have been lost with a
	// subflow whose silence has not been noticed, or cannot be. If the TCP of a
	// direct subflow, with its queue, needs longer to tell that one arrived, it is
	// waited for up to ackOwnMost: then the far end does not take its bytes for
	// stuck yet, see silenceDetector.
	ackOwn     = 200 * time.Millisecond
	ackOwnMost = 300 * time.Millisecond
)

// ackClock says when ACKs are due and by which subflow. An ACK is about all subflows: it is
// due ackDelay after the first byte that asks for one, or at ackBytes, and goes by the fastest
// subflow. Each subflow on which frames came must besides carry one itself within ackOwn,
// unless the TCP of a direct subflow reports that a later ACK arrived. The clock sends
// nothing; its owner asks what is due, fills in the frame and reports that it was sent. Not
// safe for concurrent use.
type ackClock struct {
	subflows *subflowTable
	timer    *wakeTimer

	pending    bool
	size       unit.Bytes // that the next ACK is the first to cover
	dueAt      time.Time  // valid while pending
	newestByte time.Time  // arrival of the newest byte that asks for an ACK
	view       []wire.PathAck
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
	filling   bool // the segment that is being filled has that ACK
}

// want asks for an ACK soon, of n bytes more.
func (c *ackClock) want(now time.Time, n unit.Bytes) {
	c.newestByte = now
	c.size += n
	if !c.pending {
		c.pending, c.dueAt = true, now.Add(ackDelay)
		c.timer.wakeAt(c.dueAt)
	}
}

// received notes a frame of n bytes on p that asks for an ACK.
func (c *ackClock) received(p *subflow, n unit.Bytes, now time.Time) {
	c.want(now, n)
	if !p.ack.owed {
		p.ack.owe(now)
		c.timer.wakeAt(p.ack.dueAt)
	}
}

// subflowLost asks for ACKs again, on all subflows too: the last ones may have been lost.
func (c *ackClock) subflowLost(now time.Time) {
	c.want(now, 0)
	for _, p := range c.subflows.list {
		if p.bytesReceived > 0 {
			p.ack.owe(now)
		}
	}
	c.timer.wakeAt(now.Add(ackOwn))
}

// owe lets the next ACKs not do unless one travels on the subflow itself.
func (d *ackDebt) owe(now time.Time) {
	if !d.owed {
		d.owed, d.dueAt = true, now.Add(ackOwn)
	}
}

// due reports whether an ACK must leave now, by any subflow.
func (c *ackClock) due(now time.Time) bool {
	return c.pending && (c.size >= ackBytes || !now.Before(c.dueAt))
}

// dueOn returns an idle subflow that must carry an ACK itself now, or nil.
func (c *ackClock) dueOn(now time.Time) *subflow {
	for _, p := range c.subflows.list {
		if p.idle && p.ack.owed && !now.Before(p.ack.dueAt) && !c.awaitsConfirm(now) {
			return p
		}
	}
	return nil
}

// awaitsConfirm reports whether an ACK is under way on a direct subflow whose TCP has not yet
// had the time that it needs to confirm it.
func (c *ackClock) awaitsConfirm(now time.Time) bool {
	for _, p := range c.subflows.list {
		if p.ack.confirmAt > 0 && !p.silent() && now.Sub(p.ack.sentAt) < min(hopSilence(p.est.Hop()), ackOwnMost) {
			return true
		}
	}
	return false
}

// frame returns the ACK of all that came, for a segment of p that is sent for sure. It is
// valid until the next call.
func (c *ackClock) frame(p *subflow, now time.Time) wire.Ack {
	c.pending, c.size, p.ack.owed = false, 0, false
	c.view = c.view[:0]
	for _, q := range c.subflows.list[max(0, len(c.subflows.list)-wire.MaxAcks):] {
		c.view = append(c.view, wire.PathAck{Path: q.id, Received: q.bytesReceived})
	}
	p.ack.filling = !p.est.Helped && p.ack.confirmAt == 0
	return wire.Ack{Delay: now.Sub(c.newestByte), Paths: c.view}
}

// sent notes that a segment of n bytes was given to p, which may have an ACK.
func (c *ackClock) sent(p *subflow, n int, now time.Time) {
	if p.ack.filling {
		h := p.est.Hop()
		p.ack.confirmAt, p.ack.sentAt, p.ack.filling = h.Acked+uint64(h.Queue)+uint64(n), now, false
	}
}

// sampled takes note, after a sample of p's own hop, that an ACK sent on it has arrived: then
// no other subflow has to carry one itself for what came before. So the radio of a helper
// that only drains its buffer to us is not woken. What came since has time for the next one.
func (c *ackClock) sampled(p *subflow, now time.Time) {
	if p.ack.confirmAt == 0 || p.est.Hop().Acked < p.ack.confirmAt {
		return
	}
	p.ack.confirmAt = 0
	for _, q := range c.subflows.list {
		d := &q.ack
		if !d.owed {
			continue
		}
		if !d.dueAt.Add(-ackOwn).After(p.ack.sentAt) {
			d.owed = false
		} else if next := now.Add(ackOwn); d.dueAt.Before(next) {
			d.dueAt = next
		}
	}
}

// stoodStill notes that this process itself did not run for a time.
func (c *ackClock) stoodStill(late time.Duration) {
	for _, p := range c.subflows.list {
		p.ack.dueAt = p.ack.dueAt.Add(late)
	}
}

// wake sets the timer to what is due next. What is overdue waits for an idle subflow.
func (c *ackClock) wake(now time.Time) {
	for _, p := range c.subflows.list {
		if p.ack.owed && p.ack.dueAt.After(now) {
			c.timer.wakeAt(p.ack.dueAt)
		}
	}
	if c.pending && c.dueAt.After(now) {
		c.timer.wakeAt(c.dueAt)
	}
}
