package sched

import (
	"time"

	"mpbond/base/unit"
)

// redundant sends every byte over every subflow (Frömmgen, Erbshäußer,
// Buchmann, Zimmermann, Wehrle: "ReMP TCP: Low Latency Multipath TCP", IEEE ICC
// 2016): each carries what the others have and the far end does not yet, at
// its own pace; the first copy counts. It costs as many times the bytes as
// there are subflows, and hides the loss of all but one.
type redundant struct{}

// StaleAfter bounds how long bytes may wait before a far hop that are to
// arrive twice: behind a longer queue a copy comes too late to be of use.
const StaleAfter = 50 * time.Millisecond

// Redundant is that scheduler, for streams that want it under another one. It
// has no state.
var Redundant Scheduler = redundant{}

func (redundant) Name() string { return "redundant" }

func (redundant) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	var best *Subflow
	full := false
	for i := range subflows {
		p := &subflows[i]
		switch {
		case !p.Idle:
		case p.FarWait > StaleAfter:
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
