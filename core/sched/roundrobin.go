package sched

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// roundRobin uses the idle subflows in turn, by path number.
type roundRobin struct{ last wire.PathID }

func (*roundRobin) Name() string { return "roundrobin" }

func (r *roundRobin) Pick(paths []Path, _ unit.Bytes) Decision {
	var first, next *Path
	for i := range paths {
		p := &paths[i]
		if !p.Idle {
			continue
		}
		if first == nil || p.ID < first.ID {
			first = p
		}
		if p.ID > r.last && (next == nil || p.ID < next.ID) {
			next = p
		}
	}
	if next == nil {
		next = first
	}
	if next == nil {
		return Decision{Wait: true, Reason: NoIdlePath}
	}
	r.last = next.ID
	return Decision{Path: next.ID, Reason: NextInTurn}
}
