// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"mpbond/pbe/cell"
)

// truth returns the messages of a vector, by their keys.
func (v vector) truth(t testing.TB) map[string][]string {
	m := map[string][]string{}
	for _, r := range readRows(t, v.name+".dci.csv") {
		m[fmt.Sprint(r[1], " rnti ", r[7], " format ", r[9], " level ", r[10], " at ", r[11], " ", r[14])] = r
	}
	return m
}

func (d *DCI) key(s *Subframe) string {
	return fmt.Sprint(s.SFN*10+s.Index, " rnti ", d.RNTI, " format ", d.Format, " level ", d.Level, " at ", d.CCE,
		" ", fromBits(d.Payload))
}

// compare checks the parsed payload against a row of the truth.
func (d *DCI) compare(t *testing.T, row []string) {
	t.Helper()
	var ranges []string
	for prb := 0; prb < 110; prb++ {
		if !d.PRBs.Has(prb) {
			continue
		}
		first := prb
		for d.PRBs.Has(prb + 1) {
			prb++
		}
		ranges = append(ranges, fmt.Sprint(first, "-", prb))
	}
	if got := strings.Join(ranges, ";"); got != row[17] || fmt.Sprint(d.PRB) != row[16] ||
		d.Distributed != (row[15] == "2D") {
		t.Errorf("%v: blocks %s", row, got)
	}
	if harq := fmt.Sprint(d.HARQ); row[18] != "-1" && harq != row[18] {
		t.Errorf("%v: HARQ %s", row, harq)
	}
	n := 0
	for i := range 2 {
		mcs, ndi, rv, size := row[20+4*i], row[21+4*i], row[22+4*i], row[23+4*i]
		if mcs == "" || mcs == "0" && rv == "1" && size == "0" {
			continue
		}
		b := d.Blocks[n]
		n++
		if fmt.Sprint(b.MCS) != mcs || b.Size > 0 && fmt.Sprint(b.Size) != size || d.RNTI.IsUser() &&
			b.NDI != (ndi == "1") || d.Format != cell.Format1C && fmt.Sprint(b.RV) != rv {
			t.Errorf("%v: block %+v", row, b)
		}
	}
	if n != d.N {
		t.Errorf("%v: %d blocks", row, d.N)
	}
}

// TestGivenVectors decodes all given vectors, without time and offset.
func TestGivenVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.name, func(t *testing.T) {
			truth := v.truth(t)
			cfis := map[int]int{}
			for _, r := range readRows(t, v.name+".sf.csv") {
				if parseNumber(t, r[1]) >= 0 {
					cfis[parseNumber(t, r[2])] = parseNumber(t, r[5])
				} else {
					for k, d := range truth {
						if d[1] == r[2] {
							delete(truth, k)
						}
					}
				}
			}
			all := len(truth)
			r, err := NewReceiver(v.size * subcarrierSpacing)
			if err != nil {
				t.Fatal(err)
			}
			var hits, wrong, wrongCFI, subframes int
			r.OnSubframe = func(s *Subframe) {
				subframes++
				tti := s.SFN*10 + s.Index
				if cfis[tti] != s.CFI {
					wrongCFI++
				}
				delete(cfis, tti)
				for i := range s.DCIs {
					d := &s.DCIs[i]
					k := d.key(s)
					if row, ok := truth[k]; ok {
						hits++
						d.compare(t, row)
						delete(truth, k)
					} else {
						wrong++
						t.Log("false:", k, d.Agreement)
					}
				}
			}
			r.Feed(v.samples)
			r.Close()
			t.Logf("%s: %d subframes, %d missed, %d CFI wrong; %d of %d DCIs, %d false; %.1f decodes a subframe; offset %.1f Hz",
				v.name, subframes, len(cfis), wrongCFI, hits, all, wrong,
				float64(r.decoder.decodedWords)/float64(subframes), r.Offset())
			for k := range truth {
				if v.snr >= 15 {
					t.Error("missed:", k)
				}
			}
			if len(cfis) > 0 || wrongCFI > 0 || v.snr >= 15 && wrong > 0 {
				t.Error("not all right")
			}
			// A plain search that knows time and carrier finds this.
			for _, r := range readRows(t, "reference_results.csv") {
				if r[0] == v.name && (hits < parseNumber(t, r[5]) || wrong > parseNumber(t, r[7])) {
					t.Errorf("worse than the reference: %v", r)
				}
			}
		})
	}
}

// TestEnd decodes cells of all widths, without time, carrier and identity.
func TestEnd(t *testing.T) {
	for i, c := range []struct {
		cell    Cell
		size    int
		twoBits bool
		first   int // SFN·10 + subframe
	}{
		{cell: Cell{ID: 3, PRB: 6, Ports: 1, PHICHSixths: 1}, size: 128},
		{cell: Cell{ID: 500, PRB: 6, Ports: 2, PHICHSixths: 12}, size: 128, first: 10233},
		{cell: Cell{ID: 41, PRB: 15, Ports: 2, PHICHSixths: 6, ExtendedPHICH: true}, size: 256, first: 777},
		{cell: Cell{ID: 123, PRB: 15, Ports: 1, PHICHSixths: 3}, size: 512, first: 5},
		{cell: Cell{ID: 200, PRB: 25, Ports: 2, PHICHSixths: 3}, size: 512, first: 4321},
		{cell: Cell{ID: 77, PRB: 50, Ports: 1, PHICHSixths: 6}, size: 1024, first: 9},
		{cell: Cell{ID: 319, PRB: 75, Ports: 2, PHICHSixths: 1}, size: 1536, twoBits: true, first: 6004},
		{cell: Cell{ID: 444, PRB: 100, Ports: 2, PHICHSixths: 12}, size: 2048, twoBits: true, first: 2009},
	} {
		t.Run(fmt.Sprint(c.cell), func(t *testing.T) {
			tx := newTransmitter(c.cell, c.size, uint64(i))
			tx.twoBits = c.twoBits
			for k := range 14 {
				tti := (c.first + k) % 10240
				cfi := 1 + tx.rnd.IntN(3)
				if c.cell.ExtendedPHICH {
					cfi = 3
				}
				tx.subframe(tti/10, tti%10, cfi)
			}
			a := air{gain: [2]complex128{complex(0.8, 0.3), complex(-0.1, 0.7)}, echo: 0.3, delay: c.size / 200,
				offset: 4500 - 1000*float64(i), snr: 20}
			samples := tx.transmitOver(a)
			cut := 1000 * i * c.size / 2048
			r, err := NewReceiver(c.size * subcarrierSpacing)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{}
			skip := (cut + subframeLen(c.size) - 1) / subframeLen(c.size)
			for _, s := range tx.sent {
				if s.subframe >= skip {
					tti := (c.first + s.subframe) % 10240
					want[s.d.key(&Subframe{SFN: tti / 10, Index: tti % 10})] = true
				}
			}
			all, subframes := len(want), 0
			r.OnSubframe = func(s *Subframe) {
				if got := tx.cfis[skip+subframes]; got != s.CFI {
					t.Errorf("%d.%d: CFI %d, want %d", s.SFN, s.Index, s.CFI, got)
				}
				subframes++
				for i := range s.DCIs {
					k := s.DCIs[i].key(s)
					if !want[k] {
						t.Error("nobody sent", k, s.DCIs[i].Agreement)
					}
					delete(want, k)
				}
			}
			r.Feed(samples[cut:])
			r.Close()
			if got, ok := r.Cell(); got != c.cell || !ok {
				t.Errorf("cell %+v", got)
			}
			if math.Abs(r.Offset()-a.offset) > 50 {
				t.Errorf("offset %f, want %f", r.Offset(), a.offset)
			}
			for k := range want {
				t.Error("not received:", k)
			}
			if subframes != 14-skip || all < 10 {
				t.Errorf("%d subframes, %d DCIs", subframes, all)
			}
		})
	}
}
