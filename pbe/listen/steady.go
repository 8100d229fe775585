// SPDX-License-Identifier: Apache-2.0

package listen

import "time"

// Messages that arrive later than at best, but with constant delay and none missing for
// steadyDuration, do not wait in a growing or shrinking queue. The cause is a clock that was set,
// samples that the decoder lost, or a longer way from it, so their delay becomes the new base. Only
// the minimum of each second counts, because a busy device delays the others. The minima may differ
// by steadyTolerance, as with clocks 1000 ppm apart.
const (
	steadyDuration  = 10 * time.Second
	steadyTolerance = 10 * time.Millisecond
	// minSteadyRows is how many of 1000 rows must arrive in each second: a decoder misses some.
	minSteadyRows = 900
)

// steadyDelay detects a constant delay. The zero value is ready.
type steadyDelay struct {
	seconds            int           // consecutive steady seconds
	minDelay, maxDelay time.Duration // over the minima of these seconds; valid if seconds > 0
	secondStart        time.Duration // start of the current second
	secondMin          time.Duration // minimum of the current second; valid if rows > 0
	rows               int
}

// addRowDelay adds a row with its arrival time and its delay at, which is the arrival less the
// row's number. If the last steadyDuration was steady, it returns its minimum.
func (s *steadyDelay) addRowDelay(arrived, at time.Duration) (minimum time.Duration, ok bool) {
	if s.rows > 0 && arrived-s.secondStart >= time.Second {
		full := s.rows >= minSteadyRows && arrived-s.secondStart < 1100*time.Millisecond
		if s.seconds == 0 {
			s.minDelay, s.maxDelay = s.secondMin, s.secondMin
		}
		s.minDelay, s.maxDelay = min(s.minDelay, s.secondMin), max(s.maxDelay, s.secondMin)
		switch {
		case !full || s.maxDelay-s.minDelay > steadyTolerance:
			s.seconds = 0
		default:
			s.seconds++
		}
		s.rows = 0
		if s.seconds == int(steadyDuration/time.Second) {
			s.seconds, minimum, ok = 0, s.minDelay, true
		}
	}
	if s.rows == 0 {
		s.secondStart, s.secondMin = arrived, at
	}
	s.secondMin = min(s.secondMin, at)
	s.rows++
	return minimum, ok
}
