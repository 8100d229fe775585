// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestConstant checks that a DC offset harms neither the search, which it would pull to a carrier
// offset of zero, nor the messages.
func TestConstant(t *testing.T) {
	c := Cell{ID: 302, PRB: 15, Ports: 2, PHICHSixths: 6}
	tx := newTransmitter(c, 256, 5)
	truth := map[string]int{}
	for i := range 60 {
		tx.subframe(500+i/10, i%10, 1+i%3)
	}
	for _, s := range tx.sent {
		truth[s.d.key(&Subframe{SFN: 500 + s.subframe/10, Index: s.subframe % 10})] = s.subframe
	}
	samples := tx.transmitThrough(t, NewEPAChannel(5, 3000, 20, 3))
	var power float64
	for _, s := range samples {
		power += squaredNorm(complex128(s)) / float64(len(samples))
	}
	without := receiveStream(t, 256, 10_000, truth, samples)
	for _, db := range []float64{-10, -3, 10} {
		add := complex64(cmplx.Rect(math.Sqrt(power*math.Pow(10, db/10)), 1))
		direct := slices.Clone(samples)
		for i := range direct {
			direct[i] += add
		}
		a := receiveStream(t, 256, 10_000, truth, direct)
		t.Logf("%v dB: %d of %d missing, %d without it, %d wrong", db, len(a.missing), len(truth),
			len(without.missing), len(a.wrong))
		if len(a.missing) > len(without.missing) || len(a.wrong) > len(without.wrong) || a.subframes != 60 {
			t.Errorf("%v dB: %d subframes, missing %v, wrong %v", db, a.subframes, a.missing, a.wrong)
		}
		if found, err := FindCells(256*subcarrierSpacing, direct); err != nil || !slices.Equal(found, []Cell{c}) {
			t.Errorf("%v dB: %v, %v", db, found, err)
		}
	}
}

// TestMean checks that the mean is removed alike for pieces of any size, follows changes, and
// survives NaN and infinities.
func TestMean(t *testing.T) {
	const stretch = 64
	rnd := rand.New(rand.NewPCG(1, 1))
	in := make([]complex64, 400*stretch)
	for i := range in {
		in[i] = complex64(complex(rnd.NormFloat64()+3, rnd.NormFloat64()-2))
		if i > len(in)/2 {
			in[i] += 5
		}
	}
	inf := float32(math.Inf(1))
	in[100], in[10_000], in[10_001] = complex(inf, 0), complex(float32(math.NaN()), 1), complex(3e38, -3e38)
	var want []complex64
	for _, piece := range []int{len(in), 1, 777} {
		var c dcOffset
		var out []complex64
		for part := range slices.Chunk(in, piece) {
			out = append(out, part...)
			c.removeFrom(out, len(out)-len(part), stretch)
		}
		if want == nil {
			want = out
		} else if !slices.Equal(out, want) {
			t.Errorf("in pieces of %d it is something else", piece)
		}
		mean := func(from, to int) (sum complex128) {
			for _, s := range out[from*stretch : to*stretch] {
				sum += complex128(s) / complex(float64((to-from)*stretch), 0)
			}
			return sum
		}
		if out[10_000] != 0 || cmplx.Abs(mean(0, dcInitialSubframes)) > 0.1 || cmplx.Abs(mean(20, 100)) > 0.1 {
			t.Errorf("mean of the first %v, of others %v", mean(0, dcInitialSubframes), mean(20, 100))
		}
	}
	in = in[len(in)/2+1:]
	var c dcOffset
	c.removeFrom(in, 0, stretch)
	if cmplx.Abs(c.mean-(8-2i)) > 0.2 {
		t.Errorf("%v", c.mean)
	}
}

// TestBeyond checks that a carrier that is off by more than half a subcarrier is found, and
// reacquired after missing samples.
func TestBeyond(t *testing.T) {
	for _, offset := range []float64{8000, -20_000} {
		all, truth := transmitStream(Cell{ID: 301, PRB: 6, Ports: 1, PHICHSixths: 1}, 128, 60,
			air{gain: [2]complex128{1}, offset: offset, snr: 20})
		sub := subframeLen(128)
		cut := slices.Concat(all[:37*sub+500], all[40*sub+100:])
		a := receiveStream(t, 128, 5000, truth, cut)
		late := 0
		for k, in := range a.missing {
			if in < 37 || in > 40 {
				late++
				t.Log("not received:", k)
			}
		}
		if counts := a.r.Counts(); late > 0 || counts.Found != 1 || counts.Reacquired != 1 ||
			math.Abs(a.r.Offset()-offset) > 30 {
			t.Errorf("%v Hz: %d not received, %+v at %.0f Hz", offset, late, counts, a.r.Offset())
		}
		if found, err := FindCells(128*subcarrierSpacing, all); err != nil || len(found) != 1 {
			t.Errorf("%v Hz: %v, %v", offset, found, err)
		}
	}
}
