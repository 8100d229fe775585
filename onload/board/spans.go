package board

import (
	"slices"

	"mpbond/base/unit"
)

// Span is a range of bytes, From up to and without To.
type Span struct {
	From unit.Bytes `json:"from"`
	To   unit.Bytes `json:"to"`
}

// Spans is a set of bytes: spans in order that do not touch.
type Spans []Span

// Add puts a span into the set.
func (s Spans) Add(from, to unit.Bytes) Spans {
	if from >= to {
		return s
	}
	first, _ := slices.BinarySearchFunc(s, from, func(x Span, at unit.Bytes) int {
		if x.To < at {
			return -1
		}
		return 1
	})
	last := first
	for last < len(s) && s[last].From <= to {
		from, to = min(from, s[last].From), max(to, s[last].To)
		last++
	}
	return slices.Replace(s, first, last, Span{from, to})
}

// Remove takes a span out of the set.
func (s Spans) Remove(from, to unit.Bytes) (rest Spans) {
	for _, x := range s {
		if a := (Span{x.From, min(x.To, from)}); a.From < a.To {
			rest = append(rest, a)
		}
		if b := (Span{max(x.From, to), x.To}); b.From < b.To {
			rest = append(rest, b)
		}
	}
	return rest
}

// Missing lists what the set lacks of the bytes up to size.
func (s Spans) Missing(size unit.Bytes) (gaps Spans) {
	at := unit.Bytes(0)
	for _, x := range s {
		if x.From >= size {
			break
		}
		if x.From > at {
			gaps = append(gaps, Span{at, x.From})
		}
		at = max(at, x.To)
	}
	if at < size {
		gaps = append(gaps, Span{at, size})
	}
	return gaps
}

// Size is how many bytes are in the set.
func (s Spans) Size() (n unit.Bytes) {
	for _, x := range s {
		n += x.To - x.From
	}
	return n
}
