package lte

import "math"

// softener turns elements of control channels into soft bits.
type softener struct {
	cell    Cell
	channel [2][]complex128 // by port
	mean    float64         // of the channels' power
}

// measure sets the mean of the channels' power.
func (s *softener) measure() {
	s.mean = 1e-30
	for _, h := range s.channel[:s.cell.Ports] {
		var sum float64
		for _, v := range h {
			sum += norm(v)
		}
		s.mean += sum / float64(len(h))
	}
}

// pair appends the four soft bits of the elements a and b of a symbol. Those of a
// clean symbol are as large as the channel's power there, 1 in the mean.
func (s *softener) pair(row []complex128, a, b int, out []float32) []float32 {
	h := s.channel[0]
	x, y := conj(h[a])*row[a], conj(h[b])*row[b]
	f := math.Sqrt2 / s.mean
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

// group appends the eight soft bits of r.
func (s *softener) group(g *grid, r reg, out []float32) []float32 {
	e := s.cell.elements(r)
	out = s.pair(g[r.l], e[0], e[1], out)
	return s.pair(g[r.l], e[2], e[3], out)
}

// power is that of the channel at r, 1 in the mean.
func (s *softener) power(r reg) float64 {
	var sum float64
	for _, h := range s.channel[:s.cell.Ports] {
		sum += norm(h[r.k]) + norm(h[r.k+width(r.l)-1])
	}
	return sum / 2 / s.mean
}

func conj(c complex128) complex128 { return complex(real(c), -imag(c)) }
func norm(c complex128) float64    { return real(c)*real(c) + imag(c)*imag(c) }
