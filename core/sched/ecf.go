// SPDX-License-Identifier: Apache-2.0

package sched

import "mpbond/base/unit"

// ecf is Earliest Completion First (Lim, Nahum, Towsley, Gibbens: "ECF: An MPTCP Path Scheduler to
// Manage Heterogeneous Paths", CoNEXT 2017, section 4, algorithm 1). It uses a slower subflow only
// if the fastest one, which is busy, would not complete all remaining bytes first.
//
// The inputs are pipe-aware: PAD serves as the RTT and Th·PAD as the window (CWND), so that k/CWND
// round trips take k/Th. The original uses the sender's RTT and window, which do not include the
// pipe. δ is the larger RTT deviation of the sending hops, as in the original.
type ecf struct{ waiting bool }

// ecfBeta is the hysteresis β of section 4.
const ecfBeta = 0.25

func (*ecf) Name() string { return "ecf" }

func (e *ecf) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	s := leastIdleSubflow(subflows, padOf)
	if s == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	f := fastestSubflow(subflows)
	if f.PAD >= s.PAD {
		return Decision{Subflow: s.ID, Reason: Fastest}
	}
	delta := max(f.RTTVar, s.RTTVar)
	limit := float64(s.PAD + delta)
	if e.waiting {
		limit *= 1 + ecfBeta
	}
	if float64(f.PAD+f.Th.Time(remaining)) >= limit { // n·RTT_f, n = 1 + k/CWND_f
		e.waiting = false
		return Decision{Subflow: s.ID, Reason: FastestIdle}
	}
	// The slow subflow needs k/CWND_s round trips, at least one.
	if max(s.PAD, s.Th.Time(remaining)) >= 2*f.PAD+delta {
		e.waiting = true
		return Decision{Wait: true, Reason: FasterIsSoon}
	}
	return Decision{Subflow: s.ID, Reason: FastestIdle}
}

// fastestSubflow returns the subflow of least PAD, idle or not; nil if there is none.
func fastestSubflow(subflows []Subflow) *Subflow {
	var best *Subflow
	for i := range subflows {
		if p := &subflows[i]; best == nil || p.PAD < best.PAD {
			best = p
		}
	}
	return best
}
