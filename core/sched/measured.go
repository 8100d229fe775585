package sched

import "mpbond/base/unit"

// measured is PAMS with a PAD whose part at a helper is what the helper's buffer
// was last measured to cost, instead of what its backlog will cost: the strawman
// that the estimation of PAD is compared with (MPBond, MobiSys 2020, section
// 4.2). What was just put into the buffer does not count until it has left it.
type measured struct{ view []Path }

func (*measured) Name() string { return "pams-measured" }

func (m *measured) Pick(paths []Path, remaining unit.Bytes) Decision {
	return pams{}.Pick(m.past(paths), remaining)
}

// Recall is the paper's rule with the same PAD.
func (m *measured) Recall(paths []Path, eta float64, so Ledger) Recall {
	return PaperRecall(m.past(paths), eta, so)
}

// past are the paths with the other PAD.
func (m *measured) past(paths []Path) []Path {
	m.view = append(m.view[:0], paths...)
	for i := range m.view {
		p := &m.view[i]
		p.Tail = max(0, p.PastPAD-(p.PAD-p.Tail))
		p.PAD = p.PastPAD
	}
	return m.view
}
