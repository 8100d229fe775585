package transport

// span is the numbers from lo up to and with hi.
type span struct{ lo, hi uint64 }

// spans is a set of numbers as ascending spans that do not touch. Methods that
// change it return what it is then, in the same memory or new.
type spans []span

// add puts lo to hi into the set.
func (s spans) add(lo, hi uint64) spans {
	// Mostly at the end.
	if n := len(s); n > 0 && lo >= s[n-1].lo {
		if last := &s[n-1]; lo <= last.hi+1 {
			last.hi = max(last.hi, hi)
			return s
		}
		return append(s, span{lo, hi})
	}
	i := s.find(max(lo, 1) - 1)
	j := i
	for j < len(s) && s[j].lo <= hi+1 {
		lo, hi = min(lo, s[j].lo), max(hi, s[j].hi)
		j++
	}
	if i == j {
		s = append(s, span{})
		copy(s[i+1:], s[i:])
	} else {
		s = append(s[:i+1], s[j:]...)
	}
	s[i] = span{lo, hi}
	return s
}

// find is the index of the first span that does not end before n.
func (s spans) find(n uint64) int {
	i, j := 0, len(s)
	for i < j {
		if h := (i + j) / 2; s[h].hi < n {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}

// size returns how many numbers are in the set.
func (s spans) size() (n uint64) {
	for _, x := range s {
		n += x.hi - x.lo + 1
	}
	return n
}

// overlap tells whether any of lo to hi is in the set.
func (s spans) overlap(lo, hi uint64) bool {
	i := s.find(lo)
	return i < len(s) && s[i].lo <= hi
}

// has tells whether n is in the set.
func (s spans) has(n uint64) bool { return s.overlap(n, n) }

// cut takes up to n numbers from the lowest span off the set, which is not empty.
func (s spans) cut(n uint64) (span, spans) {
	first := s[0]
	if first.hi-first.lo >= n {
		first.hi = first.lo + n - 1
		s[0].lo = first.hi + 1
		return first, s
	}
	return first, append(s[:0], s[1:]...)
}

// remove takes lo to hi out of the set.
func (s spans) remove(lo, hi uint64) spans {
	i := s.find(lo)
	if i == len(s) || s[i].lo > hi {
		return s
	}
	if x := s[i]; x.lo < lo {
		if x.hi > hi {
			s = append(s, span{})
			copy(s[i+1:], s[i:])
			s[i].hi, s[i+1].lo = lo-1, hi+1
			return s
		}
		s[i].hi = lo - 1
		i++
	}
	j := s.find(hi + 1)
	if j < len(s) && s[j].lo <= hi {
		s[j].lo = hi + 1
	}
	return append(s[:i], s[j:]...)
}
