// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math/bits"
	"slices"
)

// The tail-biting convolutional code of 36.212 section 5.1.3.1: rate 1/3, 64 states. A state has
// the last six bits, the newest as its most significant one.
const (
	codeStreams   = 3
	codeMemory    = 6
	trellisStates = 1 << codeMemory
	maxWordBits   = 70 // longest word with CRC; format 2 at 20 MHz has 67 bits
	polynomA      = 0o133
	polynomB      = 0o171
	polynomC      = 0o165
	maxCodedBits  = codeStreams * maxWordBits
)

// encoderOutputs[u<<6|s] are the three output bits for bit u in state s, polynomial A first.
var encoderOutputs = func() (o [2 * trellisStates]byte) {
	for r := range o {
		parity := func(g int) byte { return byte(bits.OnesCount(uint(r&g)) & 1) }
		o[r] = parity(polynomA)<<2 | parity(polynomB)<<1 | parity(polynomC)
	}
	return
}()

// encodeTailBiting appends the three streams of bits to out, one after the other.
func encodeTailBiting(bits, out []byte) []byte {
	s := 0
	for _, b := range bits[len(bits)-codeMemory:] {
		s = s>>1 | int(b)<<(codeMemory-1)
	}
	n, d := len(out), len(bits)
	out = slices.Grow(out, codeStreams*d)[:n+codeStreams*d]
	for i, b := range bits {
		r := int(b)<<codeMemory | s
		o := encoderOutputs[r]
		out[n+i], out[n+d+i], out[n+2*d+i] = o>>2, o>>1&1, o&1
		s = r >> 1
	}
	return out
}

// viterbiRounds bounds how often the decoder goes round the code word. More rounds do not help
// where three did not: such words are mostly noise.
const viterbiRounds = 3

// viterbiDecoder decodes the tail-biting code. It goes round the code word, each time starting with
// the metrics of the end of the last round, until the best path of a round ends in the state where
// it began. If none does, it takes the middle round of the finally best path: both its ends are
// known.
type viterbiDecoder struct {
	// metrics[i] has the best metric of each state before step i: twice its value, plus one if the
	// previous state was the even one.
	metrics   [viterbiRounds*maxWordBits + 1][trellisStates]int32
	decisions [viterbiRounds * maxWordBits]byte
}

// fitCheckInterval is the number of steps between checks whether the word can still fit.
const fitCheckInterval = 6

// decodeBits fills out with the bits of the code word most like soft: the streams one after the
// other, each as long as out. It returns false if it finds in the first round, which may begin in
// any state, that no word reaches minFit.
func (v *viterbiDecoder) decodeBits(soft []int32, out []byte, minFit int32) bool {
	d := len(out)
	x, y, z := soft[:d], soft[d:][:d], soft[2*d:][:d]
	var remaining int32 // upper bound of what the remaining steps add
	for _, s := range soft {
		remaining += max(s, -s)
	}
	v.metrics[0] = [trellisStates]int32{}
	for r := range viterbiRounds {
		for i := range d {
			now, next := &v.metrics[r*d+i], &v.metrics[r*d+i+1]
			viterbiStep(now, next, x[i], y[i], z[i])
			if r > 0 {
				continue
			}
			remaining -= max(x[i], -x[i]) + max(y[i], -y[i]) + max(z[i], -z[i])
			if (i%fitCheckInterval == fitCheckInterval-1 || i == d-1) && next[bestTrellisState(next)]/2+remaining < minFit {
				return false
			}
		}
		end := (r + 1) * d
		if v.traceBackStates(bestTrellisState(&v.metrics[end]), end, r*d) {
			copy(out, v.decisions[r*d:end])
			return true
		}
	}
	v.traceBackStates(bestTrellisState(&v.metrics[viterbiRounds*d]), viterbiRounds*d, d)
	copy(out, v.decisions[d:2*d])
	return true
}

// bestTrellisState returns the state with the highest metric.
func bestTrellisState(m *[trellisStates]int32) int {
	s := 0
	for i := 1; i < trellisStates; i++ {
		if m[i] > m[s] {
			s = i
		}
	}
	return s
}

// traceBackStates follows the path that ends before step end in state s back to step begin. It
// reports whether the path began in the same state.
func (v *viterbiDecoder) traceBackStates(s, end, begin int) bool {
	last := s
	for i := end - 1; i >= begin; i-- {
		v.decisions[i] = byte(s >> (codeMemory - 1))
		s = s<<1&(trellisStates-1) | int(v.metrics[i+1][s]&1^1)
	}
	return s == last
}

// viterbiStep advances by one bit with the soft bits x, y, z. States 2j and 2j+1 lead to j with bit
// 0 and to j+32 with bit 1. All polynomials have their first and last bit, so the outputs of 2j+1
// are the inverse of those of 2j.
func viterbiStep(now, next *[trellisStates]int32, x, y, z int32) {
	x, y, z = 2*x, 2*y, 2*z
	a, b, c, d := x+y+z, x+y-z, x-y+z, x-y-z
	metric := [8]int32{a, b, c, d, -d, -c, -b, -a}
	for j := range trellisStates / 2 {
		m := metric[encoderOutputs[2*j]&7]
		even, odd := now[2*j]|1, now[2*j+1]&^1
		next[j] = max(even+m, odd-m)
		next[j+trellisStates/2] = max(even-m, odd+m)
	}
}
