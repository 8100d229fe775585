// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"time"

	"mpbond/base/unit"
)

// redundant sends every byte over every subflow (Frömmgen, Erbshäußer, Buchmann, Zimmermann,
// Wehrle: "ReMP TCP: Low Latency Multipath TCP", IEEE ICC 2016). Each subflow carries, at its own
// pace, the bytes that others have sent and the far end lacks. The first copy counts. The cost in
// bytes grows with the number of subflows; the loss of all but one goes unnoticed.
type redundant struct{}

// MaxCopyFarWait bounds the wait before a far hop of bytes that are sent twice. Behind a longer
// queue a copy arrives too late to help.
const MaxCopyFarWait = 50 * time.Millisecond

// Redundant is the redundant scheduler, for streams that need it while the bond uses another one.
// It has no state.
var Redundant Scheduler = redundant{}

func (redundant) Name() string { return "redundant" }

func (redundant) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	var best *Subflow
	full := false
	for i := range subflows {
		p := &subflows[i]
		switch {
		case !p.Idle:
		case p.FarQueueTime > MaxCopyFarWait:
			full = true
		case best == nil || p.PAD < best.PAD:
			best = p
		}
	}
	switch {
	case best != nil:
		return Decision{Subflow: best.ID, Copy: true, Reason: OnEverySubflow}
	case full:
		return Decision{Wait: true, Reason: BudgetSpent}
	}
	return Decision{Wait: true, Reason: NoIdleSubflow}
}
