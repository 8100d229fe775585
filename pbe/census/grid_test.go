// SPDX-License-Identifier: Apache-2.0

package census

import (
	"math"
	"testing"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// placed returns a grant of n blocks from first on.
func placed(who cell.RNTI, first, n int) lte.DCI {
	d := grant(who, n, 0, false)
	for prb := first; prb < first+n; prb++ {
		d.PRBs[prb>>6] |= 1 << (prb & 63)
	}
	return d
}

func TestGrid(t *testing.T) {
	g := NewGrid(10)
	at := func(i int) (number int64, received bool, users []cell.RNTI) {
		c := g.At(i)
		return c.Number, c.Received, c.Users[:g.PRB]
	}
	up := lte.DCI{RNTI: 700, Format: cell.Format0, Level: 1, PRB: 50, N: 1}
	up.PRBs[0] = math.MaxUint64
	g.Add(sub(5, placed(500, 3, 7), placed(0xFFFF, 10, 2), up))
	g.Add(sub(8, placed(501, 48, 2)))
	if g.Len() != 4 || g.PRB != 50 {
		t.Fatalf("%d columns of %d", g.Len(), g.PRB)
	}
	n, received, users := at(0)
	for prb, who := range users {
		want := cell.RNTI(0)
		switch {
		case prb >= 3 && prb < 10:
			want = 500
		case prb >= 10 && prb < 12:
			want = 0xFFFF
		}
		if who != want {
			t.Errorf("PRB %d of subframe %d is %d's, want %d", prb, n, who, want)
		}
	}
	if n != 5 || !received || !g.At(0).HasPositions {
		t.Errorf("subframe %d, received: %v", n, received)
	}
	for i, want := range []bool{true, false, false, true} {
		if n, received, _ := at(i); n != int64(5+i) || received != want {
			t.Errorf("column %d is of %d, received: %v", i, n, received)
		}
	}
	if _, _, users := at(3); users[47] != 0 || users[48] != 501 || users[49] != 501 {
		t.Errorf("%v", users)
	}
	for i := range int64(12) { // the oldest are dropped
		g.Add(sub(9 + i))
	}
	if n, _, _ := at(0); n != 11 || g.Len() != 10 {
		t.Errorf("%d columns from %d on", g.Len(), n)
	}
	for name, s := range map[string]Subframe{"again": sub(20), "far ahead": sub(1000),
		"another width": {Number: 1001, PRB: 25}} {
		if g.Add(s); g.Len() != 1 || g.PRB != int(s.PRB) {
			t.Errorf("%s: %d columns of %d", name, g.Len(), g.PRB)
		}
	}
	g.Add(Subframe{PRB: 111})
	if g.PRB == 111 {
		t.Error("no cell is as wide")
	}
	// A recording has only the number of blocks.
	g.Add(FromRecording(cell.Subframe{Number: 2000, PRB: 25,
		Grants: []cell.Grant{{RNTI: 600, Format: cell.Format1, PRB: 4}, {RNTI: 601, Format: cell.Format2, PRB: 30},
			{RNTI: 602, Format: cell.Format0, PRB: 9}}}, nil))
	c := g.At(g.Len() - 1)
	if c.HasPositions || c.Users[3] != 600 || c.Users[4] != 601 || c.Users[24] != 601 || c.Users[25] != 0 {
		t.Errorf("%+v", c)
	}
}

func TestUsers(t *testing.T) {
	u := NewUsers()
	for i := range int64(3000) {
		d := []lte.DCI{grant(500, 20, uint8(i%8), i/8%2 == 0)}
		if i < 2500 && i%2 == 0 {
			d = append(d, lte.DCI{RNTI: 600, Format: cell.Format2A, Level: 2, PRB: 10, N: 2, HARQ: 3,
				Blocks: [2]cell.Block{{MCS: 20, Size: 10_000, NDI: i/2%2 == 0},
					{MCS: 21, Size: 11_000, NDI: i/2%2 == 0}}})
		}
		if i == 2999 {
			d = append(d, lte.DCI{RNTI: 700, Format: cell.Format0, Level: 2, PRB: 50, N: 1}, grant(0xFFFE, 9, 0, true))
		}
		u.Add(sub(i, d...))
	}
	got := u.List(nil)
	want := []User{
		{RNTI: 500, PRBPart: 0.4, Rate: 12 * unit.Mbps, MCS: 10, Format: cell.Format1, IsDataUser: true},
		{RNTI: 600, PRBPart: 0.05, Rate: 250 * 21_000, MCS: 20, Format: cell.Format2A, IsDataUser: true,
			SinceMessage: 501},
		{RNTI: 700, UplinkPart: 0.001, MCS: -1},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%+v,\nwant %+v", got, want)
	}
	for i := range int64(12_000) {
		u.Add(sub(3000 + i))
	}
	if got := u.List(nil); len(got) != 0 {
		t.Errorf("after twelve seconds: %+v", got)
	}
	u.Add(sub(20_000, grant(500, 20, 0, true)))
	u.Add(sub(30_000, grant(500, 20, 0, true))) // after 10 s of silence
	if got := u.List(nil); len(got) != 1 || got[0].PRBPart != 0.4 || got[0].IsDataUser {
		t.Errorf("%+v", got)
	}
	u.Add(sub(1, grant(501, 20, 0, true)))
	if got := u.List(nil); len(got) != 1 || got[0].RNTI != 501 {
		t.Errorf("after the count began again: %+v", got)
	}
}

// TestAgain checks that retransmissions are recognised by their NDI, also without size, and in
// grants for one of two blocks.
func TestAgain(t *testing.T) {
	var h harqTracker
	two := func(n int, blocks ...cell.Block) *lte.DCI {
		d := &lte.DCI{RNTI: 500, Format: cell.Format2, N: n, HARQ: 5}
		copy(d.Blocks[:], blocks)
		return d
	}
	off := cell.Block{RV: 1}
	for i, c := range []struct {
		number int64
		d      *lte.DCI
		want   []uint8 // MCS, plus 100 for retransmissions
	}{
		{100, two(2, cell.Block{MCS: 10, Size: 600}, cell.Block{MCS: 12, Size: 700, NDI: true}), []uint8{10, 12}},
		{108, two(2, cell.Block{MCS: 29, RV: 2}, cell.Block{MCS: 12, Size: 700}), []uint8{110, 12}},
		{116, two(2, off, cell.Block{MCS: 30, RV: 2}), []uint8{112}},
		{124, two(2, cell.Block{MCS: 29, RV: 3}, cell.Block{MCS: 12, Size: 700, NDI: true}), []uint8{110, 12}},
		{132, two(1, cell.Block{MCS: 12, Size: 700, NDI: true, RV: 2}), []uint8{112}},
		{140, two(1, cell.Block{MCS: 12, Size: 700}), []uint8{12}},
		{153, two(1, cell.Block{MCS: 31, RV: 2}), []uint8{31}}, // too late to recognise
	} {
		h.startSubframe(c.number)
		var got []uint8
		n := h.addDownlinkGrant(c.number, c.d, func(mcs uint8, again bool) {
			if again {
				mcs += 100
			}
			got = append(got, mcs)
		})
		again := 0
		for _, m := range c.want {
			if m >= 100 {
				again++
			}
		}
		if string(got) != string(c.want) || n != again {
			t.Errorf("grant %d: %v, %d again, want %v", i, got, n, c.want)
		}
	}
}

// TestColours checks that most users of the same time have different colours.
func TestColours(t *testing.T) {
	near := 0
	for r := cell.RNTI(0x100); r < 0x200; r++ {
		a, b, c := UserColour(r)
		if int(a)+int(b)+int(c) < 200 {
			t.Errorf("%d is dark: %d %d %d", r, a, b, c)
		}
		x, y, z := UserColour(r + 1)
		if d := math.Abs(float64(a)-float64(x)) + math.Abs(float64(b)-float64(y)) + math.Abs(float64(c)-float64(z)); d < 60 {
			near++
		}
	}
	if near > 10 {
		t.Errorf("%d of 256 have the colour of the next", near)
	}
	if a, b, c := UserColour(0xFFFF); a != b || b != c {
		t.Error("what is for all is coloured")
	}
}

func TestSpread(t *testing.T) {
	for name, c := range map[string]struct {
		s              histogram
		values         []float64
		p50, p95, most float64
	}{
		"numbers":    {newIntegerHistogram(10), []float64{3, 1, 2, 2}, 2, 3, 3},
		"over":       {newIntegerHistogram(10), []float64{1, 50}, 1, 50, 50},
		"steps":      {newLinearHistogram(0.5, 10), []float64{0.1, 0.6, 0.7}, 0.7, 0.7, 0.7},
		"wide":       {newLogIntegerHistogram(5), []float64{1, 1, 1, 2}, 1, 2, 2},
		"nothing":    {newLogIntegerHistogram(5), nil, 0, 0, 0},
		"below zero": {newLogHistogram(1, 2), []float64{0, 0.5}, 0.5, 0.5, 0.5},
	} {
		for _, v := range c.values {
			c.s.countValueInBin(v)
		}
		d := c.s.distribution()
		if d.P50 != c.p50 || d.P95 != c.p95 || d.Max != c.most || d.Count != int64(len(c.values)) || d.Count > 0 &&
			d.CDF[len(d.CDF)-1] != (Point{c.most, 1}) {
			t.Errorf("%s: %+v", name, d)
		}
	}
	s := newLogHistogram(0.01, 5)
	for i := range 1000 {
		s.countValueInBin(float64(i) / 10)
	}
	if d := s.distribution(); math.Abs(d.P50/50-1) > 0.13 || math.Abs(d.P95/95-1) > 0.13 {
		t.Errorf("%+v", d)
	}
}
