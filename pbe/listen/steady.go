package listen

import "time"

// Where messages have taken longer than at the best, but as long all the time and
// with none missing, for steadyFor, no queue grows or is caught up with: a clock was
// set, the decoder lost samples, or the way from it became longer. Then this is what
// they take. A second's least counts, as a busy device makes others late; it may
// differ by steadyWithin, as it does between clocks 1000 ppm apart.
const (
	steadyFor    = 10 * time.Second
	steadyWithin = 10 * time.Millisecond
	// steadyRows, of 1000, must come in each second: a decoder misses some.
	steadyRows = 900
)

// steady looks for that. Its zero value is ready.
type steady struct {
	seconds     int           // so far
	least, most time.Duration // of the seconds' leasts; valid if seconds > 0
	begin       time.Duration // of this second
	now         time.Duration // the least of this second; valid if rows > 0
	rows        int
}

// add takes a row that arrived at a time, and by how much that differs from its
// number. It returns the least of the last steadyFor if they were steady.
func (s *steady) add(arrived, at time.Duration) (least time.Duration, ok bool) {
	if s.rows > 0 && arrived-s.begin >= time.Second {
		full := s.rows >= steadyRows && arrived-s.begin < 1100*time.Millisecond
		if s.seconds == 0 {
			s.least, s.most = s.now, s.now
		}
		s.least, s.most = min(s.least, s.now), max(s.most, s.now)
		switch {
		case !full || s.most-s.least > steadyWithin:
			s.seconds = 0
		default:
			s.seconds++
		}
		s.rows = 0
		if s.seconds == int(steadyFor/time.Second) {
			s.seconds, least, ok = 0, s.least, true
		}
	}
	if s.rows == 0 {
		s.begin, s.now = arrived, at
	}
	s.now = min(s.now, at)
	s.rows++
	return least, ok
}
