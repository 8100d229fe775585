package cc

import "time"

// windowedExtreme keeps the largest (or smallest, if less) of the values of a window
// whose position is a time or a count of rounds: a queue of those that may still
// become the extreme. The zero value is empty and keeps the largest.
type windowedExtreme struct {
	keepsLeast bool
	samples    []extremeSample
}

type extremeSample struct {
	position int64
	value    int64
}

// addSample puts in v at a position that never goes back, and drops what is more than
// span behind it.
func (e *windowedExtreme) addSample(at, v, span int64) {
	n := len(e.samples)
	for n > 0 && (e.samples[n-1].value == v || (e.samples[n-1].value < v) != e.keepsLeast) {
		n--
	}
	e.samples = append(e.samples[:n], extremeSample{at, v})
	e.dropOld(at, span)
}

// dropOld drops what is more than span behind at; the newest stays.
func (e *windowedExtreme) dropOld(at, span int64) {
	i := 0
	for i < len(e.samples)-1 && e.samples[i].position < at-span {
		i++
	}
	if i > 0 {
		e.samples = append(e.samples[:0], e.samples[i:]...)
	}
}

// value is the extreme, 0 if there is none yet.
func (e *windowedExtreme) value() int64 {
	if len(e.samples) == 0 {
		return 0
	}
	return e.samples[0].value
}

func (e *windowedExtreme) isEmpty() bool { return len(e.samples) == 0 }

// ewma is an exponentially weighted mean of delays; the zero value has none.
type ewma struct {
	value time.Duration
	valid bool
}

func (s *ewma) addSample(v time.Duration, weight float64) {
	if !s.valid {
		s.value, s.valid = v, true
		return
	}
	s.value += time.Duration(weight * float64(v-s.value))
}
