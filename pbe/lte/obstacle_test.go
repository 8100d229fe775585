// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"strings"
	"testing"
)

// foreignSignal returns 24 ms, at searchSize, of an unsupported cell of 1.4 MHz with identity 205.
func foreignSignal(of Reason, snr float64) (out []complex64) {
	rnd := rand.New(rand.NewPCG(uint64(of), 3))
	c := Cell{ID: 205, PRB: 6, Ports: 2, PHICHSixths: 6}
	fft, time := newFFT(searchSize), make([]complex128, searchSize)
	symbols, other := symbolsPerSlot, prefixLen
	if of == ExtendedPrefix {
		symbols, other = 6, searchSize/4
	}
	for sf := range 24 {
		rows := newResourceGrid(pbchWidth, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
		for _, row := range rows {
			for k := range row {
				row[k] = qpskSymbol(byte(rnd.IntN(2)), byte(rnd.IntN(2)))
			}
		}
		at := [2]int{-1, -1} // symbols of PSS and SSS
		switch {
		case of == TDD && sf%5 == 0:
			at[1] = 2*symbols - 1
		case of == TDD && sf%5 == 1:
			at[0] = 2
		case of != TDD && sf%5 == 0:
			at = [2]int{symbols - 1, symbols - 2}
		}
		primary, secondary := pssSequence(c.ID%3), sssSequence(c.ID, sf%10 == 5)
		for i := range syncLen {
			if k := pbchWidth/2 - syncLen/2 + i; at[0] >= 0 {
				rows[at[0]][k] = primary[i]
			}
			if k := pbchWidth/2 - syncLen/2 + i; at[1] >= 0 {
				rows[at[1]][k] = complex(secondary[i], 0)
			}
		}
		if of == FourPorts && sf%10 == 0 {
			fourPorts(c, sf/10, rows)
		}
		for l := range 2 * symbols {
			clear(time)
			for k, v := range rows[l] {
				if k < pbchWidth/2 {
					time[fft.order[searchSize-pbchWidth/2+k]] = conj(v)
				} else {
					time[fft.order[k-pbchWidth/2+1]] = conj(v)
				}
			}
			fft.transformInPlace(time)
			guard := other
			if l%symbols == 0 && of != ExtendedPrefix {
				guard = firstPrefixLen
			}
			for i := -guard; i < searchSize; i++ {
				level := math.Pow(10, -snr/20) * math.Sqrt2 / 2
				out = append(out, complex64(conj(time[(i+searchSize)%searchSize])/complex(math.Sqrt(searchSize),
					0)+complex(rnd.NormFloat64()*level, rnd.NormFloat64()*level)))
			}
		}
	}
	return out
}

// fourPorts puts the received broadcast of four ports into subframe 0.
func fourPorts(c Cell, sfn int, rows *grid) {
	h := [4]complex128{1, cmplx.Rect(0.8, 1), cmplx.Rect(1.1, 2), cmplx.Rect(0.7, -2)}
	r := newMIBReader(c.ID)
	var w bitWriter
	w.writeBits(3, 3) // 10 MHz
	w.writeBits(0, 1)
	w.writeBits(2, 2)
	w.writeBits(sfn>>2, 8)
	w.writeBits(0, 10)
	coded := encodeTailBiting(appendMaskedCRC(w, mibCRCMasks[4]), nil)
	bit := func(i int) byte { return coded[r.pbch.order[i%len(r.pbch.order)]] ^ r.pbch.scramble[sfn%4*pbchBits+i] }
	f := complex(math.Sqrt2/2, 0)
	for i := 0; i < len(r.elements); i += 2 {
		a, b := r.elements[i], r.elements[i+1]
		x, y := qpskSymbol(bit(2*i), bit(2*i+1)), qpskSymbol(bit(2*i+2), bit(2*i+3))
		one, two := h[i/2%2], h[i/2%2+2]
		rows[a.l][a.k] = f * (one*x - two*conj(y))
		rows[b.l][b.k] = f * (one*y + two*conj(x))
	}
	ref := newReferenceSignals(c)
	for port := range 2 {
		for i, l := range []int{7, 11} {
			for m, v := range ref[1][i] {
				rows[l][c.firstCRSSubcarrier(port, l%symbolsPerSlot)+6*m] = h[port] * v
			}
		}
		for m := range pbchWidth / 6 {
			rows[8][c.firstLateCRS(port+2)+6*m] = h[port+2] * r.lateSignal(m)
		}
	}
}

// TestWhy checks that unsupported cells are identified, and none of their subframes is reported.
func TestWhy(t *testing.T) {
	wide := newTransmitter(Cell{ID: 8, PRB: 25, Ports: 1, PHICHSixths: 6}, 512, 1)
	for i := range 25 {
		wide.subframe(0, i%10, 2)
	}
	var narrow []complex64
	for _, s := range decimateSamples(wide.transmitOver(air{gain: [2]complex128{1}, snr: 30}), 4) {
		narrow = append(narrow, complex64(s))
	}
	mute := shortSignalOf(205, 24, 20) // no broadcast, but all else
	for i := range mute {
		if at := i % (10 * subframeLen(searchSize)); at > symbolStart(searchSize, 7)-prefixLen &&
			at < symbolStart(searchSize, 11)-prefixLen {
			mute[i] = 0
		}
	}
	for _, c := range []struct {
		samples []complex64
		want    Obstacle
		text    string
	}{
		{foreignSignal(FourPorts, 5), Obstacle{FourPorts, Cell{ID: 205, PRB: 50, PHICHSixths: 6, Ports: 4}},
			"four antenna ports"},
		{foreignSignal(ExtendedPrefix, 3), Obstacle{ExtendedPrefix, Cell{ID: 205}}, "extended cyclic prefix"},
		{foreignSignal(TDD, 3), Obstacle{TDD, Cell{ID: 205}}, "TDD"},
		{narrow, Obstacle{TooWide, Cell{ID: 8, PRB: 25, Ports: 1, PHICHSixths: 6}}, "25 resource blocks"},
		{mute, Obstacle{UnreadableMIB, Cell{ID: 205}}, "broadcast"},
		{gaussianNoise(42_000, 1), Obstacle{Reason: NoSignal}, "no synchronisation"},
		{make([]complex64, 42_000), Obstacle{Reason: NoSignal}, "no synchronisation"},
		{nil, Obstacle{}, "too few samples"},
	} {
		r, err := NewReceiver(searchSize * subcarrierSpacing)
		if err != nil {
			t.Fatal(err)
		}
		r.OnSubframe = func(s *Subframe) { t.Errorf("%+v: received %d.%d", c.want, s.SFN, s.Index) }
		r.Feed(c.samples)
		r.Close()
		if got := r.Obstacle(); got != c.want || !strings.Contains(got.String(), c.text) {
			t.Errorf("%+v (%s), want %+v", got, got, c.want)
		}
	}
}

// BenchmarkNoCell searches 21 ms without success.
func BenchmarkNoCell(b *testing.B) {
	samples := gaussianNoise(searchInterval*subframeLen(2048), 1)
	for b.Loop() {
		r, _ := NewReceiver(2048 * subcarrierSpacing)
		r.failedSearches = 3 // as usual: no diagnosis
		r.Feed(samples)
	}
}
