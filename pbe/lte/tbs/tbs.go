// Package tbs has the sizes of LTE's transport blocks (36.213 section 7.1.7):
// how many bits a grant carries, from its MCS and its resource blocks; and in which
// groups these come. The
// decoder of control channels makes sizes of what it read with it, the model of
// cells in the lab chooses them.
//
// One transport block on one layer: with two antenna ports each of the two
// blocks of a grant has a layer of its own. A block on several layers (section
// 7.1.7.2.2 on), which needs four ports, is not here.
package tbs

// Specification.
const (
	// Indices is how many values I_TBS has.
	Indices = 34
	// MaxPRB is the most resource blocks of a grant.
	MaxPRB = 110
	// SizedMCS is the number of I_MCS that name a size without 256QAM; those above
	// say that it is that of the first transmission of the same block.
	SizedMCS = 29
)

// Size is the size in bits of a block with index on prb resource blocks; 0 if
// there is no such index or number.
func Size(index, prb int) int {
	if index < 0 || index >= Indices || prb < 1 || prb > MaxPRB {
		return 0
	}
	return int(sizes[index][prb-1])
}

// Coding is what an I_MCS stands for.
type Coding struct {
	// Order is Q_m: the bits of one modulation symbol.
	Order int
	// Index is I_TBS, or −1 if the size is that of an earlier grant.
	Index int
}

// Downlink is table 7.1.7.1-1, of grants for receiving. mcs is 0 to 31; of
// others the size is unknown and the order 0.
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

// Downlink256 is table 7.1.7.1-1A, for devices that are told to use 256QAM.
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

// Uplink is table 8.6.1-1, of grants for sending, by a device that can 64QAM.
// 29 to 31 say a redundancy version only; their order is 0.
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

// Compact is the size in bits of a block that format 1C grants, by its five bits
// (section 7.1.7.2.3); 0 if index is none.
func Compact(index int) int {
	if index < 0 || index >= len(compactSizes) {
		return 0
	}
	return int(compactSizes[index])
}

// RBGSize is P, the resource blocks of a group in a cell of prb, in which formats 1, 2
// and 2A grant them (36.213 table 7.1.6.1-1).
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
