// SPDX-License-Identifier: Apache-2.0

package sched

import "mpbond/base/unit"

// minPAD uses the idle subflow of least PAD and never waits. It is PAMS without Diff (MPBond,
// MobiSys 2020, section 4.3).
type minPAD struct{}

func (minPAD) Name() string { return "minpad" }

func (minPAD) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	t := leastIdleSubflow(subflows, padOf)
	if t == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	for i := range subflows {
		if subflows[i].PAD < t.PAD {
			return Decision{Subflow: t.ID, Reason: FastestIdle}
		}
	}
	return Decision{Subflow: t.ID, Reason: Fastest}
}
