package lte

import (
	"math"
	"testing"

	"mpbond/pbe/cell"
	"mpbond/unit"
)

const packet unit.Bytes = 1500

func steady(v float64) func(int64) float64 { return func(int64) float64 { return v } }

func cellOf(prb int) CellConfig { return CellConfig{PRB: prb, Layers: 2} }

// saturate keeps the queues of users full for a number of subframes, and returns
// what came over for each, checking order and what grants may be.
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

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*math.Abs(want) {
		t.Errorf("%s: %.5g, want %.5g", what, got, want)
	}
}

// TestRate: alone, without errors, a user gets the whole width at the rate of its
// CQI, without headers; each signal by hand.
func TestRate(t *testing.T) {
	for sinr, efficiency := range map[float64]float64{25: 5.5547, 18: 3.9023, 5: 1.1758, -6.5: 0.1523} {
		n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(sinr)}}})
		got, _ := saturate(t, n, 2000, 0)
		near(t, "bits", float64(got[0])*8, 2000*50*efficiency*132*2*(1-0.068), 0.01)
		near(t, "truth", n.Truth(0).Physical, 50*efficiency*132*2, 1e-9)
	}
	n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(-20)}}})
	if got, _ := saturate(t, n, 100, 0); got[0] != 0 {
		t.Errorf("out of reach, %v came", got[0])
	}
}

// TestRetransmissions: a block is wrong with probability w, comes again after 8
// subframes, and is given up after four times.
func TestRetransmissions(t *testing.T) {
	const w = 0.3
	bits := float64(elements) * 3.9023 * 2 * 50
	p := -math.Expm1(math.Log1p(-w) / bits)
	n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(18), ErrorRate: p}}})
	got, lost := saturate(t, n, 40000, 0)
	// w^4 of blocks, and a packet of 1500 bytes is in two of 6 KB at most.
	part := float64(lost[0]) / float64(lost[0]+got[0])
	if part < math.Pow(w, 4) || part > 1.5*math.Pow(w, 4) {
		t.Errorf("%.4f lost, want a little over %.4f", part, math.Pow(w, 4))
	}
	near(t, "bits, with what is sent again", float64(got[0]+lost[0])*8, 40000*bits*(1-headers)/(1+w+w*w+w*w*w), 0.02)

	// One packet on an idle cell comes in its first subframe, or 8, 16 or 24 later.
	seen := map[int64]int{}
	for seed := range uint64(3000) {
		n := New(Config{Cells: []CellConfig{cellOf(50)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(18), ErrorRate: 3e-5}}, Seed: seed})
		n.Offer(0, &Item{Size: packet})
		for len(n.Step(nil, nil)) == 0 {
		}
		seen[n.Number()-1]++
	}
	for at := range seen {
		if at != 0 && at != 8 && at != 16 && at != 24 {
			t.Errorf("after %d subframes", at)
		}
	}
	if seen[8] == 0 || seen[16] == 0 {
		t.Errorf("%v", seen)
	}
}

// TestShares: equal shares are of blocks, whatever the signal; what one does not
// need the other gets. Proportional fair comes to equal times too.
func TestShares(t *testing.T) {
	for _, s := range []Scheduler{EqualShare, ProportionalFair} {
		cfg := Config{Cells: []CellConfig{cellOf(25)}, Scheduler: s}
		for i, sinr := range []float64{24, 12} {
			cfg.Users = append(cfg.Users, UserConfig{RNTI: cell.RNTI(0x4000 + i), Cells: []int{0}, SINR: steady(sinr)})
		}
		n := New(cfg)
		got, _ := saturate(t, n, 5000, 0, 1)
		whole := func(e float64) float64 { return 5000 * 25 * e * elements * 2 * (1 - headers) }
		near(t, "better", float64(got[0])*8, whole(5.5547)/2, 0.03)
		near(t, "worse", float64(got[1])*8, whole(2.7305)/2, 0.03)
		near(t, "fair part", n.Truth(1).Fair, 12.5*2.7305*elements*2, 1e-9)
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
			t.Fatalf("subframe %d: %v wait of who needs little", i, n.Waiting(0))
		}
	}
	near(t, "little", float64(first), 500*1500, 0.02)
}

// TestBuffer: what does not fit is refused.
func TestBuffer(t *testing.T) {
	n := New(Config{Cells: []CellConfig{cellOf(25)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(-20), Buffer: 10 * packet}}})
	for i := range 20 {
		if got := n.Offer(0, &Item{Size: packet}); got != (i < 10) {
			t.Errorf("packet %d: %v", i, got)
		}
	}
}

// TestCarriers: the second cell is given after 130 ms of a full first one and
// taken a second after the queue stays empty.
func TestCarriers(t *testing.T) {
	n := New(Config{Cells: []CellConfig{cellOf(50), cellOf(25)}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0, 1}, SINR: steady(18)}}})
	saturate(t, n, carrierOn-1, 0)
	if c := n.Truth(0).Carriers; c != 1 {
		t.Errorf("%d carriers before", c)
	}
	one := n.Truth(0).Physical
	saturateOn(t, n, 3)
	if c := n.Truth(0).Carriers; c != 2 || n.Truth(0).Physical != 1.5*one {
		t.Errorf("%d carriers, %.0f bits after %.0f", c, n.Truth(0).Physical, one)
	}
	for n.Busy() {
		n.Step(nil, nil)
	}
	at := n.Number()
	for n.Truth(0).Carriers == 2 {
		n.Step(nil, nil)
	}
	if d := n.Number() - at; d < carrierOff-10 || d > carrierOff+10 {
		t.Errorf("taken %d subframes after the queue ran empty", d)
	}
}

// saturateOn goes on with packets of which the numbers do not matter.
func saturateOn(t *testing.T, n *Network, subframes int) {
	t.Helper()
	for range subframes {
		for n.Waiting(0) < 60_000 {
			n.Offer(0, &Item{Size: packet})
		}
		n.Step(nil, nil)
	}
}

// TestControlUsers: figure 7 of the paper has 15.8 users in 40 ms in the mean,
// 28 at most, and 1.3, 7 at most, after the filter, data users included.
func TestControlUsers(t *testing.T) {
	n := New(Config{Cells: []CellConfig{{PRB: 100, Layers: 2, Control: 0.4}}, Users: []UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: steady(18)}}, Seed: 4})
	w := cell.NewWindow(0x4000)
	var all, filtered, most, count float64
	for i := range 20000 {
		n.Step(nil, func(s cell.Subframe) { w.Add(s, 40) })
		if i < 40 {
			continue
		}
		f := w.Facts()
		all += float64(f.All)
		filtered += float64(f.Users)
		most = max(most, float64(f.All))
		count++
	}
	t.Logf("%.1f, at most %.0f; filtered %.2f", all/count, most, filtered/count)
	near(t, "users", all/count, 15.8, 0.15)
	near(t, "filtered", filtered/count, 1.3, 0.3)
	if most < 24 || most > 36 {
		t.Errorf("%.0f at most", most)
	}
}

// TestSignals: CQI falls with the signal and the two are each other's inverse.
func TestSignals(t *testing.T) {
	for q := range 16 {
		if q > 0 && CQI(SINROf(q)) != q {
			t.Errorf("CQI %d is at %.1f dB, which is %d", q, SINROf(q), CQI(SINROf(q)))
		}
	}
	if CQI(SINROfSignal(-85)) != 15 || CQI(SINROfSignal(-105)) != 6 {
		t.Errorf("CQI %d at −85 dBm, %d at −105", CQI(SINROfSignal(-85)), CQI(SINROfSignal(-105)))
	}
}

// TestStepTakesNoMemory: the lab steps networks in a thread that may not wait for
// the collector.
func TestStepTakesNoMemory(t *testing.T) {
	users := []UserConfig{}
	for i := range 3 {
		users = append(users, UserConfig{RNTI: cell.RNTI(0x4000 + i), Cells: []int{0, 1}, SINR: steady(18), ErrorRate: 5e-6, Buffer: 300_000})
	}
	n := New(Config{Cells: []CellConfig{{PRB: 50, Layers: 2, Control: 0.4}, {PRB: 100, Layers: 2, Control: 0.4}}, Users: users, Seed: 1})
	free := make([]*Item, 0, 4096)
	for range cap(free) {
		free = append(free, &Item{Size: packet})
	}
	var out []Out
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
