package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Next takes the next decision: it appends to buf a segment, which is to be
// written whole to the subflow it names, and marks that subflow busy. Without
// a segment to send now it returns 0: after the next event (a frame received,
// a subflow idle, bytes written, a tick) it is worth asking again. Who writes the
// segment asks Begun first.
func (b *Bond) Next(now time.Time, buf []byte) (wire.PathID, []byte) {
	start := len(buf)
	if p := b.acks.dueOn(now); p != nil {
		p.startWatch(now)
		buf = p.appendUnreliable(buf, b.acks.frame(p, now))
		b.noteSegment(p, len(buf)-start, now)
		return p.id, buf
	}
	if b.backlog.scheduled(b.subflows.list) || b.subflows.overdue(now) {
		b.reinject.rebalance(now)
	}
	carrier, idle := b.chooser.survey(now)
	if !idle {
		return 0, buf
	}
	t := b.chooser.choose(now)
	p := t.subflow
	if carrier != nil && (!b.control.empty() || b.acks.due(now)) {
		p = carrier
	}
	if p == nil {
		p = b.subflows.probeTarget()
	}
	if p == nil {
		return 0, buf
	}
	p.startWatch(now)
	if p == carrier {
		buf = b.writer.fillControl(p, now, buf)
	}
	bulkOnly := t.kind == bulk && len(buf) == start && !p.probeDue
	if p == t.subflow {
		buf = b.writer.fill(t, now, buf)
	}
	buf = p.appendProbe(buf)
	n := len(buf) - start
	if n == 0 {
		return 0, buf
	}
	b.noteSegment(p, n, now)
	if bulkOnly {
		p.unwritten = unit.Bytes(n)
	}
	return p.id, buf
}

// noteSegment notes that a segment of n bytes was given to subflow p.
func (b *Bond) noteSegment(p *subflow, n int, now time.Time) {
	p.est.Sent(now, unit.Bytes(n))
	b.acks.sent(p, n, now)
	p.settleIdle(now)
	p.idle, p.lastActive, p.lastSent, p.unwritten, p.withdrawn = false, now, now, 0, false
	b.timer.wakeAt(now.Add(probeEvery))
}

// Bye tells the other end that this one gives up the bond.
func (b *Bond) Bye() { b.control.add(nil, wire.TypeBye) }

// Told reports that the other end has acknowledged every control frame.
func (b *Bond) Told() bool {
	for _, p := range b.subflows.list {
		for _, f := range p.inFlight.all() {
			if f.frameType != wire.TypeData && f.frameType != wire.TypeDatagram && !f.recalled {
				return false
			}
		}
	}
	return len(b.control.frames) == 0
}
