// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// roundRobin uses the idle subflows in turn, by ID.
type roundRobin struct{ last wire.SubflowID }

func (*roundRobin) Name() string { return "roundrobin" }

func (r *roundRobin) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	var first, next *Subflow
	for i := range subflows {
		p := &subflows[i]
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
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	r.last = next.ID
	return Decision{Subflow: next.ID, Reason: NextInTurn}
}
