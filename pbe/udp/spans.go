package udp

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
	i := 0
	for i < len(s) && s[i].hi+1 < lo {
		i++
	}
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

// has tells whether n is in the set.
func (s spans) has(n uint64) bool {
	for i := len(s) - 1; i >= 0 && s[i].hi >= n; i-- {
		if s[i].lo <= n {
			return true
		}
	}
	return false
}

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
	var out spans
	for _, x := range s {
		if x.hi < lo || x.lo > hi {
			out = append(out, x)
			continue
		}
		if x.lo < lo {
			out = append(out, span{x.lo, lo - 1})
		}
		if x.hi > hi {
			out = append(out, span{hi + 1, x.hi})
		}
	}
	return out
}
