package sched

import "mpbond/base/unit"

// pams is the pipe-aware multipath scheduler (MPBond, MobiSys 2020, section
// 4.3): use the idle subflow of least PAD, unless the quicker busy ones
// together deliver all that remains before it would.
type pams struct{}

func (pams) Name() string { return "pams" }

func (pams) Pick(paths []Path, remaining unit.Bytes) Decision {
	t := least(paths, byPAD)
	if t == nil {
		return Decision{Wait: true, Reason: NoIdlePath}
	}
	if len(paths) == 1 {
		return Decision{Path: t.ID, Reason: OnlyPath}
	}
	var diff unit.Bytes
	quicker := false
	for i := range paths {
		if p := &paths[i]; !p.Idle && p.PAD < t.PAD {
			quicker = true
			diff += p.Th.Bytes(t.PAD - p.PAD)
		}
	}
	switch {
	case !quicker:
		return Decision{Path: t.ID, Reason: LeastPAD}
	case diff > remaining:
		return Decision{Wait: true, Reason: FasterIsSoon, Diff: diff}
	}
	return Decision{Path: t.ID, Reason: LeastIdlePAD, Diff: diff}
}
