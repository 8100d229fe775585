// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/cmplx"
)

// subcarrierSpacing is in Hz (36.211 section 6.12).
const subcarrierSpacing = 15_000

// Cyclic prefixes in 128ths of the useful part of a symbol: of the first symbol of a slot, and of
// the others (36.211 table 6.12-1: 160 and 144 of 2048).
const (
	firstPrefixLen = 10
	prefixLen      = 9
)

// windowAdvance is how much earlier than the useful part the FFT window begins, in 128ths of a
// symbol, so that a slightly late clock does no harm.
const windowAdvance = 1

// subframeLen returns the number of samples of a subframe, with size samples in the useful part of
// a symbol.
func subframeLen(size int) int { return 15 * size }

// symbolStart returns the first sample of the useful part of symbol l of a subframe.
func symbolStart(size, l int) int {
	slot, l := l/symbolsPerSlot, l%symbolsPerSlot
	return slot*15*size/2 + l*size + (firstPrefixLen+l*prefixLen)*size/128
}

// demodulator converts samples into subcarriers.
type demodulator struct {
	fftSize       int // FFT length
	subcarriers   int // subcarriers
	fft           *fft
	samples       []complex128
	windowPhases  []complex128 // by subcarrier: compensates windowAdvance
	carrierOffset float64      // in cycles per sample
	carrierPhases []complex128 // by sample of a symbol: compensates the carrier offset
}

func newDemodulator(size, width int) *demodulator {
	d := &demodulator{fftSize: size, subcarriers: width, fft: newFFT(size), samples: make([]complex128, size),
		windowPhases: make([]complex128, width), carrierPhases: make([]complex128, size)}
	for k := range d.windowPhases {
		d.windowPhases[k] = cmplx.Rect(1/math.Sqrt(float64(size)), 2*math.Pi*float64(d.subcarrierBin(k))*windowAdvance/128)
	}
	d.setCarrierOffset(0)
	return d
}

// setCarrierOffset sets the carrier offset to compensate, in cycles per sample.
func (d *demodulator) setCarrierOffset(offset float64) {
	d.carrierOffset = offset
	turn, now := cmplx.Rect(1, -2*math.Pi*offset), complex(1, 0)
	for i := range d.carrierPhases {
		d.carrierPhases[i] = now
		now *= turn
	}
}

// subcarrierBin returns the FFT bin of subcarrier k. There is no subcarrier at 0 Hz.
func (d *demodulator) subcarrierBin(k int) int {
	if k < d.subcarriers/2 {
		return d.fftSize - d.subcarriers/2 + k
	}
	return k - d.subcarriers/2 + 1
}

// demodulateSymbol fills out with the subcarriers of symbol l. samples begin with the subframe.
func (d *demodulator) demodulateSymbol(samples []complex64, l int, out []complex128) {
	at := symbolStart(d.fftSize, l) - windowAdvance*d.fftSize/128
	order, carrier := d.fft.order[:d.fftSize], d.carrierPhases[:d.fftSize]
	for i, s := range samples[at:][:d.fftSize] {
		d.samples[order[i]] = complex128(s) * carrier[i]
	}
	d.fft.transformInPlace(d.samples)
	first := cmplx.Rect(1, -2*math.Pi*d.carrierOffset*float64(at))
	half := d.subcarriers / 2
	for k := range half {
		out[k] = d.samples[d.fftSize-half+k] * (d.windowPhases[k] * first)
		out[half+k] = d.samples[1+k] * (d.windowPhases[half+k] * first)
	}
}

// grid has the symbols of one subframe that newResourceGrid was asked for.
type grid [symbolsPerSubframe][]complex128

func newResourceGrid(width int, symbols ...int) *grid {
	g := new(grid)
	for _, l := range symbols {
		g[l] = make([]complex128, width)
	}
	return g
}
