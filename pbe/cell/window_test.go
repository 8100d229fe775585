// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestLongSums compares the sums over all slots with those over a list, with random input, and the error of the mean of
// a device that is served by fits and starts.
func TestLongSums(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	w := NewWindow(self)
	var own, idle []float64
	for n := range int64(3000) {
		s := Subframe{Number: n + 1, PRB: 100}
		mine, others := 0, 20+r.IntN(10)
		if n/30%2 == 0 { // turns of 30 subframes
			mine = 60 + r.IntN(10)
			s.Grants = append(s.Grants, newTestGrant(self, uint8(mine), 100))
		}
		s.Grants = append(s.Grants, newTestGrant(700, uint8(others), 100))
		own, idle = append(own, float64(mine)), append(idle, float64(100-mine-others))
		w.Add(s, 40)
		if n < 400 || n%97 != 0 {
			continue
		}
		var sumOwn, sumIdle float64
		for i := len(own) - activeWindow; i < len(own); i++ {
			sumOwn, sumIdle = sumOwn+own[i], sumIdle+idle[i]
		}
		f := w.Usage(FilterByShare)
		checkNear(t, "P_a of 200 subframes", f.Long.Own, sumOwn/activeWindow, 1e-9)
		checkNear(t, "P_idle of 200 subframes", f.Long.Idle, sumIdle/activeWindow, 1e-9)
		if f.Long.Error < 5 || f.Long.Error > 20 || f.OwnError < 1.5*f.Long.Error {
			t.Errorf("errors %.1f of 200 subframes, %.1f of the window", f.Long.Error, f.OwnError)
		}
	}
}

// TestChanceIsNoCapacity: what a device gets above an even part by fits and starts is chance; what it gets steadily is
// not, nor what it gets since it began.
func TestChanceIsNoCapacity(t *testing.T) {
	capacity := func(subframes int64, part func(i int64) int) (least, most float64) {
		m := NewMonitor()
		m.FitErrorRate = false
		m.AddCell(0, self, 0)
		m.SetWindow(40 * time.Millisecond)
		least = math.Inf(1)
		for at := int64(0); at < subframes; at++ {
			var list []Grant
			if own := part(at); own > 0 {
				list = append(list, newTestGrant(self, uint8(own), 1000))
			}
			if own := part(at); own < 50 {
				list = append(list, newTestGrant(700, uint8(50-own), 1000))
			}
			m.Add(&Row{Number: at + 1, Received: [MaxCells]bool{true},
				Cells: [MaxCells]Subframe{{Number: at + 1, PRB: 50, Grants: list}}})
			if at >= subframes-100 {
				c := float64(m.Estimate().Physical) / 1e6
				least, most = min(least, c), max(most, c)
			}
		}
		return least, most
	}
	_, turns := capacity(1000, func(i int64) int {
		if i/25%2 == 0 {
			return 45
		}
		return 5
	})
	if turns > 26 {
		t.Errorf("turns of 25 subframes: up to %.1f of 50 PRB, want an even part", turns)
	}
	if steady, _ := capacity(1000, func(int64) int { return 35 }); steady < 34.9 {
		t.Errorf("35 PRB in each subframe: %.1f", steady)
	}
	begun, _ := capacity(600, func(i int64) int {
		if i < 550 {
			return 0
		}
		return 25
	})
	if begun < 20 {
		t.Errorf("begun 50 subframes ago, with an even part: %.1f of 25 PRB", begun)
	}
}

// TestManySmallUsers: many users who together have a third of a cell do not make an even part one of many.
func TestManySmallUsers(t *testing.T) {
	for _, each := range []int{1, 2} {
		m := NewMonitor()
		m.FitErrorRate = false
		m.AddCell(0, self, 0)
		e := runRows(m, 0, 400, func(i int64) []Grant {
			list := []Grant{newTestGrant(self, 30, 600)}
			for k := range 8 {
				list = append(list, newTestGrant(RNTI(700+8*(i%5)+int64(k)), uint8(each), 100))
			}
			return list
		})
		if e.Usage[0].Users != 1 {
			t.Errorf("40 users with %d blocks in each fifth subframe: N is %d", each, e.Usage[0].Users)
		}
	}
}
