// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"mpbond/pbe/cell"
)

// shortSignalOf returns n subframes of a 1.4 MHz cell.
func shortSignalOf(id, n int, snr float64) []complex64 {
	tx := newTransmitter(Cell{ID: id, PRB: 6, Ports: 1, PHICHSixths: 6}, 128, uint64(id))
	for i := range n {
		tx.subframe(i/10, i%10, 2)
	}
	return tx.transmitOver(air{gain: [2]complex128{1}, snr: snr})
}

func gaussianNoise(n int, level float64) []complex64 {
	rnd := rand.New(rand.NewPCG(3, 3))
	out := make([]complex64, n)
	for i := range out {
		out[i] = complex64(complex(rnd.NormFloat64()*level, rnd.NormFloat64()*level))
	}
	return out
}

// TestFoundAgain checks that a cell that disappears is given up, and the next one found.
func TestFoundAgain(t *testing.T) {
	r, err := NewReceiver(1_920_000)
	if err != nil {
		t.Fatal(err)
	}
	received := map[int]int{}
	r.OnSubframe = func(s *Subframe) {
		if c, _ := r.Cell(); len(s.DCIs) > 0 {
			received[c.ID]++
		}
	}
	var all []complex64
	all = append(all, shortSignalOf(9, 30, 20)...)
	all = append(all, gaussianNoise(110*subframeLen(128), 0.3)...)
	all = append(all, shortSignalOf(300, 60, 20)...)
	for len(all) > 0 { // in odd pieces
		n := min(len(all), 777)
		r.Feed(all[:n])
		all = all[n:]
	}
	r.Close()
	if received[9] < 20 || received[300] < 40 {
		t.Errorf("subframes with messages by cell: %v", received)
	}
}

// TestNoCell checks that signals other than LTE are not taken for a cell, and leave no state.
func TestNoCell(t *testing.T) {
	n := 100 * subframeLen(128)
	tone := make([]complex64, n)
	for i := range tone {
		tone[i] = complex64(complex(math.Cos(float64(i)/7), math.Sin(float64(i)/7)))
	}
	broken := gaussianNoise(n, 1)
	for i := range broken {
		if i%3 == 0 {
			broken[i] = complex64(complex(math.NaN(), math.Inf(1)))
		}
	}
	for name, samples := range map[string][]complex64{
		"silence": make([]complex64, n), "noise": gaussianNoise(n, 1), "loud": gaussianNoise(n, 1e30), "tone": tone,
		"no numbers": broken, "short": gaussianNoise(100, 1), "nothing": nil,
	} {
		r, err := NewReceiver(1_920_000)
		if err != nil {
			t.Fatal(err)
		}
		r.OnSubframe = func(*Subframe) { t.Errorf("%s: received something", name) }
		r.Feed(samples)
		r.Close()
		if c, ok := r.Cell(); ok || len(r.samples) > maxSearchBuffer*subframeLen(128) {
			t.Errorf("%s: cell %v, %d samples kept", name, c, len(r.samples))
		}
	}
}

// TestDamaged checks that a cell is decoded through clipping at half the mean, holes, and NaN
// samples.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(i int, s complex64) complex64{
		"saturated": func(_ int, s complex64) complex64 {
			return complex(min(max(real(s), -0.5), 0.5), min(max(imag(s), -0.5), 0.5))
		},
		"hole": func(i int, s complex64) complex64 {
			if i/1920 == 22 {
				return 0
			}
			return s
		},
		"no numbers": func(i int, s complex64) complex64 {
			if i%9999 == 0 {
				return complex64(complex(math.NaN(), 0))
			}
			return s
		},
	} {
		samples := shortSignalOf(77, 40, 25)
		for i := range samples {
			samples[i] = damage(i, samples[i])
		}
		r, err := NewReceiver(1_920_000)
		if err != nil {
			t.Fatal(err)
		}
		n, dcis := 0, 0
		r.OnSubframe = func(s *Subframe) { n++; dcis += len(s.DCIs) }
		r.Feed(samples)
		r.Close()
		if n != 40 || dcis < 40 || math.IsNaN(r.Offset()) {
			t.Errorf("%s: %d subframes, %d messages, offset %f", name, n, dcis, r.Offset())
		}
	}
}

func TestWrongRate(t *testing.T) {
	for _, rate := range []int{0, -1, 1_920_001, 2_000_000, 61_440_000} {
		if _, err := NewReceiver(rate); err == nil {
			t.Errorf("%d samples per second are taken", rate)
		}
	}
}

// TestChance checks that in noise and words of other cells few words to unknown users are accepted,
// but most real messages.
func TestChance(t *testing.T) {
	c := Cell{PRB: 50, Ports: 2, PHICHSixths: 6}
	b := newBlindDecoder(c, newCandidateSizes(c))
	rnd := rand.New(rand.NewPCG(1, 1))
	const (
		cces      = 40
		subframes = 20
	)
	for _, want := range []struct {
		gamma float64 // γ of a bit
		most  int
	}{{3, 4}, {10, 1}, {100, 0}} {
		chance := 0
		soft := make([]float32, cces*bitsPerCCE)
		for sf := range subframes {
			elements := make([]cceStats, cces)
			for i := range soft {
				soft[i] = float32(2*want.gamma*float64(1-2*rnd.IntN(2)) + 2*math.Sqrt(want.gamma)*rnd.NormFloat64())
			}
			for i := range elements {
				for g := range regsPerCCE {
					elements[i].addBitGroup(want.gamma, soft[i*bitsPerCCE+8*g:][:8])
				}
			}
			b.searchSubframe(soft, elements, sf%10)
			for _, f := range b.findings {
				if f.isCertain && f.dci.RNTI.IsUser() {
					chance++
				}
			}
		}
		if t.Logf("γ %v: %d words by chance are believed in %d full subframes", want.gamma, chance,
			subframes); chance > want.most {
			t.Errorf("more than %d", want.most)
		}
	}
}

// TestGrant checks that decoded messages survive a recording.
func TestGrant(t *testing.T) {
	tx := newTransmitter(Cell{ID: 1, PRB: 50, Ports: 2, PHICHSixths: 6}, 1024, 1)
	sub := cell.Subframe{PRB: 50, Number: 1}
	for i := range 10 {
		tx.subframe(0, i, 3)
	}
	for _, s := range tx.sent {
		sub.Grants = append(sub.Grants, s.d.Grant())
	}
	var file bytes.Buffer
	w, err := cell.NewWriter(&file, [cell.MaxCells]uint8{50})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(sub), w.Flush()); err != nil {
		t.Fatal(err)
	}
	r, err := cell.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Read(); err != nil || len(got.Grants) < 10 || !reflect.DeepEqual(got, sub) {
		t.Errorf("%v: %+v, want %+v", err, got, sub)
	}
}

// TestAllocations checks that a subframe allocates memory only for its messages.
func TestAllocations(t *testing.T) {
	tx := newTransmitter(Cell{ID: 44, PRB: 15, Ports: 2, PHICHSixths: 6}, 256, 1)
	for i := range 40 {
		tx.subframe(i/10, i%10, 3)
	}
	samples := tx.transmitOver(air{gain: [2]complex128{1, 0.5i}, snr: 20})
	r, err := NewReceiver(256 * subcarrierSpacing)
	if err != nil {
		t.Fatal(err)
	}
	r.Feed(samples) // finds the cell
	messages := 0
	r.OnSubframe = func(s *Subframe) { messages += len(s.DCIs) }
	var works []*DecodeTask
	r.Dispatch = func(w *DecodeTask) { works = append(works, w) }
	r.Feed(samples)
	for _, w := range works { // reserves memory
		w.Decode()
	}
	runs := len(works) - 1 // not counting a warm-up run
	each := func(do func(*DecodeTask)) float64 {
		i := 0
		return testing.AllocsPerRun(runs, func() { do(works[i]); i++ })
	}
	if decode, done := each((*DecodeTask).Decode), each(r.Finish); messages < runs || decode > 0 || done > 2 {
		t.Errorf("%v allocations to decode, %v in the end, with %d messages in %d", decode, done, messages, len(works))
	}
}
