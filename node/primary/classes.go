package primary

import (
	"errors"
	"slices"
	"time"

	"mpbond/control/policy"
	"mpbond/link/wire"
)

// classTable holds the traffic classes of a bond's plan: connections whose rules say the
// same share a class, and its number. A number never means two things, and a class that
// is in use keeps its own, also when the rules change. There are at most wire.MaxGroups;
// unused ones make room for new ones. The table decides which subflows each class may use
// and remembers what the bond was sent, so that only changes are sent. It takes the time
// as a parameter, knows no bond, and is not safe for concurrent use: the owner of the bond
// guards it.
type classTable struct {
	list   []*trafficClass // by rising number
	newest wire.GroupID    // the highest number that was used
}

// trafficClass is what rules treat alike.
type trafficClass struct {
	id    wire.GroupID
	treat *policy.Treatment
	key   string     // of treat
	now   wire.Group // as the bond has it
	sent  bool       // the bond has it
	empty time.Time  // since when there is no subflow for it; zero: there is one
}

var errTooMany = errors.New("the connections that are open are of too many different kinds of rules, also of rules that are in force no more")

// assign returns the class of a treatment, and whether it is new, so that the plan must be
// sent; nil is class 0. used returns the classes that streams and flows are of.
func (c *classTable) assign(t *policy.Treatment, used func() map[wire.GroupID]bool) (id wire.GroupID, added bool, err error) {
	if t == nil {
		return 0, false, nil
	}
	i := slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.treat == t })
	if i < 0 { // the file was read anew, or another rule says the same
		key := t.Key()
		i = slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.key == key })
	}
	if i >= 0 {
		c.list[i].treat = t
		return c.list[i].id, false, nil
	}
	if len(c.list) == wire.MaxGroups {
		inUse := used()
		c.list = slices.DeleteFunc(c.list, func(g *trafficClass) bool { return !inUse[g.id] })
	}
	if len(c.list) == wire.MaxGroups {
		return 0, false, wire.Reset{Code: wire.CodeLimit, Text: errTooMany.Error()}
	}
	c.newest++
	c.list = append(c.list, &trafficClass{id: c.newest, treat: t, key: t.Key()})
	return c.newest, true, nil
}

// treatment returns what the rules say of a class; ok is false if there is none.
func (c *classTable) treatment(id wire.GroupID) (t policy.Treatment, ok bool) {
	i := slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.id == id })
	if i < 0 {
		return t, false
	}
	return *c.list[i].treat, true
}

// computePlan returns the classes with the subflows that each may use, and reports whether that
// differs from what the bond has; the caller then sends it.
func (c *classTable) computePlan(routes []policy.Route, now time.Time) (plan []wire.Group, changed bool) {
	for _, g := range c.list {
		was := wire.PathID(0)
		if len(g.now.Paths) > 0 {
			was = g.now.Paths[0]
		}
		n := g.treat.Group(g.id, routes, was)
		plan = append(plan, n)
		if g.sent && slices.Equal(n.Paths, g.now.Paths) {
			continue
		}
		g.now, g.sent, changed = n, true, true
		switch {
		case !n.Limited || len(n.Paths) > 0:
			g.empty = time.Time{}
		case g.empty.IsZero():
			g.empty = now
		}
	}
	return plan, changed
}

// forgetSent is for a new bond, which has no class yet.
func (c *classTable) forgetSent() {
	for _, g := range c.list {
		g.sent, g.now = false, wire.Group{}
	}
}

// emptyClass is a class that has had no subflow for a while.
type emptyClass struct {
	id   wire.GroupID
	gone time.Duration
}

// emptyFor returns the classes that have had no subflow for longer than limit.
func (c *classTable) emptyFor(now time.Time, limit time.Duration) (list []emptyClass) {
	for _, g := range c.list {
		if gone := now.Sub(g.empty); !g.empty.IsZero() && gone > limit {
			list = append(list, emptyClass{g.id, gone})
		}
	}
	return list
}

// firstSubflows returns the first subflow of each class that has one, by the key of its treatment.
func (c *classTable) firstSubflows() map[string]wire.PathID {
	first := map[string]wire.PathID{}
	for _, g := range c.list {
		if len(g.now.Paths) > 0 {
			first[g.key] = g.now.Paths[0]
		}
	}
	return first
}

// isEmpty reports whether there is no class.
func (c *classTable) isEmpty() bool { return len(c.list) == 0 }
