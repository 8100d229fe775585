// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"slices"
	"testing"

	"mpbond/pbe/cell"
)

// blocks returns the blocks of m, in order.
func (m PRBSet) blocks() (out []int) {
	for prb := range cell.MaxPRB {
		if m.Has(prb) {
			out = append(out, prb)
		}
	}
	return out
}

// TestSecondGap compares blocks of the second gap with the matrix of 36.211 section 6.2.3.2,
// written row by row and read column by column, by hand.
func TestSecondGap(t *testing.T) {
	for _, r := range []struct {
		prb, first, n int
		want          []int
	}{
		{50, 0, 5, []int{0, 1, 6, 9, 15}}, {50, 30, 5, []int{21, 22, 23, 30, 31}}, {50, 33, 3, []int{23, 31, 32}},
		{75, 0, 5, []int{0, 1, 8, 16, 24}}, {75, 30, 5, []int{23, 31, 32, 40, 48}}, {75, 61, 3, []int{47, 55, 63}},
		{100, 0, 5, []int{0, 1, 8, 16, 24}}, {100, 30, 5, []int{23, 31, 32, 40, 48}}, {100, 93, 3, []int{79, 87, 95}},
	} {
		var d DCI
		if (Cell{PRB: r.prb}).setDistributed(&d, r.first, r.n, true); !slices.Equal(d.PRBs.blocks(), r.want) {
			t.Errorf("%d PRB, %d from %d on: %v, want %v", r.prb, r.n, r.first, d.PRBs.blocks(), r.want)
		}
	}
}

// TestExtendedPHICH compares the positions of a PHICH of three symbols with 36.211 section 6.9.3.
func TestExtendedPHICH(t *testing.T) {
	for _, r := range []struct {
		cell Cell
		want []reg
	}{
		{Cell{ID: 301, PRB: 25, PHICHSixths: 6, ExtendedPHICH: true},
			[]reg{{168, 0}, {260, 1}, {60, 2}, {174, 0}, {264, 1}, {64, 2}, {180, 0}, {268, 1}, {68, 2}, {186, 0},
				{272, 1}, {72, 2}}},
		{Cell{ID: 18, PRB: 50, PHICHSixths: 3, ExtendedPHICH: true},
			[]reg{{114, 0}, {312, 1}, {512, 2}, {120, 0}, {316, 1}, {516, 2}, {126, 0}, {320, 1}, {520, 2}, {132, 0},
				{324, 1}, {524, 2}}},
		{Cell{ID: 503, PRB: 6, PHICHSixths: 1, ExtendedPHICH: true}, []reg{{60, 0}, {12, 1}, {36, 2}}},
	} {
		if got := r.cell.phichREGs(); !slices.Equal(got, r.want) {
			t.Errorf("%+v: %v, want %v", r.cell, got, r.want)
		}
	}
}

// TestFields parses messages that were written by hand from 36.212 section 5.3.3.1 and 36.213
// sections 7.1.6, 7.1.7 and 8.1.
func TestFields(t *testing.T) {
	user, news := cell.RNTI(0x4601), rntiSI
	for _, r := range []struct {
		name string
		prb  int
		rnti cell.RNTI
		bits string
		want string // blocks, bits of the transport block; "" if there is no such message
	}{
		// Hopping takes one bit of the blocks up to 49, two from 50 on: RIV 57 and 107.
		{"hopping", 25, user, "0 1 1 00111001 01010 1 00 000 0 00", "[7 8 9]"},
		{"hopping", 50, user, "0 1 11 001101011 01010 1 00 000 0 00", "[7 8 9]"},
		// Two clusters: the last choice of four of 18 is 15 16 17 18, r 0; the first 1 2 3 4, r
		// 3059; 1 2 3 5 is r 3058.
		{"clusters", 50, user, "0 000000000000 01010 1 00 000 0 0 1", "[42 43 44 48 49]"},
		{"clusters", 50, user, "0 101111110011 01010 1 00 000 0 0 1", "[0 1 2 6 7 8]"},
		{"clusters", 50, user, "0 101111110010 01010 1 00 000 0 0 1", "[0 1 2 6 7 8 9 10 11]"},
		{"no clusters", 50, user, "0 101111110100 01010 1 00 000 0 0 1", ""},
		// In messages to all users MCS is I_TBS, up to 26: 1480 bits of two blocks, 2216 of three.
		{"news", 25, news, "1 0 000000000 11010 000 0 00 00 0", "[0] 1480"},
		{"news", 25, news, "1 0 000000000 11010 000 0 00 01 0", "[0] 2216"},
		{"no news", 25, news, "1 0 000000000 11011 000 0 00 00 0", ""},
		// A user has at most 16 distributed blocks from 50 PRB on: RIV 750 and 800.
		{"distributed", 50, user, "1 1 0 1011101110 00000 000 0 00 00 0",
			"[0 1 2 3 12 13 14 15 27 28 29 30 39 40 41 42]"},
		{"too many", 50, user, "1 1 0 1100100000 00000 000 0 00 00 0", ""},
		{"distributed", 50, news, "1 1 01100100000 00000 000 0 00 00 0",
			"[0 1 2 3 4 12 13 14 15 27 28 29 30 39 40 41 42]"},
	} {
		var payload []byte
		for _, b := range r.bits {
			if b != ' ' {
				payload = append(payload, byte(b-'0'))
			}
		}
		c := Cell{PRB: r.prb, Ports: 2}
		d := DCI{RNTI: r.rnti, Format: cell.Format0, Payload: payload}
		if payload[0] == 1 {
			d.Format = cell.Format1A
		}
		if want := c.dciFormatSizes(false)[d.Format]; len(payload) != want {
			t.Fatalf("%s: %d bits, want %d", r.name, len(payload), want)
		}
		got := ""
		if c.parseDCI(&d) {
			if got = fmt.Sprint(d.PRBs.blocks()); r.name == "news" {
				got += fmt.Sprint(" ", d.Blocks[0].Size)
			}
			if d.PRB != len(d.PRBs.blocks()) {
				t.Errorf("%s: %d blocks", r.name, d.PRB)
			}
		}
		if got != r.want {
			t.Errorf("%s: %s is %q, want %q", r.name, r.bits, got, r.want)
		}
	}
	for r, want := range map[cell.RNTI]bool{10: false, 11: true, 0x3C: true, 0xFFF3: true, 0xFFF4: false} {
		if r.IsUser() != want {
			t.Errorf("%#x", uint16(r))
		}
	}
}
