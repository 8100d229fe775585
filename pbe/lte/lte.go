// SPDX-License-Identifier: Apache-2.0

// Package lte decodes the control channels of LTE cells (FDD, normal cyclic prefix, 1.4 to 20 MHz,
// one or two antenna ports): from IQ samples to the grants of every user in each subframe.
//
//	samples ─ sync: PSS, SSS, carrier offset, MIB ─ symbols ─ channel estimate ─ CFI ─ PDCCH as soft bits
//	        ─ blind search: rate matching, Viterbi, RNTI from the CRC, search space ─ DCI ─ cell.Grant
//
// Samples come from a file, a pipe or a radio; grants go to pbe/cell. There is one file per step.
// Constants name their section of 36.211 (physical channels), 36.212 (coding) and 36.213
// (procedures), release 10 unless stated otherwise. Transmitter is the reverse, for the lab and for
// tests.
//
// Bits are bytes of 0 and 1, the most significant first. A soft bit is positive for 0. Only
// DecodeTask.Decode is safe for concurrent use; Receiver.Dispatch documents the calls.
package lte

import "mpbond/pbe/cell"

// Cell has the parameters that determine the layout of a cell's control channels.
type Cell struct {
	// ID is the physical cell identity, 0 to 503.
	ID int
	// PRB is the width in resource blocks: 6, 15, 25, 50, 75 or 100.
	PRB int
	// Ports is the number of antenna ports with reference signals, 1 or 2.
	Ports int
	// PHICHSixths is N_g of the PHICH times six: 1, 3, 6 or 12.
	PHICHSixths int
	// ExtendedPHICH reports that the PHICH takes three symbols instead of one.
	ExtendedPHICH bool
}

// Constants of the specification.
const (
	subcarriersPerPRB  = 12 // subcarriers of a resource block (36.211 section 6.2.3)
	symbolsPerSlot     = 7  // symbols
	symbolsPerSubframe = 2 * symbolsPerSlot
	bitsPerCCE         = 72 // bits of a control channel element: nine quadruplets of QPSK
	regsPerCCE         = 9
	maxCellID          = 503
)

// isSupported reports whether the Receiver supports c.
func (c Cell) isSupported() bool {
	switch c.PRB {
	case 6, 15, 25, 50, 75, 100:
	default:
		return false
	}
	switch c.PHICHSixths {
	case 1, 3, 6, 12:
	default:
		return false
	}
	return c.ID >= 0 && c.ID <= maxCellID && (c.Ports == 1 || c.Ports == 2)
}

// subcarrierCount returns the width of the cell in subcarriers.
func (c Cell) subcarrierCount() int { return c.PRB * subcarriersPerPRB }

// crsFrequencyShift returns the frequency shift of the reference signals (36.211 section 6.10.1.2).
func (c Cell) crsFrequencyShift() int { return c.ID % 6 }

// RNTIs that address no single user (36.321 table 7.1-1).
const (
	rntiSI = cell.RNTI(0xFFFF)
	rntiP  = cell.RNTI(0xFFFE)
	// maxRARNTI is the highest RNTI of random access responses with FDD (36.321 section 5.1.4: 1 +
	// t_id, and f_id is 0).
	maxRARNTI = cell.RNTI(10)
)
