package lte

import (
	"math"
	"math/cmplx"
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
	size    int // of the transform
	width   int // subcarriers
	fft     *fft
	time    []complex128
	turn    []complex128 // by subcarrier: puts right that the window is early
	offset  float64      // of the carrier, in cycles per sample
	carrier []complex128 // by sample of a symbol: turns it back by offset
}

func newDemodulator(size, width int) *demodulator {
	d := &demodulator{size: size, width: width, fft: newFFT(size), time: make([]complex128, size), turn: make([]complex128, width), carrier: make([]complex128, size)}
	for k := range d.turn {
		d.turn[k] = cmplx.Rect(1/math.Sqrt(float64(size)), 2*math.Pi*float64(d.bin(k))*early/128)
	}
	d.tune(0)
	return d
}

// tune sets the carrier's offset, in cycles per sample.
func (d *demodulator) tune(offset float64) {
	d.offset = offset
	turn, now := cmplx.Rect(1, -2*math.Pi*offset), complex(1, 0)
	for i := range d.carrier {
		d.carrier[i] = now
		now *= turn
	}
}

// bin is the place of subcarrier k in the transform. There is none at 0 Hz.
func (d *demodulator) bin(k int) int {
	if k < d.width/2 {
		return d.size - d.width/2 + k
	}
	return k - d.width/2 + 1
}

// symbol fills out with the subcarriers of symbol l of the subframe whose samples
// these are.
func (d *demodulator) symbol(samples []complex64, l int, out []complex128) {
	at := symbolAt(d.size, l) - early*d.size/128
	order, carrier := d.fft.order[:d.size], d.carrier[:d.size]
	for i, s := range samples[at:][:d.size] {
		d.time[order[i]] = complex128(s) * carrier[i]
	}
	d.fft.transform(d.time)
	first := cmplx.Rect(1, -2*math.Pi*d.offset*float64(at))
	half := d.width / 2
	for k := range half {
		out[k] = d.time[d.size-half+k] * (d.turn[k] * first)
		out[half+k] = d.time[1+k] * (d.turn[half+k] * first)
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
