package sched

import "mpbond/base/unit"

// measuredPAMS is PAMS with a PAD whose part at a helper is what the helper's buffer
// was last measured to cost, instead of what its backlog will cost: the strawman
// that the estimation of PAD is compared with (MPBond, MobiSys 2020, section
// 4.2). What was just put into the buffer does not count until it has left it.
type measuredPAMS struct{ view []Subflow }

func (*measuredPAMS) Name() string { return "pams-measured" }

func (m *measuredPAMS) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	return pams{}.Pick(m.withMeasuredPAD(subflows), remaining)
}

// Recall is the paper's rule with the same PAD.
func (m *measuredPAMS) Recall(subflows []Subflow, eta float64, so Ledger) Recall {
	return PaperRecall(m.withMeasuredPAD(subflows), eta, so)
}

// withMeasuredPAD are the paths with the other PAD.
func (m *measuredPAMS) withMeasuredPAD(subflows []Subflow) []Subflow {
	m.view = append(m.view[:0], subflows...)
	for i := range m.view {
		p := &m.view[i]
		p.Tail = max(0, p.PastPAD-(p.PAD-p.Tail))
		p.PAD = p.PastPAD
	}
	return m.view
}
