// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math/rand/v2"
	"testing"
)

func TestClock(t *testing.T) {
	var c Clock
	n := c.Number(1020, 0)
	for i := int64(1); i < 3*frameCycle; i += 37 {
		at := 10200 + i
		if got := c.Number(uint16(at/10%1024), uint8(at%10)); got != n+i {
			t.Fatalf("after %d subframes: %d, want %d", i, got, n+i)
		}
	}
	var back Clock
	n = back.Number(0, 0)
	if got := back.Number(1023, 9); got != n-1 {
		t.Errorf("one subframe earlier: %d, want %d", got, n-1)
	}
}

// TestFusionOrder adds rows of three cells out of order, twice and not at all, and compares the
// result with a list of all subframes.
func TestFusionOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		type arrival struct {
			s  Subframe
			at int
		}
		const rows = 400
		var list []arrival
		want := [rows][3]bool{}
		for n := range rows {
			for c := range 3 {
				if r.IntN(10) == 0 && n != 0 && n != rows-1 {
					continue
				}
				want[n][c] = true
				s := Subframe{Cell: ID(c), Number: int64(n), PRB: 50,
					Grants: []Grant{{RNTI: RNTI(1000 + n), PRB: uint8(c), Format: Format1}}}
				list = append(list, arrival{s, n + r.IntN(maxDisorder)})
				if r.IntN(20) == 0 {
					list = append(list, arrival{s, n + r.IntN(maxDisorder)})
				}
			}
		}
		f := NewFusion(0, 1, 2)
		next := int64(-1)
		missing := 0
		check := func(row *Row) {
			if next < 0 {
				next = row.Number // subframes before the first one added do not count
			}
			if row.Number != next {
				t.Fatalf("seed %d: row %d, want %d", seed, row.Number, next)
			}
			next++
			for c := range 3 {
				if row.Received[c] != want[row.Number][c] {
					t.Fatalf("seed %d: row %d: cell %d received %v, want %v", seed, row.Number, c, row.Received[c],
						want[row.Number][c])
				}
				if !row.Received[c] {
					missing++
				} else if s := row.Cells[c]; s.Number != row.Number || len(s.Grants) != 1 ||
					s.Grants[0].RNTI != RNTI(1000+row.Number) || s.Grants[0].PRB != uint8(c) {
					t.Fatalf("seed %d: row %d has %+v of cell %d", seed, row.Number, s, c)
				}
			}
		}
		// Row 0 first, so that the count starts there.
		for at := 0; at < rows+MaxLate; at++ {
			for _, x := range list {
				if x.at == at || at == 0 && x.s.Number == 0 {
					f.Add(x.s, check)
				}
			}
		}
		f.Flush(check)
		if next != rows {
			t.Fatalf("seed %d: %d rows, want %d", seed, next, rows)
		}
		if c := f.Counts(); c.Rows != rows || c.Missing != missing || c.Jumps != 0 || c.Invalid != 0 {
			t.Fatalf("seed %d: counts %+v, %d missing", seed, c, missing)
		}
	}
}

// TestFusionWaits checks that a silent cell delays rows by at most MaxLate subframes, and nothing
// else is lost.
func TestFusionWaits(t *testing.T) {
	f := NewFusion(0, 1)
	var rows []int64
	each := func(r *Row) { rows = append(rows, r.Number) }
	for n := range int64(100) {
		if n < 10 {
			f.Add(Subframe{Cell: 1, Number: n, PRB: 25}, each)
		}
		f.Add(Subframe{Cell: 0, Number: n, PRB: 25}, each)
		if want := max(min(n+1, 10), n-MaxLate); int64(len(rows)) != want {
			t.Fatalf("after subframe %d: %d rows, want %d", n, len(rows), want)
		}
	}
	f.Add(Subframe{Cell: 1, Number: 12, PRB: 25}, each)
	if c := f.Counts(); c.Late != 1 {
		t.Errorf("a message of a row that is gone: %+v", c)
	}
}

// TestFusionGaps checks that a missed subframe delays rows by at most the disorder of its cell.
func TestFusionGaps(t *testing.T) {
	f := NewFusion(0)
	rows := int64(0)
	for n := range int64(100) {
		if n%7 != 3 {
			f.Add(Subframe{Cell: 0, Number: n, PRB: 25}, func(r *Row) { rows++ })
		}
		if rows < n-maxDisorder {
			t.Fatalf("after subframe %d: %d rows", n, rows)
		}
	}
	if c := f.Counts(); c.Missing != 13 && c.Missing != 14 {
		t.Errorf("%+v", c)
	}
}

func TestFusionJumps(t *testing.T) {
	f := NewFusion(0)
	var rows []int64
	each := func(r *Row) { rows = append(rows, r.Number) }
	add := func(n int64) { f.Add(Subframe{Cell: 0, Number: n, PRB: 6}, each) }
	for n := range int64(5) {
		add(n)
	}
	add(1 << 40) // must not emit rows for a year
	add(1<<40 + 1)
	for n := range int64(2*MaxLate + 2) { // the decoder restarts its count
		add(100 + n)
	}
	if c := f.Counts(); c.Jumps != 2 || len(rows) > 5+2+2*MaxLate+2 || rows[len(rows)-1] != 100+2*MaxLate+1 {
		t.Errorf("counts %+v, rows %v", c, rows)
	}
}

func TestFusionRefuses(t *testing.T) {
	f := NewFusion(0, 0, 9)
	if f.cells != 1 {
		t.Fatalf("%d cells, want 1", f.cells)
	}
	good := Grant{RNTI: 100, Format: Format1, PRB: 5, N: 1, Blocks: [2]Block{{MCS: 3, Size: 100}}}
	for name, s := range map[string]Subframe{
		"cell":       {Cell: 1, PRB: 50},
		"cell 200":   {Cell: 200, PRB: 50},
		"width":      {PRB: 111},
		"no width":   {},
		"number":     {PRB: 50, Number: -1},
		"far number": {PRB: 50, Number: 1<<63 - 1},
		"grants":     {PRB: 50, Grants: make([]Grant, MaxGrants+1)},
		"prb":        {PRB: 50, Grants: []Grant{func() Grant { g := good; g.PRB = 51; return g }()}},
		"format":     {PRB: 50, Grants: []Grant{func() Grant { g := good; g.Format = formatCount; return g }()}},
		"mcs":        {PRB: 50, Grants: []Grant{func() Grant { g := good; g.Blocks[0].MCS = 32; return g }()}},
		"rv":         {PRB: 50, Grants: []Grant{func() Grant { g := good; g.Blocks[0].RV = 4; return g }()}},
		"size":       {PRB: 50, Grants: []Grant{func() Grant { g := good; g.Blocks[0].Size = maxTBS + 1; return g }()}},
		"blocks":     {PRB: 50, Grants: []Grant{func() Grant { g := good; g.N = 3; return g }()}},
		"process 16": {PRB: 50, Grants: []Grant{func() Grant { g := good; g.HARQ = 16; return g }()}},
	} {
		before := f.Counts().Invalid
		f.Add(s, func(*Row) { t.Errorf("%s: made a row", name) })
		if f.Counts().Invalid != before+1 {
			t.Errorf("%s: taken", name)
		}
	}
}
