// SPDX-License-Identifier: Apache-2.0

//go:build !race

package virtual

import (
	"fmt"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
)

// besideOnWire returns a device whose flow shares a wire before the cells with a flow to a device in another, faster
// cell. cross is that flow's rate, 0 for one with a controller.
func besideOnWire(seed uint64, wire unit.Rate, queue time.Duration, cross unit.Rate) Case {
	c := Default(seed, 2)
	c.Network.Cells = append(c.Network.Cells, lte.CellConfig{PRB: 100, Layers: 2})
	c.Network.Users[1].Cells = []int{1}
	c.Network.Users[1].SINR = SteadySignal(30)
	c.Length = 20 * sec
	c.Wire = func() Link { return NewWire(SteadyRate(wire), wire.Bytes(queue)) }
	if cross > 0 {
		c.Flows[1] = Flow{Rate: SteadyRate(cross), DelayToLink: DefaultDelay}
	}
	return c
}

// TestFriendlyOnWire: a flow of CUBIC, or of a constant rate, that shares a wire before the cell with PBE-CC gets as
// much as beside BBR, and loses no more, also where queues are too short to be seen in delays; unless the wire is
// slower than the cell, where PBE-CC does what BBR does.
func TestFriendlyOnWire(t *testing.T) {
	for _, x := range []struct {
		wire  unit.Rate
		queue time.Duration
		cross unit.Rate
	}{
		{60, 10 * ms, 0}, {60, 20 * ms, 0}, {60, 40 * ms, 0}, {45, 20 * ms, 0}, {30, 20 * ms, 0},
		{80, 10 * ms, 45}, {80, 10 * ms, 60}, {80, 20 * ms, 45},
	} {
		name := fmt.Sprintf("wire of %d Mbit/s, %v, cross traffic %d", x.wire, x.queue, x.cross)
		v := runSeeds(func(seed uint64) []float64 {
			c := besideOnWire(seed, x.wire*unit.Mbps, x.queue, x.cross*unit.Mbps)
			var rate, lost [2]float64
			for i, controller := range []string{"pbe", "bbr"} {
				r := c.Run(controller, "cubic").Flows[1]
				rate[i] = float64(r.Rate(2*sec, c.Length))
				lost[i] = 100 * float64(r.Sent-r.Delivered) / float64(r.Sent)
			}
			return []float64{rate[0] / rate[1], lost[0], lost[1], lost[0] - lost[1]}
		})
		t.Logf("%s: %s of its rate beside BBR, loses %s %%, beside BBR %s %%", name, formatSpread(v[0]), formatSpread(v[1]),
			formatSpread(v[2]))
		if x.wire < 43 { // than the cell: little is left beside BBR too, and varies
			expectAtLeast(t, name+", rate", v[0], 0.7, 0.55)
			expectAtMost(t, name+", more loss", v[3], 4, 6)
			continue
		}
		expectAtLeast(t, name+", rate", v[0], 0.98, 0.97)
		expectAtMost(t, name+", more loss", v[3], 0.3, 0.6)
	}
}

// TestStartOnWire: where a wire is slower than the cell, the start of a flow loses in the median at most 6 % more of
// two seconds than BBR's, and is not slower.
func TestStartOnWire(t *testing.T) {
	for _, wire := range []unit.Rate{10, 15, 25, 35} {
		for _, queue := range []time.Duration{20 * ms, 50 * ms, 200 * ms} {
			name := fmt.Sprintf("wire of %d Mbit/s, %v", wire, queue)
			v := runSeeds(func(seed uint64) []float64 {
				c := Default(seed, 1)
				c.Length = 4 * sec
				c.Wire = func() Link { return NewWire(SteadyRate(wire*unit.Mbps), (wire * unit.Mbps).Bytes(queue)) }
				ours, bbr := c.Run("pbe").Flows[0], c.Run("bbr").Flows[0]
				return []float64{100 * ours.Loss(0, 2*sec), 100 * bbr.Loss(0, 2*sec),
					float64(ours.Rate(0, 2*sec)) / float64(bbr.Rate(0, 2*sec)),
					100 * (ours.Loss(0, 2*sec) - bbr.Loss(0, 2*sec))}
			})
			t.Logf("%s: %s %% lost in the first 2 s, BBR %s %%; %s times its rate", name, formatSpread(v[0]),
				formatSpread(v[1]), formatSpread(v[2]))
			expectAtMost(t, name+", more lost", v[3], 6, 16)
			expectAtLeast(t, name+", rate", v[2], 0.97, 0.95)
		}
	}
}
