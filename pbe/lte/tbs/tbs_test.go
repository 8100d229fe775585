// SPDX-License-Identifier: Apache-2.0

package tbs

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"
)

// given reads a table of the test vectors, as numbers without the head; it skips
// where they are not.
func given(t *testing.T, name string) [][]int {
	t.Helper()
	f, err := os.Open("../../../../shared/data/lte/tables/" + name)
	if err != nil {
		t.Skip("not compared with the vectors, which are not here:", err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]int, 0, len(rows))
	for _, r := range rows[1:] {
		n := make([]int, len(r))
		for i, s := range r {
			if n[i], err = strconv.Atoi(s); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, n)
	}
	t.Logf("compared with %s, %d rows", name, len(out))
	return out
}

func TestGivenSizes(t *testing.T) {
	rows := given(t, "tbs_table.csv")
	if len(rows) != Indices {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		for prb := 1; prb <= MaxPRB; prb++ {
			if got := Size(r[0], prb); got != r[prb] {
				t.Errorf("I_TBS %d, %d PRB: %d, want %d", r[0], prb, got, r[prb])
			}
		}
	}
}

func TestGivenCodings(t *testing.T) {
	for _, r := range given(t, "mcs_tables.csv") {
		if got := Downlink(r[0]); got != (Coding{r[1], r[2]}) {
			t.Errorf("downlink %d: %v, want %v", r[0], got, r[1:3])
		}
		if got := Downlink256(r[0]); got != (Coding{r[3], r[4]}) {
			t.Errorf("256QAM %d: %v, want %v", r[0], got, r[3:5])
		}
		// The order of the reserved ones is that of the first transmission (36.213
		// section 8.6.1); the vectors show a placeholder.
		want := Coding{r[5], r[6]}
		if r[6] < 0 {
			want.Order = 0
		}
		if got := Uplink(r[0]); got != want {
			t.Errorf("uplink %d: %v, want %v", r[0], got, want)
		}
	}
}

// TestSizesGrow: what was mistyped or shifted shows: sizes are whole bytes, and
// grow with the blocks and the index, but for what the standard itself has. Sums
// over all hold the table fast.
func TestSizesGrow(t *testing.T) {
	sum, weighted := 0, 0
	for i := range Indices {
		for prb := 1; prb <= MaxPRB; prb++ {
			n := Size(i, prb)
			sum += n
			weighted += n * (i*MaxPRB + prb)
			if n%8 != 0 || n < 16 {
				t.Errorf("I_TBS %d, %d PRB: %d is no size", i, prb, n)
			}
			if prb > 1 && n < Size(i, prb-1) && (i != 6 || prb != 2) {
				t.Errorf("I_TBS %d: %d PRB carry less than %d", i, prb, prb-1)
			}
			// 26 was made before the rows above; 6 on one block is 328.
			if i > 0 && n < Size(i-1, prb) && i != 27 && (i != 7 || prb != 1) {
				t.Errorf("%d PRB: I_TBS %d carries less than %d", prb, i, i-1)
			}
			// The turbo code takes blocks with a CRC of 24 bits, in parts of up to 6144
			// with one of their own; all parts are then full (36.212 section 5.1.2).
			if parts := (n + 24 + 6119) / 6120; n+24 > 6144 && (n+24*(parts+1))%parts != 0 {
				t.Errorf("I_TBS %d, %d PRB: %d bits are not cut evenly", i, prb, n)
			}
		}
	}
	if Size(0, 1) != 16 || Size(26, 100) != 75376 || Size(33, 110) != 97896 {
		t.Error("not the first, the largest without 256QAM, the last")
	}
	if sum != 82058216 || weighted != 216213670576 {
		t.Errorf("sums %d, %d", sum, weighted)
	}
	for _, bad := range [][2]int{{-1, 1}, {Indices, 1}, {0, 0}, {0, MaxPRB + 1}} {
		if Size(bad[0], bad[1]) != 0 {
			t.Errorf("%v has a size", bad)
		}
	}
}

// TestCodings: each index once more than the orders change, and then the next.
func TestCodings(t *testing.T) {
	for name, c := range map[string]struct {
		of          func(int) Coding
		sized, last int
		step        int
	}{
		"downlink": {Downlink, 29, 26, 1},
		"256QAM":   {Downlink256, 28, 33, 2},
		"uplink":   {Uplink, 29, 26, 1},
	} {
		for mcs := 1; mcs < c.sized; mcs++ {
			a, b := c.of(mcs-1), c.of(mcs)
			if b.Index < a.Index || b.Index > a.Index+c.step || b.Order < a.Order || b.Order > a.Order+2 {
				t.Errorf("%s: %v after %v", name, b, a)
			}
		}
		if got := c.of(c.sized - 1); got.Index != c.last {
			t.Errorf("%s: last is %v", name, got)
		}
		for _, mcs := range []int{-1, c.sized, 31, 32} {
			if got := c.of(mcs); got.Index != -1 {
				t.Errorf("%s: %d is %v", name, mcs, got)
			}
		}
	}
}

// TestCompact: all sizes of format 1C are sizes that the large table has too.
func TestCompact(t *testing.T) {
	has := map[int]bool{}
	for _, row := range sizes {
		for _, n := range row {
			has[int(n)] = true
		}
	}
	for i := range 32 {
		if n := Compact(i); !has[n] || n <= Compact(i-1) {
			t.Errorf("%d: %d", i, n)
		}
	}
	if Compact(-1) != 0 || Compact(32) != 0 {
		t.Error("sizes of what is none")
	}
}
