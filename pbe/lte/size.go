// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math/bits"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// isAmbiguousSize reports whether no DCI has this size (36.212 table 5.3.3.1.2-1).
func isAmbiguousSize(n int) bool {
	switch n {
	case 12, 14, 16, 20, 24, 26, 32, 40, 44, 56:
		return true
	}
	return false
}

// bitsForValues returns the number of bits that distinguish n values.
func bitsForValues(n int) int { return bits.Len(uint(n - 1)) }

// rivBitCount returns the size of a resource indication value for n blocks.
func rivBitCount(n int) int { return bitsForValues(n * (n + 1) / 2) }

// rbgSize returns P, the resource blocks of a group.
func (c Cell) rbgSize() int { return tbs.RBGSize(c.PRB) }

// rbgCount returns the number of groups, which is the number of bits of a group map.
func (c Cell) rbgCount() int { p := c.rbgSize(); return (c.PRB + p - 1) / p }

// headerBits returns the size of the resource allocation header, which distinguishes types 0 and 1
// and is absent in narrow cells.
func (c Cell) headerBits() int {
	if c.PRB > 10 {
		return 1
	}
	return 0
}

// formatSizes are the message sizes of all formats in one search space.
type formatSizes [6]int

// dciFormatSizes returns the DCI sizes without CRC (36.212 section 5.3.3.1), with an uplink as wide
// as the downlink. twoBits means that format 0 has a CSI request of two bits, as in the user search
// space of users with several carriers.
func (c Cell) dciFormatSizes(twoBits bool) formatSizes {
	riv := rivBitCount(c.PRB)
	csi := 1
	if twoBits {
		csi = 2
	}
	// Flag, hopping, RIV, MCS, NDI, TPC, DM-RS, CSI request, type of allocation.
	zero := 1 + 1 + riv + 5 + 1 + 2 + 3 + csi + 1
	// Flag, distributed, RIV, MCS, HARQ, NDI, RV, TPC.
	compact := 1 + 1 + riv + 5 + 3 + 1 + 2 + 2
	compact = max(compact, zero)
	if isAmbiguousSize(compact) {
		compact++
	}
	one := c.headerBits() + c.rbgCount() + 5 + 3 + 1 + 2 + 2
	for one == compact || isAmbiguousSize(one) {
		one++
	}
	step := c.format1CStep()
	rows := c.virtualBlockCount(false) / step
	veryCompact := rivBitCount(rows) + 5
	if c.PRB >= 50 {
		veryCompact++
	}
	// TPC, HARQ, swap, two times MCS, NDI, RV.
	two := c.headerBits() + c.rbgCount() + 2 + 3 + 1 + 2*(5+1+2)
	closed, open := two+3, two
	if isAmbiguousSize(closed) {
		closed++
	}
	if isAmbiguousSize(open) {
		open++
	}
	var s formatSizes
	s[cell.Format0], s[cell.Format1A], s[cell.Format1], s[cell.Format1C] = compact, compact, one, veryCompact
	s[cell.Format2], s[cell.Format2A] = closed, open
	return s
}

// format1CStep returns N_RB^step of format 1C (36.213 table 7.1.6.3-1).
func (c Cell) format1CStep() int {
	if c.PRB < 50 {
		return 2
	}
	return 4
}

// virtualBlockGap returns N_gap of distributed blocks, the first or the second, which only wide
// cells have (36.211 table 6.2.3.2-1).
func (c Cell) virtualBlockGap(second bool) int {
	switch n := c.PRB; {
	case n <= 10:
		return (n + 1) / 2
	case n == 11:
		return 4
	case n <= 19:
		return 8
	case n <= 26:
		return 12
	case n <= 44:
		return 18
	case n <= 49:
		return 27
	case n <= 63 && second:
		return 9
	case n <= 63:
		return 27
	case second:
		return 16
	case n <= 79:
		return 32
	}
	return 48
}

// virtualBlockCount returns N_VRB, the number of distributed blocks (36.211 section 6.2.3.2).
func (c Cell) virtualBlockCount(second bool) int {
	g := c.virtualBlockGap(second)
	if second {
		return c.PRB / (2 * g) * 2 * g
	}
	return 2 * min(g, c.PRB-g)
}
