package bond

import (
	"maps"
	"slices"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// trafficClass is how streams and flows of one group are sent: before or behind others, and
// by which subflows. A nil *trafficClass is that of group 0, which has no limits.
type trafficClass struct {
	class   wire.Class
	weight  uint8
	limited bool
	allowed []wire.PathID // if limited
}

// unknownGroup is the class of a group that no PLAN has named yet: what belongs to it waits.
var unknownGroup = &trafficClass{weight: 1, limited: true}

// defaultClass is that of group 0.
var defaultClass = &trafficClass{weight: 1}

// permits reports whether the group may use a subflow.
func (c *trafficClass) permits(id wire.PathID) bool {
	return c == nil || !c.limited || slices.Contains(c.allowed, id)
}

// permitsLive reports whether the group may use a subflow of the list that is not silent.
func (c *trafficClass) permitsLive(list []*subflow) bool {
	return c == nil || !c.limited || slices.ContainsFunc(list, func(p *subflow) bool { return !p.silent() && c.permits(p.id) })
}

// equal reports whether both are of one class and may use the same subflows.
func (c *trafficClass) equal(o *trafficClass) bool {
	if c == nil {
		c = defaultClass
	}
	if o == nil {
		o = defaultClass
	}
	return c.class == o.class && c.limited == o.limited && slices.Equal(c.allowed, o.allowed)
}

// classTable maps each group of streams and flows to its traffic class, as the last PLAN
// said, and orders those that wait for their turn. The primary replaces the table, the server
// takes its copy from PLAN frames; the serial number grows with each change. In a class the
// one that has sent least, over its weight, is next; one that has waited for nothing gets no
// more for that (start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996). The table knows
// no stream or flow: each keeps a counter of its own, in bytes × rankScale / weight. Not safe
// for concurrent use.
type classTable struct {
	groups   map[wire.GroupID]*trafficClass
	serial   uint64       // of the last PLAN sent or received
	maxGroup wire.GroupID // the highest ID used
	limited  bool         // a group was limited to some subflows
	ranked   bool         // groups have differed in class or weight
	// virtualTime is, by class, the counter at which the last turn began.
	virtualTime [wire.ClassCount]uint64
}

// rankScale is what bytes are multiplied with, so that weights divide them well.
const rankScale = 256

// find returns the class of a group: nil for group 0, unknownGroup for one not in the table.
func (t *classTable) find(id wire.GroupID) *trafficClass {
	if id == 0 {
		return nil
	}
	if c := t.groups[id]; c != nil {
		return c
	}
	return unknownGroup
}

// retired reports that the end that opens has nothing of a group any more.
func (t *classTable) retired(id wire.GroupID) bool {
	return id > 0 && id <= t.maxGroup && t.groups[id] == nil
}

// replace makes the table consist of these groups. It keeps no reference to them.
func (t *classTable) replace(serial uint64, groups []wire.Group) {
	t.serial = serial
	t.groups = make(map[wire.GroupID]*trafficClass, len(groups))
	for _, g := range groups {
		t.maxGroup = max(t.maxGroup, g.ID)
		t.groups[g.ID] = &trafficClass{g.Class, g.Weight, g.Limited, slices.Clone(g.Paths)}
		t.limited = t.limited || g.Limited
		t.ranked = t.ranked || g.Class != wire.Normal || g.Weight != 1
	}
}

// frame returns the table as a PLAN frame, groups by rising ID.
func (t *classTable) frame() wire.Plan {
	f := wire.Plan{Serial: t.serial}
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		c := t.groups[id]
		f.Groups = append(f.Groups, wire.Group{ID: id, Class: c.class, Weight: c.weight, Limited: c.limited, Paths: c.allowed})
	}
	return f
}

// rank is where one stream or flow has its turn among others.
type rank struct {
	class  wire.Class
	weight uint8
	sent   *uint64 // its counter
}

// rank returns the rank of one of a group with that counter.
func (t *classTable) rank(id wire.GroupID, sent *uint64) rank {
	if c := t.find(id); c != nil {
		return rank{c.class, c.weight, sent}
	}
	return rank{wire.Normal, 1, sent}
}

// join brings the counter of one that begins to wait up to date.
func (t *classTable) join(r rank) { *r.sent = max(*r.sent, t.virtualTime[r.class]) }

// beginTurn begins the turn of r, in which it then sends bytes.
func (t *classTable) beginTurn(r rank) {
	t.virtualTime[r.class] = max(t.virtualTime[r.class], *r.sent)
}

// count counts n bytes sent.
func (r rank) count(n unit.Bytes) { *r.sent += uint64(n) * rankScale / uint64(r.weight) }

// before reports whether r, which waits, stays before one that joins with rank n.
func (r rank) before(n rank) bool {
	return r.class.Above(n.class) || r.class == n.class && *r.sent <= *n.sent
}

// insertByRank puts x where its next turn is in a list of those that wait: without classes
// and weights behind all others.
func insertByRank[T any](t *classTable, list []T, x T, rankOf func(T) rank) []T {
	at := len(list)
	if t.ranked {
		r := rankOf(x)
		t.join(r)
		for at > 0 && !rankOf(list[at-1]).before(r) {
			at--
		}
	}
	return slices.Insert(list, at, x)
}

// groupHistory is the changes of a stream's mode and group since it was opened. The end that
// opens keeps each group that the stream has left until the other end confirms that change,
// since bytes of it may still be sent by that group's class. The zero value has no change.
type groupHistory struct {
	serial uint64 // of the last change, from 1
	left   map[wire.GroupID]uint64
}

// leave notes that the change of that serial number took the stream out of a group.
func (h *groupHistory) leave(g wire.GroupID, serial uint64) {
	if h.left == nil {
		h.left = map[wire.GroupID]uint64{}
	}
	h.left[g] = serial
}

// confirm notes that the other end knows the change of that number, and so those before it.
func (h *groupHistory) confirm(serial uint64) {
	maps.DeleteFunc(h.left, func(_ wire.GroupID, left uint64) bool { return left <= serial })
}
