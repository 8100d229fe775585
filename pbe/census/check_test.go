// SPDX-License-Identifier: Apache-2.0

package census

import (
	"testing"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// grantOf returns a message that names some blocks.
func grantOf(user cell.RNTI, format cell.Format, from, to int, b cell.Block) lte.DCI {
	d := lte.DCI{RNTI: user, Format: format, PRB: to - from, N: 1, Blocks: [2]cell.Block{b}, Agreement: 0.9}
	for prb := from; prb < to; prb++ {
		d.PRBs[prb>>6] |= 1 << (prb & 63)
	}
	return d
}

// TestCheck counts conflicts in each direction, repeats, orphans and users with one message.
func TestCheck(t *testing.T) {
	k := NewChecker()
	add := func(number int64, list ...lte.DCI) {
		k.Add(Subframe{Number: number, PRB: 50, DCIs: list})
	}
	first, again := cell.Block{MCS: 10, NDI: true, Size: 1000}, cell.Block{MCS: 10, NDI: true, RV: 2, Size: 1000}
	add(100, grantOf(500, cell.Format1, 0, 10, first), grantOf(600, cell.Format1, 10, 20, first),
		grantOf(500, cell.Format0, 0, 50, cell.Block{}))
	add(108, grantOf(500, cell.Format1, 0, 10, again)) // 7 are missing
	add(109, grantOf(700, cell.Format1, 0, 10, cell.Block{MCS: 30, NDI: true, RV: 3}))
	add(110)
	c := k.Check()
	want := Check{Subframes: 4, Messages: 5, Gaps: 7, Users: 3, Once: 2, Shared: 1, Blocks: 4, Repeats: 1, Orphans: 1,
		PRB: [2]int64{40, 50}, AllPRB: [2]int64{200, 200}, Agreement: 4.5}
	if c != want || !c.IsConsistent() {
		t.Errorf("%+v, want %+v", c, want)
	}
	add(111, grantOf(500, cell.Format1, 0, 10, first), grantOf(600, cell.Format1, 9, 20, first))
	add(112, grantOf(500, cell.Format0, 40, 50, first), grantOf(600, cell.Format0, 30, 41, first))
	if c := k.Check(); c.Conflicts != 2 || c.Shared != 3 || c.IsConsistent() {
		t.Errorf("%+v", c)
	}
	if add(5); k.Check().Gaps != 7 {
		t.Error("a restarted count has gaps")
	}
}
