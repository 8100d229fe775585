// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
)

const self RNTI = 500

// newTestGrant returns a grant of prb blocks with perPRB bits each.
func newTestGrant(who RNTI, prb uint8, perPRB int) Grant {
	return Grant{RNTI: who, Format: Format1, PRB: prb, N: 1, Blocks: [2]Block{{MCS: 10, Size: Bits(int(prb) * perPRB)}}}
}

// runRows feeds n subframes of cell 0 (50 PRB), toggling NDI, starting with number from.
func runRows(m *Monitor, from, n int64, grants func(i int64) []Grant) Estimate {
	for i := range n {
		s := Subframe{Number: from + i, PRB: 50, Grants: grants(i)}
		for j := range s.Grants {
			s.Grants[j].HARQ = uint8((from + i) % 8)
			for b := range s.Grants[j].Blocks {
				s.Grants[j].Blocks[b].NDI = (from+i)/8%2 == 0
			}
		}
		m.Add(&Row{Number: s.Number, Received: [MaxCells]bool{true}, Cells: [MaxCells]Subframe{s}})
	}
	return m.Estimate()
}

func checkNear(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*math.Abs(want)+1e-9 {
		t.Errorf("%s is %.6g, want %.6g", what, got, want)
	}
}

// TestCapacity checks the cases of section 4.2.
func TestCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		grants         func(i int64) []Grant
		fair, physical float64 // Mbit/s
		users          int
	}{
		"alone, all of it": {func(int64) []Grant { return []Grant{newTestGrant(self, 50, 600)} }, 30, 30, 1},
		"alone, a fifth":   {func(int64) []Grant { return []Grant{newTestGrant(self, 10, 600)} }, 30, 30, 1},
		"two, full": {func(int64) []Grant {
			return []Grant{newTestGrant(self, 25, 600),
				newTestGrant(700, 25, 300)}
		}, 15, 15, 2},
		"two, half idle": {func(int64) []Grant {
			return []Grant{newTestGrant(self, 10, 600),
				newTestGrant(700, 15, 300)}
		}, 15, 600 * (12.5 + 12.5) / 1000, 2},
		"two by turns": {func(i int64) []Grant {
			if i%2 == 0 {
				return []Grant{newTestGrant(self, 50, 600)}
			}
			return []Grant{newTestGrant(700, 50, 300)}
		}, 15, 15, 2},
		"control users": {func(i int64) []Grant {
			return []Grant{newTestGrant(self, 30, 600), newTestGrant(RNTI(1000+i), 20, 100)}
		}, 30, 18, 1},
		"four PRB in each subframe do not share": {func(int64) []Grant {
			return []Grant{newTestGrant(self, 30, 600),
				newTestGrant(900, 4, 100)}
		}, 30, 600 * 46 / 1000.0, 1},
		"a tenth of the cell does not share it": {func(int64) []Grant {
			return []Grant{newTestGrant(self, 30, 600),
				newTestGrant(900, 5, 100)}
		}, 30, 600 * 45 / 1000, 1},
		"a fifth shares": {func(int64) []Grant {
			return []Grant{newTestGrant(self, 30, 600),
				newTestGrant(900, 11, 100)}
		}, 15, 600 * 34.5 / 1000, 2},
		"paging is nobody": {func(int64) []Grant {
			return []Grant{newTestGrant(self, 30, 600),
				newTestGrant(0xFFFE, 10, 100)}
		}, 30, 600 * 40 / 1000.0, 1},
		"never scheduled: the cell's": {func(int64) []Grant { return []Grant{newTestGrant(700, 25, 400)} }, 10,
			400 * (12.5 + 12.5) / 1000, 2},
		"uplink takes nothing of it": {func(int64) []Grant {
			g := newTestGrant(700, 50, 1)
			g.Format = Format0
			return []Grant{newTestGrant(self, 50, 600), g}
		}, 30, 30, 1},
		"two blocks": {func(int64) []Grant {
			g := newTestGrant(self, 50, 300)
			g.N, g.Blocks[1] = 2, g.Blocks[0]
			return []Grant{g}
		}, 30, 30, 1},
		"second block off": {func(int64) []Grant {
			g := newTestGrant(self, 50, 600)
			g.N, g.Blocks[1] = 2, Block{RV: 1}
			return []Grant{g}
		}, 30, 30, 1},
		"own again without a size": {func(i int64) []Grant {
			g := newTestGrant(self, 50, 600)
			if i%10 == 9 {
				g.Blocks[0].MCS, g.Blocks[0].Size = 29, 0
			}
			return []Grant{g}
		}, 30, 30, 1},
	} {
		m := NewMonitor()
		m.FitErrorRate = false
		m.AddCell(0, self, 0)
		m.SetWindow(40 * time.Millisecond)
		e := runRows(m, 0, 200, c.grants)
		checkNear(t, name+": C_f", float64(e.Fair)/1e6, c.fair, 1e-9)
		checkNear(t, name+": C_p", float64(e.Physical)/1e6, c.physical, 1e-9)
		checkNear(t, name+": C_t", float64(e.Transport), float64(e.Physical)*(1-Overhead), 1e-6)
		if e.Usage[0].Users != c.users {
			t.Errorf("%s: %d users, want %d", name, e.Usage[0].Users, c.users)
		}
	}
}

// TestEvenPart checks that a user with less than an even part may count on that part, while users
// who need less, and control traffic, keep theirs. With Strict, as in the paper, neither counts.
func TestEvenPart(t *testing.T) {
	for _, x := range []struct {
		own          uint8
		others       []uint8
		even, strict float64 // C_p in PRB
	}{
		{10, []uint8{40}, 25, 10},
		{30, []uint8{20}, 30, 30},
		{10, []uint8{6, 34}, 22, 10},
		{10, []uint8{6, 8, 26}, 18, 10},
		{10, []uint8{4, 30}, 20 + 6/2.0, 10 + 6/2.0},
		{0, []uint8{20, 20}, 40/3.0 + 10/3.0, 10 / 3.0},
		{50, nil, 50, 50},
	} {
		for _, strict := range []bool{false, true} {
			m := NewMonitor()
			m.FitErrorRate, m.Strict = false, strict
			m.AddCell(0, self, 0)
			e := runRows(m, 0, 100, func(int64) []Grant {
				list := []Grant{}
				if x.own > 0 {
					list = append(list, newTestGrant(self, x.own, 1000))
				}
				for i, o := range x.others {
					list = append(list, newTestGrant(RNTI(700+i), o, 1000))
				}
				return list
			})
			want := x.even
			if strict {
				want = x.strict
			}
			checkNear(t, fmt.Sprint(x.own, " beside ", x.others, ", strict ", strict), float64(e.Physical)/1e6, want,
				1e-6)
			if full := !strict && float64(x.own) > 0.9*x.even; e.Full != full {
				t.Errorf("%d beside %d, strict %v: full %v", x.own, x.others, strict, e.Full)
			}
		}
	}
}

// TestWindowSlides checks that after a change the estimate is right once the window has the new
// state only, and that missed subframes do not count as idle.
func TestWindowSlides(t *testing.T) {
	m := NewMonitor()
	m.AddCell(0, self, 0)
	m.SetWindow(50 * time.Millisecond)
	runRows(m, 0, 300, func(int64) []Grant { return []Grant{newTestGrant(self, 50, 600)} })
	e := runRows(m, 300, 25, func(int64) []Grant {
		return []Grant{newTestGrant(self, 25, 600),
			newTestGrant(700, 25, 600)}
	})
	checkNear(t, "half changed: P_a", e.Usage[0].OwnPRB, 37.5, 1e-9)
	e = runRows(m, 325, 25, func(int64) []Grant {
		return []Grant{newTestGrant(self, 25, 600),
			newTestGrant(700, 25, 600)}
	})
	checkNear(t, "changed: C_p", float64(e.Physical), 15e6, 1e-9)
	e = runRows(m, 380, 20, func(int64) []Grant {
		return []Grant{newTestGrant(self, 25, 600),
			newTestGrant(700, 25, 600)}
	})
	checkNear(t, "30 subframes not heard: C_p", float64(e.Physical), 15e6, 1e-9)
	if e.Usage[0].Received != 20 {
		t.Errorf("%d heard, want 20", e.Usage[0].Received)
	}
	e = runRows(m, 400, 50, func(int64) []Grant { return nil })
	checkNear(t, "silence: C_p by the last R_w", float64(e.Physical), 30e6, 1e-9)
}

// TestIdleDevice checks which R_w an idle device uses: its last own one for ownRateMemory
// subframes, then that of data users, if there are any, and never that of control users.
func TestIdleDevice(t *testing.T) {
	once := RNTI(1000)
	control := func(i int64) []Grant {
		once++
		list := []Grant{newTestGrant(once, 20, 40), newTestGrant(900, 4, 40)}
		if i%20 == 3 {
			list = append(list, newTestGrant(800, 15, 40))
		}
		return list
	}
	beside := func(i int64) []Grant { return append(control(i), newTestGrant(700, 10, 300)) }
	own := func(i int64) []Grant {
		if i%10 == 9 { // a retransmission without size does not affect R_w
			return []Grant{{RNTI: self, Format: Format1, PRB: 20, N: 1, Blocks: [2]Block{{MCS: 29}}}}
		}
		return append(control(i), newTestGrant(self, 10, 500+int(i%2)*200)) // 600 on average
	}
	m := NewMonitor()
	m.FitErrorRate = false
	m.AddCell(0, self, 0)
	m.SetWindow(40 * time.Millisecond)
	if e := runRows(m, 0, 100, control); e.Physical != 0 || e.Fair != 0 {
		t.Errorf("of control users alone: %+v", e)
	}
	checkNear(t, "never given anything: others' R_w", runRows(m, 100, 40, beside).Usage[0].Rate,
		300, 1e-9)
	r := runRows(m, 200, 80, own).Usage[0].Rate
	checkNear(t, "own", r, 600, 0.02)
	e := runRows(m, 280, 100, control)
	checkNear(t, "idle: R_w", e.Usage[0].Rate, r, 0.02)
	checkNear(t, "idle: C_f", float64(e.Fair), e.Usage[0].Rate*50*1000, 1e-6)
	r = e.Usage[0].Rate
	checkNear(t, "idle beside others", runRows(m, 380, ownRateMemory-101, beside).Usage[0].Rate, r, 1e-9)
	checkNear(t, "idle for long, beside others", runRows(m, 280+ownRateMemory, 10, beside).Usage[0].Rate, 300, 0.1)
	checkNear(t, "idle for long", runRows(m, 300+ownRateMemory, 100, control).Usage[0].Rate, r, 1e-9)
	runRows(m, 400+ownRateMemory, 80, own)
	checkNear(t, "the count began again, beside others", runRows(m, 10, 40, beside).Usage[0].Rate, 300, 0.1)
}

// TestWindowAgainstSums compares the window with sums over a list, with random input.
func TestWindowAgainstSums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := NewWindow(self)
	var list []Subframe
	n := int64(0)
	for range 5000 {
		n += 1 + int64(r.IntN(2)*r.IntN(5))
		s := Subframe{Number: n, PRB: 100}
		left := 100
		for range r.IntN(6) {
			prb := r.IntN(min(30, left) + 1)
			left -= prb
			s.Grants = append(s.Grants, newTestGrant(self+RNTI(r.IntN(8)), uint8(prb), 1+r.IntN(700)))
		}
		list = append(list, s)
		length := 1 + r.IntN(MaxWindow)
		if r.IntN(3) > 0 {
			length = 40
		}
		w.Add(s, length)
		var own, idle, bits, heard, users float64
		prb, subframes := map[RNTI]int{}, map[RNTI]map[int64]bool{}
		for i := len(list) - 1; i >= 0 && heard < float64(w.received()); i-- {
			heard++
			free := 100
			for _, g := range list[i].Grants {
				free -= int(g.PRB)
				prb[g.RNTI] += int(g.PRB)
				if subframes[g.RNTI] == nil {
					subframes[g.RNTI] = map[int64]bool{}
				}
				subframes[g.RNTI][list[i].Number] = true
				if g.RNTI == self {
					own += float64(g.PRB)
					bits += float64(g.Blocks[0].Size)
				}
			}
			idle += float64(free)
		}
		users = 1
		for u, p := range prb {
			if u != self && len(subframes[u]) > 1 && p > 4*len(subframes[u]) {
				users++
			}
		}
		f := w.Usage(FilterByPRB)
		checkNear(t, "own", f.OwnPRB, own/heard, 1e-9)
		checkNear(t, "idle", f.IdlePRB, idle/heard, 1e-9)
		if own > 0 {
			checkNear(t, "rate", f.Rate, bits/own, 1e-9)
		}
		if f.Users != int(users) || w.slots[w.head].number <= n-MaxWindow {
			t.Fatalf("subframe %d: %d users, want %.0f; oldest %d", n, f.Users, users, w.slots[w.head].number)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

// TestErrorRateIsFitted checks that p follows the retransmissions, with one or two blocks per
// subframe, and with or without missed subframes.
func TestErrorRateIsFitted(t *testing.T) {
	const bits = 30000 // per subframe
	for _, c := range []struct {
		blocks uint8
		misses int64
	}{{1, 0}, {2, 0}, {1, 7}} {
		blocks := c.blocks
		for _, wrong := range []float64{0.03, 0.1, 0.15} {
			r := rand.New(rand.NewPCG(7, uint64(wrong*100)))
			m := NewMonitor()
			m.AddCell(0, self, DefaultErrorRate)
			var ndi [8][2]bool
			var again [8][2]int
			for n := range int64(20000) {
				h := n % 8
				g := Grant{RNTI: self, Format: Format2A, PRB: 50, HARQ: uint8(h), N: blocks}
				for b := range g.Blocks[:blocks] {
					x := &g.Blocks[b]
					*x = Block{MCS: 10, Size: bits / Bits(blocks)}
					switch again[h][b] {
					case 0:
						ndi[h][b] = !ndi[h][b]
					case 2:
						x.MCS, x.Size = 30, 0
					}
					x.NDI = ndi[h][b]
					if r.Float64() < wrong && again[h][b] < 3 {
						again[h][b]++
					} else {
						again[h][b] = 0
					}
				}
				m.Add(&Row{Number: n, Received: [MaxCells]bool{c.misses == 0 || n%c.misses > 0},
					Cells: [MaxCells]Subframe{{Number: n, PRB: 50, Grants: []Grant{g}}}})
			}
			checkNear(t, "fitted p", m.cells[0].table.p, bitErrorRate(wrong, bits), 0.5)
			e := m.Estimate()
			checkNear(t, "C_t", float64(e.Transport), 30e6*(1-Overhead)/(1+wrong), 0.05)
		}
	}
}

// TestCountBeginsAgain checks that a decoder that lost its cell and restarts at a lower number is
// used as before, but that earlier activations no longer count.
func TestCountBeginsAgain(t *testing.T) {
	m := NewMonitor()
	m.AddCell(0, self, 0)
	m.AddCell(1, self, 0)
	f := NewFusion(0, 1)
	add := func(n int64, prb uint8) {
		f.Add(Subframe{Number: n, PRB: 50, Grants: []Grant{newTestGrant(self, prb, 600)}}, m.Add)
		s := Subframe{Cell: 1, Number: n, PRB: 50}
		if prb == 50 {
			s.Grants = []Grant{newTestGrant(self, 50, 600)}
		}
		f.Add(s, m.Add)
	}
	for n := range int64(100) {
		add(1_000_000+n, 50)
	}
	if e := m.Estimate(); e.Cells != 2 || e.Physical != 60*unit.Mbps {
		t.Fatalf("before: %+v", e)
	}
	for n := range int64(2 * MaxLate) {
		add(1000+n, 25)
	}
	e := m.Estimate()
	if e.Number != 1000+2*MaxLate-1 || e.Cells != 1 || e.Usage[0].OwnPRB != 25 {
		t.Errorf("after: %+v", e)
	}
}

// TestCarriers checks that a second cell counts while it has grants, is dropped a second later, and
// that each activation is counted.
func TestCarriers(t *testing.T) {
	m := NewMonitor()
	m.AddCell(0, self, 0)
	m.AddCell(1, self+1, 0)
	if m.AddCell(1, 5, 0) || m.AddCell(MaxCells, 5, 0) {
		t.Error("a cell was taken twice, or one that cannot be")
	}
	at := int64(0)
	run := func(n int64, second bool) Estimate {
		for range n {
			r := &Row{Number: at, Received: [MaxCells]bool{true, true}}
			r.Cells[0] = Subframe{Number: at, PRB: 50, Grants: []Grant{newTestGrant(self, 50, 600)}}
			r.Cells[1] = Subframe{Cell: 1, Number: at, PRB: 25}
			if second {
				r.Cells[1].Grants = []Grant{newTestGrant(self+1, 10, 400)}
			}
			m.Add(r)
			at++
		}
		return m.Estimate()
	}
	if e := run(100, false); e.Cells != 1 || e.Activated != 0 || !e.Inactive || e.Fair != 30*unit.Mbps {
		t.Errorf("one cell: %+v", e)
	}
	if e := run(100, true); e.Cells != 2 || e.Activated != 1 || e.Inactive || e.Fair != 40*unit.Mbps ||
		e.Physical != 40*unit.Mbps {
		t.Errorf("two cells: %+v", e)
	}
	if e := run(ActiveFor, false); e.Cells != 2 {
		t.Errorf("dropped after %d subframes", ActiveFor)
	}
	if e := run(1, false); e.Cells != 1 {
		t.Errorf("kept after %d subframes", ActiveFor+1)
	}
	if e := run(1, true); e.Cells != 2 || e.Activated != 2 {
		t.Errorf("again: %+v", e)
	}
}

// TestTable checks the equation itself, and the interpolation of the table.
func TestTable(t *testing.T) {
	for _, p := range []float64{0, 1e-6, 2e-6, 5e-6, 1e-4, 2} {
		table := NewCapacityTable(p)
		p = table.ErrorRate()
		last := -1.0
		for cp := 0.0; cp < 500e3; cp += 333 {
			ct := table.Transport(cp)
			if ct < last || ct > cp {
				t.Fatalf("p %g: C_t(%g) = %g after %g", p, cp, ct, last)
			}
			last = ct
			if cp > tableMax*tableStep {
				continue
			}
			back := ct + ct*(1-math.Pow(1-p, ct)) + Overhead*cp
			within := 0.003
			if p > 5e-6 {
				within = 0.06 // more curved between two rows than for any real p
			}
			checkNear(t, "the right side", back, cp, within)
		}
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		if got := NewCapacityTable(0).Transport(bad); got != 0 {
			t.Errorf("C_t(%g) = %g", bad, got)
		}
	}
	checkNear(t, "p of 3 % at 20,000 bits", bitErrorRate(0.03, 20000), 1.523e-6, 0.001)
}

func BenchmarkAdd(b *testing.B) {
	m := NewMonitor()
	m.AddCell(0, self, DefaultErrorRate)
	m.SetWindow(100 * time.Millisecond)
	grants := make([]Grant, 8)
	for i := range grants {
		grants[i] = newTestGrant(self+RNTI(i), 6, 500)
	}
	r := &Row{Received: [MaxCells]bool{true}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Number = int64(i)
		r.Cells[0] = Subframe{Number: int64(i), PRB: 50, Grants: grants}
		for j := range grants {
			grants[j].HARQ, grants[j].Blocks[0].NDI = uint8(i%8), i/8%2 == 0
		}
		m.Add(r)
		m.Estimate()
	}
}

// TestSilentCell checks that a silent cell counts for 100 more subframes, and again once it is
// received, while another cell continues.
func TestSilentCell(t *testing.T) {
	m := NewMonitor()
	m.FitErrorRate = false
	m.AddCell(0, self, 0)
	m.AddCell(1, self, 0)
	m.SetWindow(40 * time.Millisecond)
	if e := m.Estimate(); e.Age[0] != MaxAge || e.Transport != 0 || e.Cells != 0 {
		t.Errorf("before anything was heard: %+v", e)
	}
	number := int64(0)
	receiveRows := func(n int, received ...int) Estimate {
		for range n {
			number++
			r := &Row{Number: number}
			for _, c := range received {
				r.Received[c], r.Cells[c] = true, Subframe{Cell: ID(c), Number: number, PRB: 50,
					Grants: []Grant{newTestGrant(self, 50, 600)}}
			}
			m.Add(r)
		}
		return m.Estimate()
	}
	both := receiveRows(200, 0, 1)
	if both.Cells != 2 || both.Physical != 60*unit.Mbps || both.Age[0] != 0 {
		t.Fatalf("both: %+v", both)
	}
	for _, c := range []struct {
		n, received int
		cells       int
		physical    unit.Rate
		age         int64
	}{
		{100, 1, 2, 60 * unit.Mbps, 100},
		{1, 1, 1, 30 * unit.Mbps, 101}, // the primary too
		{1, 0, 2, 60 * unit.Mbps, 0},
	} {
		if e := receiveRows(c.n, c.received); e.Cells != c.cells || e.Physical != c.physical || e.Age[0] != c.age ||
			e.Active[0] != (c.cells == 2) {
			t.Errorf("%d subframes later: %+v, want %+v", c.n, e, c)
		}
	}
	m.SetWindow(300 * time.Millisecond)
	if e := receiveRows(200, 1); e.Cells != 2 {
		t.Errorf("a cell is out before the window is over: %+v", e)
	}
}

// TestSetSelf checks a change of the device's RNTI.
func TestSetSelf(t *testing.T) {
	m := NewMonitor()
	m.FitErrorRate = false
	m.AddCell(0, self, 0)
	m.SetWindow(40 * time.Millisecond)
	grants := func(int64) []Grant { return []Grant{newTestGrant(self, 10, 600), newTestGrant(700, 40, 300)} }
	checkNear(t, "as one", float64(runRows(m, 0, 200, grants).Physical), 15e6, 0)
	m.SetSelf(700)
	checkNear(t, "as the other", float64(runRows(m, 200, 1, grants).Physical), 12e6, 0)
}
