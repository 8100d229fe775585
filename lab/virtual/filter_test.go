// SPDX-License-Identifier: Apache-2.0

//go:build !race

package virtual

import (
	"fmt"
	"slices"
	"testing"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cell"
)

// crowded returns a cell of a width with a device beside others that always have data.
func crowded(seed uint64, prb, others int, scheduler lte.Scheduler) Case {
	c := Crowd(seed, others)
	c.Length = 6 * sec
	c.Network.Scheduler = scheduler
	c.Network.Cells[0].PRB = prb
	c.Network.Cells[0].Control = 0.4 * float64(prb) / 50
	return c
}

// countUsers runs a case with a user filter. It returns the median of N over the true number, of the time after
// two seconds, and the p95 of the delay in the first two seconds and afterwards.
func countUsers(c Case, filter cell.UserFilter) (users, early, late float64) {
	var counts []float64
	setUserFilter(filter)(&c)
	c.OnSubframe(func(x *Cell) {
		if n := x.Number(); n > 2000 && n%10 == 0 {
			counts = append(counts, float64(x.Monitor(0).Estimate().Usage[0].Users))
		}
	})
	r := c.Run("pbe").Flows[0]
	slices.Sort(counts)
	return median(counts) / float64(len(c.Network.Users)), milliseconds(r.Delay(0, 2*sec, 0.95)),
		milliseconds(r.Delay(2*sec, c.Length, 0.95))
}

// TestUserFilter: in cells of 1.4 to 20 MHz with up to 39 devices that always have data, the number of users is right,
// and the delay of the start at most BBR's, or 30 ms over propagation. The paper's filter misses all users of the
// narrowest cell and those of crowded ones.
func TestUserFilter(t *testing.T) {
	for _, scheduler := range []lte.Scheduler{lte.EqualShare, lte.ProportionalFair} {
		for _, prb := range []int{6, 15, 50, 100} {
			for _, others := range []int{0, 1, 4, 11, 24, 38} {
				if prb == 6 && others > 11 {
					continue // less than a block for each
				}
				name := fmt.Sprintf("%d PRB, %d others, scheduler %d", prb, others, scheduler)
				c := crowded(1, prb, others, scheduler)
				users, early, late := countUsers(c, cell.FilterByShare)
				b := c.Run("bbr").Flows[0]
				bbr := milliseconds(b.Delay(0, 2*sec, 0.95))
				text := ""
				if testing.Verbose() {
					u, e, l := countUsers(crowded(1, prb, others, scheduler), cell.FilterByPRB)
					text = fmt.Sprintf("; the paper's: %.2f, %.0f, %.0f ms", u, e, l)
				}
				share := float64(c.Share(0)) / float64(unit.Mbps)
				t.Logf("%s, share %.2f Mbit/s: %.2f of the users, p95 %.0f ms, then %.0f; BBR %.0f, then %.0f%s", name, share,
					users, early, late, bbr, milliseconds(b.Delay(2*sec, c.Length, 0.95)), text)
				if users < 0.85 || users > 1.35 {
					t.Errorf("%s: %.2f of the users", name, users)
				}
				if early > max(1.1*bbr, limit) {
					t.Errorf("%s: p95 of the first 2 s: %.0f ms, BBR %.0f", name, early, bbr)
				}
			}
		}
	}
}
