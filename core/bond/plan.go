package bond

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"mpbond/core/trace"
	"mpbond/link/wire"
)

// group is how streams and flows of a group are treated.
type group struct {
	class   wire.Class
	weight  uint8
	limited bool
	paths   []wire.PathID
}

// untold is a group that no plan has told of yet: what belongs to it waits.
var untold = &group{weight: 1, limited: true}

// usual is group 0.
var usual = &group{weight: 1}

// groupOf is nil for group 0, which is treated as usual.
func (b *Bond) groupOf(id wire.GroupID) *group {
	if id == 0 {
		return nil
	}
	if g := b.plan[id]; g != nil {
		return g
	}
	return untold
}

// permits reports whether the group may use a path.
func (g *group) permits(id wire.PathID) bool {
	return g == nil || !g.limited || slices.Contains(g.paths, id)
}

// alike reports whether both groups are of one class and may use the same paths.
func (g *group) alike(o *group) bool {
	if g == nil {
		g = usual
	}
	if o == nil {
		o = usual
	}
	return g.class == o.class && g.limited == o.limited && slices.Equal(g.paths, o.paths)
}

// SetPlan has groups treated so from now on, at both ends. Only the end that
// opens may call it. Groups that are left out must be none of Groups, and are gone:
// their numbers must not be used again, nor lower ones that never were.
func (b *Bond) SetPlan(groups []wire.Group) {
	b.planSerial++
	b.take(groups)
	b.queuePlan()
}

// queuePlan lets the plan be told, unless it is to be told anyway.
func (b *Bond) queuePlan() {
	for _, c := range b.control {
		if c.t == wire.TypePlan {
			return
		}
	}
	b.queue(nil, wire.TypePlan)
}

// planFrame is the plan as it is.
func (b *Bond) planFrame() wire.Frame {
	f := wire.Plan{Serial: b.planSerial}
	for _, id := range slices.Sorted(maps.Keys(b.plan)) {
		g := b.plan[id]
		f.Groups = append(f.Groups, wire.Group{ID: id, Class: g.class, Weight: g.weight, Limited: g.limited, Paths: g.paths})
	}
	return f
}

// receivePlan takes the primary's word.
func (b *Bond) receivePlan(payload []byte, now time.Time) error {
	f, err := wire.ParsePlan(payload)
	switch {
	case err != nil:
		return err
	case b.cfg.Opens:
		return fmt.Errorf("a plan of the server: %w", wire.ErrMalformed)
	case f.Serial > b.planSerial:
		b.planSerial = f.Serial
		b.take(f.Groups)
		b.dropGone(now)
	}
	return nil
}

// Groups are those that streams and flows are of, or what is left of them to be sent.
func (b *Bond) Groups() map[wire.GroupID]bool {
	used := map[wire.GroupID]bool{}
	for _, s := range b.streams {
		used[s.group] = true
		for g := range s.before {
			used[g] = true
		}
	}
	for _, f := range b.flows.all {
		used[f.group] = true
	}
	for _, l := range b.flows.ready { // of ended flows too
		used[l.f.group] = true
	}
	return used
}

// gone reports that the end that opens has nothing of a group any more.
func (b *Bond) gone(id wire.GroupID) bool { return id > 0 && id <= b.newest && b.plan[id] == nil }

// dropGone ends at this end what the other one has ended already. Of a stream
// whose app has not ended it here, a RESET is on its way; of the others all
// has arrived.
func (b *Bond) dropGone(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(b.streams)) {
		if s := b.streams[id]; b.gone(s.group) && s.finSet {
			b.landed(sentFrame{stream: s, frameType: wire.TypeFin})
			b.landed(sentFrame{stream: s, frameType: wire.TypeData, from: s.outBase, to: s.outEnd})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.flows.all)) {
		if f := b.flows.all[id]; b.gone(f.group) {
			f.fail(wire.Reset{Code: wire.CodeClosed, Text: "the other end has ended it"}, now)
		}
	}
}

func (b *Bond) take(groups []wire.Group) {
	b.plan = make(map[wire.GroupID]*group, len(groups))
	for _, g := range groups {
		b.newest = max(b.newest, g.ID)
		b.plan[g.ID] = &group{g.Class, g.Weight, g.Limited, slices.Clone(g.Paths)}
		b.limits = b.limits || g.Limited
		b.ranked = b.ranked || g.Class != wire.Normal || g.Weight != 1
	}
	b.unguide()
	for _, l := range b.flows.ready { // others are looked at when something is to be sent
		if l.path != nil && !b.groupOf(l.f.group).permits(l.path.id) {
			l.path = nil
		}
	}
	b.rank()
}

// SetGroup puts the stream into a group of the plan. At the end that opened it
// the other end is told too, if that is done before Next is called.
func (s *Stream) SetGroup(g wire.GroupID) {
	if s.err != nil || s.group == g {
		return
	}
	s.group = g
	s.allowed.at = time.Time{}
	if i := slices.Index(s.bond.ready, s); i >= 0 {
		s.bond.ready = slices.Delete(s.bond.ready, i, i+1)
		s.bond.enqueue(s)
	}
	s.bond.update(s)
}

// Treat changes mode and group of a stream, for the bytes that both ends send from now
// on. Only the end that opens may call it. It reports whether there is such a stream.
func (b *Bond) Treat(id wire.StreamID, mode wire.Mode, group wire.GroupID) bool {
	s := b.streams[id]
	if s == nil || s.err != nil {
		return false
	}
	s.treat(s.treats+1, mode, group)
	b.queue(s, wire.TypeTreat)
	return true
}

// TreatmentOf is how the bytes of a stream are treated; ok is false if there is none.
func (b *Bond) TreatmentOf(id wire.StreamID) (mode wire.Mode, group wire.GroupID, ok bool) {
	s := b.streams[id]
	if s == nil || s.err != nil {
		return 0, 0, false
	}
	return s.mode, s.group, true
}

// receiveTreat takes the primary's word.
func (b *Bond) receiveTreat(payload []byte) error {
	f, err := wire.ParseTreat(payload)
	if err != nil {
		return err
	}
	if b.cfg.Opens {
		return fmt.Errorf("%v of the server: %w", wire.TypeTreat, wire.ErrMalformed)
	}
	s, err := b.stream(f.Stream)
	if s != nil && f.Serial > s.treats && !b.gone(f.Group) { // else it comes late
		s.treat(f.Serial, f.Mode, f.Group)
	}
	return err
}

// treat is the change of that number.
func (s *Stream) treat(serial uint64, mode wire.Mode, group wire.GroupID) {
	if s.bond.cfg.Opens && group != s.group {
		if s.before == nil {
			s.before = map[wire.GroupID]uint64{}
		}
		s.before[s.group] = serial
	}
	s.treats = serial
	if mode != s.mode {
		s.bond.dropCopies(s)
	}
	s.SetMode(mode)
	s.SetGroup(group)
	s.allowed.at = time.Time{}
	s.bond.trace.emit(trace.Event{Kind: trace.StreamTreated, Stream: uint64(s.id), Text: mode.String()})
}

// treated tells that the other end knows of that change, and so that the stream is
// of no group any more that it left with it or before.
func (s *Stream) treated(serial uint64) {
	maps.DeleteFunc(s.before, func(_ wire.GroupID, left uint64) bool { return left <= serial })
}

// barred reports that all paths that the stream may use are gone or silent.
func (b *Bond) barred(s *Stream) bool {
	g := b.groupOf(s.group)
	if g == nil || !g.limited {
		return false
	}
	for _, p := range b.subflows.list {
		if !p.silent() && g.permits(p.id) {
			return false
		}
	}
	return true
}

// FailGroup resets those streams of a group of which old reports that they have
// waited long enough.
func (b *Bond) FailGroup(id wire.GroupID, why wire.Reset, old func(*Stream) bool) {
	for _, s := range b.streams {
		if s.group == id && old(s) {
			s.Reset(why.Code, why.Text)
		}
	}
}
