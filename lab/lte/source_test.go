// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

// TestSource compares the rate of a source with its on and off times, in a cell of 50 Mbit/s and
// more.
func TestSource(t *testing.T) {
	full := unit.Rate(cellOf(50).Bits(18) * (1 - cell.Overhead) * 1000)
	// (What waits when a full user goes off still comes: 33 ms more.)
	for _, c := range []struct {
		source Source
		from   time.Duration // of the first subframe, after time zero
		want   unit.Rate     // in 4 s
	}{
		{Source{Rate: 10 * unit.Mbps}, 0, 10 * unit.Mbps},
		{Source{Rate: 10 * unit.Mbps, On: time.Second, Off: time.Second}, 0, 5 * unit.Mbps},
		{Source{Rate: 10 * unit.Mbps, On: time.Second, Off: 7 * time.Second}, time.Second, 0},
		{Source{Rate: 10 * unit.Mbps, On: time.Second}, -time.Minute, 0},
		{Source{Rate: 10 * unit.Mbps}, -time.Minute, 10 * unit.Mbps},
		{Source{}, 0, full},
		{Source{On: time.Second, Off: 3 * time.Second}, 0, full / 4},
	} {
		n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
			SINR: steady(18)}}})
		var got unit.Bytes
		var out []Delivery
		for i := range 4000 {
			c.source.Offer(n, 0, c.from+time.Duration(i)*time.Millisecond)
			out = n.Step(out[:0], nil)
			for _, o := range out {
				got += o.Item.Size
				c.source.Recycle(o.Item)
			}
		}
		rate := unit.RateOf(got, 4*time.Second)
		if off := rate - c.want; off > c.want/25 || off < -c.want/25 {
			t.Errorf("%v, %v on, %v off, from %v on: %v, want %v", c.source.Rate, c.source.On, c.source.Off, c.from,
				rate, c.want)
		}
	}
}
