// SPDX-License-Identifier: Apache-2.0

package lte

import "mpbond/pbe/cell"

const crcBits = 16

// computeCRC16 computes the CRC of 36.212 section 5.1.1, gCRC16.
func computeCRC16(bits []byte) uint16 {
	var r uint16
	for _, b := range bits {
		top := r>>15 ^ uint16(b)
		r <<= 1
		if top != 0 {
			r ^= 0x1021
		}
	}
	return r
}

// appendMaskedCRC appends the masked CRC of bits (36.212 sections 5.3.1.1 and 5.3.3.2).
func appendMaskedCRC(bits []byte, mask uint16) []byte {
	r := computeCRC16(bits) ^ mask
	for i := crcBits - 1; i >= 0; i-- {
		bits = append(bits, byte(r>>i&1))
	}
	return bits
}

// recoverCRCMask returns the mask of the CRC at the end of bits: for a DCI, the RNTI that it
// addresses.
func recoverCRCMask(bits []byte) cell.RNTI {
	n := len(bits) - crcBits
	r := computeCRC16(bits[:n])
	var got uint16
	for _, b := range bits[n:] {
		got = got<<1 | uint16(b)
	}
	return cell.RNTI(r ^ got)
}
