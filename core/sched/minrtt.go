package sched

import "mpbond/base/unit"

// minRTT uses the idle subflow whose sending hop has the least smoothed round
// trip, as kernel MPTCP's default does (the multipath-tcp.org kernel, MPTCP v0; MPBond
// calls it "naive"). It cannot see a pipe.
type minRTT struct{}

func (minRTT) Name() string { return "minrtt" }

func (minRTT) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	t := leastIdle(subflows, rttOf)
	if t == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	return Decision{Subflow: t.ID, Reason: LeastRTT}
}
