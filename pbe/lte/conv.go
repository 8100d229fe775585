package lte

import (
	"math/bits"
	"slices"
)

// The tail-biting convolutional code of 36.212 section 5.1.3.1: rate 1/3, 64
// states. A state holds the last six bits, the newest in front.
const (
	streams   = 3
	memory    = 6
	states    = 1 << memory
	maxCoded  = 70 // bits with CRC that are decoded: format 2 of 20 MHz has 67
	polynomA  = 0o133
	polynomB  = 0o171
	polynomC  = 0o165
	maxSpread = streams * maxCoded
)

// outputs[u<<6|s] are the three bits that bit u gives in state s, A in front.
var outputs = func() (o [2 * states]byte) {
	for r := range o {
		parity := func(g int) byte { return byte(bits.OnesCount(uint(r&g)) & 1) }
		o[r] = parity(polynomA)<<2 | parity(polynomB)<<1 | parity(polynomC)
	}
	return
}()

// encode appends the three streams of bits to out, one after the other.
func encode(bits, out []byte) []byte {
	s := 0
	for _, b := range bits[len(bits)-memory:] {
		s = s>>1 | int(b)<<(memory-1)
	}
	n, d := len(out), len(bits)
	out = slices.Grow(out, streams*d)[:n+streams*d]
	for i, b := range bits {
		r := int(b)<<memory | s
		o := outputs[r]
		out[n+i], out[n+d+i], out[n+2*d+i] = o>>2, o>>1&1, o&1
		s = r >> 1
	}
	return out
}

// rounds bounds how often the decoder goes round the code word. More do not
// bring what three did not: such words are mostly noise.
const rounds = 3

// viterbi decodes the tail-biting code: it goes round the code word, each time
// starting with the metrics that the last round ended with, until the best path
// of a round ends in the state where it began. If none does, the middle round is
// taken of the path that is best in the end: there both its ends are known.
type viterbi struct {
	// paths[i] are the best paths to each state before step i: twice their metric, and
	// one more if the state before was the even one.
	paths [rounds*maxCoded + 1][states]int32
	path  [rounds * maxCoded]byte
}

// look is how many steps there are between looks whether the word can still fit.
const look = 6

// decode fills out with the bits whose code word is most like soft: the streams
// one after the other, each as long as out. It is false if it sees in the first
// round, which may begin in any state, that no word fits by least.
func (v *viterbi) decode(soft []int32, out []byte, least int32) bool {
	d := len(out)
	x, y, z := soft[:d], soft[d:][:d], soft[2*d:][:d]
	var rest int32 // that the steps to come can bring at most
	for _, s := range soft {
		rest += max(s, -s)
	}
	v.paths[0] = [states]int32{}
	for r := range rounds {
		for i := range d {
			now, next := &v.paths[r*d+i], &v.paths[r*d+i+1]
			step(now, next, x[i], y[i], z[i])
			if r > 0 {
				continue
			}
			rest -= max(x[i], -x[i]) + max(y[i], -y[i]) + max(z[i], -z[i])
			if (i%look == look-1 || i == d-1) && next[best(next)]/2+rest < least {
				return false
			}
		}
		end := (r + 1) * d
		if v.trace(best(&v.paths[end]), end, r*d) {
			copy(out, v.path[r*d:end])
			return true
		}
	}
	v.trace(best(&v.paths[rounds*d]), rounds*d, d)
	copy(out, v.path[d:2*d])
	return true
}

// best is the state with the highest metric.
func best(m *[states]int32) int {
	s := 0
	for i := 1; i < states; i++ {
		if m[i] > m[s] {
			s = i
		}
	}
	return s
}

// trace follows the path that ends before step end in state s back to step
// begin, and tells whether it began in the same state.
func (v *viterbi) trace(s, end, begin int) bool {
	last := s
	for i := end - 1; i >= begin; i-- {
		v.path[i] = byte(s >> (memory - 1))
		s = s<<1&(states-1) | int(v.paths[i+1][s]&1^1)
	}
	return s == last
}

// step goes on by one bit with the soft bits x, y, z. States 2j and 2j+1 lead to
// j with 0 and to j+32 with 1; as all polynomials have their first and last bit,
// the outputs of 2j+1 are those of 2j turned round.
func step(now, next *[states]int32, x, y, z int32) {
	x, y, z = 2*x, 2*y, 2*z
	a, b, c, d := x+y+z, x+y-z, x-y+z, x-y-z
	metric := [8]int32{a, b, c, d, -d, -c, -b, -a}
	for j := range states / 2 {
		m := metric[outputs[2*j]&7]
		even, odd := now[2*j]|1, now[2*j+1]&^1
		next[j] = max(even+m, odd-m)
		next[j+states/2] = max(even-m, odd+m)
	}
}
