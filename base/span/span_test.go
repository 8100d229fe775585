// SPDX-License-Identifier: Apache-2.0

package span

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
)

// bitmap is the model of a set of integers below its length.
type bitmap []bool

// set marks [from, to) and returns how many marks changed.
func (m bitmap) set(from, to int, there bool) (changed int) {
	for i := from; i < to; i++ {
		if m[i] != there {
			m[i] = there
			changed++
		}
	}
	return changed
}

// count returns how many of [from, to) are marked.
func (m bitmap) count(from, to int) (n int) {
	for _, there := range m[from:to] {
		if there {
			n++
		}
	}
	return n
}

// compare checks that the set equals the model, in its only valid form, and that its queries agree
// with the model over a range.
func compare[T Integer](t *testing.T, s Set[T], m bitmap, base T, part Span[int64]) {
	t.Helper()
	from, to := int(part.From), int(part.To)
	var want Set[T]
	for i := range m {
		if m[i] && i > 0 && m[i-1] {
			want[len(want)-1].To++
		} else if m[i] {
			want = append(want, Span[T]{base + T(i), base + T(i) + 1})
		}
	}
	if !slices.Equal(s, want) {
		t.Fatalf("%v, want %v", s, want)
	}
	if got := s.Size(); int(got) != m.count(0, len(m)) {
		t.Fatalf("%v: size %d, want %d", s, got, m.count(0, len(m)))
	}
	a, b := base+T(from), base+T(to)
	n := m.count(from, to)
	if s.Overlaps(a, b) != (n > 0) || s.Contains(a, b) != (n == to-from) {
		t.Fatalf("%v: overlaps %v, contains %v, and has %d of [%d, %d)", s, s.Overlaps(a, b), s.Contains(a, b), n, a, b)
	}
	gaps := slices.Clone(m)
	last := a
	for lo, hi := range s.Missing(a, b) {
		if lo >= hi || lo < last || lo > a && lo == last || gaps.set(int(lo-base), int(hi-base), true) != int(hi-lo) {
			t.Fatalf("%v: [%d, %d) is said to be missing", s, lo, hi)
		}
		last = hi
	}
	if gaps.count(from, to) != to-from || gaps.count(0, len(m)) != m.count(0, len(m))+to-from-n {
		t.Fatalf("%v: what is missing of [%d, %d) is not all", s, a, b)
	}
	end := from
	for i := range m {
		at := base + T(i)
		if s.Has(at) != m[i] {
			t.Fatalf("%v: has %d: %v", s, at, s.Has(at))
		}
		if k := s.Find(at); k > 0 && s[k-1].To > at || k < len(s) && s[k].To <= at {
			t.Fatalf("%v: %d is found at %d", s, at, k)
		}
		if i == end && m[i] {
			end++
		}
	}
	if got := s.EndOf(a); got != base+T(end) {
		t.Fatalf("%v: end of %d: %d, want %d", s, a, got, base+T(end))
	}
}

// drive applies random operations to a set of integers from base on and to a bitmap.
func drive[T Integer](t *testing.T, seed uint64, base T) {
	r := rand.New(rand.NewPCG(seed, 2))
	var s Set[T]
	m := make(bitmap, 1+r.IntN(150))
	for range 60 {
		from := r.IntN(len(m))
		to := from + r.IntN(len(m)-from+1)
		if r.IntN(2) == 0 {
			to = min(to, from+4)
		}
		a, b := base+T(from), base+T(to)
		before, held := slices.Clone(s), cap(s)
		var got T
		var want int
		switch op := r.IntN(9); {
		case op < 5:
			got, want = s.Add(a, b), m.set(from, to, true)
		case op < 7:
			got, want = s.Remove(a, b), m.set(from, to, false)
		case op == 7 && len(s) > 0:
			n := T(1 + r.IntN(9))
			first := s.TakeFirst(n)
			got, want = first.To-first.From, m.set(int(first.From-base), int(first.To-base), false)
			if first.From != before[0].From || got != min(n, before[0].To-before[0].From) {
				t.Fatalf("seed %d: up to %d of %v: %v", seed, n, before, first)
			}
		case op == 8:
			n := r.IntN(8)
			if s.KeepLast(n); len(before) > n {
				floor := int(before[len(before)-n-1].To - base)
				m.set(0, floor, false)
			}
		}
		if int(got) != want {
			t.Fatalf("seed %d: %v, [%d, %d): %d, want %d", seed, before, a, b, got, want)
		}
		if len(s) <= held && cap(s) != held {
			t.Fatalf("seed %d: %d spans moved although there is room for %d", seed, len(s), held)
		}
		part := Span[int64]{From: r.Int64N(int64(len(m)))}
		part.To = part.From + r.Int64N(int64(len(m))-part.From+1)
		compare(t, s, m, base, part)
	}
}

// TestAgainstBitmap compares sets under random operations with a bitmap, from 0 on, below 0, and up
// to the largest integers.
func TestAgainstBitmap(t *testing.T) {
	for seed := range uint64(400) {
		drive(t, seed, uint64(0))
		drive(t, seed, int64(-70))
		drive(t, seed, ^uint64(0)-150)
	}
}

func TestEmptyRanges(t *testing.T) {
	s := Set[int64]{{10, 20}, {30, 40}}
	if s.Add(25, 25) != 0 || s.Add(15, 12) != 0 || s.Remove(15, 15) != 0 || s.Remove(35, 12) != 0 {
		t.Error("a range without integers changes something")
	}
	if s.Overlaps(15, 15) || !s.Contains(25, 25) || !slices.Equal(s, Set[int64]{{10, 20}, {30, 40}}) {
		t.Errorf("%v", s)
	}
	for range s.Missing(25, 25) {
		t.Error("nothing is missing of nothing")
	}
	for from := range s.Missing(0, 100) { // the caller may stop
		if from > 0 {
			t.Errorf("goes on to %d", from)
		}
		break
	}
}

// TestJSON pins the form in external files.
func TestJSON(t *testing.T) {
	data, err := json.Marshal(Set[int64]{{0, 10}, {20, 30}})
	if err != nil || string(data) != `[{"from":0,"to":10},{"from":20,"to":30}]` {
		t.Errorf("%s, %v", data, err)
	}
}

// TestNoAllocation checks that a warm set does not allocate: every packet passes sets.
func TestNoAllocation(t *testing.T) {
	s := make(Set[uint64], 0, 64)
	sum := uint64(0)
	n := testing.AllocsPerRun(100, func() {
		for i := range uint64(32) {
			s.Add(i*10, i*10+5)
		}
		for i := range uint64(31) {
			s.Remove(i*10+2, i*10+3)
			for from, to := range s.Missing(i, 400) {
				sum += to - from
			}
			s.Add(i*10+1, i*10+10)
			s.Remove(i*10+1, i*10+10)
		}
		for len(s) > 0 {
			s.TakeFirst(3)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAppend adds at the end, as in-order data does.
func BenchmarkAppend(b *testing.B) {
	var s Set[uint64]
	for i := range uint64(b.N) {
		s.Add(i*10, i*10+10)
	}
}

// BenchmarkHoles adds and fills holes in a set of 200 spans, in random order.
func BenchmarkHoles(b *testing.B) {
	var s Set[uint64]
	r := rand.New(rand.NewPCG(1, 2))
	at := make([]uint64, 4096)
	for i := range at {
		at[i] = r.Uint64N(4000)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		from := at[i%len(at)]
		s.Add(from, from+10)
		s.Remove(from-from%7, from-from%7+9)
	}
}

// BenchmarkMissing iterates over the gaps of a set of 200 spans.
func BenchmarkMissing(b *testing.B) {
	var s Set[uint64]
	for i := range uint64(200) {
		s.Add(i*20, i*20+10)
	}
	sum := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		for from, to := range s.Missing(1000, 1400) {
			sum += to - from
		}
	}
}
