// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"testing"
)

// TestFarOffsets checks carriers that are off by up to 150 kHz: the cell is found, and decoded.
func TestFarOffsets(t *testing.T) {
	for i, offset := range []float64{-150_000, -97_400, -61_000, -23_500, 22_600, 36_000, 100_000, 149_000} {
		c := []struct{ prb, size int }{{6, 128}, {25, 512}, {50, 1024}}[i%3]
		want := Cell{ID: 61*i + 316%61, PRB: c.prb, Ports: 1 + i%2, PHICHSixths: 6}
		tx, truth := randomStream(want, c.size, 40, uint64(i), 4)
		samples := tx.transmitThrough(t, NewEPAChannel(5, offset, 10, uint64(i+10)))
		a := receiveStream(t, c.size, 50_000, truth, samples)
		received := len(truth) - len(a.missing)
		t.Logf("%+v at %.0f Hz: %d of %d messages, %d wrong, %.0f Hz, %v", want, offset, received, len(truth),
			len(a.wrong), a.r.Offset(), a.r.Obstacle())
		if got, _ := a.r.Cell(); got != want || math.Abs(a.r.Offset()-offset) > 100 || received < len(truth)*8/10 {
			t.Errorf("%+v at %.0f Hz: found %+v at %.0f Hz, %d of %d messages, %v", want, offset, got, a.r.Offset(),
				received, len(truth), a.r.Obstacle())
		}
		if all, err := FindCells(c.size*subcarrierSpacing, samples); err != nil || len(all) != 1 || all[0] != want {
			t.Errorf("%+v at %.0f Hz: FindCells: %+v, %v", want, offset, all, err)
		}
	}
}

// TestNoFalseIdentity checks that noise, tones, and the remains of a cell that is farther off are no cell. A
// searched frequency more is a chance more for the 16-bit CRC of the MIB.
func TestNoFalseIdentity(t *testing.T) {
	n := 64 * subframeLen(128)
	for _, hz := range []float64{10_000, 97_000, 333_000} {
		tone := gaussianNoise(n, 0.1)
		for i := range tone {
			phase := 2 * math.Pi * hz * float64(i) / 1.92e6
			tone[i] += complex64(complex(math.Cos(phase), math.Sin(phase)))
		}
		if all, err := FindCells(1_920_000, tone); err != nil || len(all) > 0 {
			t.Errorf("a tone of %v Hz: %+v, %v", hz, all, err)
		}
	}
	if all, err := FindCells(1_920_000, gaussianNoise(n, 1)); err != nil || len(all) > 0 {
		t.Errorf("noise: %+v, %v", all, err)
	}
	tx, _ := randomStream(Cell{ID: 316, PRB: 6, Ports: 1, PHICHSixths: 6}, 128, 64, 1, 4)
	samples := tx.transmitThrough(t, NewEPAChannel(5, 400_000, 20, 1))
	if all, err := FindCells(1_920_000, samples); err != nil || len(all) > 0 {
		t.Errorf("a cell 400 kHz away: %+v, %v", all, err)
	}
}

// TestStrongerPort checks that a cell is decoded whichever of its ports is the stronger one.
func TestStrongerPort(t *testing.T) {
	c := Cell{ID: 302, PRB: 50, Ports: 2, PHICHSixths: 6}
	for _, gain := range [][2]complex128{{1.2, 0.3}, {0.3, 1.2}, {0.25i, 1.25}} {
		tx, truth := randomStream(c, 1024, 40, 5, 4)
		a := receiveStream(t, 1024, 50_000, truth, tx.transmitOver(air{gain: gain, snr: 5}))
		received, snr := len(truth)-len(a.missing), 0.0
		a.r.OnSubframe = func(s *Subframe) { snr = s.SNR }
		a.r.Feed(tx.transmitOver(air{gain: gain, snr: 5})[:2*subframeLen(1024)])
		t.Logf("ports of gain %v: %d of %d messages, %d wrong, SNR %.1f dB", gain, received, len(truth), len(a.wrong), snr)
		if received < len(truth)*97/100 || len(a.wrong) > 1 || snr < 3 {
			t.Errorf("ports of gain %v: %d of %d messages, %d wrong, SNR %.1f dB, %v", gain, received, len(truth),
				len(a.wrong), snr, a.r.Obstacle())
		}
	}
}
