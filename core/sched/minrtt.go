// SPDX-License-Identifier: Apache-2.0

package sched

import "mpbond/base/unit"

// minRTT uses the idle subflow whose sending hop has the least smoothed round trip. This is the
// default of kernel MPTCP (the multipath-tcp.org kernel, MPTCP v0), which MPBond calls "naive". It
// ignores the delay of a pipe.
type minRTT struct{}

func (minRTT) Name() string { return "minrtt" }

func (minRTT) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	t := leastIdleSubflow(subflows, srttOf)
	if t == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	return Decision{Subflow: t.ID, Reason: LeastRTT}
}
