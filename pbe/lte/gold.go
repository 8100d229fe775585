// SPDX-License-Identifier: Apache-2.0

package lte

// goldDiscard is N_C of 36.211 section 7.2.
const goldDiscard = 1600

// goldSequence fills out with the pseudo-random sequence of 36.211 section 7.2.
func goldSequence(init uint32, out []byte) {
	x1, x2 := uint32(1), init
	step := func() byte {
		bit := byte((x1 ^ x2) & 1)
		x1 |= ((x1>>3 ^ x1) & 1) << 31
		x2 |= ((x2>>3 ^ x2>>2 ^ x2>>1 ^ x2) & 1) << 31
		x1, x2 = x1>>1, x2>>1
		return bit
	}
	for range goldDiscard {
		step()
	}
	for i := range out {
		out[i] = step()
	}
}

// pdcchInitState returns the initial state of the PDCCH scrambling in a subframe (36.211 section
// 6.8.2).
func pdcchInitState(id, subframe int) uint32 { return uint32(subframe<<9 + id) }

// pcfichInitState returns the initial state of the PCFICH scrambling (section 6.7.1).
func pcfichInitState(id, subframe int) uint32 { return uint32((subframe+1)*(2*id+1)<<9 + id) }

// crsInitState returns the initial state of the reference signals of symbol l of a slot, 0 to 19
// (section 6.10.1.1).
func crsInitState(id, slot, l int) uint32 {
	return uint32((7*(slot+1)+l+1)*(2*id+1)<<10 + 2*id + 1)
}
