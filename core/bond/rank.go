package bond

import (
	"slices"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// turns are those of streams and flows, by class. In a class who has had least,
// over its weight, is next; one that has waited for nothing gets no more for that
// (start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996).
type turns [wire.ClassCount]uint64 // what the last one that had a turn had had before, in bytes over weight

// rankScale is what bytes are multiplied with, so that weights divide them well.
const rankScale = 256

// rank is where one stream or flow has its turn among others.
type rank struct {
	class  wire.Class
	weight uint8
	had    *uint64
}

func (b *Bond) rankOf(id wire.GroupID, had *uint64) rank {
	if g := b.groupOf(id); g != nil {
		return rank{g.class, g.weight, had}
	}
	return rank{wire.Normal, 1, had}
}

// before reports whether r is before one that comes new with rank n.
func (r rank) before(n rank) bool {
	return r.class.Above(n.class) || r.class == n.class && *r.had <= *n.had
}

// joins brings up to date what one that begins to wait has had.
func (t *turns) joins(r rank) { *r.had = max(*r.had, t[r.class]) }

// begins is a turn, in which r then has bytes.
func (t *turns) begins(r rank) { t[r.class] = max(t[r.class], *r.had) }

// has counts n bytes.
func (r rank) has(n unit.Bytes) { *r.had += uint64(n) * rankScale / uint64(r.weight) }

func (b *Bond) streamRank(s *Stream) rank { return b.rankOf(s.group, &s.had) }

func (b *Bond) legRank(l *leg) rank { return b.rankOf(l.f.group, &l.had) }

func (b *Bond) classOf(s *Stream) wire.Class { return b.streamRank(s).class }

// enqueue puts a stream where its next turn is: without classes and weights behind
// all others.
func (b *Bond) enqueue(s *Stream) {
	at := len(b.ready)
	if b.ranked {
		r := b.streamRank(s)
		b.turns.joins(r)
		for at > 0 && !b.streamRank(b.ready[at-1]).before(r) {
			at--
		}
	}
	b.ready = slices.Insert(b.ready, at, s)
}

// enqueueLeg is enqueue for datagrams.
func (b *Bond) enqueueLeg(l *leg) {
	at := len(b.flows.ready)
	if b.ranked {
		r := b.legRank(l)
		b.turns.joins(r)
		for at > 0 && !b.legRank(b.flows.ready[at-1]).before(r) {
			at--
		}
	}
	b.flows.ready = slices.Insert(b.flows.ready, at, l)
}

// rank brings all that waits into order, after a plan has changed.
func (b *Bond) rank() {
	if !b.ranked {
		return
	}
	ready, legs := b.ready, b.flows.ready
	b.ready, b.flows.ready = nil, nil
	for _, s := range ready {
		b.enqueue(s)
	}
	for _, l := range legs {
		b.enqueueLeg(l)
	}
	for _, s := range b.streams {
		b.update(s) // which counts by class
	}
}

// contended is what there is to send that goes before bytes of stream s, or takes
// turns with them.
func (b *Bond) contended(s *Stream) unit.Bytes {
	if !b.ranked {
		return b.pending
	}
	n, own := unit.Bytes(0), b.classOf(s)
	for c, waits := range b.pendingOf {
		if !own.Above(wire.Class(c)) {
			n += waits
		}
	}
	return n
}

// share is the part of n bytes that would be of s, when those that are ready take
// turns.
func (b *Bond) share(n unit.Bytes, s *Stream) unit.Bytes {
	if !b.ranked {
		return n / unit.Bytes(max(len(b.ready), 1))
	}
	r, all := b.streamRank(s), unit.Bytes(0)
	for _, o := range b.ready {
		if q := b.streamRank(o); q.class == r.class {
			all += unit.Bytes(q.weight)
		}
	}
	return n * unit.Bytes(r.weight) / max(all, unit.Bytes(r.weight))
}

// yields reports whether streams have the turn before datagrams of a leg that
// could go over its path. Those that a network would keep no longer wait for
// nobody; more of them yield to a higher class, and take turns with their own, as
// weights say if there are any.
func (b *Bond) yields(l *leg) bool {
	if !b.ranked || !l.bulk {
		return l.path.streamsFirst
	}
	for _, s := range b.ready {
		if !s.sendable() || !s.may(l.path.id) {
			continue
		}
		own, other := b.legRank(l), b.streamRank(s)
		if own.class != other.class {
			return other.class.Above(own.class)
		}
		return *other.had < *own.had
	}
	return false
}

// outranked reports that a leg with much to send is not to go along with others,
// since there is something of a higher class.
func (b *Bond) outranked(l *leg) bool {
	if !b.ranked || !l.bulk {
		return false
	}
	own := b.legRank(l).class
	return b.flows.ready[0] != l && b.legRank(b.flows.ready[0]).class.Above(own) || len(b.ready) > 0 && b.classOf(b.ready[0]).Above(own)
}
