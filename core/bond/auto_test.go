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
// longest gap in delivery, and how much was at the helper before the cut and when the sender is
// about to take the PS-path for silent.
func cutDirect(t *testing.T, scheduler string) (gap time.Duration, before, doubting unit.Bytes) {
	t.Helper()
	n := newSim(t, scheduler, 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	cut := n.now.Add(2 * time.Second)
	for d := range 2 {
		h := n.paths[0].hops[d][0]
		h.steps = append(h.steps, simStep{cut, 0})
	}
	tr := &transfer{size: int(8 * unit.MB)}
	done := n.carry([]*transfer{tr})
	last, read, seen := n.now, 0, false
	far, direct := n.paths[1].hops[1][1], n.ends[1].subflows.list[0]
	n.run(func() bool {
		if tr.read > read || tr.read == tr.size {
			gap, last, read = max(gap, n.now.Sub(last)), n.now, tr.read
		}
		held := unit.Bytes(far.written - far.acked)
		switch {
		case n.now.Before(cut):
			before = held
		case !seen:
			doubting, seen = held, direct.isSilent()
		}
		return done()
	})
	t.Logf("%-5s longest gap %v; at the helper %v, and %v before the direct subflow counts as silent", scheduler,
		gap.Round(time.Millisecond), before, doubting)
	return gap, before, doubting
}

// TestAutoAndADyingPath: what the app waits for when a subflow dies goes by the
// helper, and does not queue there behind seconds of other bytes; less than ever
// is given to that from when the subflow's death is but suspected.
func TestAutoAndADyingPath(t *testing.T) {
	gap, before, doubting := cutDirect(t, "auto")
	other, _, growing := cutDirect(t, "pams")
	if gap > other/2 {
		t.Errorf("auto: %v without delivery, pams %v", gap, other)
	}
	if doubting > before*3/4 || growing < before {
		t.Errorf("auto: %v at the helper before, %v in doubt; pams %v", before, doubting, growing)
	}
}
