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

// allowed is the answer of a Guide for a stream, or for messages.
type allowed struct {
	paths  []wire.PathID // by rising number
	at     time.Time     // when the guide was asked
	asked  Demand
	reason string
	told   time.Time // when the other end was told, for its status
	// released tells that none of them can be used at present, being gone, silent
	// or avoided: then all may, lest the stream waits for one that never works
	// again.
	released bool
}

const (
	// guideEvery is how old the answer of a guide may be.
	guideEvery = 10 * time.Millisecond
	// tellEvery is how often the primary is told of a stream, at most.
	tellEvery = 100 * time.Millisecond
)

// SetGuide has g asked from now on; nil allows every path to every stream.
func (b *Bond) SetGuide(g Guide) {
	b.guide = g
	b.unguide()
}

// unguide makes all answers of the guide too old.
func (b *Bond) unguide() {
	b.small.at = time.Time{}
	for _, s := range b.streams {
		s.allowed.at = time.Time{}
	}
}

// ask brings an answer about the paths of a group up to date: it is old, or what
// the stream has to send has grown by a quarter.
func (b *Bond) ask(a *allowed, g *trafficClass, d Demand, now time.Time) {
	if !a.at.IsZero() && now.Sub(a.at) < guideEvery && d.Pending+d.Burst <= (a.asked.Pending+a.asked.Burst)*5/4 {
		return
	}
	list := b.guideView[:0]
	for _, p := range b.subflows.list {
		if p.silent() || !g.permits(p.id) {
			continue
		}
		n := p.est.At(now)
		list = append(list, GuidePath{ID: p.id, Rate: n.Th, Known: n.Known, RTT: n.SRTT, Delay: n.PAD, Idle: now.Sub(p.lastActive), Used: slices.Contains(a.paths, p.id)})
	}
	b.guideView = list
	a.reason, a.at, a.asked = b.guide.Guide(list, d), now, d
	a.paths = a.paths[:0]
	for _, p := range list {
		if p.Allowed {
			a.paths = append(a.paths, p.ID)
		}
	}
}

// guided brings what stream s may use up to date, before each segment of it.
func (b *Bond) guided(s *Stream, now time.Time) {
	if b.guide == nil || s.mode != wire.Bond || s.only != 0 {
		return
	}
	a := &s.allowed
	if s.fullSince.IsZero() {
		s.fullSince = now
	}
	b.ask(a, b.classes.find(s.group), Demand{b.backlog.contended(s), s.burst, now.Sub(s.fullSince)}, now)
	if told := &s.told; !b.cfg.Opens && len(b.flows.notices) < maxNotices && now.Sub(a.told) >= tellEvery && (told.Reason != a.reason || !slices.Equal(told.Paths, a.paths)) {
		a.told = now
		*told = wire.Choice{Stream: s.id, Paths: slices.Clone(a.paths), Reason: a.reason}
		b.flows.notices = append(b.flows.notices, *told)
	}
	a.released = true
	for _, p := range b.subflows.list {
		if !p.silent() && p.id != b.avoid && slices.Contains(s.allowed.paths, p.id) {
			s.allowed.released = false
		}
	}
}

// guideSmall marks the paths that something small may use.
func (b *Bond) guideSmall(now time.Time) {
	if b.guide != nil {
		b.ask(&b.small, nil, Demand{}, now)
	}
}

// forSmall reports whether something small may use p: a control frame, a
// datagram, a stream that must not wait.
func (b *Bond) forSmall(p *subflow) bool {
	return b.guide == nil || len(b.small.paths) == 0 || slices.Contains(b.small.paths, p.id)
}

// may reports whether the stream may use a path.
func (s *Stream) may(id wire.PathID) bool {
	if s.only != 0 {
		return id == s.only
	}
	if !s.bond.classes.find(s.group).permits(id) {
		return false
	}
	a := &s.allowed
	return s.bond.guide == nil || s.mode != wire.Bond || a.released || slices.Contains(a.paths, id)
}

// within is the part of view that stream s may use.
func (b *Bond) within(view []sched.Path, s *Stream, now time.Time) []sched.Path {
	if g := b.classes.find(s.group); s.only == 0 && (b.guide == nil || s.mode != wire.Bond) && (g == nil || !g.limited) {
		return view
	}
	b.guided(s, now)
	list := b.withinView[:0]
	for i := range view {
		if s.may(view[i].ID) {
			list = append(list, view[i])
		}
	}
	b.withinView = list
	return list
}

// bulkTurn asks the scheduler about the stream that is next; and, if that one
// has to wait for a path that it may use, about others that may use others.
func (b *Bond) bulkTurn(now time.Time, view []sched.Path) (t turn) {
	t.kind = bulk
	differ := b.guide != nil || b.classes.limited || b.bound > 0 || b.classes.ranked
	var asked *Stream
	for i, s := range b.backlog.ready {
		if i > 0 && (!differ || !s.sendable() || s.alike(b.backlog.ready[0]) || s.alike(asked)) {
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

// alike reports whether two streams are of one class and may use the same paths.
func (s *Stream) alike(o *Stream) bool {
	return (s.group == o.group || s.bond.classes.find(s.group).equal(s.bond.classes.find(o.group))) && s.only == o.only && slices.Equal(s.allowed.paths, o.allowed.paths)
}

// elsewhere reports whether n bytes of what a stream has in flight on p may go
// over another path that could take them now. The last answer of the guide was
// about the stream's last segment, and p may have become slow since: then the
// guide is asked again.
func (b *Bond) elsewhere(s *Stream, p *subflow, n unit.Bytes, now time.Time) bool {
	if s == nil || b.guide == nil && !b.classes.limited || b.another(s, p) {
		return true
	}
	if b.guide == nil {
		return false
	}
	d := Demand{Pending: b.backlog.contended(s) + n}
	if !s.fullSince.IsZero() {
		d.Full = now.Sub(s.fullSince)
	}
	b.ask(&s.allowed, b.classes.find(s.group), d, now)
	return b.another(s, p)
}

// another reports whether a stream may use a path besides p that is idle.
func (b *Bond) another(s *Stream, p *subflow) bool {
	for _, q := range b.subflows.list {
		if q != p && q.idle && !q.silent() && s.may(q.id) {
			return true
		}
	}
	return false
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
		s.told = f
	}
	return err
}

// StreamList describes the streams that were opened last, newest first, at most
// limit.
func (b *Bond) StreamList(limit int) (list []StreamInfo) {
	ids := slices.SortedFunc(maps.Keys(b.streams), func(x, y wire.StreamID) int { return cmp.Compare(y, x) })
	for _, id := range ids[:min(limit, len(ids))] {
		s := b.streams[id]
		i := StreamInfo{ID: s.id, Dest: s.dest, Mode: s.mode, Sent: unit.Bytes(s.outBase), Received: unit.Bytes(s.inBase), User: s.User}
		r := b.backlog.rank(s)
		i.Class, i.Weight = r.class, r.weight
		if b.cfg.Opens {
			i.In = s.told
		}
		if b.guide != nil && s.mode == wire.Bond && !s.allowed.released {
			i.Out = wire.Choice{Paths: slices.Clone(s.allowed.paths), Reason: s.allowed.reason}
		} else if g := b.classes.find(s.group); g != nil && g.limited {
			i.Out = wire.Choice{Paths: slices.Clone(g.allowed), Reason: "policy"}
		}
		list = append(list, i)
	}
	return list
}
