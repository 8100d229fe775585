package bond

import (
	"sort"

	"mpbond/link/wire"
)

// span is a half-open range of positions.
type span struct{ from, to wire.DataSeq }

// spans is a set of positions: sorted, disjoint, not touching.
type spans []span

// add puts [from, to) into the set and returns how much of it was new.
func (s *spans) add(from, to wire.DataSeq) (fresh uint64) {
	if from >= to {
		return 0
	}
	v := *s
	// [i, j) are the spans that overlap or touch the new one.
	i := sort.Search(len(v), func(i int) bool { return v[i].to >= from })
	fresh = uint64(to - from)
	j := i
	lo, hi := from, to
	for ; j < len(v) && v[j].from <= to; j++ {
		if a, b := max(v[j].from, from), min(v[j].to, to); a < b {
			fresh -= uint64(b - a)
		}
		lo, hi = min(lo, v[j].from), max(hi, v[j].to)
	}
	if i == j {
		v = append(v, span{})
		copy(v[i+1:], v[i:])
		v[i] = span{lo, hi}
	} else {
		v[i] = span{lo, hi}
		v = append(v[:i+1], v[j:]...)
	}
	*s = v
	return fresh
}

// remove takes [from, to) out of the set.
func (s *spans) remove(from, to wire.DataSeq) {
	if from >= to {
		return
	}
	v := *s
	i := sort.Search(len(v), func(i int) bool { return v[i].to > from })
	j := i
	var keep [2]span
	n := 0
	for ; j < len(v) && v[j].from < to; j++ {
		if v[j].from < from {
			keep[n] = span{v[j].from, from}
			n++
		}
		if v[j].to > to {
			keep[n] = span{to, v[j].to}
			n++
		}
	}
	if n <= j-i {
		copy(v[i:], keep[:n])
		v = append(v[:i+n], v[j:]...)
	} else { // one span became two
		v = append(v, span{})
		copy(v[i+2:], v[i+1:])
		v[i], v[i+1] = keep[0], keep[1]
	}
	*s = v
}

// take removes [from, to) and reports whether any of it was in the set.
func (s *spans) take(from, to wire.DataSeq) bool {
	if len(*s) == 0 {
		return false
	}
	before := s.size()
	s.remove(from, to)
	return s.size() < before
}

// missing calls f for each part of [from, to) that is not in the set.
func (s spans) missing(from, to wire.DataSeq, f func(from, to wire.DataSeq)) {
	i := sort.Search(len(s), func(i int) bool { return s[i].to > from })
	for ; from < to; i++ {
		if i == len(s) || s[i].from >= to {
			f(from, to)
			return
		}
		if s[i].from > from {
			f(from, s[i].from)
		}
		from = s[i].to
	}
}

// size is how many positions the set holds.
func (s spans) size() (n uint64) {
	for _, p := range s {
		n += uint64(p.to - p.from)
	}
	return n
}
