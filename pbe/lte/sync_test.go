// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"encoding/binary"
	"math"
	"math/cmplx"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestGivenSync(t *testing.T) {
	for _, r := range readRows(t, "tables/sync_sequences.csv") {
		id := parseNumber(t, r[1])
		values := strings.Split(r[2], ";")
		switch {
		case r[0] == "PSS":
			p := pssSequence(id)
			for i, s := range values {
				if v, err := strconv.ParseComplex(strings.Replace(s, "j", "i", 1), 128); err != nil ||
					cmplx.Abs(v-p[i]) > 1e-3 {
					t.Errorf("PSS %d: element %d: %v, want %s", id, i, p[i], s)
				}
			}
		case strings.HasPrefix(r[0], "SSS"):
			for i, v := range sssSequence(id, r[0] == "SSS_sf5") {
				if float64(parseNumber(t, values[i])) != v {
					t.Errorf("%s %d: element %d: %v", r[0], id, i, v)
				}
			}
		default: // CRS_6prb_sf0_port1
			c := Cell{ID: id, PRB: 6, Ports: 2, PHICHSixths: 6}
			ref := newReferenceSignals(c)
			sf, port := parseNumber(t, r[0][11:12]), parseNumber(t, r[0][17:])
			for i, s := range values {
				at, value, _ := strings.Cut(s, "=")
				l, k, _ := strings.Cut(at[1:], "k")
				v, err := strconv.ParseComplex(strings.Replace(value, "j", "i", 1), 128)
				if err != nil {
					t.Fatal(err)
				}
				sym := parseNumber(t, l)
				which := 0
				if sym%7 == 4 {
					which = 1
				}
				m := i % 12
				if c.firstCRSSubcarrier(port, sym%7)+6*m != parseNumber(t, k) || cmplx.Abs(ref[2*sf+sym/7][which][m]-v) > 1e-3 {
					t.Errorf("%s %d: %s", r[0], id, s)
				}
			}
		}
	}
}

// vector is one of the given recordings.
type vector struct {
	name string
	size int
	cell Cell
	// rows of index.csv
	snr, offset float64
	tti         int
	samples     []complex64
}

func readVectors(t testing.TB) (all []vector) {
	for _, r := range readRows(t, "index.csv") {
		v := vector{name: r[0], size: parseNumber(t, r[5]), tti: parseNumber(t, r[7]),
			cell: Cell{PRB: parseNumber(t, r[2]), Ports: parseNumber(t, r[3]), ID: parseNumber(t, r[4]),
				PHICHSixths: parseSixths(r[8])}}
		v.snr, _ = strconv.ParseFloat(r[12], 64)
		v.offset, _ = strconv.ParseFloat(r[13], 64)
		data, err := os.ReadFile(shared + v.name + ".cf32")
		if err != nil {
			t.Fatal(err)
		}
		v.samples = make([]complex64, len(data)/8)
		for i := range v.samples {
			v.samples[i] = complex(math.Float32frombits(binary.LittleEndian.Uint32(data[8*i:])),
				math.Float32frombits(binary.LittleEndian.Uint32(data[8*i+4:])))
		}
		all = append(all, v)
	}
	return all
}

func TestGivenSearch(t *testing.T) {
	for _, v := range readVectors(t) {
		factor := v.size / searchSize
		f, ok := newSearcher().searchCell(decimateSamples(v.samples[:min(len(v.samples), 20*subframeLen(v.size))], factor),
			anyCell, tonePSSFit)
		if !ok || f.mib.cell != v.cell || math.Abs(f.offset-v.offset) > 100 {
			t.Errorf("%s: %v %+v, want %+v", v.name, ok, f, v.cell)
		}
	}
}
