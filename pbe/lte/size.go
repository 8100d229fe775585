package lte

import (
	"math/bits"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// ambiguous are the sizes that no DCI has (36.212 table 5.3.3.1.2-1).
func ambiguous(n int) bool {
	switch n {
	case 12, 14, 16, 20, 24, 26, 32, 40, 44, 56:
		return true
	}
	return false
}

// log2 is how many bits tell n values apart.
func log2(n int) int { return bits.Len(uint(n - 1)) }

// rivBits is the size of a resource indication value for n blocks.
func rivBits(n int) int { return log2(n * (n + 1) / 2) }

// groupSize is P, the resource blocks of a group.
func (c Cell) groupSize() int { return tbs.Group(c.PRB) }

// groups is the number of groups, and of bits of a map of them.
func (c Cell) groups() int { p := c.groupSize(); return (c.PRB + p - 1) / p }

// header is the bit that tells type 0 from type 1, which narrow cells have not.
func (c Cell) header() int {
	if c.PRB > 10 {
		return 1
	}
	return 0
}

// sizes are those of all formats in one search space.
type sizes [6]int

// dciSizes are the sizes of DCIs without CRC (36.212 section 5.3.3.1), where the
// uplink is as wide as the downlink. twoBits says that format 0 asks for channel
// state with two bits, as in the user's space of those with several cells.
func (c Cell) dciSizes(twoBits bool) sizes {
	riv := rivBits(c.PRB)
	csi := 1
	if twoBits {
		csi = 2
	}
	// Flag, hopping, RIV, MCS, NDI, TPC, DM-RS, CSI request, type of allocation.
	zero := 1 + 1 + riv + 5 + 1 + 2 + 3 + csi + 1
	// Flag, distributed, RIV, MCS, HARQ, NDI, RV, TPC.
	compact := 1 + 1 + riv + 5 + 3 + 1 + 2 + 2
	compact = max(compact, zero)
	if ambiguous(compact) {
		compact++
	}
	one := c.header() + c.groups() + 5 + 3 + 1 + 2 + 2
	for one == compact || ambiguous(one) {
		one++
	}
	step := c.step()
	rows := c.virtual(false) / step
	veryCompact := rivBits(rows) + 5
	if c.PRB >= 50 {
		veryCompact++
	}
	// TPC, HARQ, swap, two times MCS, NDI, RV.
	two := c.header() + c.groups() + 2 + 3 + 1 + 2*(5+1+2)
	closed, open := two+3, two
	if ambiguous(closed) {
		closed++
	}
	if ambiguous(open) {
		open++
	}
	var s sizes
	s[cell.Format0], s[cell.Format1A], s[cell.Format1], s[cell.Format1C] = compact, compact, one, veryCompact
	s[cell.Format2], s[cell.Format2A] = closed, open
	return s
}

// step is N_RB^step of format 1C (36.213 table 7.1.6.3-1).
func (c Cell) step() int {
	if c.PRB < 50 {
		return 2
	}
	return 4
}

// gap is N_gap of distributed blocks, the first or the second, which only wide
// cells have (36.211 table 6.2.3.2-1).
func (c Cell) gap(second bool) int {
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

// virtual is N_VRB, the number of distributed blocks (36.211 section 6.2.3.2).
func (c Cell) virtual(second bool) int {
	g := c.gap(second)
	if second {
		return c.PRB / (2 * g) * 2 * g
	}
	return 2 * min(g, c.PRB-g)
}
