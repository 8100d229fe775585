package listen

import "time"

// Where messages have taken longer than at the best, but as long all the time and
// with none missing, for steadyDuration, no queue grows or is caught up with: a clock was
// set, the decoder lost samples, or the way from it became longer. Then this is what
// they take. A second's least counts, as a busy device makes others late; it may
// differ by steadyTolerance, as it does between clocks 1000 ppm apart.
const (
	steadyDuration  = 10 * time.Second
	steadyTolerance = 10 * time.Millisecond
	// minSteadyRows, of 1000, must come in each second: a decoder misses some.
	minSteadyRows = 900
)

// steadyDelay looks for that. Its zero value is ready.
type steadyDelay struct {
	seconds            int           // so far
	minDelay, maxDelay time.Duration // of the seconds' leasts; valid if seconds > 0
	secondStart        time.Duration // of this second
	secondMin          time.Duration // the least of this second; valid if rows > 0
	rows               int
}

// addRow takes a row that arrived at a time, and by how much that differs from its
// number. It returns the least of the last steadyDuration if they were steady.
func (s *steadyDelay) addRow(arrived, at time.Duration) (least time.Duration, ok bool) {
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
			s.seconds, least, ok = 0, s.minDelay, true
		}
	}
	if s.rows == 0 {
		s.secondStart, s.secondMin = arrived, at
	}
	s.secondMin = min(s.secondMin, at)
	s.rows++
	return least, ok
}
