// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	options "flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// The vectors in testdata are small recordings (sc16: pairs of int16, little-endian) with their
// messages, so that tests of this package and others run without the given vectors:
//
//	narrow.sc16  1.92 million samples a second: 1.4 MHz, one port, cell 9, 20 ms, no noise
//	faded.sc16   3.84 million: 3 MHz, two ports, cell 77, 24 ms from frame 1022 on
//	             without its first 1000 samples, two taps with Doppler, −1.8 kHz, 20 dB
//	*.csv        a row for each message of whole subframes
//
// To create them: go test -run TestShipped ./pbe/lte -update
var update = options.Bool("update", false, "write the vectors in testdata")

var shipped = []struct {
	name      string
	cell      Cell
	size      int
	channel   Channel
	first     int64 // number of the first subframe
	subframes int
	cut       int // samples
}{
	{"narrow", Cell{ID: 9, PRB: 6, Ports: 1, PHICHSixths: 6}, 128, Channel{SNR: math.Inf(1)}, 2000, 20, 0},
	{"faded", Cell{ID: 77, PRB: 15, Ports: 2, PHICHSixths: 1}, 256, NewEPAChannel(20, -1800, 20, 3), 10222, 24, 1000},
}

// head of the truth. Blocks of format 1C, and those that come again, may have no size.
var head = []string{"sfn", "subframe", "cfi", "rnti", "format", "level", "cce", "payload", "prb", "harq", "blocks",
	"mcs0", "ndi0", "rv0", "bits0", "mcs1", "ndi1", "rv1", "bits1"}

// csvRow returns d as a row of the truth.
func (d *DCI) csvRow(number int64, cfi int) []string {
	r := []string{fmt.Sprint(number / 10 % 1024), fmt.Sprint(number % 10), fmt.Sprint(cfi), fmt.Sprint(d.RNTI),
		fmt.Sprint(d.Format), fmt.Sprint(d.Level), fmt.Sprint(d.CCE),
		fromBits(d.Payload), fmt.Sprint(d.PRB), fmt.Sprint(d.HARQ), fmt.Sprint(d.N)}
	for _, b := range d.Blocks {
		ndi := "0"
		if b.NDI {
			ndi = "1"
		}
		r = append(r, fmt.Sprint(b.MCS), ndi, fmt.Sprint(b.RV), strconv.Itoa(int(b.Size)))
	}
	return r
}

// randomGrants returns the grants of one subframe: to three data users in turn, to one user that
// appears once, and to all users.
func randomGrants(c Cell, number int64, rnd *rand.Rand) (grants []cell.Grant) {
	p := c.rbgSize()
	formats := []cell.Format{cell.Format1, cell.Format2A, cell.Format2}
	for i, r := range []cell.RNTI{0x1234, 0x4601, 0xA0B1} {
		f := formats[i]
		if c.Ports == 1 {
			f = cell.Format1
		}
		prb, mcs := p*(1+rnd.IntN(c.PRB/p/3)), 4+rnd.IntN(20)
		g := cell.Grant{RNTI: r, Format: f, PRB: uint8(prb), HARQ: uint8(number % 8), N: 1}
		g.Blocks[0] = newDownlinkBlock(mcs, int(number/8)%2, 0, prb)
		if f != cell.Format1 {
			g.N = 2
			g.Blocks[1] = newDownlinkBlock(mcs-2, int(number/8)%2, 0, prb)
		}
		if rnd.IntN(3) > 0 {
			grants = append(grants, g)
		}
	}
	if rnd.IntN(3) == 0 { // an uplink grant
		g := cell.Grant{RNTI: 0x4601, Format: cell.Format0, PRB: 2, N: 1}
		g.Blocks[0] = cell.Block{MCS: 10, NDI: number%2 == 0, Size: cell.Bits(tbs.Size(tbs.Uplink(10).Index, 2))}
		grants = append(grants, g)
	}
	if rnd.IntN(4) == 0 {
		g := cell.Grant{RNTI: cell.RNTI(0x2000 + rnd.IntN(0x8000)), Format: cell.Format1A, PRB: 2, N: 1}
		g.Blocks[0] = newDownlinkBlock(5, 0, 0, 2)
		grants = append(grants, g)
	}
	if number%20 == 5 {
		g := cell.Grant{RNTI: rntiSI, Format: cell.Format1A, PRB: 3, N: 1}
		g.Blocks[0] = cell.Block{MCS: 7, Size: newDownlinkBlock(7, 0, 0, 2).Size}
		grants = append(grants, g)
	}
	return grants
}

// writeShipped creates the vectors.
func writeShipped(t *testing.T) {
	for i, v := range shipped {
		tx, err := NewTransmitter(v.cell, v.size*subcarrierSpacing, v.channel, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(uint64(i), 5))
		var samples []complex64
		var truth bytes.Buffer
		w := csv.NewWriter(&truth)
		w.Write(head)
		for n := v.first; n < v.first+int64(v.subframes); n++ {
			all, _ := v.cell.EncodeGrants(randomGrants(v.cell, n, rnd), nil) // as far as there is room
			cfi := 2 + rnd.IntN(2)
			placed := v.cell.placeMessages(all, int(n%10), len(v.cell.pdcchREGs(cfi))/regsPerCCE,
				[]float64{0.75, 0.4, 0.2}[n%3])
			samples = append(samples, tx.SendMessages(n, cfi, placed)...)
			for j := range placed {
				if n > v.first || v.cut == 0 {
					w.Write(placed[j].csvRow(n, cfi))
				}
			}
		}
		w.Flush()
		var out []byte
		for _, s := range samples[v.cut:] {
			for _, x := range []float32{real(s), imag(s)} {
				out = binary.LittleEndian.AppendUint16(out,
					uint16(int16(max(min(math.Round(float64(x)*4096), math.MaxInt16), -math.MaxInt16))))
			}
		}
		for name, data := range map[string][]byte{v.name + ".sc16": out, v.name + ".csv": truth.Bytes()} {
			if err := os.WriteFile("testdata/"+name, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestShipped checks that exactly the messages of the repository's vectors are decoded.
func TestShipped(t *testing.T) {
	if *update {
		writeShipped(t)
	}
	for _, v := range shipped {
		data, err := os.ReadFile("testdata/" + v.name + ".sc16")
		if err != nil {
			t.Fatal(err)
		}
		samples := make([]complex64, len(data)/4)
		for i := range samples {
			at := data[4*i:]
			samples[i] = complex(float32(int16(binary.LittleEndian.Uint16(at))),
				float32(int16(binary.LittleEndian.Uint16(at[2:]))))
		}
		truth, err := os.ReadFile("testdata/" + v.name + ".csv")
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(bytes.NewReader(truth)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for _, r := range rows[1:] {
			want[fmt.Sprint(r)] = true
		}
		all := len(want)
		r, err := NewReceiver(v.size * subcarrierSpacing)
		if err != nil {
			t.Fatal(err)
		}
		subframes := 0
		r.OnSubframe = func(s *Subframe) {
			subframes++
			for i := range s.DCIs {
				k := fmt.Sprint(s.DCIs[i].csvRow(int64(s.SFN*10+s.Index), s.CFI))
				if !want[k] {
					t.Errorf("%s: nobody sent %s", v.name, k)
				}
				delete(want, k)
			}
		}
		r.Feed(samples)
		r.Close()
		for k := range want {
			t.Errorf("%s: not received: %s", v.name, k)
		}
		whole := v.subframes
		if v.cut > 0 {
			whole--
		}
		if c, _ := r.Cell(); c != v.cell || all < 40 || subframes != whole {
			t.Errorf("%s: %+v, %d messages in %d subframes", v.name, c, all, subframes)
		}
		t.Logf("%s: %d messages, offset %.0f Hz", v.name, all, r.Offset())
	}
}
