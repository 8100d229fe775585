package policy

import (
	"fmt"
	"slices"
	"time"

	"mpbond/link/wire"
)

// Treatment is what a rule says of how the bond carries a connection, besides
// its mode.
type Treatment struct {
	// Devices, if there are any, are those that may carry it: names of own
	// interfaces, of helpers, or of this device, for all its interfaces.
	Devices []string
	// Pipes, if there are any, are those over which helpers may carry it: names of
	// own interfaces that they come in by, or "bluetooth".
	Pipes  []string
	Single bool // over one subflow at a time
	Class  wire.Class
	Weight uint8
}

// limits reports whether not all subflows may be used.
func (t *Treatment) limits() bool { return t.Single || len(t.Devices)+len(t.Pipes) > 0 }

// Special reports whether it is another one than that of what no rule is about.
func (t *Treatment) Special() bool { return t.limits() || t.Class != wire.Normal || t.Weight != 1 }

// Key tells treatments apart.
func (t *Treatment) Key() string {
	return fmt.Sprintf("%q %q %v %v %d", t.Devices, t.Pipes, t.Single, t.Class, t.Weight)
}

// Route is a subflow as far as a Treatment asks for it.
type Route struct {
	ID     wire.PathID
	Own    bool
	Names  []string // of the device that carries it, and of its interface
	Pipe   string   // of a helped one: by which interface it comes, "" while its pipe is broken
	Tier   wire.Tier
	Silent bool
	Delay  time.Duration
}

// better reports whether a single one is to use r rather than o: one that works,
// of those one of the first tier, of those was, which it uses, and else the
// quickest. While none works it stays.
func (r *Route) better(o *Route, was wire.PathID) bool {
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

// Group is the treatment in terms of the subflows that there are. Was is what a
// single one uses, or 0: it stays with that while that works and none of an
// earlier tier does.
func (t *Treatment) Group(id wire.GroupID, routes []Route, was wire.PathID) wire.Group {
	g := wire.Group{ID: id, Class: t.Class, Weight: t.Weight, Limited: t.limits()}
	if !g.Limited {
		return g
	}
	var best *Route
	for i := range routes {
		r := &routes[i]
		if !t.permits(r) || len(g.Paths) == wire.MaxGroupPaths {
			continue
		}
		g.Paths = append(g.Paths, r.ID)
		if best == nil || r.better(best, was) {
			best = r
		}
	}
	if t.Single && best != nil {
		g.Paths = []wire.PathID{best.ID}
	}
	return g
}

func (t *Treatment) permits(r *Route) bool {
	if len(t.Devices) > 0 && !slices.ContainsFunc(r.Names, func(n string) bool { return slices.Contains(t.Devices, n) }) {
		return false
	}
	return r.Own || len(t.Pipes) == 0 || slices.Contains(t.Pipes, r.Pipe)
}
