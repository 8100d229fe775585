// SPDX-License-Identifier: Apache-2.0

//go:build !race

package virtual

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cell"
)

// renaming is a run in which devices of the first users get other RNTIs.
type renaming struct {
	stale, found time.Duration // after the change until the monitor of the last user knew; 0: never
	rate         unit.Rate     // of the first user from the change on
	wrong        bool          // a monitor ever took a name that its user never had
}

// renamedAt is when users of a case are renamed.
const renamedAt = 3 * sec

// runRenaming runs a case whose first users are renamed. find lets monitors search.
func runRenaming(c Case, users int, find bool) (r renaming) {
	c.Length = 6 * sec
	names := make([]map[cell.RNTI]bool, users)
	c.appendChange(func(x *Cell, _ []Flow) {
		x.ArrivalStep = 5 * ms
		for u := range users {
			names[u] = map[cell.RNTI]bool{c.Network.Users[u].RNTI: true}
			x.Monitor(u).CompareArrivals(find)
		}
	})
	c.OnSubframe(func(x *Cell) {
		now := time.Duration(x.Number()) * ms
		if now == renamedAt {
			for u := range users {
				names[u][cell.RNTI(0x7000+u)] = true
				x.Rename(u, cell.RNTI(0x7000+u))
			}
		}
		all, stale := true, true
		for u := range users {
			m := x.Monitor(u)
			all = all && m.Self() == cell.RNTI(0x7000+u)
			stale = stale && m.IsSelfStale()
			r.wrong = r.wrong || !names[u][m.Self()]
		}
		if stale && r.stale == 0 {
			r.stale = now - renamedAt
		}
		if all && r.found == 0 {
			r.found = now - renamedAt
		}
	})
	o := c.Run("pbe")
	r.rate = o.Flows[0].Rate(renamedAt, c.Length)
	return r
}

// renamedCases are cells in which devices are renamed. Others of equal demand get the same blocks; only
// errors tell them apart.
var renamedCases = []struct {
	name  string
	users int // with PBE-CC, which are renamed
	make  func(seed uint64) Case
}{
	{"alone", 1, func(seed uint64) Case { return Default(seed, 1) }},
	{"beside a busy device", 1, func(seed uint64) Case { return Beside(seed, SteadyRate(60*unit.Mbps)) }},
	{"beside 12 busy devices", 1, func(seed uint64) Case { return Crowd(seed, 12) }},
	{"two devices of a bond at once", 2, func(seed uint64) Case { return Default(seed, 2) }},
	{"proportional fair, 5 busy devices", 1, func(seed uint64) Case {
		c := Crowd(seed, 5)
		c.Network.Scheduler = lte.ProportionalFair
		return c
	}},
}

// TestRenaming: a network gives a device another RNTI. The monitor notices it, and finds the new one by what
// arrives, 19 times of 20 within 0.3 s, and always within 0.4 s: only the errors of blocks, so chance, can
// distinguish two devices that get the same blocks. The rate stays within 10 % of that without the change.
func TestRenaming(t *testing.T) {
	for _, x := range renamedCases {
		seeds, late := max(*seedsFlag, 20), 0
		for seed := uint64(1); seed <= uint64(seeds); seed++ {
			c := x.make(seed)
			r := runRenaming(c, x.users, true)
			c.Length = 6 * sec
			usual := x.make(seed)
			usual.Length = c.Length
			o := usual.Run("pbe")
			before := o.Flows[0].Rate(renamedAt, c.Length)
			part := float64(r.rate) / float64(before)
			t.Logf("%s, seed %d: stale after %v, found after %v, rate %v: %.3f of the usual one", x.name, seed, r.stale,
				r.found, r.rate, part)
			if r.wrong {
				t.Errorf("%s, seed %d: another device's RNTI was taken", x.name, seed)
			}
			if r.found == 0 || r.found > 400*ms {
				t.Errorf("%s, seed %d: found after %v, want at most 400ms", x.name, seed, r.found)
			}
			if r.found > 300*ms {
				late++
			}
			if part < 0.9 {
				t.Errorf("%s, seed %d: %.3f of the usual rate, want 0.9", x.name, seed, part)
			}
		}
		if 20*late > seeds {
			t.Errorf("%s: %d of %d found after 300ms, want one of 20 at most", x.name, late, seeds)
		}
	}
}

// TestStaleRNTI: with an RNTI that must not be replaced, the sender measures by itself, and gets at least what BBR
// gets.
func TestStaleRNTI(t *testing.T) {
	for _, x := range renamedCases[:2] {
		c := x.make(1)
		r := runRenaming(c, 1, false)
		c.Length = 6 * sec
		bbr := c.Run("bbr").Flows[0].Rate(renamedAt, c.Length)
		t.Logf("%s: stale after %v, %v; BBR %v", x.name, r.stale, r.rate, bbr)
		if r.stale == 0 || r.stale > 200*ms || r.found != 0 {
			t.Errorf("%s: stale after %v, found after %v", x.name, r.stale, r.found)
		}
		if float64(r.rate) < 0.85*float64(bbr) {
			t.Errorf("%s: %v, want nearly BBR's %v", x.name, r.rate, bbr)
		}
	}
}

// TestRightRNTIStays: no monitor doubts or changes a right RNTI, in any of the forty places, with the
// paper's ablations and with misses of the decoder.
func TestRightRNTIStays(t *testing.T) {
	check := func(name string, c Case) {
		c.OnSubframe(func(x *Cell) {
			m := x.Monitor(0)
			if m.IsSelfStale() || m.Self() != c.Network.Users[0].RNTI {
				t.Errorf("%s, at %d ms: stale %v, RNTI %#x", name, x.Number(), m.IsSelfStale(), m.Self())
				m.CompareArrivals(false)
			}
		})
		c.Run("pbe")
	}
	for number := range uint64(40) {
		check("place "+string(rune('a'+number%26)), Location(number, 1))
	}
	for _, x := range Ablations {
		check(x.Name, x.Case(1))
	}
	for _, x := range Variants {
		check(x.Name, x.Case(1))
	}
}
