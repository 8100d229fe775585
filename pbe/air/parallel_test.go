// SPDX-License-Identifier: Apache-2.0

package air

import (
	"reflect"
	"slices"
	"testing"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
	"mpbond/pbe/lte/tbs"
)

// onAir returns subframes of a cell with some users.
func onAir(tb testing.TB, prb, rate, subframes int, snr float64) []complex64 {
	tb.Helper()
	t, err := lte.NewTransmitter(lte.Cell{ID: 44, PRB: prb, Ports: 2, PHICHSixths: 6}, rate,
		lte.NewEPAChannel(5, 400, snr, 1), 1)
	if err != nil {
		tb.Fatal(err)
	}
	var out []complex64
	for n := range subframes {
		var grants []cell.Grant
		for u := range 2 + n%4 {
			g := cell.Grant{RNTI: cell.RNTI(0x4000 + 77*u), Format: cell.Format1A, PRB: 4, HARQ: uint8(n % 8), N: 1}
			g.Blocks[0] = cell.Block{MCS: 12, Size: cell.Bits(tbs.Size(tbs.Downlink(12).Index, 4)), NDI: n%2 == 0}
			grants = append(grants, g)
		}
		out = append(out, t.SendGrants(int64(n), grants)...)
	}
	return out
}

// TestSpread checks that concurrent decoding yields the same subframes in the same order.
func TestSpread(t *testing.T) {
	const rate = 3_840_000
	samples := onAir(t, 15, rate, 60, 12)
	// A silence that loses the cell, and the cell again.
	samples = append(append(samples[:len(samples):len(samples)], make([]complex64, 70*rate/1000)...), samples...)
	var want []lte.Subframe
	for _, most := range []int{1, 2, 4} {
		r, err := lte.NewReceiver(rate)
		if err != nil {
			t.Fatal(err)
		}
		var got []lte.Subframe
		messages := 0
		r.OnSubframe = func(s *lte.Subframe) {
			messages += len(s.DCIs)
			got = append(got, *s)
		}
		s := newParallelDecoder(r, most)
		for piece := range slices.Chunk(samples, 3*rate/1000+77) {
			r.Feed(piece)
		}
		r.Close()
		s.finishAllJobs()
		if want == nil {
			want = got
		}
		if messages < 200 || len(got) < 100 || !reflect.DeepEqual(got, want) {
			t.Errorf("%d at a time: %d subframes, %d messages, not the same as one at a time: %d", most, len(got),
				messages, len(want))
		}
	}
}
