// SPDX-License-Identifier: Apache-2.0

// Package span keeps sets of integers as ranges, such as the bytes of a stream or file that are
// present, or the packets that have arrived. Everything that receives out of order uses it.
package span

import "iter"

// Integer is the type of a set's members: positions in a file, sequence numbers.
type Integer interface{ ~int64 | ~uint64 }

// Span is a half-open range: it contains From but not To.
type Span[T Integer] struct {
	From T `json:"from"`
	To   T `json:"to"`
}

// Set is a set of integers: spans in ascending order, none empty, with gaps between them. The zero
// value is empty. Users may read the spans, but change them only with the methods. These work in
// place, and allocate only to hold more spans than ever before. A Set has no size limit: callers
// who add ranges chosen by a peer check len, or call KeepLast. An empty range (from >= to) adds and
// removes nothing. The largest integer of T cannot be a member. A Set is not safe for concurrent
// use.
type Set[T Integer] []Span[T]

// Add adds [from, to) and returns how many integers were new.
func (s *Set[T]) Add(from, to T) (added T) {
	if from >= to {
		return 0
	}
	v := *s
	if n := len(v); n == 0 || from > v[n-1].To { // the common cases: a new last span, or an extended one
		*s = append(v, Span[T]{from, to})
		return to - from
	} else if last := &v[n-1]; from >= last.From {
		added = max(to, last.To) - last.To
		last.To += added
		return added
	}
	i := v.Find(from)
	if i > 0 && v[i-1].To == from {
		i--
	}
	// Spans from i to before j overlap or touch the new one.
	added = to - from
	lo, hi := from, to
	j := i
	for ; j < len(v) && v[j].From <= to; j++ {
		if a, b := max(v[j].From, from), min(v[j].To, to); a < b {
			added -= b - a
		}
		lo, hi = min(lo, v[j].From), max(hi, v[j].To)
	}
	switch j - i {
	case 0:
		v = append(v, Span[T]{})
		copy(v[i+1:], v[i:])
	case 1:
	default:
		v = append(v[:i+1], v[j:]...)
	}
	v[i] = Span[T]{lo, hi}
	*s = v
	return added
}

// Remove removes [from, to) and returns how many integers it removed.
func (s *Set[T]) Remove(from, to T) (removed T) {
	v := *s
	i := v.Find(from)
	if from >= to || i == len(v) || v[i].From >= to {
		return 0
	}
	if v[i].From < from && to < v[i].To { // one span becomes two
		v = append(v, Span[T]{})
		copy(v[i+1:], v[i:])
		v[i].To, v[i+1].From = from, to
		*s = v
		return to - from
	}
	if v[i].From < from {
		removed = v[i].To - from
		v[i].To = from
		i++
	}
	j := i
	for ; j < len(v) && v[j].To <= to; j++ {
		removed += v[j].To - v[j].From
	}
	if j < len(v) && v[j].From < to {
		removed += to - v[j].From
		v[j].From = to
	}
	if i < j {
		*s = append(v[:i], v[j:]...)
	}
	return removed
}

// TakeFirst removes and returns up to n integers of the lowest span. The set must not be empty.
func (s *Set[T]) TakeFirst(n T) Span[T] {
	first := (*s)[0]
	if first.To-first.From > n {
		first.To = first.From + n
		(*s)[0].From = first.To
		return first
	}
	*s = append((*s)[:0], (*s)[1:]...)
	return first
}

// KeepLast removes all but the n highest spans.
func (s *Set[T]) KeepLast(n int) {
	if v := *s; len(v) > n {
		*s = append(v[:0], v[len(v)-n:]...)
	}
}

// Find returns the index of the first span that ends after at: the one that contains at, or the
// next one. It returns len(s) if there is none.
func (s Set[T]) Find(at T) int {
	i, j := 0, len(s)
	for i < j {
		if h := int(uint(i+j) / 2); s[h].To <= at {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}

// Has reports whether n is in the set.
func (s Set[T]) Has(n T) bool {
	i := s.Find(n)
	return i < len(s) && s[i].From <= n
}

// Overlaps reports whether any of [from, to) is in the set.
func (s Set[T]) Overlaps(from, to T) bool {
	i := s.Find(from)
	return from < to && i < len(s) && s[i].From < to
}

// Contains reports whether all of [from, to) is in the set.
func (s Set[T]) Contains(from, to T) bool { return from >= to || s.EndOf(from) >= to }

// EndOf returns the lowest integer from at on that is not in the set.
func (s Set[T]) EndOf(at T) T {
	if i := s.Find(at); i < len(s) && s[i].From <= at {
		return s[i].To
	}
	return at
}

// Missing yields, in ascending order, the parts of [from, to) that are not in the set,
// which must not change meanwhile.
func (s Set[T]) Missing(from, to T) iter.Seq2[T, T] {
	return func(yield func(from, to T) bool) {
		for i := s.Find(from); from < to; i++ {
			if i == len(s) || s[i].From >= to {
				yield(from, to)
				return
			}
			if s[i].From > from && !yield(from, s[i].From) {
				return
			}
			from = s[i].To
		}
	}
}

// Size returns how many integers are in the set.
func (s Set[T]) Size() (n T) {
	for _, x := range s {
		n += x.To - x.From
	}
	return n
}
