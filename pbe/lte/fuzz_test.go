// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"slices"
	"testing"

	"mpbond/pbe/cell"
)

// checkFields checks what holds for any DCI of a cell, whatever was received.
func (d *DCI) checkFields(t *testing.T, c Cell) {
	t.Helper()
	held := 0
	for prb := range 128 {
		if d.PRBs.Has(prb) {
			if held++; prb >= c.PRB {
				t.Errorf("%+v: block %d of %d", d, prb, c.PRB)
			}
		}
	}
	if d.PRB != held || d.N > 2 || d.HARQ >= 8 {
		t.Errorf("%+v: %d blocks", d, held)
	}
	for _, b := range d.Blocks[:d.N] {
		if b.MCS >= 32 || b.RV >= 4 || b.Size > 100_000 {
			t.Errorf("%+v", d)
		}
	}
}

// FuzzParse parses random bits as messages of any format, in cells of all widths.
func FuzzParse(f *testing.F) {
	f.Add(byte(1), byte(3), uint16(rntiSI), []byte{0xF0, 0x41, 0x83, 0})
	f.Add(byte(4), byte(5), uint16(500), []byte{0x80, 0, 0xFF, 0x12, 0x34, 0x56, 0x78, 0})
	f.Fuzz(func(t *testing.T, format, width byte, rnti uint16, bits []byte) {
		c := Cell{PRB: []int{6, 15, 25, 50, 75, 100}[width%6], Ports: 1 + int(width>>7)}
		for _, two := range []bool{false, true} {
			d := DCI{RNTI: cell.RNTI(rnti), Format: cell.Format(format % 6)}
			d.Payload = make([]byte, c.dciFormatSizes(two)[d.Format])
			for i := range d.Payload {
				if i/8 < len(bits) {
					d.Payload[i] = bits[i/8] >> (i % 8) & 1
				}
			}
			if c.parseDCI(&d) {
				d.checkFields(t, c)
			}
		}
	})
}

// damageSamples damages samples as a bad radio may: parts are cut out, louder, fainter, repeated,
// silent, or NaN. Each five bytes of edits define what, where and how much.
func damageSamples(samples []complex64, edits []byte) []complex64 {
	samples = slices.Clone(samples)
	for ; len(edits) >= 5 && len(samples) > 0; edits = edits[5:] {
		from := (int(edits[1])*100 + int(edits[2])) % len(samples)
		to := min(from+int(edits[3])*100, len(samples))
		for i := from; i < to; i++ {
			switch edits[0] % 6 {
			case 0:
				samples[i] = 0
			case 1: // by 1e-38 to 1e38
				samples[i] *= complex64(complex(math.Pow(10, float64(int8(edits[4])%39)), 0))
			case 2:
				samples[i] = complex(float32(math.NaN()), float32(math.Inf(-1)))
			case 3:
				samples[i] = samples[(i+int(edits[4]))%len(samples)]
			case 4:
				samples[i] = math.MaxFloat32
			}
		}
		if edits[0]%6 == 5 {
			samples = append(samples[:from], samples[to:]...)
		}
	}
	return samples
}

// harms are edits for damageSamples.
var harms = [][]byte{
	{},
	{0, 2, 0, 10, 0, 3, 40, 0, 1, 255, 1, 60, 0, 200, 38, 4, 70, 0, 10, 0, 2, 80, 0, 10, 0, 5, 85, 0, 30, 1},
	{1, 0, 0, 255, 218},
	{4, 3, 0, 200, 0},
}

// damagedSample returns a cell of six blocks with that many subframes.
func damagedSample(subframes int) (Cell, []complex64) {
	c := Cell{ID: 3, PRB: 6, Ports: 2, PHICHSixths: 1}
	tx := newTransmitter(c, 128, 1)
	for k := range subframes {
		tx.subframe(0, k%10, 2)
	}
	return c, tx.transmitOver(air{gain: [2]complex128{1, 0.5i}, offset: 900, snr: 25})
}

// newCheckedReceiver returns a Receiver that checks each of its subframes.
func newCheckedReceiver(t *testing.T) *Receiver {
	r, err := NewReceiver(128 * subcarrierSpacing)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(math.MinInt64)
	r.OnSubframe = func(s *Subframe) {
		if s.Start <= last || s.SFN < 0 || s.SFN > 1023 || s.Index < 0 || s.Index > 9 {
			t.Errorf("%d.%d begins at %d, after one at %d", s.SFN, s.Index, s.Start, last)
		}
		last = s.Start
		c, _ := r.Cell()
		for i := range s.DCIs {
			d := &s.DCIs[i]
			if !(d.Agreement > 0 && d.Agreement <= 1) {
				t.Errorf("%+v", d)
			}
			d.checkFields(t, c)
		}
	}
	return r
}

// TestHarmedSearch searches damaged samples, and checks that a cell in undamaged ones is found.
func TestHarmedSearch(t *testing.T) {
	c, clean := damagedSample(12)
	for i, edits := range harms {
		r := newCheckedReceiver(t)
		r.Feed(damageSamples(clean, edits))
		r.Close()
		if got, ok := r.Cell(); i == 0 && (!ok || got != c) {
			t.Errorf("%+v", got)
		}
	}
}

// FuzzReceiver feeds a Receiver with a cell that becomes damaged.
func FuzzReceiver(f *testing.F) {
	c, clean := damagedSample(4)
	for i, edits := range harms {
		f.Add(uint16(i*700), edits)
	}
	f.Fuzz(func(t *testing.T, start uint16, edits []byte) {
		r := newCheckedReceiver(t)
		r.Feed(damageSamples(clean, edits))
		r.lockToCell(foundCell{mib: mib{cell: c}, start: int(start) % (2 * subframeLen(128)), offset: 900}, 1)
		r.Close()
	})
}
