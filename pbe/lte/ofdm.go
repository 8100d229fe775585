package lte

import (
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"
)

// spacing of the subcarriers in Hz (36.211 section 6.12).
const spacing = 15_000

// cyclic prefixes, in 128ths of the useful part of a symbol: of the first of a
// slot, and of the others (36.211 table 6.12-1: 160 and 144 of 2048).
const (
	firstPrefix = 10
	prefix      = 9
)

// early is how much of the prefix, in 128ths of a symbol, is left between the
// window that is looked at and the symbol after it, so that a clock that is a
// little late does no harm.
const early = 1

// subframeLen is the number of samples of a subframe, of size samples in the
// useful part of a symbol.
func subframeLen(size int) int { return 15 * size }

// symbolAt is where the useful part of symbol l of a subframe begins.
func symbolAt(size, l int) int {
	slot, l := l/perSlot, l%perSlot
	return slot*15*size/2 + l*size + (firstPrefix+l*prefix)*size/128
}

// demodulator makes subcarriers of samples.
type demodulator struct {
	size  int // of the transform
	width int // subcarriers
	fft   *fourier.CmplxFFT
	time  []complex128
	freq  []complex128
	turn  []complex128 // by subcarrier: puts right that the window is early
}

func newDemodulator(size, width int) *demodulator {
	d := &demodulator{size: size, width: width, fft: fourier.NewCmplxFFT(size),
		time: make([]complex128, size), freq: make([]complex128, size), turn: make([]complex128, width)}
	for k := range d.turn {
		d.turn[k] = cmplx.Rect(1/math.Sqrt(float64(size)), 2*math.Pi*float64(d.bin(k))*early/128)
	}
	return d
}

// bin is the place of subcarrier k in the transform. There is none at 0 Hz.
func (d *demodulator) bin(k int) int {
	if k < d.width/2 {
		return d.size - d.width/2 + k
	}
	return k - d.width/2 + 1
}

// symbol fills out with the subcarriers of symbol l of the subframe whose samples
// these are, turned back by offset, in cycles per sample.
func (d *demodulator) symbol(samples []complex64, l int, offset float64, out []complex128) {
	at := symbolAt(d.size, l) - early*d.size/128
	turn := cmplx.Rect(1, -2*math.Pi*offset)
	now := cmplx.Rect(1, -2*math.Pi*offset*float64(at))
	for i, s := range samples[at : at+d.size] {
		d.time[i] = complex128(s) * now
		now *= turn
	}
	d.fft.Coefficients(d.freq, d.time)
	half := d.width / 2
	for k := range half {
		out[k] = d.freq[d.size-half+k] * d.turn[k]
		out[half+k] = d.freq[1+k] * d.turn[half+k]
	}
}

// grid are the symbols of one subframe, those that were asked for.
type grid [perSubframe][]complex128

func newGrid(width int, symbols ...int) *grid {
	g := new(grid)
	for _, l := range symbols {
		g[l] = make([]complex128, width)
	}
	return g
}
