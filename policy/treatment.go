package policy

import (
	"fmt"
	"slices"
	"time"

	"mpbond/wire"
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
	Silent bool
	Delay  time.Duration
}

// Group is the treatment in terms of the subflows that there are. Was is what a
// single one uses, which it stays with while that one works, or 0.
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
		switch {
		case best == nil, best.Silent && !r.Silent:
			best = r
		case r.Silent != best.Silent || best.ID == was:
		case r.ID == was || r.Delay < best.Delay:
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
