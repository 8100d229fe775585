// SPDX-License-Identifier: Apache-2.0

package sched

import "mpbond/base/unit"

// pams is the pipe-aware multipath scheduler (MPBond, MobiSys 2020, section 4.3). It uses the idle
// subflow of least PAD, unless the faster busy subflows together deliver all remaining bytes before
// it would.
type pams struct{}

func (pams) Name() string { return "pams" }

func (pams) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	t := leastIdle(subflows, padOf)
	if t == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	if len(subflows) == 1 {
		return Decision{Subflow: t.ID, Reason: OnlySubflow}
	}
	var diff unit.Bytes
	quicker := false
	for i := range subflows {
		if p := &subflows[i]; !p.Idle && p.PAD < t.PAD {
			quicker = true
			diff += p.Th.Bytes(t.PAD - p.PAD)
		}
	}
	switch {
	case !quicker:
		return Decision{Subflow: t.ID, Reason: LeastPAD}
	case diff > remaining:
		return Decision{Wait: true, Reason: FasterIsSoon, Diff: diff}
	}
	return Decision{Subflow: t.ID, Reason: LeastIdlePAD, Diff: diff}
}
