// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

// TestShares: one device gets three quarters of a budget, two get three sevenths each, and a new
// one finds some left; a device is short when it has as much as is left.
func TestShares(t *testing.T) {
	const limit, page = 700 * unit.KB, 100
	m := NewMemory(limit)
	fill := func(s *Share) unit.Bytes {
		for s.Take(page) {
		}
		return s.Used()
	}
	near := func(got, want unit.Bytes) bool { return got > want-2*page && got <= want }
	a, b := m.NewShare(), m.NewShare()
	for !a.IsShort() {
		if !a.Take(page) {
			t.Fatal("refused before it was short")
		}
	}
	if !near(a.Used(), limit/2+page) || b.IsShort() {
		t.Errorf("short at %v", a.Used())
	}
	if got := fill(a); !near(got, limit*3/4) {
		t.Errorf("one device has %v", got)
	}
	if got := fill(b); !near(got, (limit-a.Used())*3/4) {
		t.Errorf("the second one has %v", got)
	}
	a.Release(a.Used())
	b.Release(b.Used())
	for more := true; more; {
		more = a.Take(page)
		more = b.Take(page) || more
	}
	c := m.NewShare()
	if !near(a.Used(), limit*3/7+page) || !near(b.Used(), limit*3/7+page) || !c.Take(page) {
		t.Errorf("two devices have %v and %v", a.Used(), b.Used())
	}
	a.Release(a.Used())
	b.Release(b.Used())
	if m.used != page {
		t.Errorf("%v are left in use", m.used)
	}
}

// TestTrim: memory is freed, rarely, when half of the peak is unused.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(unit.GB)
		s := m.NewShare()
		trims := func() bool {
			before := m.trimmedAt
			m.Trim()
			return m.trimmedAt != before
		}
		for i, c := range []struct {
			take unit.Bytes
			want bool
		}{{100 * unit.MB, false}, {-40 * unit.MB, false}, {-20 * unit.MB, true}, {40 * unit.MB, false}, {-80 * unit.MB, true},
			{10 * unit.MB, false}, {-10 * unit.MB, false}} {
			s.takeWithoutLimit(c.take)
			time.Sleep(trimInterval)
			if got := trims(); got != c.want {
				t.Errorf("%d: trimmed is %v", i, got)
			}
		}
	})
}

// TestBudget: half of the Go runtime's limit, 1 GB without one.
func TestBudget(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	if got := NewMemory(0).Limit(); got != unit.GB {
		t.Errorf("%v without a limit", got)
	}
	debug.SetMemoryLimit(800 << 20)
	if got := NewMemory(0).Limit(); got != 400<<20 {
		t.Errorf("%v of 800 MiB", got)
	}
}
