// SPDX-License-Identifier: Apache-2.0

package lte

import "math"

// softener converts elements of control channels into soft bits.
type softener struct {
	cell      Cell
	channel   [2][]complex128 // by port
	meanPower float64         // mean power of the channels
}

// measurePower computes meanPower.
func (s *softener) measurePower() {
	s.meanPower = 1e-30
	for _, h := range s.channel[:s.cell.Ports] {
		var sum float64
		for _, v := range h {
			sum += squaredNorm(v)
		}
		s.meanPower += sum / float64(len(h))
	}
}

// appendPairBits appends the four soft bits of elements a and b of a symbol. Without noise they are
// as large as the channel's power there, 1 in the mean.
func (s *softener) appendPairBits(row []complex128, a, b int, out []float32) []float32 {
	h := s.channel[0]
	x, y := conj(h[a])*row[a], conj(h[b])*row[b]
	f := math.Sqrt2 / s.meanPower
	if s.cell.Ports == 2 {
		// Space-frequency block code (36.211 section 6.3.4.3): port 0 sends x and y,
		// port 1 −y* and x*, each with half of the power.
		h := s.channel[1]
		x += h[b] * conj(row[b])
		y -= h[a] * conj(row[a])
		f *= math.Sqrt2
	}
	return append(out, float32(real(x)*f), float32(imag(x)*f), float32(real(y)*f), float32(imag(y)*f))
}

// appendGroupBits appends the eight soft bits of r.
func (s *softener) appendGroupBits(g *grid, r reg, out []float32) []float32 {
	e := s.cell.dataSubcarriers(r)
	out = s.appendPairBits(g[r.l], e[0], e[1], out)
	return s.appendPairBits(g[r.l], e[2], e[3], out)
}

// relativePower returns the power of the channel at r, 1 in the mean.
func (s *softener) relativePower(r reg) float64 {
	var sum float64
	for _, h := range s.channel[:s.cell.Ports] {
		sum += squaredNorm(h[r.k]) + squaredNorm(h[r.k+regSubcarrierCount(r.l)-1])
	}
	return sum / 2 / s.meanPower
}

func conj(c complex128) complex128     { return complex(real(c), -imag(c)) }
func squaredNorm(c complex128) float64 { return real(c)*real(c) + imag(c)*imag(c) }
