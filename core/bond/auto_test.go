// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestAutoKeepsLittleAtTheHelper: the budget of auto leaves at the helper a
// fraction of what PAMS does, and costs a download nothing.
func TestAutoKeepsLittleAtTheHelper(t *testing.T) {
	m := unit.Mbps
	for _, rates := range [][]unit.Rate{{8 * m, 10 * m, 5 * m}, {1 * m, 18 * m, 5 * m}} {
		with, without := measure(t, "auto", 10*unit.MB, rates...), measure(t, "pams", 10*unit.MB, rates...)
		if with.atMost > without.atMost/3 {
			t.Errorf("%v: auto leaves %v at the helper, pams %v", rates, with.atMost, without.atMost)
		}
		if with.took > without.took*102/100 {
			t.Errorf("%v: auto takes %v, pams %v", rates, with.took, without.took)
		}
	}
}

// cutDirect runs a download during which the PS-path becomes a black hole at 2 s. It returns the
// longest gap in delivery, how much was at the helper before the cut, and the rate at which the
// helper was given bytes from when the sender doubts the PS-path until it takes it for silent.
func cutDirect(t *testing.T, scheduler string) (gap time.Duration, before unit.Bytes, doubting unit.Rate) {
	t.Helper()
	n := newSim(t, scheduler, 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	cut := n.now.Add(2 * time.Second)
	for d := range 2 {
		h := n.subflows[0].hops[d][0]
		h.steps = append(h.steps, simStep{cut, 0})
	}
	tr := &transfer{size: int(8 * unit.MB)}
	done := n.carry([]*transfer{tr})
	last, read := n.now, 0
	far, direct, helped := n.subflows[1].hops[1][1], n.ends[1].subflows.list[0], n.ends[1].subflows.list[1]
	var doubtAt time.Time
	var given unit.Bytes
	seen := false
	n.run(func() bool {
		if tr.read > read || tr.read == tr.size {
			gap, last, read = max(gap, n.now.Sub(last)), n.now, tr.read
		}
		switch {
		case n.now.Before(cut):
			before = unit.Bytes(far.written - far.acked)
		case seen:
		case direct.isSilent():
			doubting, seen = unit.RateOf(helped.streamBytesSent-given, n.now.Sub(doubtAt)), true
		case doubtAt.IsZero() && direct.schedulerView(direct.est.EstimateAt(n.now), n.now).Doubtful:
			doubtAt, given = n.now, helped.streamBytesSent
		}
		return done()
	})
	t.Logf("%-5s longest gap %v; at the helper %v, given %v before the direct subflow counts as silent", scheduler,
		gap.Round(time.Millisecond), before, doubting)
	return gap, before, doubting
}

// TestAutoAndADyingSubflow: what the app waits for when a subflow dies goes by the helper, and does
// not queue there behind seconds of other bytes. While the death is only suspected, the helper gets
// less than its link carries.
func TestAutoAndADyingSubflow(t *testing.T) {
	gap, before, doubting := cutDirect(t, "auto")
	other, filled, growing := cutDirect(t, "pams")
	if gap > other/2 {
		t.Errorf("auto: %v without delivery, pams %v", gap, other)
	}
	if before > filled/2 || doubting > 5*unit.Mbps/2 || growing < 5*unit.Mbps {
		t.Errorf("auto: %v at the helper, given %v in doubt; pams %v, %v", before, doubting, filled, growing)
	}
}
