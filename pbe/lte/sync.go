// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/cmplx"
)

// The search uses the middle 1.92 MHz, which has all synchronisation signals of a cell of any
// width.
const (
	searchSize        = 128 // samples per symbol
	searchSlot        = 15 * searchSize / 2
	halfFrame         = 10 * searchSlot
	syncLen           = 62 // subcarriers of PSS and SSS
	pssSymbol         = 6  // of slots 0 and 10 (36.211 section 6.11.1.2)
	sssSymbol         = 5
	pssSearchRadius   = 8 // samples around the slot boundary in which to search for PSS
	maxSyncCandidates = 3 // candidates of PSS and SSS to try
)

// pssSequence returns the primary synchronisation signal (36.211 section 6.11.1).
func pssSequence(id2 int) (d [syncLen]complex128) {
	u := float64([]int{25, 29, 34}[id2])
	for n := range d {
		m := float64(n)
		if n > 30 {
			m++
		}
		d[n] = cmplx.Rect(1, -math.Pi*u*m*(m+1)/63)
	}
	return d
}

// sssSequence returns the secondary synchronisation signal of subframe 0 or 5 (36.211 section
// 6.11.2).
func sssSequence(id int, second bool) (d [syncLen]float64) {
	sequence := func(taps ...int) (x [31]int) {
		x[4] = 1
		for i := 0; i < 26; i++ {
			for _, t := range taps {
				x[i+5] ^= x[i+t]
			}
		}
		return x
	}
	s, c, z := sequence(2, 0), sequence(3, 0), sequence(4, 2, 1, 0)
	at := func(x [31]int, n int) float64 { return 1 - 2*float64(x[n%31]) }
	id1, id2 := id/3, id%3
	qq := id1 / 30
	q := (id1 + qq*(qq+1)/2) / 30
	m := id1 + q*(q+1)/2
	m0 := m % 31
	m1 := (m0 + m/31 + 1) % 31
	if second {
		m0, m1 = m1, m0
	}
	for n := range 31 {
		d[2*n] = at(s, n+m0) * at(c, n+id2)
		d[2*n+1] = at(s, n+m1) * at(c, n+id2+3) * at(z, n+m0%8)
	}
	return d
}

// syncElementBin returns the bin of element n of a synchronisation signal in an FFT of searchSize.
func syncElementBin(n int) int { return (n - 31 + n/31 + searchSize) % searchSize }

// decimateSamples reduces the sample rate by factor, with a windowed-sinc low-pass. PSS, SSS and
// the broadcast channel take 0.57 of the band, so only frequencies above 1.43 times the band alias
// into them; there the filter has already fallen off. With a carrier 150 kHz off it is 0.73 and 1.27, in the
// filter's slope.
func decimateSamples(in []complex64, factor int) []complex128 {
	out := make([]complex128, len(in)/factor)
	if factor == 1 {
		for i, s := range in {
			out[i] = complex128(s)
		}
		return out
	}
	half := 4 * factor
	h := make([]float64, 2*half+1)
	for i := range h {
		x := float64(i-half) / float64(factor)
		h[i] = (0.54 + 0.46*math.Cos(math.Pi*float64(i-half)/float64(half+1))) / float64(factor)
		if x != 0 {
			h[i] *= math.Sin(math.Pi*x) / (math.Pi * x)
		}
	}
	for o := range out {
		var re, im float64
		for j := max(0, half-o*factor); j < len(h); j++ {
			i := o*factor + j - half
			if i >= len(in) {
				break
			}
			re += h[j] * float64(real(in[i]))
			im += h[j] * float64(imag(in[i]))
		}
		out[o] = complex(re, im)
	}
	return out
}

// locatePrefixes finds the carrier offset in Hz and the slot boundary by the cyclic prefixes: each
// one repeats the end of its symbol (36.211 section 6.12). The first prefix is hardly longer than
// the others, so the boundary may be that of a later symbol of the slot.
func locatePrefixes(y []complex128) (offset float64, slot int) {
	var fold [searchSlot]complex128
	for n := 0; n+searchSize < len(y); n++ {
		fold[n%searchSlot] += y[n] * conj(y[n+searchSize])
	}
	var best complex128
	for o := range searchSlot {
		var sum complex128
		for l := range symbolsPerSlot {
			at := o + symbolStart(searchSize, l) - prefixLen
			for i := range prefixLen {
				sum += fold[(at+i)%searchSlot]
			}
		}
		if squaredNorm(sum) > squaredNorm(best) {
			best, slot = sum, o
		}
	}
	return -cmplx.Phase(best) / (2 * math.Pi) * subcarrierSpacing, slot
}

// foundCell is a cell with a decoded MIB.
type foundCell struct {
	mib        mib
	start      int     // first sample, at searchSize, of the frame of the MIB
	offset     float64 // carrier offset in Hz
	isReliable bool    // noise or tones do not produce this PSS and SSS
}

// searcher searches for a cell in a block of samples.
type searcher struct {
	fft        *fft
	pssSignals [3][]complex128 // time-domain PSS, conjugated
}

func newSearcher() *searcher {
	s := &searcher{fft: newFFT(searchSize)}
	for id2 := range s.pssSignals {
		s.pssSignals[id2] = make([]complex128, searchSize)
		for n, v := range pssSequence(id2) {
			s.pssSignals[id2][s.fft.order[syncElementBin(n)]] = conj(v)
		}
		s.fft.transformInPlace(s.pssSignals[id2])
	}
	return s
}

// anyCell selects the strongest cell of any identity.
const anyCell = -1

// removeCarrierOffset removes the carrier offset from y. It returns the offset and the slot
// boundary.
func removeCarrierOffset(y []complex128) (offset float64, slot int) {
	offset, slot = locatePrefixes(y)
	rotateCarrier(y, offset)
	return offset, slot
}

// rotateCarrier removes a given carrier offset from y.
func rotateCarrier(y []complex128, offset float64) {
	turn, now := cmplx.Rect(1, -2*math.Pi*offset/(searchSize*subcarrierSpacing)), complex(1, 0)
	for i := range y {
		y[i] *= now
		now *= turn
	}
}

// maxFarOffset is the largest carrier offset that is searched, in subcarriers: 150 kHz, 20 ppm at 7 GHz, or the
// raster of 100 kHz missed by a half with an oscillator that is 40 ppm off at 2.6 GHz.
const maxFarOffset = 10

// farOffsets yields the steps, in subcarriers, by which to rotate samples one after the other to reach all offsets
// but zero, the nearest first.
func farOffsets(yield func(step int) bool) {
	at := 0
	for k := 1; k <= maxFarOffset; k++ {
		for _, to := range [...]int{k, -k} {
			if !yield(to - at) {
				return
			}
			at = to
		}
	}
}

// searchFarOffsets searches y, from which offset was removed without success, for carriers that are
// off by more than half a subcarrier, which locatePrefixes cannot see. It leaves y as it was.
func (s *searcher) searchFarOffsets(y []complex128, offset float64) (foundCell, bool) {
	from := offset
	for step := range farOffsets {
		rotateCarrier(y, float64(step)*subcarrierSpacing)
		f, ok := s.searchCell(y, anyCell, farPSSFit)
		offset += float64(step)*subcarrierSpacing + f.offset
		if f.offset = offset; ok && (f.isReliable || isMIBRepeated(y, f)) { // a tone may decode to a MIB
			return f, true
		}
	}
	rotateCarrier(y, from-offset)
	return foundCell{}, false
}

// isMIBRepeated reports whether the frame after that of a found cell has the MIB that follows.
func isMIBRepeated(y []complex128, f foundCell) bool {
	next, more, ok := readFirstMIB(y, f.start+2*halfFrame, f.mib.cell.ID, f.mib.cell.Ports)
	return ok && next.cell == f.mib.cell && next.sfn == (f.mib.sfn+more+1)%1024
}

// searchCell finds the cell with an identity in y, which is at searchSize and longer than a frame. A PSS must have
// a least fit. It removes the carrier offset from y, and returns the offset even without a cell.
func (s *searcher) searchCell(y []complex128, only int, minFit float64) (foundCell, bool) {
	offset, slot := removeCarrierOffset(y)
	tried := map[int]bool{}
	for range maxSyncCandidates {
		at, id2, peak := s.findPSS(y, slot, only, tried)
		if id2 < 0 || peak < minFit {
			break
		}
		for d := -1; d <= 1; d++ {
			tried[(at+d)*3+id2] = true
		}
		id, second, fit := s.findSSS(y, at, id2, only,
			symbolStart(searchSize, pssSymbol)-symbolStart(searchSize, sssSymbol))
		start := at - symbolStart(searchSize, pssSymbol)
		if second {
			start -= halfFrame
		}
		if m, frames, ok := readFirstMIB(y, start, id, 1, 2); ok {
			return foundCell{mib: m, start: start + frames*2*halfFrame, offset: offset,
				isReliable: peak >= minPSSFit && fit >= minSSSFit}, true
		}
	}
	return foundCell{offset: offset}, false
}

// findPSS returns the first sample of the useful part of a PSS symbol within the first half frame,
// its sequence (−1 if there is none) and its fit, up to 1.
func (s *searcher) findPSS(y []complex128, slot, only int, tried map[int]bool) (at, id2 int, peak float64) {
	best := 0.0
	id2 = -1
	for sym := range 10 * symbolsPerSlot {
		for d := -pssSearchRadius; d <= pssSearchRadius; d++ {
			begin := (slot + symbolStart(searchSize, sym) + d + halfFrame) % halfFrame
			for root := range s.pssSignals {
				if tried[begin*3+root] || only >= 0 && root != only%3 {
					continue
				}
				var fit, energy float64
				for n := begin; n+searchSize <= len(y); n += halfFrame {
					var sum complex128
					for i, v := range s.pssSignals[root] {
						sum += y[n+i] * v
						energy += squaredNorm(y[n+i])
					}
					fit += squaredNorm(sum)
				}
				if energy > 0 && fit/energy > best {
					best, at, id2 = fit/energy, begin, root
				}
			}
		}
	}
	return at, id2, best / (searchSize * syncLen)
}

// findSSS returns the cell identity by the SSS, which is back samples before the PSS; whether the
// first half frame is the second of a frame; and the fit, up to 1.
func (s *searcher) findSSS(y []complex128, at, id2, only, back int) (id int, second bool, fit float64) {
	one, two := make([]complex128, searchSize), make([]complex128, searchSize)
	primary := pssSequence(id2)
	var even, odd [syncLen]float64
	for h, n := 0, at; n+searchSize <= len(y); h, n = h+1, n+halfFrame {
		if n < back {
			continue
		}
		for i, o := range s.fft.order {
			one[o], two[o] = y[n+i], y[n-back+i]
		}
		s.fft.transformInPlace(one)
		s.fft.transformInPlace(two)
		sum := &even
		if h%2 == 1 {
			sum = &odd
		}
		for i := range syncLen {
			b := syncElementBin(i)
			// Equalise SSS with the channel of PSS.
			sum[i] += real(two[b] * conj(one[b]) * primary[i])
		}
	}
	best, all := math.Inf(-1), 1e-30
	for i := range syncLen {
		all += math.Abs(even[i]) + math.Abs(odd[i])
	}
	for id1 := range 168 {
		n := 3*id1 + id2
		if only >= 0 && n != only {
			continue
		}
		first, last := sssSequence(n, false), sssSequence(n, true)
		var straight, crossed float64
		for i := range syncLen {
			straight += even[i]*first[i] + odd[i]*last[i]
			crossed += even[i]*last[i] + odd[i]*first[i]
		}
		if straight > best {
			best, id, second = straight, n, false
		}
		if crossed > best {
			best, id, second = crossed, n, true
		}
	}
	return id, second, best / all
}

// readFirstMIB reads the MIB of the first frame in y that has one, for the given numbers of ports.
// Frames begin at start and repeat.
func readFirstMIB(y []complex128, start, id int, ports ...int) (m mib, frames int, ok bool) {
	d, r := newDemodulator(searchSize, pbchWidth), newMIBReader(id)
	samples := make([]complex64, subframeLen(searchSize))
	for ; ; frames++ {
		begin := start + frames*2*halfFrame
		if begin+len(samples) > len(y) {
			return m, frames, false
		}
		if begin < 0 {
			continue
		}
		for i := range samples {
			samples[i] = complex64(y[begin+i])
		}
		for l := 7; l <= 11; l++ {
			d.demodulateSymbol(samples, l, r.grid[l])
		}
		if m, ok = r.readGridMIB(0, ports...); ok {
			return m, frames, true
		}
	}
}
