// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"time"

	"mpbond/link/wire"
)

// TrafficClass says how the bond carries a connection, apart from its mode.
type TrafficClass struct {
	// Devices, if not empty, are the devices that may carry it: names of local interfaces, of
	// helpers, or of this device for all its interfaces.
	Devices []string
	// Pipes, if not empty, are the pipes over which helpers may carry it: names of the local
	// interfaces of the pipes, or "bluetooth".
	Pipes    []string
	Single   bool // use one subflow at a time
	Priority wire.Priority
	Weight   uint8
}

// limitsSubflows reports whether some subflows may be excluded.
func (t *TrafficClass) limitsSubflows() bool { return t.Single || len(t.Devices)+len(t.Pipes) > 0 }

// IsSpecial reports whether the class differs from the default.
func (t *TrafficClass) IsSpecial() bool {
	return t.limitsSubflows() || t.Priority != wire.Normal || t.Weight != 1
}

// Key returns a text that is equal for equal classes.
func (t *TrafficClass) Key() string {
	return fmt.Sprintf("%q %q %v %v %d", t.Devices, t.Pipes, t.Single, t.Priority, t.Weight)
}

// ClassSubflow is a subflow as TrafficClass sees it.
type ClassSubflow struct {
	ID     wire.SubflowID
	Direct bool     // over an interface of this device; else by a helper
	Names  []string // names of the device that carries it and of its interface
	Pipe   string   // interface of a helped subflow's pipe, "" while the pipe is broken
	Tier   wire.Tier
	Silent bool
	Delay  time.Duration
}

// isPreferredTo reports whether a single-subflow class prefers s to o. A working subflow comes
// first, then the lower tier, then the current subflow, then the least delay. While none works, the
// current one stays.
func (s *ClassSubflow) isPreferredTo(o *ClassSubflow, current wire.SubflowID) bool {
	stay := s.ID == current || o.ID == current
	switch {
	case s.Silent != o.Silent:
		return o.Silent
	case stay && (s.Silent || s.Tier == o.Tier):
		return s.ID == current
	case s.Tier != o.Tier:
		return s.Tier < o.Tier
	}
	return s.Delay < o.Delay
}

// BuildGroup returns the class as a group of the subflows that it permits. current is the subflow
// that a single-subflow class uses, or 0. It keeps that one while it works and no subflow of a
// better tier does.
func (t *TrafficClass) BuildGroup(id wire.GroupID, subflows []ClassSubflow, current wire.SubflowID) wire.Group {
	g := wire.Group{ID: id, Priority: t.Priority, Weight: t.Weight, Limited: t.limitsSubflows()}
	if !g.Limited {
		return g
	}
	var best *ClassSubflow
	for i := range subflows {
		r := &subflows[i]
		if !t.allowsSubflow(r) || len(g.Subflows) == wire.MaxGroupSubflows {
			continue
		}
		g.Subflows = append(g.Subflows, r.ID)
		if best == nil || r.isPreferredTo(best, current) {
			best = r
		}
	}
	if t.Single && best != nil {
		g.Subflows = []wire.SubflowID{best.ID}
	}
	return g
}

// allowsSubflow reports whether the class permits a subflow.
func (t *TrafficClass) allowsSubflow(r *ClassSubflow) bool {
	if len(t.Devices) > 0 && !slices.ContainsFunc(r.Names, func(n string) bool { return slices.Contains(t.Devices, n) }) {
		return false
	}
	return r.Direct || len(t.Pipes) == 0 || slices.Contains(t.Pipes, r.Pipe)
}
