// SPDX-License-Identifier: Apache-2.0

package lte

// cfiCodeBit returns bit i of the code word of a CFI (36.212 table 5.3.4-1): 011, 101 or 110,
// repeated.
func cfiCodeBit(cfi, i int) byte {
	if i%3 == cfi-1 {
		return 0
	}
	return 1
}

// pcfichBits is the number of bits of the PCFICH.
const pcfichBits = 32

// likeliestCFI returns the likeliest CFI. A wrong one turns all words of the subframe into chance
// words, with low odds.
func likeliestCFI(soft []float32, scramble []byte) int {
	var fit [4]float64
	for i, s := range soft {
		if scramble[i] == 1 {
			s = -s
		}
		for c := 1; c <= 3; c++ {
			fit[c] += float64(s) * (1 - 2*float64(cfiCodeBit(c, i)))
		}
	}
	best := 1
	for c := 2; c <= 3; c++ {
		if fit[c] > fit[best] {
			best = c
		}
	}
	return best
}
