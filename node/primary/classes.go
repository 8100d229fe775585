// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"slices"
	"time"

	"mpbond/control/policy"
	"mpbond/link/wire"
)

// classTable assigns traffic classes to connections. Connections with equal rule settings share a
// class. A class ID is never reused, and a class in use keeps its ID when the rules change. There
// are at most wire.MaxGroups classes; unused ones make room for new ones. The table computes which
// subflows each class may use and remembers what was sent to the bond, so that only changes are
// sent. Time is a parameter. Not safe for concurrent use: bondHolder.mu guards it.
type classTable struct {
	list  []*trafficClass // by ascending ID
	maxID wire.GroupID    // the highest ID used
}

// trafficClass is one class: the settings of a rule and the subflows it may use.
type trafficClass struct {
	id         wire.GroupID
	settings   *policy.TrafficClass
	key        string     // of settings
	current    wire.Group // as last sent to the bond
	isSent     bool       // the bond has this class
	emptySince time.Time  // since when no subflow is allowed; zero while one is
}

var errTooManyClasses = errors.New(
	"open connections use too many different rules, including old ones",
)

// assignClass returns the class ID for rule settings. added reports that the class is new and the
// class table must be sent. Nil settings are class 0. used returns the classes of open streams and
// flows.
func (c *classTable) assignClass(
	t *policy.TrafficClass,
	used func() map[wire.GroupID]bool,
) (id wire.GroupID, added bool, err error) {
	if t == nil {
		return 0, false, nil
	}
	i := slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.settings == t })
	if i < 0 { // the file was read again, or another rule has equal settings
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

// settingsOf returns the rule settings of a class; ok is false if there is no such class.
func (c *classTable) settingsOf(id wire.GroupID) (t policy.TrafficClass, ok bool) {
	i := slices.IndexFunc(c.list, func(g *trafficClass) bool { return g.id == id })
	if i < 0 {
		return t, false
	}
	return *c.list[i].settings, true
}

// computeTable returns the classes with the subflows that each may use. changed reports whether the
// result differs from what the bond has; the caller then sends it.
func (c *classTable) computeTable(subflows []policy.ClassSubflow, now time.Time) (table []wire.Group, changed bool) {
	for _, g := range c.list {
		previous := wire.SubflowID(0)
		if len(g.current.Subflows) > 0 {
			previous = g.current.Subflows[0]
		}
		n := g.settings.BuildGroup(g.id, subflows, previous)
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

// markAllUnsent marks all classes as unsent, for a new bond.
func (c *classTable) markAllUnsent() {
	for _, g := range c.list {
		g.isSent, g.current = false, wire.Group{}
	}
}

// emptyClass is a class without an allowed subflow, and for how long.
type emptyClass struct {
	id       wire.GroupID
	emptyFor time.Duration
}

// listEmptyClasses returns the classes without an allowed subflow.
func (c *classTable) listEmptyClasses(now time.Time) (list []emptyClass) {
	for _, g := range c.list {
		if !g.emptySince.IsZero() {
			list = append(list, emptyClass{g.id, now.Sub(g.emptySince)})
		}
	}
	return list
}

// firstSubflows returns the first allowed subflow of each class that has one, by settings key.
func (c *classTable) firstSubflows() map[string]wire.SubflowID {
	first := map[string]wire.SubflowID{}
	for _, g := range c.list {
		if len(g.current.Subflows) > 0 {
			first[g.key] = g.current.Subflows[0]
		}
	}
	return first
}

// hasNoClasses reports whether the table has no class.
func (c *classTable) hasNoClasses() bool { return len(c.list) == 0 }
