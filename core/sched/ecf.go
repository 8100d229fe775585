package sched

import "mpbond/base/unit"

// ecf is Earliest Completion First (Lim, Nahum, Towsley, Gibbens: "ECF: An
// MPTCP Path Scheduler to Manage Heterogeneous Paths", CoNEXT 2017, section 4,
// algorithm 1): a slower subflow is used only if the fastest one, busy now,
// would not complete all that remains before it.
//
// It is fed with pipe-aware numbers: PAD is its RTT, and Th·PAD its window
// (CWND), so that k/CWND round trips of RTT take k/Th. The sender's own RTT and
// window, which the original has, would not know of the pipe. δ is the larger
// RTT deviation of the sending hops, as in the original.
type ecf struct{ waiting bool }

// ecfBeta is the hysteresis β of section 4.
const ecfBeta = 0.25

func (*ecf) Name() string { return "ecf" }

func (e *ecf) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	s := leastIdle(subflows, padOf)
	if s == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	f := fastestOf(subflows)
	if f.PAD >= s.PAD {
		return Decision{Subflow: s.ID, Reason: LeastPAD}
	}
	delta := max(f.RTTVar, s.RTTVar)
	limit := float64(s.PAD + delta)
	if e.waiting {
		limit *= 1 + ecfBeta
	}
	if float64(f.PAD+f.Th.Time(remaining)) >= limit { // n·RTT_f, n = 1 + k/CWND_f
		e.waiting = false
		return Decision{Subflow: s.ID, Reason: LeastIdlePAD}
	}
	// The slow one takes k/CWND_s round trips, and at least one.
	if max(s.PAD, s.Th.Time(remaining)) >= 2*f.PAD+delta {
		e.waiting = true
		return Decision{Wait: true, Reason: FasterIsSoon}
	}
	return Decision{Subflow: s.ID, Reason: LeastIdlePAD}
}

// fastestOf returns the path of least PAD, idle or not, or nil.
func fastestOf(subflows []Subflow) *Subflow {
	var best *Subflow
	for i := range subflows {
		if p := &subflows[i]; best == nil || p.PAD < best.PAD {
			best = p
		}
	}
	return best
}
