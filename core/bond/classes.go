// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"maps"
	"slices"
	"time"

	"mpbond/core/trace"
	"mpbond/link/wire"
)

// SetClassTable sets the traffic classes of groups at both ends. Only the end that opens streams
// may call it. Omitted groups must not be in UsedGroups. They are retired: their IDs, and lower
// ones that were never used, must not be used again.
func (b *Bond) SetClassTable(groups []wire.Group) {
	b.applyClassTable(b.classes.serial+1, groups)
	b.control.queueBondFrameOnce(wire.TypeClassTable)
}

// UsedGroups returns the groups of streams and flows, including groups that they have left with
// bytes still to send.
func (b *Bond) UsedGroups() map[wire.GroupID]bool {
	used := map[wire.GroupID]bool{}
	for _, s := range b.streams.all {
		used[s.permission.group] = true
		for g := range s.groups.leftGroups {
			used[g] = true
		}
	}
	b.flows.collectGroups(used)
	return used
}

// endRetiredStreams acknowledges everything sent on streams that the other end has ended. If the
// app has not closed such a stream, a RESET is on its way; otherwise everything has arrived.
func (b *Bond) endRetiredStreams(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(b.streams.all)) {
		if s := b.streams.all[id]; b.classes.isGroupRetired(s.permission.group) && s.finSet {
			b.frameAcknowledged(sentFrame{stream: s, frameType: wire.TypeFin})
			b.frameAcknowledged(sentFrame{stream: s, frameType: wire.TypeData, from: s.send.firstUnacked, to: s.send.end})
		}
	}
	b.flows.endRetiredFlows(now)
}

// applyClassTable replaces the class table. Everything that waits gets its turn and subflows by the
// new one.
func (b *Bond) applyClassTable(serial uint64, groups []wire.Group) {
	b.classes.replaceGroups(serial, groups)
	b.filter.expireAnswers()
	if b.classes.ranked {
		b.backlog.reorderStreams(b.streams.all)
	}
	b.flows.applyFlowClasses()
}

// SetGroup puts the stream into a group. At the end that opened the stream it also sets the group
// of the other end if it is called before NextSegment.
func (s *Stream) SetGroup(g wire.GroupID) {
	if s.err != nil || s.permission.group == g {
		return
	}
	s.permission.group = g
	s.permission.answer.invalidateAnswer()
	s.bond.backlog.requeueStream(s)
	s.bond.backlog.updateStream(s)
}

// SetClass changes the mode and group of a stream, for the bytes that both ends send from now on.
// Only the end that opens streams may call it. It reports whether the stream exists.
func (b *Bond) SetClass(id wire.StreamID, mode wire.Mode, group wire.GroupID) bool {
	s := b.streams.all[id]
	if s == nil || s.err != nil {
		return false
	}
	s.changeClass(s.groups.serial+1, mode, group)
	b.control.queueFrame(s, wire.TypeClassUpdate)
	return true
}

// ClassOf returns the mode and group of a stream; ok is false if it does not exist.
func (b *Bond) ClassOf(id wire.StreamID) (mode wire.Mode, group wire.GroupID, ok bool) {
	s := b.streams.all[id]
	if s == nil || s.err != nil {
		return 0, 0, false
	}
	return s.permission.mode, s.permission.group, true
}

// changeClass applies the change of that serial number.
func (s *Stream) changeClass(serial uint64, mode wire.Mode, group wire.GroupID) {
	if s.bond.cfg.OpensStreams && group != s.permission.group {
		s.groups.leaveGroup(s.permission.group, serial)
	}
	s.groups.serial = serial
	if mode != s.permission.mode {
		s.bond.subflows.dropCopies(s)
	}
	s.SetMode(mode)
	s.SetGroup(group)
	s.permission.answer.invalidateAnswer()
	s.bond.trace.emitUnstamped(trace.Event{Kind: trace.StreamClassChanged, Stream: uint64(s.id), Text: mode.String()})
}

// ResetGroup resets the streams of a group for which isOld returns true.
func (b *Bond) ResetGroup(id wire.GroupID, why wire.Reset, isOld func(*Stream) bool) {
	for _, s := range b.streams.all {
		if s.permission.group == id && isOld(s) {
			s.Reset(why.Code, why.Text)
		}
	}
}
