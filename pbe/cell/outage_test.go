// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// newTestMonitor returns a monitor of cell 0 with a window of 40 subframes.
func newTestMonitor(strict bool) *Monitor {
	m := NewMonitor()
	m.Strict, m.FitErrorRate = strict, false
	m.AddCell(0, self, 0)
	return m
}

// repeatGrants returns grants that are the same in each subframe.
func repeatGrants(grants ...Grant) func(int64) []Grant { return func(int64) []Grant { return grants } }

// TestRecentRate: after the signal changes, the estimate follows within rateSubframes. The paper's follows within a
// window.
func TestRecentRate(t *testing.T) {
	for _, strict := range []bool{false, true} {
		m := newTestMonitor(strict)
		runRows(m, 1, 200, repeatGrants(newTestGrant(self, 50, 600)))
		for n := range int64(40) {
			e := runRows(m, 201+n, 1, repeatGrants(newTestGrant(self, 50, 300)))
			want, window := 1-0.5*min(float64(n+1)/rateSubframes, 1), 1-0.5*float64(n+1)/40
			if strict || math.Abs(want/window-1) <= rateChange {
				want = window
			}
			checkNear(t, fmt.Sprintf("strict %v, after %d: C_p", strict, n+1), float64(e.Physical)/1e6, 30*want, 0.001)
		}
	}
}

// TestNotRecent: the window's R_w counts where the last subframes do not show another signal: they differ by chance,
// are those of few blocks or of retransmissions, or are no fewer than those of the window.
func TestNotRecent(t *testing.T) {
	for _, x := range []struct {
		what     string
		window   time.Duration
		grants   func(i int64) []Grant // from subframe 200 on
		recent   bool
		after    int64
		expected float64 // bits per PRB
	}{
		{"4 % less", 0, repeatGrants(newTestGrant(self, 50, 576)), false, 10, 594},
		{"10 % less", 0, repeatGrants(newTestGrant(self, 50, 540)), true, 10, 540},
		{"few blocks", 0, repeatGrants(newTestGrant(self, 20, 300)), false, 10, (30*50*600 + 10*20*300) / (30*50 + 10*20.)},
		{"short window", 10 * time.Millisecond, repeatGrants(newTestGrant(self, 50, 300)), false, 5, 450},
	} {
		m := newTestMonitor(false)
		if x.window > 0 {
			m.SetWindow(x.window)
		}
		runRows(m, 1, 200, repeatGrants(newTestGrant(self, 50, 600)))
		e := runRows(m, 201, x.after, x.grants)
		checkNear(t, x.what, e.Usage[0].Rate, x.expected, 1e-3)
	}
	// Retransmissions, beside which the other block is missing: the NDI stays.
	m := newTestMonitor(false)
	add := func(from, n int64, grant func(i int64) Grant) (e Estimate) {
		for i := from; i < from+n; i++ {
			s := Subframe{Number: i, PRB: 50, Grants: []Grant{grant(i)}}
			m.Add(&Row{Number: i, Received: [MaxCells]bool{true}, Cells: [MaxCells]Subframe{s}})
		}
		return m.Estimate()
	}
	whole := func(i int64) Grant {
		g := newTestGrant(self, 50, 600)
		g.HARQ, g.Blocks[0].NDI = uint8(i%8), i/8%2 == 0
		return g
	}
	add(1, 200, whole)
	e := add(201, 8, func(i int64) Grant {
		g := whole(i - 8)
		g.Blocks[0].Size /= 2
		return g
	})
	if want := (32*600 + 8*300) / 40.; math.Abs(e.Usage[0].Rate-want) > 0.01*want {
		t.Errorf("after retransmissions %.0f bits per PRB, want %.0f", e.Usage[0].Rate, want)
	}
	// Retransmissions all the time make the window's R_w less, but show no other signal.
	m = newTestMonitor(false)
	e = add(1, 400, func(i int64) Grant {
		if i%16 < 12 {
			return whole(i)
		}
		g := whole(i - 8)
		g.Blocks[0].Size /= 4
		return g
	})
	if e.Usage[0].Rate > 540 {
		t.Errorf("with steady retransmissions %.0f bits per PRB, want the window's", e.Usage[0].Rate)
	}
}

// TestFullAfterOutage: what comes after an outage was in the cell's queue if the device at once gets all there is. What
// comes after a pause of the wired part does not fill the cell.
func TestFullAfterOutage(t *testing.T) {
	all, half := repeatGrants(newTestGrant(self, 50, 600)), repeatGrants(newTestGrant(self, 25, 600))
	beside := repeatGrants(newTestGrant(self, 40, 600), newTestGrant(700, 10, 600))
	little := repeatGrants(newTestGrant(self, 10, 600), newTestGrant(700, 10, 600))
	type pause struct {
		what                 string
		before, pause, after func(int64) []Grant
		history              int64
		is                   bool
		settles              int64 // for so long, what was before the pause counts too: the cell was full
		until                int64 // only so many subframes after pauses up to 150 are checked; 0: all
	}
	crowd := repeatGrants(newTestGrant(self, 10, 600), newTestGrant(700, 40, 600))
	other := repeatGrants(newTestGrant(700, 10, 600))
	for _, x := range []pause{
		{"outage", all, repeatGrants(), all, 400, true, 0, 0},
		{"outage soon after the start", all, repeatGrants(), all, 50, true, 0, 0},
		{"outage beside another device", beside, other, beside, 400, true, 0, 0},
		{"pause of the wired part", half, repeatGrants(), half, 400, false, 0, 0},
		{"pause, then another queue", all, repeatGrants(), half, 400, false, 80, 0},
		{"turns of others, then a part", crowd, repeatGrants(newTestGrant(700, 50, 600)), little, 400, false, 0, 0},
		{"turn of this device after others", crowd, repeatGrants(newTestGrant(700, 50, 600)), all, 400, false, 0, 8},
		{"pause beside another device", little, other, little, 400, false, 0, 0},
	} {
		for _, length := range []int64{30, 100, 150, 199, 900} {
			m := newTestMonitor(false)
			runRows(m, 1, x.history, x.before)
			runRows(m, 1+x.history, length, x.pause)
			number := 1 + x.history + length
			for _, after := range []int64{3, 4, 8, 20, 40, 80, 160} {
				e := runRows(m, number, 1+x.history+length+after-number, x.after)
				number = 1 + x.history + length + after
				if x.until > 0 && (after > x.until || length > 150) {
					continue
				}
				if want := x.is || length+after < x.settles; e.Full != want {
					t.Errorf("%s of %d, %d later: full %v, want %v", x.what, length, after, e.Full, want)
				}
			}
		}
	}
	// With two cells, one of which is busy with others: together they had room.
	two := newTestMonitor(false)
	two.AddCell(1, self, 0)
	number := int64(0)
	add := func(n int64, received bool, own uint8) Estimate {
		for range n {
			number++
			g := []Grant{newTestGrant(700, 45, 600)}
			a, b := Subframe{Number: number, PRB: 50, Grants: g}, Subframe{Number: number, PRB: 50, Cell: 1}
			if own > 0 {
				a.Grants, b.Grants = append(a.Grants, newTestGrant(self, 5, 600)), []Grant{newTestGrant(self, own, 600)}
			}
			two.Add(&Row{Number: number, Received: [MaxCells]bool{received, received}, Cells: [MaxCells]Subframe{a, b}})
		}
		return two.Estimate()
	}
	add(400, true, 50)
	add(100, true, 0)
	if add(8, true, 50); two.cells[0].window.outageEnd != 501 || two.cells[1].window.outageEnd != 501 {
		t.Errorf("outages until %d and %d, want 501", two.cells[0].window.outageEnd, two.cells[1].window.outageEnd)
	}
	// Rows that were not received show no outage.
	add(300, true, 50)
	add(60, false, 50)
	if add(8, true, 50); two.cells[0].window.outageEnd != 501 {
		t.Errorf("an outage until %d without reception", two.cells[0].window.outageEnd)
	}
	// Bursts that fill the cell, and leave it idle between them, show no outage.
	m := newTestMonitor(false)
	if e := runRows(m, 1, 400, func(i int64) []Grant {
		if i%10 < 4 {
			return all(i)
		}
		return nil
	}); e.Full {
		t.Error("bursts fill the cell")
	}
}

// TestShareAfterPause: a pause of the device changes nothing in what it could have beside another device.
func TestShareAfterPause(t *testing.T) {
	m := newTestMonitor(false)
	both := repeatGrants(newTestGrant(self, 40, 600), newTestGrant(700, 10, 600))
	runRows(m, 1, 400, both)
	runRows(m, 401, 100, repeatGrants(newTestGrant(700, 10, 600)))
	e := runRows(m, 501, 60, both)
	if got := float64(e.Physical) / 1e6; got < 17 {
		t.Errorf("C_p %.1f Mbit/s, before the pause 24", got)
	}
}

// TestNewNameIsNoOutage: with another RNTI, nothing before counts as an outage.
func TestNewNameIsNoOutage(t *testing.T) {
	m := newTestMonitor(false)
	runRows(m, 1, 200, repeatGrants(newTestGrant(self, 25, 600)))
	runRows(m, 201, 100, repeatGrants())
	runRows(m, 301, 100, repeatGrants(newTestGrant(self, 25, 600)))
	if end := m.cells[0].window.outageEnd; end != 301 {
		t.Errorf("an outage until %d, want 301", end)
	}
	renamed := repeatGrants(newTestGrant(self+1, 25, 600))
	runRows(m, 401, 100, renamed)
	m.SetSelf(self + 1)
	runRows(m, 501, 10, renamed)
	if end := m.cells[0].window.outageEnd; end > 0 {
		t.Errorf("an outage until %d", end)
	}
}

// TestSinceOutage: the means since an outage agree with the grants, for as long as they count.
func TestSinceOutage(t *testing.T) {
	m := newTestMonitor(false)
	r := rand.New(rand.NewPCG(5, 6))
	runRows(m, 1, 300, repeatGrants(newTestGrant(self, 20, 600)))
	runRows(m, 301, 50, repeatGrants(newTestGrant(700, 5, 600)))
	own, others := 0, 0
	for n := range int64(activeWindow + 20) {
		a, b := uint8(1+r.IntN(20)), uint8(1+r.IntN(20))
		own, others = own+int(a), others+int(b)
		runRows(m, 351+n, 1, repeatGrants(newTestGrant(self, a, 600), newTestGrant(700, b, 600)))
		f, all := m.cells[0].window.Usage(FilterByShare).SinceOutage, float64(n+1)
		if n < minSinceOutage-1 {
			if f.Own != 0 || f.Idle != 50 {
				t.Fatalf("%d later: %+v", n, f)
			}
			continue
		}
		if n >= activeWindow-1 {
			if f.Error == 0 {
				t.Fatalf("%d later the outage still counts", n)
			}
			continue
		}
		checkNear(t, "own", f.Own, float64(own)/all, 1e-9)
		checkNear(t, "idle", f.Idle, 50-float64(own+others)/all, 1e-9)
		if n > 20 {
			checkNear(t, "even", f.Even, float64(own+others)/2/all, 0.2)
		}
	}
}
