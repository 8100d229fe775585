// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/rand/v2"
	"testing"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

// fadingSignal returns a signal that changes from subframe to subframe, with a half-life of 20.
func fadingSignal(mean, deviation float64) func(int64) float64 {
	r := rand.New(rand.NewPCG(3, 4))
	keep, v := math.Exp(-math.Ln2/20), 0.0
	return func(int64) float64 {
		v = keep*v + deviation*math.Sqrt(1-keep*keep)*r.NormFloat64()
		return mean + v
	}
}

// TestAdaptation: a tenth of the blocks have errors, whatever the signal, and its retransmission combines with it: few
// are repeated twice. The rate falls with fading, by less than a fifth.
func TestAdaptation(t *testing.T) {
	var rates []float64
	for _, deviation := range []float64{0, 2.5} {
		n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
			SINR: fadingSignal(15, deviation), Adapts: true}}, Seed: 1})
		first, second, third := 0, 0, 0
		got := unit.Bytes(0)
		for range 20_000 {
			for n.Waiting(0) < 400_000 {
				n.Offer(0, &Item{Size: packet})
			}
			for _, o := range n.Step(nil, func(s cell.Subframe) {
				for _, g := range s.Grants {
					for _, b := range g.Blocks[:g.N] {
						switch {
						case b.IsDisabled():
						case b.RV == 0:
							first++
						case b.RV == 2:
							second++
						default:
							third++
						}
					}
				}
			}) {
				if !o.Lost {
					got += o.Item.Size
				}
			}
		}
		part := float64(second) / float64(first)
		t.Logf("deviation %.1f dB: %.1f %% of the blocks are repeated, %.1f %% of these again, %v", deviation, 100*part,
			100*float64(third)/float64(second), unit.RateOf(got, 20_000_000_000))
		if part < 0.07 || part > 0.14 || float64(third) > 0.25*float64(second) {
			t.Errorf("deviation %.1f dB: %d blocks, %d repeated, %d again", deviation, first, second, third)
		}
		rates = append(rates, float64(got))
	}
	if rates[1] > rates[0] || rates[1] < 0.8*rates[0] {
		t.Errorf("%.3g bytes with fading, %.3g without", rates[1], rates[0])
	}
}

// TestUnacknowledged: without RLC's acknowledgements, blocks that HARQ gives up are lost, in order; with them not.
func TestUnacknowledged(t *testing.T) {
	for _, um := range []bool{false, true} {
		n := New(Config{Cells: []CellConfig{cellOf(25)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
			SINR: steady(15), ErrorRate: 4e-5, Unacknowledged: um}}, Seed: 1})
		_, lost := saturate(t, n, 5000, 0)
		if um != (lost[0] > 0) {
			t.Errorf("unacknowledged %v: %v lost", um, lost[0])
		}
	}
}

// TestHandoverOfUser: in the gap a user gets nothing; then it has another RNTI. The queue is forwarded or lost, and
// no packet is counted twice.
func TestHandoverOfUser(t *testing.T) {
	for _, forwards := range []bool{true, false} {
		n := New(Config{Cells: []CellConfig{cellOf(50), cellOf(25)}, Users: []UserConfig{{RNTI: 0x4000,
			Cells: []int{0, 1}, SINR: steady(15), ErrorRate: 2e-6}, {RNTI: 0x4001, Cells: []int{0}, SINR: steady(15),
			ErrorRate: 2e-6}}, Seed: 1})
		var names []cell.RNTI
		gap, last := int64(0), int64(0)
		step := func(subframes int) (got, lost int) {
			for range subframes {
				for n.Waiting(1) < 100_000 {
					n.Offer(1, &Item{Size: packet})
				}
				for _, o := range n.Step(nil, func(s cell.Subframe) {
					for _, g := range s.Grants {
						if g.RNTI != 0x4001 {
							if len(names) == 0 || names[len(names)-1] != g.RNTI {
								names = append(names, g.RNTI)
							}
							gap, last = max(gap, s.Number-last), s.Number
						}
					}
				}) {
					if o.User == 0 && o.Lost {
						lost++
					} else if o.User == 0 {
						got++
					}
				}
			}
			return got, lost
		}
		for range 1000 {
			n.Offer(0, &Item{Size: packet})
		}
		got, lost := step(250)
		n.users[0].fullSubframes = 2 * carrierOnDelay // as of a user who was busy for long
		before := n.Waiting(0)
		if n.Truth(0).Carriers != 2 || before == 0 {
			t.Fatalf("%d carriers, %v wait", n.Truth(0).Carriers, before)
		}
		n.Handover(0, 50, 0x5000, forwards)
		g, l := step(60)
		got, lost = got+g, lost+l
		if n.Truth(0).Carriers != 1 {
			t.Errorf("%d carriers after a handover", n.Truth(0).Carriers)
		}
		g, l = step(2000)
		got, lost = got+g, lost+l
		if got+lost != 1000 || n.Waiting(0) != 0 || (lost > 0) == forwards {
			t.Errorf("forwards %v: %d delivered, %d lost, %v wait", forwards, got, lost, n.Waiting(0))
		}
		if forwards && (gap < 50 || gap > 60 || len(names) != 2 || names[1] != 0x5000) {
			t.Errorf("a gap of %d, names %v", gap, names)
		}
	}
}

// TestSleep: a device that sleeps gets its first data when it is awake, and later ones at once.
func TestSleep(t *testing.T) {
	n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
		SINR: steady(15), Sleeps: true}}, Seed: 1})
	for range 215 {
		n.Step(nil, nil)
	}
	arrives := func() int64 {
		n.Offer(0, &Item{Size: packet})
		for n.Waiting(0) > 0 {
			n.Step(nil, nil)
		}
		return n.Number()
	}
	if at := arrives(); at != 241 {
		t.Errorf("asleep: at %d, want 241", at)
	}
	if at := arrives(); at != 242 {
		t.Errorf("awake: at %d, want 242", at)
	}
}

// TestGuaranteed: with proportional fair, a guaranteed rate is kept beside busy users, and weights divide the rest.
func TestGuaranteed(t *testing.T) {
	users := []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(5), Guaranteed: 6 * unit.Mbps},
		{RNTI: 0x4001, Cells: []int{0}, SINR: steady(15)}, {RNTI: 0x4002, Cells: []int{0}, SINR: steady(15), Weight: 3}}
	n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: users, Scheduler: ProportionalFair, Seed: 1})
	got, _ := saturate(t, n, 8000, 0, 1, 2)
	rate := func(u int) float64 { return float64(got[u]) * 8 / 8e6 }
	t.Logf("%.1f, %.1f and %.1f Mbit/s", rate(0), rate(1), rate(2))
	if rate(0) < 5 {
		t.Errorf("%.1f Mbit/s of 6 guaranteed", rate(0))
	}
	if ratio := rate(2) / rate(1); ratio < 2 || ratio > 4 {
		t.Errorf("weight 3: %.2f times", ratio)
	}
}

// TestCarriersByUse: a second carrier comes with a full first one, not with one that is used to nine tenths.
func TestCarriersByUse(t *testing.T) {
	for _, x := range []struct {
		rate unit.Rate
		want int
	}{{36 * unit.Mbps, 1}, {200 * unit.Mbps, 2}} {
		n := New(Config{Cells: []CellConfig{cellOf(50), cellOf(50)}, CarriersByUse: true, Users: []UserConfig{{
			RNTI: 0x4000, Cells: []int{0, 1}, SINR: steady(15)}}, Seed: 1})
		s := Source{Rate: x.rate}
		for k := range 3000 {
			if n.Waiting(0) < 400_000 {
				s.Offer(n, 0, 0)
			}
			for _, o := range n.Step(nil, nil) {
				s.Recycle(o.Item)
			}
			if k == 100 && n.Truth(0).Carriers != 1 {
				t.Errorf("%v: at once", x.rate)
			}
		}
		if got := n.Truth(0).Carriers; got != x.want {
			t.Errorf("%v: %d carriers, want %d", x.rate, got, x.want)
		}
	}
}
