// SPDX-License-Identifier: Apache-2.0

package cc

import "time"

// windowedExtreme keeps the maximum (or minimum, with keepsLeast) of values in a sliding window. A
// position is a time or a number of rounds. It stores only values that can still become the
// extreme. The zero value is empty and keeps the maximum.
type windowedExtreme struct {
	keepsLeast bool
	samples    []extremeSample
}

// extremeSample is a value and its position.
type extremeSample struct {
	position int64
	value    int64
}

// addSampleAt adds a value and drops those more than span behind it. Positions must not decrease.
func (e *windowedExtreme) addSampleAt(at, v, span int64) {
	n := len(e.samples)
	for n > 0 && (e.samples[n-1].value == v || (e.samples[n-1].value < v) != e.keepsLeast) {
		n--
	}
	e.samples = append(e.samples[:n], extremeSample{at, v})
	e.dropOldSamples(at, span)
}

// dropOldSamples drops values more than span behind position at. It keeps the newest.
func (e *windowedExtreme) dropOldSamples(at, span int64) {
	i := 0
	for i < len(e.samples)-1 && e.samples[i].position < at-span {
		i++
	}
	if i > 0 {
		e.samples = append(e.samples[:0], e.samples[i:]...)
	}
}

// extremeValue returns the extreme, 0 if there is none.
func (e *windowedExtreme) extremeValue() int64 {
	if len(e.samples) == 0 {
		return 0
	}
	return e.samples[0].value
}

// hasNoSamples reports whether no value was added.
func (e *windowedExtreme) hasNoSamples() bool { return len(e.samples) == 0 }

// ewma is an exponentially weighted moving average of delays. The zero value has no sample.
type ewma struct {
	value time.Duration
	valid bool
}

// addWeightedDelay adds a delay with a weight from 0 to 1.
func (s *ewma) addWeightedDelay(v time.Duration, weight float64) {
	if !s.valid {
		s.value, s.valid = v, true
		return
	}
	s.value += time.Duration(weight * float64(v-s.value))
}
