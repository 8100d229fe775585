// SPDX-License-Identifier: Apache-2.0

//go:build !race

package virtual

import (
	"flag"
	"testing"
	"time"

	"mpbond/base/unit"
	lab "mpbond/lab/lte"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

var longFlag = flag.Bool("long", false, "PBE-CC over samples of the air for long: minutes")

// samplesRun has the results of a case with messages from the emulator and from samples.
type samplesRun struct {
	fromMessages, fromSamples []float64 // rate, p95 of the delay
	counts                    AirCounts
}

// overAir runs a case twice: its devices get messages from the emulator, then decode samples.
func overAir(of func() Case, channel lte.Channel) (r samplesRun) {
	for i := range 2 {
		c := of()
		a := &Air{Channel: func(cell.ID) lte.Channel { return channel }, DecodingDelay: 3, Seed: c.Seed}
		if c.UseBlockGroups(); i == 1 {
			c.ListenOverAir(a)
		}
		f := c.Run("pbe").Flows[0]
		v := []float64{float64(f.Rate(0, c.Length)) / 1e6, milliseconds(f.Delay(0, c.Length, 0.95))}
		if i == 0 {
			r.fromMessages = v
		} else {
			r.fromSamples, r.counts = v, a.Counts()
		}
	}
	return r
}

// airCase is a case over the air, for some seeds.
type airCase struct {
	name   string
	length time.Duration
	snr    float64
	seeds  uint64
	change func(*Case)
}

// longAir are the cases of -long.
var longAir = []airCase{
	{"5 MHz", 10 * sec, 20, 3, nil},
	{"5 MHz", 10 * sec, 10, 3, nil},
	{"5 MHz", 10 * sec, 5, 3, nil},
	{"10 MHz", 10 * sec, 20, 1, func(c *Case) { c.Network.Cells[0].PRB = 50 }},
	{"5 and 3 MHz", 10 * sec, 20, 1, func(c *Case) {
		c.Network.Cells = append(c.Network.Cells, lab.CellConfig{PRB: 15, Layers: 2, Control: 0.2})
		c.Network.Users[0].Cells = []int{0, 1}
	}},
	{"beside 15 Mbit/s, on and off each 2 s", 10 * sec, 20, 1, func(c *Case) {
		beside := Beside(c.Seed, OnOff(15*unit.Mbps, 2*sec, 2*sec))
		c.Network.Users, c.Flows = beside.Network.Users, beside.Flows
	}},
}

// TestAir: PBE-CC that decodes samples has the rate and delay, within 5 %, of PBE-CC that gets
// messages from the emulator. Messages are 3 ms later; the channel has fading, noise and a carrier
// offset. At 5 dB, where messages are missed, the rate is within 5 % and the delay is not higher.
func TestAir(t *testing.T) {
	cases := []airCase{{"5 MHz", 3 * sec, 20, 1, nil}}
	if *longFlag {
		cases = longAir
	}
	for _, x := range cases {
		for seed := uint64(1); seed <= x.seeds; seed++ {
			r := overAir(func() Case {
				c := Default(seed, 1)
				c.Network.Cells[0].PRB, c.Length = 25, x.length
				if x.change != nil {
					x.change(&c)
				}
				return c
			}, lte.NewEPAChannel(5, 1200, x.snr, seed))
			c := r.counts
			t.Logf("%s, %.0f dB, seed %d: %.2f Mbit/s, p95 %.1f ms; with messages %.2f Mbit/s, %.1f ms; "+
				"in %d subframes %d of %d grants decoded, %d wrong, %d not sendable", x.name, x.snr, seed,
				r.fromSamples[0], r.fromSamples[1], r.fromMessages[0], r.fromMessages[1], c.Subframes, c.Received,
				c.Granted, c.Wrong, c.NotSendable)
			rate, delay := r.fromSamples[0]/r.fromMessages[0], r.fromSamples[1]/r.fromMessages[1]
			if rate < 0.95 || rate > 1.05 || delay > 1.05 || delay < 0.95 && x.snr > 5 {
				t.Errorf("%s, %.0f dB: %.3f of the rate and %.3f of the delay with messages", x.name, x.snr, rate,
					delay)
			}
		}
	}
}
