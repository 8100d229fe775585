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
	list  []*trafficClass // by rising number
	maxID wire.GroupID    // the highest number that was used
}

// trafficClass is what rules treat alike.
type trafficClass struct {
	id         wire.GroupID
	settings   *policy.TrafficClass
	key        string     // of treat
	current    wire.Group // as the bond has it
	isSent     bool       // the bond has it
	emptySince time.Time  // since when there is no subflow for it; zero: there is one
}

var errTooManyClasses = errors.New("the connections that are open are of too many different kinds of rules, also of rules that are in force no more")

// assignClass returns the class of a treatment, and whether it is new, so that the plan must be
// sent; nil is class 0. used returns the classes that streams and flows are of.
func (c *classTable) assignClass(t *policy.TrafficClass, used func() map[wire.GroupID]bool) (id wire.GroupID, added bool, err error) {
	if t == nil {
		return 0, false, nil
	}
	i := slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.settings == t })
	if i < 0 { // the file was read anew, or another rule says the same
		key := t.Key()
		i = slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.key == key })
	}
	if i >= 0 {
		c.list[i].settings = t
		return c.list[i].id, false, nil
	}
	if len(c.list) == wire.MaxGroups {
		inUse := used()
		c.list = slices.DeleteFunc(c.list, func(g *trafficClass) bool { return !inUse[g.id] })
	}
	if len(c.list) == wire.MaxGroups {
		return 0, false, wire.Reset{Code: wire.CodeLimit, Text: errTooManyClasses.Error()}
	}
	c.maxID++
	c.list = append(c.list, &trafficClass{id: c.maxID, settings: t, key: t.Key()})
	return c.maxID, true, nil
}

// settingsOf returns what the rules say of a class; ok is false if there is none.
func (c *classTable) settingsOf(id wire.GroupID) (t policy.TrafficClass, ok bool) {
	i := slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.id == id })
	if i < 0 {
		return t, false
	}
	return *c.list[i].settings, true
}

// computeTable returns the classes with the subflows that each may use, and reports whether that
// differs from what the bond has; the caller then sends it.
func (c *classTable) computeTable(routes []policy.ClassSubflow, now time.Time) (table []wire.Group, changed bool) {
	for _, g := range c.list {
		previous := wire.SubflowID(0)
		if len(g.current.Subflows) > 0 {
			previous = g.current.Subflows[0]
		}
		n := g.settings.BuildGroup(g.id, routes, previous)
		table = append(table, n)
		if g.isSent && slices.Equal(n.Subflows, g.current.Subflows) {
			continue
		}
		g.current, g.isSent, changed = n, true, true
		switch {
		case !n.Limited || len(n.Subflows) > 0:
			g.emptySince = time.Time{}
		case g.emptySince.IsZero():
			g.emptySince = now
		}
	}
	return table, changed
}

// resetSent is for a new bond, which has no class yet.
func (c *classTable) resetSent() {
	for _, g := range c.list {
		g.isSent, g.current = false, wire.Group{}
	}
}

// emptyClass is a class that has had no subflow for a while.
type emptyClass struct {
	id       wire.GroupID
	emptyFor time.Duration
}

// listEmpty returns the classes that have had no subflow for longer than limit.
func (c *classTable) listEmpty(now time.Time, limit time.Duration) (list []emptyClass) {
	for _, g := range c.list {
		if gone := now.Sub(g.emptySince); !g.emptySince.IsZero() && gone > limit {
			list = append(list, emptyClass{g.id, gone})
		}
	}
	return list
}

// firstSubflows returns the first subflow of each class that has one, by the key of its treatment.
func (c *classTable) firstSubflows() map[string]wire.SubflowID {
	first := map[string]wire.SubflowID{}
	for _, g := range c.list {
		if len(g.current.Subflows) > 0 {
			first[g.key] = g.current.Subflows[0]
		}
	}
	return first
}

// isEmpty reports whether there is no class.
func (c *classTable) isEmpty() bool { return len(c.list) == 0 }
