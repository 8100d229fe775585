// SPDX-License-Identifier: Apache-2.0

// Package tbs has the transport block sizes of LTE (36.213 section 7.1.7): how many bits a grant
// carries, from its MCS and resource blocks, and the sizes of resource block groups. The decoder of
// control channels computes sizes with it; the cell model of the lab chooses them.
//
// It covers one transport block per layer: with two antenna ports each of the two blocks of a grant
// has its own layer. Blocks on several layers (section 7.1.7.2.2 on) need four ports and are not
// covered.
package tbs

// Constants of the specification.
const (
	// Indices is the number of values of I_TBS.
	Indices = 34
	// MaxPRB is the largest number of resource blocks of a grant.
	MaxPRB = 110
	// SizedMCS is the number of I_MCS values that name a size without 256QAM; higher ones refer to
	// the size of the first transmission of the same block.
	SizedMCS = 29
)

// Size returns the size in bits of a block with the given index on prb resource blocks, 0 if either
// is out of range.
func Size(index, prb int) int {
	if index < 0 || index >= Indices || prb < 1 || prb > MaxPRB {
		return 0
	}
	return int(sizes[index][prb-1])
}

// Coding is the meaning of an I_MCS.
type Coding struct {
	// Order is Q_m: the bits per modulation symbol.
	Order int
	// Index is I_TBS, or −1 if the size is that of an earlier grant.
	Index int
}

// Downlink returns the coding of downlink grants by table 7.1.7.1-1. Outside 0 to 31 the size is
// unknown and the order 0.
func Downlink(mcs int) Coding {
	switch {
	case mcs < 0 || mcs > 31:
		return Coding{0, -1}
	case mcs <= 9:
		return Coding{2, mcs}
	case mcs <= 16:
		return Coding{4, mcs - 1}
	case mcs < SizedMCS:
		return Coding{6, mcs - 2}
	}
	return Coding{2 * (mcs - SizedMCS + 1), -1}
}

// Downlink256 returns the coding by table 7.1.7.1-1A, for devices that are configured for 256QAM.
func Downlink256(mcs int) Coding {
	switch {
	case mcs < 0 || mcs > 31:
		return Coding{0, -1}
	case mcs <= 4:
		return Coding{2, 2 * mcs}
	case mcs <= 10:
		return Coding{4, mcs + 5}
	case mcs <= 19:
		return Coding{6, mcs + 5}
	case mcs == 20:
		return Coding{8, 25}
	case mcs <= 27:
		return Coding{8, mcs + 6}
	}
	return Coding{2 * (mcs - 27), -1}
}

// Uplink returns the coding of uplink grants by table 8.6.1-1, for devices with 64QAM. 29 to 31
// only select a redundancy version; their order is 0.
func Uplink(mcs int) Coding {
	switch {
	case mcs < 0 || mcs >= SizedMCS:
		return Coding{0, -1}
	case mcs <= 10:
		return Coding{2, mcs}
	case mcs <= 20:
		return Coding{4, mcs - 1}
	}
	return Coding{6, mcs - 2}
}

// compactSizes is table 7.1.7.2.3-1.
var compactSizes = [32]uint16{
	40, 56, 72, 120, 136, 144, 176, 208, 224, 256, 280, 296, 328, 336, 392, 488,
	552, 600, 632, 696, 776, 840, 904, 1000, 1064, 1128, 1224, 1288, 1384, 1480, 1608, 1736,
}

// Compact returns the size in bits of a block that format 1C grants, by its five bits (section
// 7.1.7.2.3); 0 if index is out of range.
func Compact(index int) int {
	if index < 0 || index >= len(compactSizes) {
		return 0
	}
	return int(compactSizes[index])
}

// RBGSize returns P, the number of resource blocks of a group in a cell of prb blocks, in which
// formats 1, 2 and 2A grant them (36.213 table 7.1.6.1-1).
func RBGSize(prb int) int {
	switch {
	case prb <= 10:
		return 1
	case prb <= 26:
		return 2
	case prb <= 63:
		return 3
	}
	return 4
}
