// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/mat"
)

// referenceSignals are the reference signals of one cell (36.211 section 6.10.1): the values in
// symbols 0 and 4 of each slot, the same for all ports.
type referenceSignals [20][2][]complex128

// maxReferencePRB is the widest cell of the standard; narrower ones use the middle of its sequence.
const maxReferencePRB = 110

func newReferenceSignals(c Cell) *referenceSignals {
	r := new(referenceSignals)
	bits := make([]byte, 4*maxReferencePRB)
	for slot := range r {
		for i, l := range []int{0, 4} {
			goldSequence(crsInitState(c.ID, slot, l), bits)
			values := make([]complex128, 2*c.PRB)
			for m := range values {
				at := 2 * (m + maxReferencePRB - c.PRB)
				values[m] = qpskSymbol(bits[at], bits[at+1])
			}
			r[slot][i] = values
		}
	}
	return r
}

// qpskSymbol maps two bits to a symbol (36.211 section 7.1.2).
func qpskSymbol(a, b byte) complex128 {
	return complex((1-2*float64(a))*math.Sqrt2/2, (1-2*float64(b))*math.Sqrt2/2)
}

// firstCRSSubcarrier returns the first subcarrier with a reference signal of port in symbol 0 or 4
// of a slot; every sixth one after it has one too.
func (c Cell) firstCRSSubcarrier(port, l int) int {
	if (port == 1) != (l > 0) {
		return (3 + c.crsFrequencyShift()) % 6
	}
	return c.crsFrequencyShift()
}

// Channel estimates between reference signals are a Wiener filter of the nearest ones. It assumes
// uniformly distributed echoes within delaySpread seconds and the given noise. The echoes of the
// 3GPP channels EPA and EVA fit (36.101 annex B.2). The filter stays near the optimum for signals
// 18 dB better or worse.
const (
	filterTaps   = 12
	delaySpread  = 3e-6
	assumedNoise = 0.05
)

// channelEstimator estimates the channel of one cell.
type channelEstimator struct {
	cell      Cell
	reference *referenceSignals
	// weights are those of the filter taps, by the distance from the first tap, plus two.
	weights      [3*filterTaps + 2][filterTaps]float64
	pilots       []complex128
	rawEstimates [2][2][]complex128 // by port, at symbols 0 and 7, for noise and tracking
	isMulticast  bool               // of the tracked subframe only symbol 0 has reference signals
}

func newChannelEstimator(c Cell) *channelEstimator {
	e := &channelEstimator{cell: c, reference: newReferenceSignals(c), pilots: make([]complex128, 4*c.PRB)}
	for port := range e.rawEstimates {
		e.rawEstimates[port] = [2][]complex128{make([]complex128, 2*c.PRB), make([]complex128, 2*c.PRB)}
	}
	correlation := func(distance int) float64 {
		x := math.Pi * float64(distance) * subcarrierSpacing * delaySpread
		if x == 0 {
			return 1
		}
		return math.Sin(x) / x
	}
	r := mat.NewSymDense(filterTaps, nil)
	for i := range filterTaps {
		for j := range i + 1 {
			r.SetSym(i, j, correlation(3*(i-j)))
		}
		r.SetSym(i, i, 1+assumedNoise)
	}
	var chol mat.Cholesky
	chol.Factorize(r)
	for d := range e.weights {
		v := mat.NewVecDense(filterTaps, nil)
		for i := range filterTaps {
			v.SetVec(i, correlation(d-2-3*i))
		}
		w := mat.NewVecDense(filterTaps, nil)
		if chol.SolveVecTo(w, v) != nil {
			panic("lte: the filter's matrix is positive definite by construction")
		}
		for i := range filterTaps {
			e.weights[d][i] = w.AtVec(i) / mat.Sum(w)
		}
	}
	return e
}

// cloneEstimator returns a copy of e for concurrent use.
func (e *channelEstimator) cloneEstimator() *channelEstimator {
	c := *e
	c.pilots = make([]complex128, len(e.pilots))
	for port := range c.rawEstimates {
		for s := range c.rawEstimates[port] {
			c.rawEstimates[port][s] = make([]complex128, len(e.rawEstimates[port][s]))
		}
	}
	return &c
}

// laterWeight is the weight of the reference signals half a millisecond later in the estimate for
// the control symbols.
const laterWeight = 0.3

// estimateChannel fills out with the channel from port to each subcarrier in the first symbols of a
// slot of g. It uses the reference signals in symbols base and base+4, and base+7 if g has it; in a
// multicast subframe those of base alone.
func (e *channelEstimator) estimateChannel(g *grid, port, base, slot int, out []complex128) {
	c := e.cell
	first := c.crsFrequencyShift() % 3
	setPilots := func(l int, ref []complex128, weight, keep float64) {
		at := c.firstCRSSubcarrier(port, l%symbolsPerSlot)
		for m, v := range ref {
			k := at + 6*m
			j := (k - first) / 3
			e.pilots[j] = e.pilots[j]*complex(keep, 0) + g[l][k]*cmplx.Conj(v)*complex(weight, 0)
		}
	}
	setPilots(base, e.reference[slot][0], 1, 0)
	if e.isMulticast {
		e.interpolatePilots((c.firstCRSSubcarrier(port, 0) - first) / 3)
	} else {
		if next := base + symbolsPerSlot; next < symbolsPerSubframe && g[next] != nil {
			setPilots(next, e.reference[(slot+1)%20][0], laterWeight, 1-laterWeight)
		}
		setPilots(base+4, e.reference[slot][1], 1, 0)
	}
	last := len(e.pilots) - filterTaps
	for k := range out {
		j := min(max((k-first)/3-filterTaps/2+1, 0), last)
		w := &e.weights[k-first-3*j+2]
		var re, im float64
		for i, p := range e.pilots[j : j+filterTaps] {
			re += real(p) * w[i]
			im += imag(p) * w[i]
		}
		out[k] = complex(re, im)
	}
}

// interpolatePilots sets every second pilot from its neighbours, the first of which is at from, 0
// or 1: by a cubic curve through four pilots, at the ends by two or one.
func (e *channelEstimator) interpolatePilots(from int) {
	p := e.pilots
	for j := 1 - from; j < len(p); j += 2 {
		switch {
		case j == 0:
			p[j] = p[1]
		case j == len(p)-1:
			p[j] = p[j-1]
		case j < 3 || j+3 >= len(p):
			p[j] = (p[j-1] + p[j+1]) / 2
		default:
			p[j] = (9*(p[j-1]+p[j+1]) - p[j-3] - p[j+3]) / 16
		}
	}
}

// A multicast subframe (MBSFN) has reference signals in its control symbols only (36.211 section
// 6.10.1.2); subframes 0, 4, 5 and 9 are never multicast (36.331 section 6.3.7). In a multicast
// subframe symbol 7 agrees with symbol 0 only by chance: mostly by less than 0.6 of the normal
// agreement.
const (
	multicastAgreement = 0.6
	minMulticastSNR    = 3 // least signal power over noise power
)

// trackingResult is the signal quality, time and carrier estimated from the reference signals.
type trackingResult struct {
	// signal and noise are the power of one element.
	signal, noise float64
	// delay is how much later than expected the subframe begins, in seconds.
	delay float64
	// offset is the carrier frequency offset in Hz.
	offset float64
}

// trackReference evaluates the reference signals of all ports in symbols 0 and 7 of a subframe. Signal and noise
// are means over the ports: any of them may be the stronger one.
func (e *channelEstimator) trackReference(g *grid, subframe int) (t trackingResult) {
	var turn complex128
	var power [2]float64
	var first, second symbolStats
	for port := range e.rawEstimates[:e.cell.Ports] {
		raw, at := &e.rawEstimates[port], e.cell.firstCRSSubcarrier(port, 0)
		for s := range raw {
			for m, v := range e.reference[2*subframe+s][0] {
				raw[s][m] = g[symbolsPerSlot*s][at+6*m] * cmplx.Conj(v)
			}
		}
		for m, v := range raw[0] {
			turn += raw[1][m] * cmplx.Conj(v)
			power[0] += squaredNorm(v)
			power[1] += squaredNorm(raw[1][m])
		}
		first.addStats(e.measureSymbol(raw[0]), e.cell.Ports)
		second.addStats(e.measureSymbol(raw[1]), e.cell.Ports)
	}
	n := 2 * float64(2*e.cell.PRB-1)
	t.noise = (first.noise + second.noise) / 2
	t.signal = max((first.signal+second.signal)/n-t.noise, 0)
	slope := first.slope + second.slope
	e.isMulticast = false
	if subframe%5 != 0 && subframe%5 != 4 {
		signal := max(first.signal/(n/2)-first.noise, 0)
		wanted := signal / (signal + first.noise + 1e-30)
		if e.isMulticast = signal > minMulticastSNR*first.noise &&
			cmplx.Abs(turn) < multicastAgreement*wanted*math.Sqrt(power[0]*power[1]); e.isMulticast {
			t.noise, t.signal, slope, turn = first.noise, signal, first.slope, 0
		}
	}
	t.delay = -cmplx.Phase(slope) / (2 * math.Pi * 6 * subcarrierSpacing)
	t.offset = cmplx.Phase(turn) / (2 * math.Pi * 0.5e-3)
	return t
}

// symbolStats has the power of all reference signals of one symbol but the first, the noise power
// of one, and the phase change from one to the next.
type symbolStats struct {
	signal, noise float64
	slope         complex128
}

// addStats adds the share of one of several ports.
func (l *symbolStats) addStats(port symbolStats, ports int) {
	l.signal += port.signal / float64(ports)
	l.noise += port.noise / float64(ports)
	l.slope += port.slope / complex(float64(ports), 0)
}

// measureSymbol measures signal, noise and slope over frequency from the raw estimates h of one port in one
// symbol.
func (e *channelEstimator) measureSymbol(h []complex128) (l symbolStats) {
	for m := 1; m < len(h); m++ {
		// The distance across 0 Hz is seven subcarriers.
		if m != e.cell.PRB {
			l.slope += h[m] * cmplx.Conj(h[m-1])
		}
		if m > 1 {
			d := h[m] - 2*h[m-1] + h[m-2]
			l.noise += real(d)*real(d) + imag(d)*imag(d)
		}
		l.signal += real(h[m])*real(h[m]) + imag(h[m])*imag(h[m])
	}
	l.noise /= 6 * float64(len(h)-2)
	return l
}
