// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math"
	"math/rand/v2"
	"testing"

	"mpbond/base/unit"
)

// twins are two users of a cell who always get the same blocks. Only errors tell them apart: each of their blocks
// is repeated now and then. What the first one gets arrives lag subframes later, in steps.
type twins struct {
	rnd      *rand.Rand
	rntis    [2]RNTI
	due      [2]map[int64]bool // repetitions
	ndi      [2][8]bool
	waiting  unit.Bytes // of the first user, behind a block with errors
	wrongTo  int64      // until its repetition
	arrivals map[int64]unit.Bytes
	n        int64
	lag      int64
	silent   bool // nothing arrives: the data are those of others
}

func newTwins(lag int64) *twins {
	return &twins{rnd: rand.New(rand.NewPCG(1, 5)), rntis: [2]RNTI{self, 700}, lag: lag, n: 1000,
		due: [2]map[int64]bool{{}, {}}, arrivals: map[int64]unit.Bytes{}}
}

// addSubframes adds subframes and arrivals to a monitor.
func (w *twins) addSubframes(m *Monitor, length int64) {
	for range length {
		s := Subframe{Number: w.n, PRB: 50}
		for u, r := range w.rntis {
			again := w.due[u][w.n]
			h := w.n % 8
			if !again {
				w.ndi[u][h] = !w.ndi[u][h]
			}
			s.Grants = append(s.Grants, Grant{RNTI: r, Format: Format1, PRB: 25, HARQ: uint8(h), N: 1,
				Blocks: [2]Block{{MCS: 10, NDI: w.ndi[u][h], Size: 12_000}}})
			if w.rnd.IntN(12) == 0 {
				w.due[u][w.n+8] = true
				if u == 0 {
					w.wrongTo = max(w.wrongTo, w.n+8)
				}
			}
		}
		w.waiting += 1400
		if w.due[0][w.n] {
			w.waiting -= 1400
		}
		if w.n >= w.wrongTo {
			at := (w.n + w.lag + 4) / 5 * 5
			w.arrivals[at] += w.waiting
			w.waiting = 0
		}
		m.Add(&Row{Number: s.Number, Received: [MaxCells]bool{true}, Cells: [MaxCells]Subframe{s}})
		if b := w.arrivals[w.n]; b > 0 && !w.silent {
			m.AddArrival(w.n, b)
		}
		w.n++
	}
}

// TestFindSelf: an unknown RNTI is found by what arrives, whatever the lag of the data. A stale one is reported, and
// replaced by the new one. A right one stays.
func TestFindSelf(t *testing.T) {
	for _, lag := range []int64{0, 7, 30} {
		m := NewMonitor()
		m.AddCell(0, 0, DefaultErrorRate)
		m.CompareArrivals(true)
		w := newTwins(lag)
		if w.addSubframes(m, 600); m.Self() != self || m.Estimate().SelfStale {
			t.Errorf("lag %d: %#x", lag, m.Self())
		}
		w.rntis[0] = 800
		if w.addSubframes(m, 300); m.Self() != 800 || m.Estimate().SelfStale {
			t.Errorf("lag %d, renamed: %#x, stale %v", lag, m.Self(), m.Estimate().SelfStale)
		}
		w.rntis[1] = 900 // the other one
		if w.addSubframes(m, 3000); m.Self() != 800 || m.Estimate().SelfStale {
			t.Errorf("lag %d, another was renamed: %#x, stale %v", lag, m.Self(), m.Estimate().SelfStale)
		}
	}
}

// TestStaleUntilFound: once an RNTI is stale it stays so until the new one is found, also if another device is
// renamed at the same time.
func TestStaleUntilFound(t *testing.T) {
	m := NewMonitor()
	m.AddCell(0, self, DefaultErrorRate)
	m.CompareArrivals(true)
	w := newTwins(5)
	w.addSubframes(m, 600)
	w.rntis = [2]RNTI{800, 900}
	wasStale := false
	for range 400 {
		w.addSubframes(m, 1)
		if wasStale && !m.IsSelfStale() && m.Self() == self {
			t.Fatalf("no longer stale at %d, and not found", w.n)
		}
		wasStale = wasStale || m.IsSelfStale()
	}
	if m.Self() != 800 {
		t.Errorf("%#x", m.Self())
	}
}

// TestGivenSelf: without permission to search, the RNTI stays, and is stale until it is right again.
func TestGivenSelf(t *testing.T) {
	m := NewMonitor()
	m.AddCell(0, self, DefaultErrorRate)
	m.CompareArrivals(false)
	w := newTwins(5)
	if w.addSubframes(m, 600); m.IsSelfStale() {
		t.Error("a right RNTI is stale")
	}
	w.rntis[0] = 800
	if w.addSubframes(m, 200); !m.IsSelfStale() || m.Self() != self {
		t.Errorf("renamed: %#x, stale %v", m.Self(), m.IsSelfStale())
	}
	if m.SetSelf(800); m.IsSelfStale() {
		t.Error("stale although it was just set")
	}
	if w.addSubframes(m, 200); m.IsSelfStale() {
		t.Error("the new RNTI is stale")
	}
}

// TestOtherRate: what the cells give the device and does not arrive is that of other apps.
func TestOtherRate(t *testing.T) {
	m := NewMonitor()
	m.AddCell(0, self, DefaultErrorRate)
	if m.OtherRate() != 0 {
		t.Error("a rate without CompareArrivals")
	}
	m.CompareArrivals(false)
	w := newTwins(5)
	if w.addSubframes(m, 600); m.OtherRate() != 0 {
		t.Errorf("alone: %v", m.OtherRate())
	}
	w.silent = true
	if w.addSubframes(m, 600); m.OtherRate() < 9*unit.Mbps || m.OtherRate() > 12*unit.Mbps {
		t.Errorf("all data are those of others: %v", m.OtherRate())
	}
}

// TestUndecided: nothing is said if nothing arrives, if subframes were missed, or after the count restarted; and
// nothing breaks by numbers that no caller has.
func TestUndecided(t *testing.T) {
	m := NewMonitor()
	m.AddCell(0, 999, DefaultErrorRate)
	m.CompareArrivals(true)
	w := newTwins(5)
	w.silent = true
	if w.addSubframes(m, 600); m.Self() != 999 || m.IsSelfStale() {
		t.Errorf("nothing arrives: %#x, stale %v", m.Self(), m.IsSelfStale())
	}
	m = NewMonitor()
	m.AddCell(0, 999, DefaultErrorRate)
	m.CompareArrivals(true)
	w.silent = false
	for range 200 {
		w.addSubframes(m, 2)
		w.n++ // missed
	}
	if m.Self() != 999 || m.IsSelfStale() {
		t.Errorf("a third is missed: %#x, stale %v", m.Self(), m.IsSelfStale())
	}
	w.n = 10
	if w.addSubframes(m, 60); m.Self() != 999 || m.IsSelfStale() {
		t.Errorf("restarted: %#x, stale %v", m.Self(), m.IsSelfStale())
	}
	for _, n := range []int64{-1, math.MinInt64, math.MaxInt64, maxNumber, maxNumber + 1} {
		m.AddArrival(n, unit.MB)
		w.addSubframes(m, 30)
	}
	if NewMonitor().AddArrival(5, 5); m.Self() == 700 {
		t.Error("the other's RNTI was taken")
	}
}

// BenchmarkCompareArrivals has the cost of a subframe with twenty users, while nothing is wrong and while the RNTI
// is searched for.
func BenchmarkCompareArrivals(b *testing.B) {
	for name, find := range map[string]bool{"known": false, "searched": true} {
		b.Run(name, func(b *testing.B) {
			m := NewMonitor()
			if m.AddCell(0, self, DefaultErrorRate); find {
				m.SetSelf(0)
			}
			m.CompareArrivals(find)
			row := &Row{Received: [MaxCells]bool{true}}
			for u := range 20 {
				row.Cells[0].Grants = append(row.Cells[0].Grants, Grant{RNTI: self + RNTI(u), Format: Format1, PRB: 5, N: 1,
					Blocks: [2]Block{{MCS: 10, Size: 3000}}})
			}
			row.Cells[0].PRB = 100
			n := int64(0)
			for b.Loop() {
				n++
				row.Number, row.Cells[0].Number = n, n
				for u := range row.Cells[0].Grants {
					g := &row.Cells[0].Grants[u]
					g.HARQ, g.Blocks[0].NDI = uint8(n%8), n/8%2 == 0
				}
				m.Add(row)
				m.AddArrival(n, 350)
			}
		})
	}
}
