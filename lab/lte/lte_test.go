// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"math"
	"testing"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

const packet unit.Bytes = 1500

func steady(v float64) func(int64) float64 { return func(int64) float64 { return v } }

func cellOf(prb int) CellConfig { return CellConfig{PRB: prb, Layers: 2} }

// saturate keeps the queues of users full for a number of subframes. It returns the delivered and
// lost bytes of each, and checks order and grants.
func saturate(t *testing.T, n *Network, subframes int, users ...int) (got, lost []unit.Bytes) {
	t.Helper()
	got, lost = make([]unit.Bytes, len(n.users)), make([]unit.Bytes, len(n.users))
	next, last := make([]int, len(n.users)), make([]int, len(n.users))
	for i := range last {
		last[i] = -1
	}
	for range subframes {
		for _, u := range users {
			for n.Waiting(u) < 400_000 {
				n.Offer(u, &Item{Size: packet, Tag: next[u]})
				next[u]++
			}
		}
		for _, o := range n.Step(nil, func(s cell.Subframe) {
			sum := 0
			seen := map[cell.RNTI]bool{}
			for _, g := range s.Grants {
				sum += int(g.PRB)
				if seen[g.RNTI] && g.RNTI < 0x5000 && g.RNTI >= 0x4000 {
					t.Fatalf("subframe %d: two blocks for user %x", s.Number, g.RNTI)
				}
				seen[g.RNTI] = true
			}
			if sum > int(s.PRB) {
				t.Fatalf("subframe %d: %d blocks given of %d", s.Number, sum, s.PRB)
			}
		}) {
			if o.Item.Tag.(int) != last[o.User]+1 {
				t.Fatalf("user %d: packet %d after %d", o.User, o.Item.Tag, last[o.User])
			}
			last[o.User]++
			if o.Lost {
				lost[o.User] += packet
			} else {
				got[o.User] += packet
			}
		}
	}
	for u := range next {
		if all := unit.Bytes(next[u]) * packet; all != got[u]+lost[u]+n.Waiting(u) {
			t.Errorf("user %d: %v offered, %v came, %v lost, %v wait", u, all, got[u], lost[u], n.Waiting(u))
		}
	}
	return got, lost
}

func expectNear(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*math.Abs(want) {
		t.Errorf("%s: %.5g, want %.5g", what, got, want)
	}
}

// TestCodings: each CQI has the highest MCS that its efficiency allows.
func TestCodings(t *testing.T) {
	efficiency := [16]float64{0, 0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223,
		3.9023, 4.5234, 5.1152, 5.5547}
	for q := 1; q < 16; q++ {
		want, most := 0, 0
		for mcs := range tbs.SizedMCS {
			// A hundredth over, as the highest MCS is at 50 PRB.
			if b := tbs.Size(tbs.Downlink(mcs).Index, 50); b > most && float64(b) <= 1.01*efficiency[q]*50*132 {
				want, most = mcs, b
			}
		}
		if int(cqiMCS[q]) != want {
			t.Errorf("CQI %d has MCS %d, want %d", q, cqiMCS[q], want)
		}
	}
	for mcs, want := range map[uint8]uint8{0: 29, 9: 29, 10: 30, 16: 30, 17: 31, 28: 31} {
		if got := retransmissionMCS(mcs); got != want {
			t.Errorf("MCS %d comes again as %d, want %d", mcs, got, want)
		}
	}
}

// TestRate: alone and without errors, a user gets the whole width at the rate of its CQI, less
// headers. Sizes are from 36.213 table 7.1.7.2.1-1.
func TestRate(t *testing.T) {
	for sinr, size := range map[float64]int{25: 36696, 18: 25456, 5: 6968, -6.5: 1384} {
		for layers := 1; layers <= 2; layers++ {
			for _, overhead := range []float64{0, 0.09} {
				n := New(Config{Cells: []CellConfig{{PRB: 50, Layers: layers}}, Overhead: overhead,
					Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(sinr)}}})
				got, _ := saturate(t, n, 2000, 0)
				if overhead == 0 {
					overhead = 0.068
				}
				expectNear(t, "bits", float64(got[0])*8, 2000*float64(size*layers)*(1-overhead), 0.01)
				expectNear(t, "truth", n.Truth(0).Physical, float64(size*layers), 1e-9)
			}
		}
	}
	n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
		SINR: steady(-20)}}})
	if got, _ := saturate(t, n, 100, 0); got[0] != 0 {
		t.Errorf("out of reach, %v came", got[0])
	}
}

// TestRetransmissions: a block is wrong with probability w each time. It is repeated after 8
// subframes with its own NDI, and by RLC after four times.
func TestRetransmissions(t *testing.T) {
	const w, size = 0.3, 25456
	p := -math.Expm1(math.Log1p(-w) / size)
	n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
		SINR: steady(18), ErrorRate: p}}})
	type sent struct {
		b    cell.Block
		at   int64
		ever bool
	}
	var last [harqProcesses][2]sent
	var fresh, again, sizeless, lone float64
	for range 40000 {
		saturateOn(t, n, 1, func(s cell.Subframe) {
			for _, g := range s.Grants {
				if g.Format != cell.Format2 || g.N != 2 {
					t.Fatalf("grant %+v", g)
				}
				repeats := 0
				for k, b := range g.Blocks {
					l := &last[g.HARQ][k]
					if b.MCS == 0 && b.RV == 1 {
						lone++
						continue
					}
					if repeat := l.ever && b.NDI == l.b.NDI; repeat != (b.RV != 0) {
						t.Fatalf("subframe %d: %+v after %+v", s.Number, b, *l)
					} else if repeat {
						repeats++
						again++
						if b.Size == 0 {
							sizeless++
						}
						if s.Number < l.at+harqDelay || b.Size > 0 && b.Size != size || b.MCS < 29 && b.MCS != 23 {
							t.Fatalf("subframe %d: %+v after %+v", s.Number, b, *l)
						}
					} else {
						fresh++
					}
					*l = sent{b, s.Number, true}
				}
			}
		})
	}
	// Of new ones 1, w, w², w³ are sent a first, second, third and fourth time.
	expectNear(t, "sent again", again/fresh, w+w*w+w*w*w, 0.03)
	expectNear(t, "without size", sizeless/again, 0.3, 0.05)
	if lone == 0 {
		t.Error("no block waited for RLC while its neighbour came again")
	}

	// One packet on an idle cell comes in its first subframe, or 8, 16 or 24 later.
	// After that RLC repeats it.
	seen := map[int64]int{}
	for seed := range uint64(3000) {
		n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
			SINR: steady(18), ErrorRate: 5e-5}}, Seed: seed})
		n.Offer(0, &Item{Size: packet})
		for len(n.Step(nil, nil)) == 0 {
		}
		seen[n.Number()-1]++
	}
	for at := range seen {
		if round := at % (3*harqDelay + rlcDelay); round%8 != 0 || round > 24 {
			t.Errorf("after %d subframes", at)
		}
	}
	if seen[8] == 0 || seen[24] == 0 || seen[44] == 0 {
		t.Errorf("%v", seen)
	}
}

// TestLoss: nothing is lost when a third of the blocks are wrong. When hardly any is right, a block
// is given up after four times four transmissions, and order is kept.
func TestLoss(t *testing.T) {
	for _, x := range []struct{ wrong, lost float64 }{{0.3, 0}, {0.95, math.Pow(0.95, 16)}} {
		n := New(Config{Cells: []CellConfig{{PRB: 50, Layers: 1}},
			Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(18),
				ErrorRate: -math.Expm1(math.Log1p(-x.wrong) / 25456)}}})
		got, lost := saturate(t, n, 60000, 0)
		// A packet may be in two blocks.
		if part := float64(lost[0]) / float64(lost[0]+got[0]); part < 0.9*x.lost || part > 1.9*x.lost {
			t.Errorf("%.2f wrong: %.4f lost, want about %.4f", x.wrong, part, x.lost)
		}
	}
}

// TestShares: equal shares are of blocks, whatever the signal. What one user does not need goes to
// the other. Proportional fair gives equal times too.
func TestShares(t *testing.T) {
	for _, s := range []Scheduler{EqualShare, ProportionalFair} {
		cfg := Config{Cells: []CellConfig{cellOf(50)}, Scheduler: s}
		for i, sinr := range []float64{24, 12} {
			cfg.Users = append(cfg.Users, UserConfig{RNTI: cell.RNTI(0x4000 + i), Cells: []int{0}, SINR: steady(sinr)})
		}
		n := New(cfg)
		got, _ := saturate(t, n, 5000, 0, 1)
		whole := func(size float64) float64 { return 5000 * size * 2 * (1 - 0.068) }
		expectNear(t, "better", float64(got[0])*8, whole(36696)/2, 0.03)
		expectNear(t, "worse", float64(got[1])*8, whole(16416)/2, 0.03)
		expectNear(t, "fair part", n.Truth(1).Fair, 16416, 1e-9)
	}
	n := New(Config{Cells: []CellConfig{cellOf(25)}, Users: []UserConfig{
		{RNTI: 0x4000, Cells: []int{0}, SINR: steady(24)}, {RNTI: 0x4001, Cells: []int{0}, SINR: steady(24)}}})
	var first unit.Bytes
	for i := range 2000 {
		if i%4 == 0 { // 3 Mbit/s of 34
			n.Offer(0, &Item{Size: packet})
		}
		for n.Waiting(1) < 60_000 {
			n.Offer(1, &Item{Size: packet})
		}
		for _, o := range n.Step(nil, nil) {
			if o.User == 0 {
				first += packet
			}
		}
		if n.Waiting(0) > 2*packet {
			t.Fatalf("subframe %d: %v are waiting for the user with little data", i, n.Waiting(0))
		}
	}
	expectNear(t, "little", float64(first), 500*1500, 0.02)
}

// TestFading: with quickly changing signals, proportional fair serves each user when its signal is
// good, and both get more than from equal times.
func TestFading(t *testing.T) {
	total := map[Scheduler]float64{}
	for _, s := range []Scheduler{EqualShare, ProportionalFair} {
		cfg := Config{Cells: []CellConfig{cellOf(50)}, Scheduler: s}
		for i := range 2 {
			cfg.Users = append(cfg.Users, UserConfig{RNTI: cell.RNTI(0x4000 + i), Cells: []int{0},
				SINR: func(n int64) float64 {
					return 14 + 8*math.Sin(float64(n)/30+math.Pi*float64(i))
				}})
		}
		got, _ := saturate(t, New(cfg), 5000, 0, 1)
		total[s] = float64(got[0] + got[1])
		expectNear(t, "one of two", float64(got[0]), total[s]/2, 0.05)
	}
	if total[ProportionalFair] < 1.2*total[EqualShare] {
		t.Errorf("%.4g at peaks, %.4g by turns", total[ProportionalFair], total[EqualShare])
	}
}

// TestBuffer: a full buffer refuses items.
func TestBuffer(t *testing.T) {
	n := New(Config{Cells: []CellConfig{cellOf(25)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0},
		SINR: steady(-20), Buffer: 10 * packet}}})
	for i := range 20 {
		if got := n.Offer(0, &Item{Size: packet}); got != (i < 10) {
			t.Errorf("packet %d: %v", i, got)
		}
	}
}

// TestCarriers: the second cell is activated after 130 ms of a full first one, and deactivated a
// second after the queue stays empty.
func TestCarriers(t *testing.T) {
	n := New(Config{Cells: []CellConfig{cellOf(50), cellOf(25)},
		Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0, 1}, SINR: steady(18)}}})
	saturate(t, n, carrierOnDelay-1, 0)
	if c := n.Truth(0).Carriers; c != 1 {
		t.Errorf("%d carriers before", c)
	}
	one := n.Truth(0).Physical
	saturateOn(t, n, 3, nil)
	if c := n.Truth(0).Carriers; c != 2 || math.Abs(n.Truth(0).Physical/one-1.5) > 1e-2 {
		t.Errorf("%d carriers, %.0f bits after %.0f", c, n.Truth(0).Physical, one)
	}
	for n.Busy() {
		n.Step(nil, nil)
	}
	at := n.Number()
	for n.Truth(0).Carriers == 2 {
		n.Step(nil, nil)
	}
	if d := n.Number() - at; d < carrierOffDelay-10 || d > carrierOffDelay+10 {
		t.Errorf("taken %d subframes after the queue ran empty", d)
	}
}

// saturateOn continues with packets whose numbers do not matter.
func saturateOn(t *testing.T, n *Network, subframes int, hear func(cell.Subframe)) {
	t.Helper()
	for range subframes {
		for n.Waiting(0) < 1_000_000 {
			n.Offer(0, &Item{Size: packet})
		}
		n.Step(nil, hear)
	}
}

// TestControlUsers: figure 7 of the paper has a mean of 15.8 users in 40 ms and at most 28; after
// the filter 1.3 and at most 7, including data users.
func TestControlUsers(t *testing.T) {
	n := New(Config{Cells: []CellConfig{{PRB: 100, Layers: 2, Control: 0.4}},
		Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(18)}}, Seed: 4})
	w := cell.NewWindow(0x4000)
	var all, filtered, most, count float64
	for i := range 20000 {
		n.Step(nil, func(s cell.Subframe) { w.Add(s, 40) })
		if i < 40 {
			continue
		}
		f := w.Usage(cell.FilterByPRB)
		all += float64(f.AllUsers)
		filtered += float64(f.Users)
		most = max(most, float64(f.AllUsers))
		count++
	}
	t.Logf("%.1f, at most %.0f; filtered %.2f", all/count, most, filtered/count)
	expectNear(t, "users", all/count, 15.8, 0.15)
	expectNear(t, "filtered", filtered/count, 1.3, 0.3)
	if most < 24 || most > 36 {
		t.Errorf("%.0f at most", most)
	}
}

// TestSignals: CQI falls with the signal, and sinrOf inverts it.
func TestSignals(t *testing.T) {
	for q := range 16 {
		if q > 0 && CQI(sinrOf(q)) != q {
			t.Errorf("CQI %d is at %.1f dB, which is %d", q, sinrOf(q), CQI(sinrOf(q)))
		}
	}
	if CQI(SINROfSignal(-85)) != 15 || CQI(SINROfSignal(-105)) != 6 {
		t.Errorf("CQI %d at −85 dBm, %d at −105", CQI(SINROfSignal(-85)), CQI(SINROfSignal(-105)))
	}
}

// TestStepTakesNoMemory: the lab steps networks in a thread that must not wait for garbage
// collection.
func TestStepTakesNoMemory(t *testing.T) {
	users := []UserConfig{}
	for i := range 3 {
		users = append(users, UserConfig{RNTI: cell.RNTI(0x4000 + i), Cells: []int{0, 1}, SINR: steady(18),
			ErrorRate: 5e-6, Buffer: 300_000})
	}
	n := New(Config{Cells: []CellConfig{{PRB: 50, Layers: 2, Control: 0.4}, {PRB: 100, Layers: 2, Control: 0.4}},
		Users: users, Seed: 1})
	free := make([]*Item, 0, 4096)
	for range cap(free) {
		free = append(free, &Item{Size: packet})
	}
	var out []Delivery
	step := func() {
		for u := range users {
			for n.Waiting(u)+packet <= 300_000 {
				n.Offer(u, free[len(free)-1])
				free = free[:len(free)-1]
			}
		}
		out = n.Step(out[:0], func(cell.Subframe) {})
		for _, o := range out {
			free = append(free, o.Item)
		}
	}
	for range 3000 {
		step()
	}
	if got := testing.AllocsPerRun(3000, step); got > 0.05 {
		t.Errorf("%v allocations for each subframe", got)
	}
}

// BenchmarkStep runs one subframe of a busy 20 MHz cell.
func BenchmarkStep(b *testing.B) {
	for _, users := range []int{1, 8} {
		b.Run(fmt.Sprint(users, " users"), func(b *testing.B) {
			cfg := Config{Cells: []CellConfig{{PRB: 100, Layers: 2, Control: 0.4}}}
			for u := range users {
				cfg.Users = append(cfg.Users, UserConfig{RNTI: cell.RNTI(0x4000 + u), Cells: []int{0}, SINR: steady(24),
					ErrorRate: 2e-6})
			}
			n := New(cfg)
			items := make([]Item, users*300)
			for i := range items {
				items[i].Size = packet
				n.Offer(i%users, &items[i])
			}
			var out []Delivery
			heard := 0
			hear := func(s cell.Subframe) { heard += len(s.Grants) }
			step := func() {
				out = n.Step(out[:0], hear)
				for _, o := range out {
					n.Offer(o.User, o.Item)
				}
			}
			for range 1000 {
				step() // queues and lists have their lengths
			}
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

// sinrOf returns a SINR at which the CQI is q.
func sinrOf(q int) float64 { return cqiThresholds[q] + 0.05 }
