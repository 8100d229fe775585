// SPDX-License-Identifier: Apache-2.0

package event

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestOrder compares a queue under random operations with a list that is sorted by time and order
// of pushing.
func TestOrder(t *testing.T) {
	type due struct {
		at time.Duration
		n  int
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q Queue[int]
		var model []due
		for n := range 300 {
			switch x := r.IntN(100); {
			case x < 55:
				d := due{time.Duration(r.IntN(20) - 5), n}
				q.Push(d.at, n)
				model = append(model, d)
				slices.SortStableFunc(model, func(a, b due) int { return int(a.at - b.at) })
			case x < 99 && len(model) > 0:
				next := q.Next()
				if at, e := q.Pop(); at != model[0].at || e != model[0].n || next != at {
					t.Fatalf("seed %d: %d at %d (%d), want %v", seed, e, at, next, model[0])
				}
				model = model[1:]
			case x == 99:
				q.Clear()
				model = nil
			}
			if q.Len() != len(model) {
				t.Fatalf("seed %d: %d events, want %d", seed, q.Len(), len(model))
			}
		}
	}
}

// TestNoAllocation checks that a warm queue does not allocate: a simulation pushes millions of
// events.
func TestNoAllocation(t *testing.T) {
	var q Queue[int]
	if n := testing.AllocsPerRun(10, func() {
		for i := range 100 {
			q.Push(time.Duration(i*7%13), i)
		}
		for q.Len() > 0 {
			q.Pop()
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
