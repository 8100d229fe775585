// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"maps"
	"slices"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// trafficClass says how the streams and flows of one group are sent: their priority, weight and
// subflows. A nil *trafficClass is that of group 0, which has no limits.
type trafficClass struct {
	priority wire.Priority
	weight   uint8
	limited  bool
	allowed  []wire.SubflowID // valid if limited
}

// unknownGroup is the class of a group that no CLASS_TABLE has named yet: its streams and flows
// wait.
var unknownGroup = &trafficClass{weight: 1, limited: true}

// defaultClass is the class of group 0.
var defaultClass = &trafficClass{weight: 1}

// permissionAllows reports whether the group may use a subflow.
func (c *trafficClass) permitsSubflow(id wire.SubflowID) bool {
	return c == nil || !c.limited || slices.Contains(c.allowed, id)
}

// permitsLiveSubflow reports whether the group may use a subflow of the list that is not silent.
func (c *trafficClass) permitsLiveSubflow(list []*subflow) bool {
	return c == nil || !c.limited || slices.ContainsFunc(list,
		func(p *subflow) bool { return !p.isSilent() && c.permitsSubflow(p.id) })
}

// equivalentTo reports whether both have the same priority and subflows.
func (c *trafficClass) equivalentTo(o *trafficClass) bool {
	if c == nil {
		c = defaultClass
	}
	if o == nil {
		o = defaultClass
	}
	return c.priority == o.priority && c.limited == o.limited && slices.Equal(c.allowed, o.allowed)
}

// classTable maps each group of streams and flows to its traffic class, by the last CLASS_TABLE,
// and orders those that wait for a turn. The primary replaces the table; the server copies it from
// CLASS_TABLE frames. The serial number grows with each change. Within a priority the one that has
// sent least, divided by its weight, is next; waiting without data earns nothing (start-time fair
// queueing: Goyal, Vin, Cheng, SIGCOMM 1996). The table holds no streams or flows. Each of them
// keeps its own counter, in bytes × rankScale / weight. Not safe for concurrent use.
type classTable struct {
	groups     map[wire.GroupID]*trafficClass
	serial     uint64       // of the last CLASS_TABLE sent or received
	maxGroupID wire.GroupID // highest ID used
	limited    bool         // a group was limited to some subflows
	ranked     bool         // groups have differed in priority or weight
	// virtualTime is the counter at which the last turn of each priority began.
	virtualTime [wire.PriorityCount]uint64
}

// rankScale scales bytes, so that the division by a weight loses little.
const rankScale = 256

// findGroupClass returns the class of a group: nil for group 0, unknownGroup for one that is not in
// the table.
func (t *classTable) findGroupClass(id wire.GroupID) *trafficClass {
	if id == 0 {
		return nil
	}
	if c := t.groups[id]; c != nil {
		return c
	}
	return unknownGroup
}

// excludesSubflow reports whether there are groups and none of them may use a subflow.
func (t *classTable) excludesSubflow(id wire.SubflowID) bool {
	for _, c := range t.groups {
		if c.permitsSubflow(id) {
			return false
		}
	}
	return len(t.groups) > 0
}

// isGroupRetired reports whether the opening end has no stream or flow of a group left.
func (t *classTable) isGroupRetired(id wire.GroupID) bool {
	return id > 0 && id <= t.maxGroupID && t.groups[id] == nil
}

// replaceGroups replaces the table by these groups. It keeps no reference to them.
func (t *classTable) replaceGroups(serial uint64, groups []wire.Group) {
	t.serial = serial
	t.groups = make(map[wire.GroupID]*trafficClass, len(groups))
	for _, g := range groups {
		t.maxGroupID = max(t.maxGroupID, g.ID)
		t.groups[g.ID] = &trafficClass{g.Priority, g.Weight, g.Limited, slices.Clone(g.Subflows)}
		t.limited = t.limited || g.Limited
		t.ranked = t.ranked || g.Priority != wire.Normal || g.Weight != 1
	}
}

// buildFrame returns the table as a CLASS_TABLE frame, groups by rising ID.
func (t *classTable) buildFrame() wire.ClassTable {
	f := wire.ClassTable{Serial: t.serial}
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		c := t.groups[id]
		f.Groups = append(f.Groups, wire.Group{ID: id, Priority: c.priority, Weight: c.weight, Limited: c.limited,
			Subflows: c.allowed})
	}
	return f
}

// rank orders the turn of a stream or flow among others.
type rank struct {
	priority wire.Priority
	weight   uint8
	sent     *uint64 // its counter
}

// rankInGroup returns the rank of a stream or flow of the group with that counter.
func (t *classTable) rankInGroup(id wire.GroupID, sent *uint64) rank {
	if c := t.findGroupClass(id); c != nil {
		return rank{c.priority, c.weight, sent}
	}
	return rank{wire.Normal, 1, sent}
}

// catchUpCounter updates the counter of a stream or flow that starts to wait.
func (t *classTable) catchUpCounter(r rank) { *r.sent = max(*r.sent, t.virtualTime[r.priority]) }

// beginRankedTurn starts the turn of r, in which it then sends bytes.
func (t *classTable) beginRankedTurn(r rank) {
	t.virtualTime[r.priority] = max(t.virtualTime[r.priority], *r.sent)
}

// countSentBytes counts n bytes sent.
func (r rank) countSentBytes(n unit.Bytes) { *r.sent += uint64(n) * rankScale / uint64(r.weight) }

// staysBefore reports whether r, which waits, stays ahead of n, which joins.
func (r rank) staysBefore(n rank) bool {
	return r.priority.Above(n.priority) || r.priority == n.priority && *r.sent <= *n.sent
}

// insertByRank inserts x at its next turn in a list of waiting elements: at the end if all have the
// same priority and weight.
func insertByRank[T any](t *classTable, list []T, x T, rankOf func(T) rank) []T {
	at := len(list)
	if t.ranked {
		r := rankOf(x)
		t.catchUpCounter(r)
		for at > 0 && !rankOf(list[at-1]).staysBefore(r) {
			at--
		}
	}
	return slices.Insert(list, at, x)
}

// groupHistory records the changes of a stream's mode and group. The opening end keeps each group
// that the stream has left until the other end confirms the change: until then bytes may still be
// sent by that group's class. The zero value has no change.
type groupHistory struct {
	serial     uint64 // of the last change, from 1
	leftGroups map[wire.GroupID]uint64
}

// leaveGroup records that the change of that serial number removed the stream from a group.
func (h *groupHistory) leaveGroup(g wire.GroupID, serial uint64) {
	if h.leftGroups == nil {
		h.leftGroups = map[wire.GroupID]uint64{}
	}
	h.leftGroups[g] = serial
}

// confirmChange records that the other end has received the change of that serial number, and so
// all before it.
func (h *groupHistory) confirmChange(serial uint64) {
	maps.DeleteFunc(h.leftGroups, func(_ wire.GroupID, left uint64) bool { return left <= serial })
}
