package lte

// cfiWord is the code word of a CFI (36.212 table 5.3.4-1): 011, 101 or 110
// again and again.
func cfiWord(cfi, i int) byte {
	if i%3 == cfi-1 {
		return 0
	}
	return 1
}

// cfiLen is the number of bits of the PCFICH.
const cfiLen = 32

// cfi is the likeliest CFI by the soft bits of the PCFICH, and how much better it
// fits than the next: 0 to 4/3.
func cfi(soft []float32, scramble []byte) (best int, lead float64) {
	var fit [4]float64
	var sum float64
	for i, s := range soft {
		if scramble[i] == 1 {
			s = -s
		}
		for c := 1; c <= 3; c++ {
			fit[c] += float64(s) * (1 - 2*float64(cfiWord(c, i)))
		}
		sum += max(float64(s), -float64(s))
	}
	best = 1
	for c := 2; c <= 3; c++ {
		if fit[c] > fit[best] {
			best = c
		}
	}
	next := fit[best%3+1]
	next = max(next, fit[(best+1)%3+1])
	return best, (fit[best] - next) / max(sum, 1e-30)
}
