package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// pin ties something that must not wait to one path.
type pin struct {
	path    *subflow  // nil: none yet, or gone
	quicker time.Time // since when another path has been clearly quicker
}

// due reports whether to move to best, the path of least PAD, and why.
func (n *pin) due(best *subflow, now time.Time) (move bool, why string) {
	switch {
	case best == nil || best == n.path:
		n.quicker = time.Time{}
	case n.path == nil:
		return true, ""
	case n.path.possiblySilent(now) && !best.possiblySilent(now):
		return true, "its path is silent"
	default:
		was, is := n.path.est.At(now).PAD, best.est.At(now).PAD
		switch {
		case was-is < max(clearlyQuicker, was/4):
			n.quicker = time.Time{}
		case n.quicker.IsZero():
			n.quicker = now
		case now.Sub(n.quicker) >= patience:
			return true, "another path is quicker"
		}
	}
	return false, ""
}

// pin sees to it that a leg has the path it should have now.
func (b *Bond) pin(l *leg, now time.Time) {
	g := b.classes.find(l.f.group)
	if l.path != nil && !g.permits(l.path.id) {
		l.path = nil
	}
	best := b.filter.fastest(l.taken(), g, now)
	if move, why := l.due(best, now); move {
		b.move(l, best, now, why)
	}
}

// taken is the path of a redundant flow's other leg, which this one may not use.
func (l *leg) taken() *subflow {
	switch {
	case !l.f.redundant:
		return nil
	case l == &l.f.legs[0]:
		return l.f.legs[1].path
	}
	return l.f.legs[0].path
}

// possiblySilent reports that p is silent or may be: nothing was acknowledged for as
// long as silence takes. Whether that is for want of acknowledgements does not
// matter to a flow, which moves at no cost.
func (p *subflow) possiblySilent(now time.Time) bool {
	return p.silent() || p.inFlight.len() > 0 && now.Sub(p.lastProgress) > silenceLimit(p.est.At(now).SRTT)
}

func (b *Bond) move(l *leg, to *subflow, now time.Time, why string) {
	l.path, l.quicker = to, time.Time{}
	if l.pinned {
		l.f.stats.Moves++
	}
	l.pinned = true
	// What the other leg gave to this path before it moved away has been there.
	kept := l.q
	l.q, l.bulk = nil, l.bulk && len(kept) > 0
	for _, q := range kept {
		if *q.went == to.id {
			l.uncount(q)
		} else {
			l.q = append(l.q, q)
		}
	}
	to.extendLowLatency(now.Add(expressFor))
	b.trace.at(now, trace.Event{Kind: trace.FlowMove, Flow: uint64(l.f.id), Path: uint32(to.id), Reason: why})
}

// unpin tells flows and streams that a path is gone.
func (b *Bond) unpin(p *subflow) {
	for _, s := range b.streams {
		if s.pin.path == p {
			s.pin.path = nil
		}
	}
	for _, f := range b.flows.all {
		for i := range f.legs {
			if f.legs[i].path == p {
				f.legs[i].path = nil
			}
		}
	}
	for _, l := range b.flows.ready { // of ended flows too
		if l.path == p {
			l.path = nil
		}
	}
}

// datagramTurn is who waits with datagrams for a path that is idle, or nil. Old
// ones are dropped on the way.
func (b *Bond) datagramTurn(now time.Time) *leg {
	b.dropOld(now)
	for _, l := range b.flows.ready {
		b.pin(l, now)
		p := l.path
		if p != nil && p.idle && len(l.q) > 0 && !(l.bulk && b.holds(p, p.est.At(now), now)) {
			return l
		}
	}
	return nil
}

// dropOld drops what has waited too long, and ends the turn of empty legs.
func (b *Bond) dropOld(now time.Time) {
	b.flows.ready = slices.DeleteFunc(b.flows.ready, func(l *leg) bool {
		for len(l.q) > 0 && now.Sub(l.q[0].at) > sojourn {
			l.drop()
		}
		l.inReady = len(l.q) > 0
		return !l.inReady
	})
}

// fillDatagrams appends a segment of datagrams for path p: one of each leg in
// turn, and at least one.
func (b *Bond) fillDatagrams(p *subflow, now time.Time, buf []byte) []byte {
	first, room := true, b.segmentSize(p, now)
	backlog := max(p.est.At(now).Th.Bytes(standing), 4*minSegment)
	p.streamsFirst = false
	for i := 0; i < len(b.flows.ready); {
		l := b.flows.ready[i]
		if l.path != p || len(l.q) == 0 || !first && (len(l.q[0].frame) > room || b.outranked(l)) {
			if l.path == p && l.bytes > backlog {
				l.bulk, p.streamsFirst = true, true
			}
			i++
			continue
		}
		q := l.take()
		buf = append(buf, q.frame...)
		n := len(q.frame)
		r := b.legRank(l)
		if first { // what goes along has no turn of its own, or others would lose theirs
			b.classes.beginTurn(r)
		}
		r.count(unit.Bytes(n))
		first, room = false, room-n
		p.noteFrame(n, sentFrame{frameType: wire.TypeDatagram})
		l.f.stats.Sent++
		if *q.went != 0 {
			b.stats.Redundant += unit.Bytes(n)
		} else {
			l.f.stats.SentBytes += q.data
		}
		*q.went = p.id
		b.flows.ready = append(b.flows.ready[:i], b.flows.ready[i+1:]...)
		if l.inReady = len(l.q) > 0; l.inReady {
			b.enqueueLeg(l)
		}
	}
	return buf
}

func (b *Bond) legRank(l *leg) rank { return b.classes.rank(l.f.group, &l.had) }

// enqueueLeg puts a leg where its next turn is.
func (b *Bond) enqueueLeg(l *leg) {
	b.flows.ready = insertByRank(&b.classes, b.flows.ready, l, b.legRank)
}

// yields reports whether streams have the turn before datagrams of a leg that
// could go over its path. Those that a network would keep no longer wait for
// nobody; more of them yield to a higher class, and take turns with their own, as
// weights say if there are any.
func (b *Bond) yields(l *leg) bool {
	if !b.classes.ranked || !l.bulk {
		return l.path.streamsFirst
	}
	for _, s := range b.backlog.ready {
		if !s.sendable() || !b.filter.permits(&s.route, l.path.id) {
			continue
		}
		own, other := b.legRank(l), b.backlog.rank(s)
		if own.class != other.class {
			return other.class.Above(own.class)
		}
		return *other.sent < *own.sent
	}
	return false
}

// outranked reports that a leg with much to send is not to go along with others,
// since there is something of a higher class.
func (b *Bond) outranked(l *leg) bool {
	if !b.classes.ranked || !l.bulk {
		return false
	}
	own := b.legRank(l).class
	return b.flows.ready[0] != l && b.legRank(b.flows.ready[0]).class.Above(own) || len(b.backlog.ready) > 0 && b.backlog.rank(b.backlog.ready[0]).class.Above(own)
}
