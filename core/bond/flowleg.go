package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// leg is a flow's queue to the subflow that it is pinned to.
type leg struct {
	f *Flow
	pinnedSubflow
	waiting   []datagram
	bytes     unit.Bytes
	queued    bool
	wasPinned bool   // it has had a subflow
	sent      uint64 // its counter, see classTable
	isBulk    bool   // more waits than what a network would keep: it takes turns with streams
}

// datagram is a frame that waits, encoded.
type datagram struct {
	frame   []byte
	payload unit.Bytes // of it, those of an app
	at      time.Time
	sentOn  *wire.PathID // the subflow that carries a copy of it, or 0; all copies share it
}

// take removes the oldest frame.
func (l *leg) take() datagram {
	q := l.waiting[0]
	l.waiting[0] = datagram{}
	if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
		l.waiting, l.isBulk = nil, false
	}
	l.uncount(q)
	return q
}

// uncount tells that a frame waits no longer.
func (l *leg) uncount(q datagram) {
	cost := unit.Bytes(len(q.frame)) + datagramCost
	l.bytes -= cost
	l.f.table.outBytes -= cost
	l.f.table.memory.give(cost)
}

// drop drops the oldest frame, which counts if no copy of it was sent.
func (l *leg) drop() {
	if *l.take().sentOn == 0 {
		l.f.stats.Dropped++
		l.f.table.stats.DatagramsDropped++
	}
}

// pinnedSubflow ties something that must not wait to one subflow, so that it is not re-ordered.
// It moves when that subflow is gone or may be silent, at once, and when another one has been
// clearly faster for as long as patience.
type pinnedSubflow struct {
	subflow          *subflow  // nil: none yet, or gone
	otherFasterSince time.Time // since when another one has been clearly faster
}

// shouldMove reports whether to move to best, the subflow of least PAD, and why.
func (n *pinnedSubflow) shouldMove(best *subflow, now time.Time) (move bool, why string) {
	switch {
	case best == nil || best == n.subflow:
		n.otherFasterSince = time.Time{}
	case n.subflow == nil:
		return true, ""
	case n.subflow.possiblySilent(now) && !best.possiblySilent(now):
		return true, "its path is silent"
	default:
		was, is := n.subflow.est.At(now).PAD, best.est.At(now).PAD
		switch {
		case was-is < max(clearlyFaster, was/4):
			n.otherFasterSince = time.Time{}
		case n.otherFasterSince.IsZero():
			n.otherFasterSince = now
		case now.Sub(n.otherFasterSince) >= patience:
			return true, "another path is quicker"
		}
	}
	return false, ""
}

// pin lets a leg have the subflow that it should have now.
func (t *flowTable) pin(l *leg, now time.Time) {
	g := t.classes.find(l.f.group)
	if l.subflow != nil && !g.permits(l.subflow.id) {
		l.subflow = nil
	}
	best := t.filter.fastest(l.otherLeg(), g, now)
	if move, why := l.shouldMove(best, now); move {
		t.move(l, best, now, why)
	}
}

// otherLeg returns the subflow of a redundant flow's other leg, which this one may not use.
func (l *leg) otherLeg() *subflow {
	switch {
	case !l.f.redundant:
		return nil
	case l == &l.f.legs[0]:
		return l.f.legs[1].subflow
	}
	return l.f.legs[0].subflow
}

func (t *flowTable) move(l *leg, to *subflow, now time.Time, why string) {
	l.subflow, l.otherFasterSince = to, time.Time{}
	if l.wasPinned {
		l.f.stats.Moves++
	}
	l.wasPinned = true
	// What the other leg gave to this subflow before it moved away has been there.
	kept := l.waiting
	l.waiting, l.isBulk = nil, l.isBulk && len(kept) > 0
	for _, q := range kept {
		if *q.sentOn == to.id {
			l.uncount(q)
		} else {
			l.waiting = append(l.waiting, q)
		}
	}
	to.extendLowLatency(now.Add(lowLatencyFor))
	t.trace.at(now, trace.Event{Kind: trace.FlowMove, Flow: uint64(l.f.id), Path: uint32(to.id), Reason: why})
}

// unpin notes that a subflow is gone.
func (t *flowTable) unpin(p *subflow) {
	for _, f := range t.all {
		for i := range f.legs {
			if f.legs[i].subflow == p {
				f.legs[i].subflow = nil
			}
		}
	}
	for _, l := range t.ready { // of ended flows too
		if l.subflow == p {
			l.subflow = nil
		}
	}
}

// next returns the first leg whose datagrams can leave by an idle subflow now, or nil. It
// drops those that have waited too long.
func (t *flowTable) next(now time.Time) *leg {
	t.dropExpired(now)
	for _, l := range t.ready {
		t.pin(l, now)
		p := l.subflow
		if p != nil && p.idle && len(l.waiting) > 0 && !(l.isBulk && p.holdsBulk(p.est.At(now), now, t.timer)) {
			return l
		}
	}
	return nil
}

// dropExpired drops what has waited too long, and ends the turn of empty legs.
func (t *flowTable) dropExpired(now time.Time) {
	t.ready = slices.DeleteFunc(t.ready, func(l *leg) bool {
		for len(l.waiting) > 0 && now.Sub(l.waiting[0].at) > maxQueueTime {
			l.drop()
		}
		l.queued = len(l.waiting) > 0
		return !l.queued
	})
}

// fill appends a segment of datagrams for subflow p: one of each leg in turn, and at least
// one. Streams are what else waits to be sent.
func (t *flowTable) fill(p *subflow, streams *backlog, now time.Time, buf []byte) []byte {
	first, room := true, p.segmentSize(now)
	backlog := max(p.est.At(now).Th.Bytes(maxStandingQueue), 4*minSegment)
	p.streamsFirst = false
	for i := 0; i < len(t.ready); {
		l := t.ready[i]
		if l.subflow != p || len(l.waiting) == 0 || !first && (len(l.waiting[0].frame) > room || t.outranked(l, streams)) {
			if l.subflow == p && l.bytes > backlog {
				l.isBulk, p.streamsFirst = true, true
			}
			i++
			continue
		}
		q := l.take()
		buf = append(buf, q.frame...)
		n := len(q.frame)
		r := t.rank(l)
		if first { // what goes along has no turn of its own, or others would lose theirs
			t.classes.beginTurn(r)
		}
		r.count(unit.Bytes(n))
		first, room = false, room-n
		p.noteFrame(n, sentFrame{frameType: wire.TypeDatagram})
		l.f.stats.Sent++
		if *q.sentOn != 0 {
			t.stats.Redundant += unit.Bytes(n)
		} else {
			l.f.stats.SentBytes += q.payload
		}
		*q.sentOn = p.id
		t.ready = append(t.ready[:i], t.ready[i+1:]...)
		if l.queued = len(l.waiting) > 0; l.queued {
			t.enqueue(l)
		}
	}
	return buf
}

func (t *flowTable) rank(l *leg) rank { return t.classes.rank(l.f.group, &l.sent) }

// enqueue puts a leg where its next turn is.
func (t *flowTable) enqueue(l *leg) { t.ready = insertByRank(t.classes, t.ready, l, t.rank) }

// streamsFirst reports whether streams have the turn before datagrams of a leg that could go
// over its subflow. Those that a network would keep no longer wait for
// nobody; more of them yield to a higher class, and take turns with their own, as
// weights say if there are any.
func (t *flowTable) streamsFirst(l *leg, streams *backlog) bool {
	if !t.classes.ranked || !l.isBulk {
		return l.subflow.streamsFirst
	}
	for _, s := range streams.ready {
		if !s.send.sendable() || !t.filter.permits(&s.route, l.subflow.id) {
			continue
		}
		own, other := t.rank(l), streams.rank(s)
		if own.class != other.class {
			return other.class.Above(own.class)
		}
		return *other.sent < *own.sent
	}
	return false
}

// outranked reports that a leg with much to send is not to go along with others,
// since there is something of a higher class.
func (t *flowTable) outranked(l *leg, streams *backlog) bool {
	if !t.classes.ranked || !l.isBulk {
		return false
	}
	own := t.rank(l).class
	return t.ready[0] != l && t.rank(t.ready[0]).class.Above(own) || len(streams.ready) > 0 && streams.rank(streams.ready[0]).class.Above(own)
}
