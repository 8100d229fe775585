package bond

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

// Guide says which paths a stream may use now. It weighs what the bond knows
// nothing of, such as energy and money. The scheduler then chooses among those.
// It is asked often, and answers at once.
type Guide interface {
	// Guide marks paths as Allowed and says why. Paths are those that are alive,
	// by rising number; it keeps no reference to them. To mark none allows all.
	Guide(paths []GuidePath, d Demand) string
}

// GuidePath is a path as a Guide sees it.
type GuidePath struct {
	ID    wire.PathID
	Rate  unit.Rate // that it carries
	Known bool      // Rate was measured while it was the limit, else it is a guess
	RTT   time.Duration
	Delay time.Duration // PAD
	Idle  time.Duration // since it last carried anything, either way
	Used  bool          // it is allowed by the last answer
	// Allowed is the answer.
	Allowed bool
}

// Demand is what a Guide is told of a stream. The zero Demand is something small
// that is to arrive soon: a message, a control frame, a datagram.
type Demand struct {
	Pending unit.Bytes // of all streams
	Burst   unit.Bytes // what it was given to carry since it last had nothing to send
	// Full is for how long it has had bytes that could be sent, without a pause.
	Full time.Duration
}

// SetGuide has g asked from now on; nil allows every path to every stream.
func (b *Bond) SetGuide(g Guide) { b.filter.setGuide(g) }

// refreshRoute brings what stream s may use up to date, before each segment of it.
func (b *Bond) refreshRoute(s *Stream, now time.Time) {
	if !b.filter.guided(&s.route) {
		return
	}
	b.filter.refresh(&s.route, b.backlog.contended(s), b.avoid, now)
	if !b.cfg.Opens && b.control.hasRoom() {
		if c, ok := s.route.changedChoice(s.id, now); ok {
			b.control.notice(c)
		}
	}
}

// within is the part of view that stream s may use.
func (b *Bond) within(view []sched.Path, s *Stream, now time.Time) []sched.Path {
	if !b.filter.limits(&s.route) {
		return view
	}
	b.refreshRoute(s, now)
	b.withinView = b.filter.permitted(b.withinView[:0], view, &s.route)
	return b.withinView
}

// bulkTurn asks the scheduler about the stream that is next; and, if that one
// has to wait for a path that it may use, about others that may use others.
func (b *Bond) bulkTurn(now time.Time, view []sched.Path) (t turn) {
	t.kind = bulk
	differ := b.filter.routesDiffer()
	var asked *Stream
	for i, s := range b.backlog.ready {
		if i > 0 && (!differ || !s.send.sendable() || b.filter.equal(&s.route, &b.backlog.ready[0].route) || asked != nil && b.filter.equal(&s.route, &asked.route)) {
			continue
		}
		asked = s
		seen := b.within(view, s, now)
		if len(seen) == 0 && len(view) > 0 {
			continue // all that it may use is gone or silent
		}
		t.decision = b.pick(s, now, seen)
		b.trace.decided(now, t.decision, b.backlog.pending, seen)
		b.trace.estimates(now, b.subflows.list)
		if !t.decision.Wait {
			t.path, t.stream = b.subflows.find(t.decision.Path), s
			break
		}
		if !differ {
			break
		}
	}
	return t
}

// StreamInfo describes a stream for status output.
type StreamInfo struct {
	ID       wire.StreamID
	Dest     string
	Mode     wire.Mode
	Class    wire.Class
	Weight   uint8
	Sent     unit.Bytes // that the far end has
	Received unit.Bytes // that the app has read
	// Out are the paths that this end may send it by, none if all, and why. In is
	// what the server says of the other direction, at the primary.
	Out, In wire.Choice
	User    any
}

// receiveChoice takes the server's word about a stream.
func (b *Bond) receiveChoice(payload []byte) error {
	f, err := wire.ParseChoice(payload)
	if s := b.streams[f.Stream]; err == nil && s != nil && b.cfg.Opens {
		s.route.choice = f
	}
	return err
}

// StreamList describes the streams that were opened last, newest first, at most
// limit.
func (b *Bond) StreamList(limit int) (list []StreamInfo) {
	ids := slices.SortedFunc(maps.Keys(b.streams), func(x, y wire.StreamID) int { return cmp.Compare(y, x) })
	for _, id := range ids[:min(limit, len(ids))] {
		s := b.streams[id]
		i := StreamInfo{ID: s.id, Dest: s.dest, Mode: s.route.mode, Sent: unit.Bytes(s.send.firstUnacked), Received: unit.Bytes(s.reassembly.readOffset), User: s.User}
		r := b.backlog.rank(s)
		i.Class, i.Weight = r.class, r.weight
		if b.cfg.Opens {
			i.In = s.route.choice
		}
		if b.filter.guide != nil && s.route.mode == wire.Bond && !s.route.released {
			i.Out = wire.Choice{Paths: slices.Clone(s.route.allowed.paths), Reason: s.route.allowed.reason}
		} else if g := b.classes.find(s.route.group); g != nil && g.limited {
			i.Out = wire.Choice{Paths: slices.Clone(g.allowed), Reason: "policy"}
		}
		list = append(list, i)
	}
	return list
}
