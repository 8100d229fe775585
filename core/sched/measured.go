// SPDX-License-Identifier: Apache-2.0

package sched

import "mpbond/base/unit"

// measuredPAMS is PAMS with a measured PAD: for a helper it uses the delay that the helper's buffer
// last caused, not the delay predicted from its backlog. It is the strawman that the estimation of
// PAD is compared with (MPBond, MobiSys 2020, section 4.2). New bytes in the buffer do not count
// until they have left it.
type measuredPAMS struct{ view []Subflow }

func (*measuredPAMS) Name() string { return "pams-measured" }

func (m *measuredPAMS) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	return pams{}.Pick(m.withMeasuredPAD(subflows), remaining)
}

// Recall applies the paper's rule with the measured PAD.
func (m *measuredPAMS) Recall(subflows []Subflow, eta float64, sent Ledger) Recall {
	return PaperRecall(m.withMeasuredPAD(subflows), eta, sent)
}

// withMeasuredPAD returns a copy of the subflows with the measured PAD. It is valid until the next
// call.
func (m *measuredPAMS) withMeasuredPAD(subflows []Subflow) []Subflow {
	m.view = append(m.view[:0], subflows...)
	for i := range m.view {
		p := &m.view[i]
		p.Tail = max(0, p.PastPAD-(p.PAD-p.Tail))
		p.PAD = p.PastPAD
	}
	return m.view
}
