// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRecentRate: after the signal changes, the estimate follows within rateSubframes. The paper's follows within a
// window.
func TestRecentRate(t *testing.T) {
	for _, strict := range []bool{false, true} {
		m := newTestMonitor(strict)
		runRows(m, 1, 200, func(int64) []Grant { return []Grant{newTestGrant(self, 50, 600)} })
		e := runRows(m, 201, rateSubframes, func(int64) []Grant { return []Grant{newTestGrant(self, 50, 300)} })
		want := 15.0
		if strict {
			want = 30 - 15.0*rateSubframes/40
		}
		checkNear(t, fmt.Sprintf("strict %v: C_p", strict), float64(e.Physical)/1e6, want, 0.001)
	}
}

// newTestMonitor returns a monitor of cell 0 with a window of 40 subframes.
func newTestMonitor(strict bool) *Monitor {
	m := NewMonitor()
	m.Strict, m.FitErrorRate = strict, false
	m.AddCell(0, self, 0)
	return m
}

// TestFullAfterOutage: what comes after an outage was in the cell's queue if the device at once gets all there is. What
// comes after a pause of the wired part does not fill the cell.
func TestFullAfterOutage(t *testing.T) {
	all := func(int64) []Grant { return []Grant{newTestGrant(self, 50, 600)} }
	half := func(int64) []Grant { return []Grant{newTestGrant(self, 25, 600)} }
	none := func(int64) []Grant { return nil }
	for _, x := range []struct {
		what    string
		before  func(int64) []Grant
		pause   int64
		after   func(int64) []Grant
		is      bool
		history int64
	}{
		{"outage", all, 100, all, true, 400},
		{"long outage", all, 900, all, true, 400},
		{"outage soon after the start", all, 100, all, true, 50},
		{"pause of the wired part", half, 100, half, false, 400},
		{"pause, then another queue", all, 100, half, false, 400},
		{"bursts that fill a few subframes", func(i int64) []Grant {
			if i%10 < 4 {
				return all(i)
			}
			return nil
		}, 1, all, false, 400},
	} {
		m := newTestMonitor(false)
		runRows(m, 1, x.history, x.before)
		runRows(m, 1+x.history, x.pause, none)
		const after = 120 // the window and the last 200 subframes have the pause
		if e := runRows(m, 1+x.history+x.pause, 8, x.after); x.is && !e.Full {
			t.Errorf("%s: the queue is elsewhere at once", x.what)
		}
		e := runRows(m, 9+x.history+x.pause, after, x.after)
		if x.what == "bursts that fill a few subframes" {
			e = runRows(m, 9+x.history+x.pause+after, 200, x.before)
		}
		if e.Full != x.is {
			t.Errorf("%s: full %v, want %v", x.what, e.Full, x.is)
		}
	}
}

// TestAwayCounts: the sums of idle blocks agree with the slots, whatever is away.
func TestAwayCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	m := newTestMonitor(false)
	number, on := int64(1), true
	for range 400 {
		n := 1 + r.Int64N(90)
		m.SetWindow(time.Duration(5+r.IntN(300)) * time.Millisecond)
		runRows(m, number, n, func(int64) []Grant {
			if !on {
				return []Grant{newTestGrant(700, 10, 300)}
			}
			return []Grant{newTestGrant(self, uint8(1+r.IntN(40)), 600)}
		})
		number, on = number+n, !on
		w := m.cells[0].window
		idle, away, long := 0, 0, 0
		for i := range w.n {
			s := &w.slots[(w.head+i)%len(w.slots)]
			if !s.away {
				long += int(s.idle)
			}
			if i >= w.older {
				idle += int(s.idle)
				if s.away {
					away += int(s.idle)
				}
			}
		}
		if idle != w.idle || away != w.awayIdle || long != w.longIdle {
			t.Fatalf("subframe %d: idle %d, away %d, long %d, want %d, %d, %d", number, w.idle, w.awayIdle, w.longIdle, idle,
				away, long)
		}
	}
}
