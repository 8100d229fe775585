package sched

import "mpbond/base/unit"

// minPAD uses the idle subflow of least PAD and never waits: PAMS without its
// Diff (MPBond, MobiSys 2020, section 4.3).
type minPAD struct{}

func (minPAD) Name() string { return "minpad" }

func (minPAD) Pick(paths []Path, _ unit.Bytes) Decision {
	t := least(paths, byPAD)
	if t == nil {
		return Decision{Wait: true, Reason: NoIdlePath}
	}
	for i := range paths {
		if paths[i].PAD < t.PAD {
			return Decision{Path: t.ID, Reason: LeastIdlePAD}
		}
	}
	return Decision{Path: t.ID, Reason: LeastPAD}
}
