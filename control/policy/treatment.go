package policy

import (
	"fmt"
	"slices"
	"time"

	"mpbond/link/wire"
)

// TrafficClass is what a rule says of how the bond carries a connection, besides
// its mode.
type TrafficClass struct {
	// Devices, if there are any, are those that may carry it: names of own
	// interfaces, of helpers, or of this device, for all its interfaces.
	Devices []string
	// Pipes, if there are any, are those over which helpers may carry it: names of
	// own interfaces that they come in by, or "bluetooth".
	Pipes    []string
	Single   bool // over one subflow at a time
	Priority wire.Priority
	Weight   uint8
}

// isLimited reports whether not all subflows may be used.
func (t *TrafficClass) isLimited() bool { return t.Single || len(t.Devices)+len(t.Pipes) > 0 }

// IsSpecial reports whether it is another one than that of what no rule is about.
func (t *TrafficClass) IsSpecial() bool {
	return t.isLimited() || t.Priority != wire.Normal || t.Weight != 1
}

// Key tells treatments apart.
func (t *TrafficClass) Key() string {
	return fmt.Sprintf("%q %q %v %v %d", t.Devices, t.Pipes, t.Single, t.Priority, t.Weight)
}

// ClassSubflow is a subflow as far as a Treatment asks for it.
type ClassSubflow struct {
	ID     wire.SubflowID
	Local  bool
	Names  []string // of the device that carries it, and of its interface
	Pipe   string   // of a helped one: by which interface it comes, "" while its pipe is broken
	Tier   wire.Tier
	Silent bool
	Delay  time.Duration
}

// isBetter reports whether a single one is to use r rather than o: one that works,
// of those one of the first tier, of those was, which it uses, and else the
// quickest. While none works it stays.
func (r *ClassSubflow) isBetter(o *ClassSubflow, was wire.SubflowID) bool {
	stay := r.ID == was || o.ID == was
	switch {
	case r.Silent != o.Silent:
		return o.Silent
	case stay && (r.Silent || r.Tier == o.Tier):
		return r.ID == was
	case r.Tier != o.Tier:
		return r.Tier < o.Tier
	}
	return r.Delay < o.Delay
}

// BuildGroup is the treatment in terms of the subflows that there are. Was is what a
// single one uses, or 0: it stays with that while that works and none of an
// earlier tier does.
func (t *TrafficClass) BuildGroup(id wire.GroupID, routes []ClassSubflow, was wire.SubflowID) wire.Group {
	g := wire.Group{ID: id, Priority: t.Priority, Weight: t.Weight, Limited: t.isLimited()}
	if !g.Limited {
		return g
	}
	var best *ClassSubflow
	for i := range routes {
		r := &routes[i]
		if !t.permitsSubflow(r) || len(g.Subflows) == wire.MaxGroupSubflows {
			continue
		}
		g.Subflows = append(g.Subflows, r.ID)
		if best == nil || r.isBetter(best, was) {
			best = r
		}
	}
	if t.Single && best != nil {
		g.Subflows = []wire.SubflowID{best.ID}
	}
	return g
}

func (t *TrafficClass) permitsSubflow(r *ClassSubflow) bool {
	if len(t.Devices) > 0 && !slices.ContainsFunc(r.Names, func(n string) bool { return slices.Contains(t.Devices, n) }) {
		return false
	}
	return r.Local || len(t.Pipes) == 0 || slices.Contains(t.Pipes, r.Pipe)
}
