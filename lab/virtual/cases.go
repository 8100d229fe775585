// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cell"
)

const ms = time.Millisecond

// DefaultDelay is the default one-way delay of the wired part.
const DefaultDelay = 25 * ms

// Default returns the default cell: 10 MHz with two layers and control traffic. Each device has 18
// dB, a queue of 750 KB, and one flow with an RTT of 50 ms.
func Default(seed uint64, users int) Case {
	c := Case{Seed: seed, Length: 10 * time.Second}
	c.Network.Cells = []lte.CellConfig{{PRB: 50, Layers: 2, Control: 0.4}}
	for u := range users {
		c.Network.Users = append(c.Network.Users, lte.UserConfig{
			RNTI:      cell.RNTI(0x4000 + u),
			Cells:     []int{0},
			SINR:      SteadySignal(18),
			ErrorRate: 2e-6,
			Buffer:    750_000,
		})
		c.Flows = append(c.Flows, Flow{DelayToLink: DefaultDelay - 2*ms, DelayFromLink: 2 * ms, AckDelay: DefaultDelay})
	}
	return c
}

// NamedCase is one of several variants of a case.
type NamedCase struct {
	Name   string
	change func(*Case)
	base   func(seed uint64) Case
}

// Case returns the case.
func (n NamedCase) Case(seed uint64) Case {
	c := n.base(seed)
	if n.change != nil {
		n.change(&c)
	}
	return c
}

// defaultCase returns the default cell with one device.
func defaultCase(seed uint64) Case { return Default(seed, 1) }

// Variants are the default cell with one device, and variations of it.
var Variants = []NamedCase{
	{"default", nil, defaultCase},
	{"5 dB", func(c *Case) { c.Network.Users[0].SINR = SteadySignal(5) }, defaultCase},
	{"25 PRB", func(c *Case) { c.Network.Cells[0].PRB = 25 }, defaultCase},
	{"p = 5e-6", func(c *Case) { c.Network.Users[0].ErrorRate = 5e-6 }, defaultCase},
	{"proportional fair", func(c *Case) { c.Network.Scheduler = lte.ProportionalFair }, defaultCase},
	{"no user filter", setUserFilter(cell.CountAllUsers), defaultCase},
	{"two carriers", func(c *Case) {
		c.Network.Cells = append(c.Network.Cells, lte.CellConfig{PRB: 25, Layers: 2, Control: 0.2})
		c.Network.Users[0].Cells = []int{0, 1}
	}, defaultCase},
}

// Neighbours are the traffic of a second device while the first estimates its capacity.
var Neighbours = []NamedCase{
	{"none", nil, besideRate(SteadyRate(0))},
	{"60 Mbit/s", nil, besideRate(SteadyRate(60 * unit.Mbps))},
	{"10 Mbit/s", nil, besideRate(SteadyRate(10 * unit.Mbps))},
	{"60 Mbit/s, on and off each 2 s", nil, besideRate(OnOff(60*unit.Mbps, 2*time.Second, 2*time.Second))},
	{"10 Mbit/s, one subframe in seven is missed", func(c *Case) {
		c.filterSubframes(func(s *cell.Subframe) bool { return s.Number%7 > 0 })
	}, besideRate(SteadyRate(10 * unit.Mbps))},
}

// besideRate returns Beside with that rate.
func besideRate(rate func(time.Duration) unit.Rate) func(uint64) Case {
	return func(seed uint64) Case { return Beside(seed, rate) }
}

// SteadySignal returns a constant signal.
func SteadySignal(dB float64) func(int64) float64 { return func(int64) float64 { return dB } }

// OnOff returns a rate that alternates between 0 and r, beginning with 0.
func OnOff(r unit.Rate, off, on time.Duration) func(time.Duration) unit.Rate {
	return func(now time.Duration) unit.Rate {
		if now%(off+on) < off {
			return 0
		}
		return r
	}
}

// Beside returns the default cell with a second device that receives data at a given rate.
func Beside(seed uint64, rate func(time.Duration) unit.Rate) Case {
	c := Default(seed, 2)
	c.Flows[1] = Flow{Rate: rate, DelayToLink: 5 * ms}
	return c
}

// Crowd returns the default cell with a device beside others that always have data.
func Crowd(seed uint64, others int) Case {
	c := Default(seed, 1+others)
	for i := range others {
		c.Flows[1+i] = Flow{Rate: SteadyRate(60 * unit.Mbps), DelayToLink: 5 * ms}
	}
	return c
}

// Walk returns a case with one device. Its signal falls from −85 to −105 dBm during half of the
// length and soon recovers.
func Walk(seed uint64, length time.Duration) Case {
	c := Default(seed, 1)
	c.Length = length
	whole := float64(length / ms)
	c.Network.Users[0].SINR = func(n int64) float64 {
		part, v := float64(n)/whole*14, -85.0 // of 14: 2.5 there, 7.5 out, 1.5 back
		switch {
		case part > 2.5 && part <= 10:
			v -= 20 * (part - 2.5) / 7.5
		case part > 10 && part < 11.5:
			v -= 20 * (11.5 - part) / 1.5
		}
		return lte.SINROfSignal(v)
	}
	return c
}

// Competitor returns a case with a second device that alternately receives nothing and 60 Mbit/s,
// in turns of the given length. Both devices have a good signal.
func Competitor(seed uint64, length, turn time.Duration) Case {
	c := Beside(seed, OnOff(60*unit.Mbps, turn, turn))
	c.Length = length
	for u := range c.Network.Users {
		c.Network.Users[u].SINR = SteadySignal(22)
	}
	return c
}

// Users returns the default cell with a device for each RTT. Each starts a second after the one
// before.
func Users(seed uint64, rtts ...time.Duration) Case {
	c := Default(seed, len(rtts))
	for i, rtt := range rtts {
		c.Flows[i] = Flow{DelayToLink: rtt / 2, AckDelay: rtt / 2, Start: time.Duration(i) * time.Second}
	}
	return c
}

// Staggered returns the devices of Users, each of which starts a turn after the one before and ends
// a turn before it. With three devices, one, two, three, two and one are active; three for two
// turns.
func Staggered(seed uint64, turn time.Duration, rtts ...time.Duration) Case {
	c := Users(seed, rtts...)
	c.Length = time.Duration(2*len(rtts)) * turn
	for i := range c.Flows {
		c.Flows[i].Start, c.Flows[i].End = time.Duration(i)*turn, c.Length-time.Duration(i)*turn
	}
	return c
}

// Recorded returns the default cell with 20 MHz, whose rate is that of a recording from a time on.
func Recorded(seed uint64, r *lte.Recording, from time.Duration) Case {
	c := Default(seed, 1)
	c.Network.Cells[0].PRB = 100
	c.Network.Users[0].Rate = func(n int64) unit.Rate { return r.At(from + time.Duration(n)*ms) }
	return c
}

// OneDevice returns a case with two flows to one device. The second starts after 2 s.
func OneDevice(seed uint64, length, end time.Duration) Case {
	c := Default(seed, 1)
	c.Length = length
	c.Flows = append(c.Flows, c.Flows[0])
	c.Flows[1].Start, c.Flows[1].End = 2*time.Second, end
	c.Users = []int{0, 0}
	return c
}

// EstimateErrors has the relative errors of a device's estimates.
type EstimateErrors struct {
	Physical, Fair []float64 // of C_p and C_f
}

// Truth is averaged over errorWindow subframes, as estimates are. Every errorEvery subframes one
// pair is compared.
const (
	errorWindow = 50
	errorEvery  = 20
)

// CompareEstimates compares the estimates of user u, who must listen, with the truth, beginning at
// a time. Run fills the result.
func (c *Case) CompareEstimates(u int, from time.Duration) *EstimateErrors {
	e := &EstimateErrors{}
	var truth []lte.Truth
	c.OnSubframe(func(cell *Cell) {
		truth = append(truth, cell.Truth(u))
		if len(truth) < max(errorWindow, int(from/ms)) || len(truth)%errorEvery > 0 {
			return
		}
		var mean lte.Truth
		for _, x := range truth[len(truth)-errorWindow:] {
			mean.Physical += x.Physical / errorWindow * 1000
			mean.Fair += x.Fair / errorWindow * 1000
		}
		got := cell.Monitor(u).Estimate()
		e.Physical = append(e.Physical, math.Abs(float64(got.Physical)/mean.Physical-1))
		e.Fair = append(e.Fair, math.Abs(float64(got.Fair)/mean.Fair-1))
	})
	return e
}

// Location returns a case with random properties that depend on its number: 5 to 20 MHz, with a
// second cell in two of three locations; a wandering signal; up to three other devices with on-off
// traffic; and the delay to the server. Runs of one location differ in the signal and in random
// draws of the cells.
func Location(number, run uint64) Case {
	r := rand.New(rand.NewPCG(number, 9))
	widths := []int{25, 50, 75, 100}
	cells := []int{0}
	c := Case{Seed: number + run<<16, Length: 20 * time.Second}
	n := &c.Network
	n.Cells = []lte.CellConfig{{PRB: widths[r.IntN(4)], Layers: 1 + r.IntN(2), Control: 0.4 * r.Float64()}}
	if r.IntN(3) > 0 {
		n.Cells = append(n.Cells, lte.CellConfig{PRB: widths[r.IntN(4)], Layers: 1 + r.IntN(2), Control: 0.4 * r.Float64()})
		cells = []int{0, 1}
	}
	n.Users = []lte.UserConfig{{
		RNTI:      0x4000,
		Cells:     cells,
		SINR:      wanderingSignal(c.Seed, 6+16*r.Float64()),
		ErrorRate: 1e-6 + 3e-6*r.Float64(),
		Buffer:    2_000_000,
	}}
	way := 10*ms + time.Duration(r.Int64N(int64(30*ms)))
	c.Flows = []Flow{{DelayToLink: way - 2*ms, DelayFromLink: 2 * ms, AckDelay: way}}
	const second = int64(time.Second)
	for u := range r.IntN(4) {
		n.Users = append(n.Users, lte.UserConfig{
			RNTI:      cell.RNTI(0x5000 + u),
			Cells:     cells[:1],
			SINR:      SteadySignal(8 + 14*r.Float64()),
			ErrorRate: 2e-6,
			Buffer:    300_000,
		})
		rate := unit.Rate(2+r.IntN(30)) * unit.Mbps
		on := 200*ms + time.Duration(r.Int64N(3*second))
		off := 200*ms + time.Duration(r.Int64N(5*second))
		at := time.Duration(r.Int64N(int64(on + off)))
		c.Flows = append(c.Flows, Flow{DelayToLink: 10 * ms, Rate: func(now time.Duration) unit.Rate {
			if (now+at)%(on+off) < on {
				return rate
			}
			return 0
		}})
	}
	return c
}

// wanderingSignal returns a signal that changes by up to half a decibel every 50 ms and returns to
// its mean.
func wanderingSignal(seed uint64, mean float64) func(int64) float64 {
	r := rand.New(rand.NewPCG(seed, 10))
	var list []float64
	v := mean
	return func(n int64) float64 {
		for int64(len(list)) <= n/50 {
			v += 0.05*(mean-v) + r.Float64() - 0.5
			list = append(list, v)
		}
		return list[n/50]
	}
}
