// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// resample returns samples as taken by a clock that is fast by ppm.
func resample(samples []complex64, ppm float64) []complex64 {
	const half = 8
	step := 1 / (1 + ppm*1e-6)
	var out []complex64
	for at := 0.0; int(at)+half+1 < len(samples); at += step {
		i, f := int(at), at-math.Floor(at)
		var re, im float64
		for j := max(-half, -i); j <= half; j++ {
			x := float64(j) - f
			w := 0.5 + 0.5*math.Cos(math.Pi*x/(half+1))
			if x != 0 {
				w *= math.Sin(math.Pi*x) / (math.Pi * x)
			}
			re += w * float64(real(samples[i+j]))
			im += w * float64(imag(samples[i+j]))
		}
		out = append(out, complex(float32(re), float32(im)))
	}
	return out
}

// TestDrift checks that the receiver follows a clock that is off by 40 ppm, and a moving terminal.
func TestDrift(t *testing.T) {
	c := Cell{ID: 301, PRB: 6, Ports: 2, PHICHSixths: 1}
	const subframes = 150
	tx := newTransmitter(c, 128, 5)
	truth := map[string]int{}
	for i := range subframes {
		tx.subframe(700+i/10, i%10, 1+i%3)
	}
	for _, s := range tx.sent {
		truth[s.d.key(&Subframe{SFN: 700 + s.subframe/10, Index: s.subframe % 10})] = s.subframe
	}
	for _, ppm := range []float64{-40, 40} {
		samples := tx.transmitThrough(t, NewEPAChannel(70, 100*ppm, 22, 4))
		a := receiveStream(t, 128, 20_000, truth, resample(samples, ppm))
		received := 0
		for _, n := range a.received {
			received += n
		}
		counts := a.r.Counts()
		t.Logf("%v ppm: %d of %d received, %d wrong, %+v, %.0f Hz", ppm, received, len(truth), len(a.wrong), counts,
			a.r.Offset())
		if received < len(truth)*97/100 || len(a.wrong) > len(truth)/500 || counts.Found != 1 ||
			counts.Reacquired+counts.SFNJumps+counts.Lost > 0 || a.subframes < subframes-2 {
			t.Errorf("%v ppm: %d of %d received, %d subframes, %v wrong, %+v", ppm, received, len(truth), a.subframes,
				a.wrong, counts)
		}
	}
}

// TestOffsets checks carriers that are off by up to 7 kHz, at all widths, starting anywhere in a
// frame.
func TestOffsets(t *testing.T) {
	for i, c := range []struct{ prb, size int }{{6, 128}, {15, 256}, {25, 512}, {50, 1024}, {75, 1536}, {100, 2048}} {
		for j, offset := range []float64{-7000, -5000, 5000, 7000} {
			if c.prb > 25 && j != i-2 {
				continue // the search is the same for all widths
			}
			want := Cell{ID: 83*i + j, PRB: c.prb, Ports: 1 + (i+j)%2, PHICHSixths: 6}
			tx := newTransmitter(want, c.size, uint64(i))
			truth := map[string]int{}
			for k := range 14 {
				tx.subframe(700+k/10, k%10, 1+k%3)
			}
			for _, s := range tx.sent {
				truth[s.d.key(&Subframe{SFN: 700 + s.subframe/10, Index: s.subframe % 10})] = s.subframe
			}
			cut := (3*i + j) % 4 * subframeLen(c.size) * 3 / 10
			a := receiveStream(t, c.size, 50_000, truth, tx.transmitThrough(t, Channel{Offset: offset, SNR: 20})[cut:])
			for k, sf := range a.missing {
				if sf > 0 || cut == 0 {
					t.Errorf("%+v at %v Hz: not received: %s", want, offset, k)
				}
			}
			if got, _ := a.r.Cell(); got != want || math.Abs(a.r.Offset()-offset) > 30 || len(a.wrong) > 0 {
				t.Errorf("%+v at %v Hz: %+v at %.0f Hz, wrong %v", want, offset, got, a.r.Offset(), a.wrong)
			}
		}
	}
}

// transmitThrough returns all subframes after a channel.
func (t *transmitter) transmitThrough(tb testing.TB, ch Channel) (out []complex64) {
	tx, err := NewTransmitter(t.cell, t.size*subcarrierSpacing, ch, t.seed)
	if err != nil {
		tb.Fatal(err)
	}
	tx.pdcchGain *= math.Pow(10, t.gain/20)
	next := 0
	tx.multicast = t.multicast
	for i, number := range t.numbers {
		var messages []DCI
		for ; next < len(t.sent) && t.sent[next].subframe == i; next++ {
			messages = append(messages, t.sent[next].d)
		}
		out = append(out, tx.SendMessages(number, t.cfis[i], messages)...)
	}
	return out
}

// TestTruncated checks that any part of a cell, in pieces of any size, is decoded correctly to its
// end.
func TestTruncated(t *testing.T) {
	c := Cell{ID: 301, PRB: 6, Ports: 1, PHICHSixths: 1}
	samples, truth := transmitStream(c, 128, 26, air{gain: [2]complex128{1}, snr: 25})
	sub := subframeLen(128)
	for n := 0; n <= len(samples); n += 3*sub + 77 {
		for _, from := range []int{0, n / 3} {
			a := receiveStream(t, 128, n+1, truth, samples[from:n])
			if len(a.wrong) > 0 || a.subframes > (n-from+sub/4)/sub {
				t.Errorf("samples %d to %d: %d subframes, wrong %v", from, n, a.subframes, a.wrong)
			}
			if whole := (n - from) / sub; whole >= 13 && a.subframes < whole-1 {
				t.Errorf("samples %d to %d: %d subframes", from, n, a.subframes)
			}
		}
	}
	// Pieces of any size give the same result.
	want := ""
	for _, piece := range []int{len(samples), 1, 12_345} {
		a := receiveStream(t, 128, piece, truth, samples)
		if got := fmt.Sprint(a.received, a.subframes, a.r.Counts()); want == "" {
			want = got
		} else if got != want {
			t.Errorf("in pieces of %d: %s, want %s", piece, got, want)
		}
	}
}

// TestClipped checks that messages survive clipping at 0.3 of the mean amplitude, as by a far too
// high gain.
func TestClipped(t *testing.T) {
	samples, truth := transmitStream(Cell{ID: 77, PRB: 25, Ports: 2, PHICHSixths: 6}, 512, 40,
		air{gain: [2]complex128{1, 0.8i}, offset: 1700, snr: 25})
	var power float64
	for _, s := range samples {
		power += squaredNorm(complex128(s))
	}
	most := float32(0.3 * math.Sqrt(power/float64(len(samples))))
	clipped := slices.Clone(samples)
	for i, s := range clipped {
		clipped[i] = complex(min(max(real(s), -most), most), min(max(imag(s), -most), most))
	}
	a := receiveStream(t, 512, 10_000, truth, clipped)
	received := 0
	for _, n := range a.received {
		received += n
	}
	t.Logf("%d of %d received, %d wrong", received, len(truth), len(a.wrong))
	if received < len(truth)*80/100 || len(a.wrong) > 1 || a.subframes != 40 {
		t.Errorf("%d of %d received, %d subframes, %v wrong", received, len(truth), a.subframes, a.wrong)
	}
}
