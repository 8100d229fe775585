package bond

import (
	"maps"
	"slices"
	"time"

	"mpbond/core/trace"
	"mpbond/link/wire"
)

// SetClassTable has groups treated so from now on, at both ends. Only the end that
// opens may call it. Groups that are left out must be none of Groups, and are gone:
// their numbers must not be used again, nor lower ones that never were.
func (b *Bond) SetClassTable(groups []wire.Group) {
	b.applyClasses(b.classes.serial+1, groups)
	b.control.queueOnce(wire.TypeClassTable)
}

// UsedGroups are those that streams and flows are of, or what is left of them to be sent.
func (b *Bond) UsedGroups() map[wire.GroupID]bool {
	used := map[wire.GroupID]bool{}
	for _, s := range b.streams.all {
		used[s.route.group] = true
		for g := range s.groups.leftGroups {
			used[g] = true
		}
	}
	b.flows.collectGroups(used)
	return used
}

// endRetiredStreams ends at this end what the other one has ended already. Of a stream
// whose app has not ended it here, a RESET is on its way; of the others all
// has arrived.
func (b *Bond) endRetiredStreams(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(b.streams.all)) {
		if s := b.streams.all[id]; b.classes.isRetired(s.route.group) && s.finSet {
			b.frameAcknowledged(sentFrame{stream: s, frameType: wire.TypeFin})
			b.frameAcknowledged(sentFrame{stream: s, frameType: wire.TypeData, from: s.send.firstUnacked, to: s.send.end})
		}
	}
	b.flows.endRetiredFlows(now)
}

// applyClasses replaces the class table, and lets all that waits have its turn and its
// subflows by the new one.
func (b *Bond) applyClasses(serial uint64, groups []wire.Group) {
	b.classes.replaceGroups(serial, groups)
	b.filter.expireAnswers()
	if b.classes.ranked {
		b.backlog.reorderStreams(b.streams.all)
	}
	b.flows.applyClasses()
}

// SetGroup puts the stream into a group of the plan. At the end that opened it
// the other end is told too, if that is done before Next is called.
func (s *Stream) SetGroup(g wire.GroupID) {
	if s.err != nil || s.route.group == g {
		return
	}
	s.route.group = g
	s.route.answer.expire()
	s.bond.backlog.requeueStream(s)
	s.bond.backlog.updateStream(s)
}

// SetClass changes mode and group of a stream, for the bytes that both ends send from now
// on. Only the end that opens may call it. It reports whether there is such a stream.
func (b *Bond) SetClass(id wire.StreamID, mode wire.Mode, group wire.GroupID) bool {
	s := b.streams.all[id]
	if s == nil || s.err != nil {
		return false
	}
	s.changeClass(s.groups.serial+1, mode, group)
	b.control.queueFrame(s, wire.TypeClassUpdate)
	return true
}

// ClassOf is how the bytes of a stream are treated; ok is false if there is none.
func (b *Bond) ClassOf(id wire.StreamID) (mode wire.Mode, group wire.GroupID, ok bool) {
	s := b.streams.all[id]
	if s == nil || s.err != nil {
		return 0, 0, false
	}
	return s.route.mode, s.route.group, true
}

// changeClass is the change of that number.
func (s *Stream) changeClass(serial uint64, mode wire.Mode, group wire.GroupID) {
	if s.bond.cfg.OpensStreams && group != s.route.group {
		s.groups.leaveGroup(s.route.group, serial)
	}
	s.groups.serial = serial
	if mode != s.route.mode {
		s.bond.subflows.dropCopies(s)
	}
	s.SetMode(mode)
	s.SetGroup(group)
	s.route.answer.expire()
	s.bond.trace.emit(trace.Event{Kind: trace.StreamClassChanged, Stream: uint64(s.id), Text: mode.String()})
}

// ResetGroup resets those streams of a group of which old reports that they have
// waited long enough.
func (b *Bond) ResetGroup(id wire.GroupID, why wire.Reset, old func(*Stream) bool) {
	for _, s := range b.streams.all {
		if s.route.group == id && old(s) {
			s.Reset(why.Code, why.Text)
		}
	}
}
