// SPDX-License-Identifier: Apache-2.0

// Package cell computes the capacity that one device has in its LTE cells, from their control
// messages. It is the middle of PBE-CC (Xie, Yi, Jamieson: PBE-CC, SIGCOMM 2020, section 4). Its
// input are decoded messages: from the decoder of IQ samples, the emulated cell or a recording. Its
// output goes to the receiver of pbe/cc, which sends it to the sender.
//
//	Subframe ─ Fusion ─ Window per cell (users, R_w, P_a, P_idle, N) ─ Monitor: C_f, C_p ─ CapacityTable: C_t
//
// The package is pure: it counts time in subframes of 1 ms, which the messages carry. Nothing in it
// is safe for concurrent use.
package cell

// ID numbers the cells that one device listens to, from 0.
type ID uint8

// MaxCells is the largest number of cells of one Monitor. LTE-Advanced aggregates at most five for
// one device (36.300 section 5.5).
const MaxCells = 8

// RNTI names a user within a cell (36.321 section 7.1).
type RNTI uint16

// Bounds of the RNTIs of single devices (36.321 table 7.1-1).
const (
	minUserRNTI RNTI = 0x000B // below: random access responses, in FDD
	maxUserRNTI RNTI = 0xFFF3 // above: reserved, paging and system information
)

// IsUser reports whether r can be the C-RNTI of a device.
func (r RNTI) IsUser() bool { return r >= minUserRNTI && r <= maxUserRNTI }

// Format is a DCI format (36.212 section 5.3.3.1).
type Format uint8

// Supported formats.
const (
	Format0  Format = iota // uplink grant
	Format1A               // one block, compact
	Format1                // one block
	Format1C               // one block, very compact: system information, paging, random access responses
	Format2                // two blocks, closed loop
	Format2A               // two blocks, open loop
	formatCount
)

var formatNames = [formatCount]string{"0", "1A", "1", "1C", "2", "2A"}

// String returns the name that 36.212 uses, such as "1A".
func (f Format) String() string {
	if f < formatCount {
		return formatNames[f]
	}
	return "?"
}

// Bits counts bits on the air, in transport blocks.
type Bits uint32

// maxTBS is above the largest transport block of one layer pair at 20 MHz (36.213 table
// 7.1.7.2.2-1: 149,776 bits on two layers).
const maxTBS Bits = 400_000

// MaxPRB is the width of the widest cell in physical resource blocks (36.101 table 5.6-1: 20 MHz).
const MaxPRB = 110

// Block is one transport block of a grant.
type Block struct {
	// MCS is I_MCS, 0 to 31. With 29 to 31 the size is that of an earlier grant (36.213 section
	// 7.1.7.1), so it is unknown if that grant was missed.
	MCS uint8
	// NDI toggles with each new block of a HARQ process (36.321 section 5.3.2).
	NDI bool
	// RV is the redundancy version, 0 to 3.
	RV uint8
	// Size is the transport block size, 0 if unknown.
	Size Bits
}

// HasSize reports whether the grant itself names the block's size.
func (b Block) HasSize() bool { return b.MCS < 29 && b.Size > 0 }

// IsDisabled reports whether the grant marks the block as absent (36.212 section 5.3.3.1.5).
func (b Block) IsDisabled() bool { return b.Size == 0 && b.MCS == 0 && b.RV == 1 }

// maxHARQ bounds the number of HARQ processes: 8 with FDD, up to 15 with TDD (36.213 table 7-1).
const maxHARQ = 16

// Grant is one decoded DCI: the resources that a cell gives a user in one subframe.
type Grant struct {
	RNTI   RNTI
	Format Format
	// PRB counts the granted resource blocks, per slot.
	PRB uint8
	// HARQ is the process, 0 to 7. It is 0 for uplink grants, where it follows from the subframe.
	HARQ uint8
	// Blocks[:N] are the transport blocks.
	Blocks [2]Block
	N      uint8
}

// IsUplink reports whether the grant is for sending to the cell.
func (g Grant) IsUplink() bool { return g.Format == Format0 }

// Subframe holds all messages that were decoded in one subframe of one cell.
type Subframe struct {
	Cell ID
	// Number counts subframes of the cell, without wrapping (see Clock). Aggregated cells have the
	// same numbers (36.300 section 5.5).
	Number int64
	// PRB is the width of the cell.
	PRB uint8
	// Grants belong to the caller again when a function that takes a Subframe returns, unless that
	// function says otherwise. At most MaxGrants.
	Grants []Grant
}

// MaxGrants bounds the grants of one subframe: the 88 CCEs of a 20 MHz cell at CFI 3 hold no more
// DCIs (36.211 section 6.8.1).
const MaxGrants = 88

// maxNumber bounds subframe numbers: 285,000 years, so that sums of two do not overflow.
const maxNumber = 1 << 53

// hasValidFields reports whether all fields of s are in range, so that later steps neither divide
// by zero nor index out of bounds.
func (s Subframe) hasValidFields() bool {
	if s.Cell >= MaxCells || s.PRB == 0 || s.PRB > MaxPRB || len(s.Grants) > MaxGrants || s.Number < 0 ||
		s.Number > maxNumber {
		return false
	}
	for _, g := range s.Grants {
		if g.Format >= formatCount || g.PRB > s.PRB || g.HARQ >= maxHARQ || g.N > 2 {
			return false
		}
		for _, b := range g.Blocks[:g.N] {
			if b.MCS > 31 || b.RV > 3 || b.Size > maxTBS {
				return false
			}
		}
	}
	return true
}

// frameCycle is the number of subframes after which SFN and subframe index repeat (36.331 section
// 6.2.2, MIB: 1024 frames).
const frameCycle = 10240

// Clock turns SFN and subframe index into numbers that do not wrap. The zero value is ready.
type Clock struct {
	last int64
	set  bool
}

// Number returns the number of subframe sf (0 to 9) of frame sfn (0 to 1023) that is nearest to the
// last result. It is right if called at least every 5 s. The first call counts from frame 1024, so
// that a slightly earlier subframe has no negative number.
func (c *Clock) Number(sfn uint16, sf uint8) int64 {
	t := int64(sfn%1024)*10 + int64(sf%10)
	if !c.set {
		c.set, c.last = true, frameCycle+t
		return c.last
	}
	d := (t - c.last%frameCycle + frameCycle + frameCycle/2) % frameCycle
	c.last = max(0, c.last+d-frameCycle/2)
	return c.last
}

// Expect sets the last result to n, at most 5 s from the next number. Call it after a longer pause,
// or to align the count with another cell.
func (c *Clock) Expect(n int64) { c.last, c.set = max(0, n), true }
