// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"sort"
	"time"

	"mpbond/base/unit"
)

// Forecasts of when each segment arrives. A segment leaves hop 1 once the window of that hop's TCP
// permits, passes the helper once the window of hop 2 permits, and follows the segment before it at
// the rate of the slowest hop. So a forecast needs no average rate of slow start: it follows each
// byte whose acknowledgement opens a window. See docs/adr/0022.

// minTimeout is the least retransmission timeout of Linux. After an idle time of one timeout, TCP
// halves its window, down to the initial window (RFC 2861).
const minTimeout = 200 * time.Millisecond

// flight holds the forecast of each segment in flight, oldest first. The zero value is ready. Not
// safe for concurrent use.
type flight struct {
	segments []segmentForecast
	// late is how much later than forecast the acknowledged segments arrived. The others are
	// assumed to be as late.
	late    time.Duration
	ackedAt time.Time // when the newest acknowledged byte had arrived
}

// segmentForecast says when a segment leaves hop 1, when it arrives if it is not late, and when its
// acknowledgement is due by the estimates at its sending.
type segmentForecast struct {
	end                  uint64 // position after its last byte
	leaves, arrives, due time.Time
}

// addFlightSegment adds a segment. Beyond maxMarks it is merged with the newest one.
func (f *flight) addFlightSegment(s segmentForecast) {
	s.arrives = s.arrives.Add(-f.late)
	if n := len(f.segments); n >= maxMarks {
		f.segments[n-1] = s
	} else {
		f.segments = append(f.segments, s)
	}
}

// findSegmentAt returns the segment with the byte at a position. It returns false if that byte is
// not in flight.
func (f *flight) findSegmentAt(position uint64) (s segmentForecast, ok bool) {
	i := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].end > position })
	if i == len(f.segments) {
		return s, false
	}
	s = f.segments[i]
	s.arrives = s.arrives.Add(f.late)
	return s, true
}

// arrivedBefore returns the position up to which bytes have arrived before a time, at least acked.
func (f *flight) arrivedBefore(at time.Time, acked uint64) uint64 {
	at = at.Add(-f.late)
	i := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].arrives.After(at) })
	if i == 0 {
		return acked
	}
	return max(acked, f.segments[i-1].end)
}

// newestArrival returns when the newest byte arrives; zero if nothing is in flight.
func (f *flight) newestArrival() time.Time {
	if len(f.segments) == 0 {
		return time.Time{}
	}
	return f.segments[len(f.segments)-1].arrives.Add(f.late)
}

// dropUnsentSegments removes the bytes from a position on.
func (f *flight) dropUnsentSegments(from uint64) {
	for n := len(f.segments); n > 0 && f.segments[n-1].end > from; n-- {
		f.segments = f.segments[:n-1]
	}
}

// recordSegmentAck records that the bytes before a position had arrived by time at, but not by the
// time of the acknowledgement before. If the forecast lies outside of these times, all segments
// that follow are corrected by the difference.
func (f *flight) recordSegmentAck(to uint64, at time.Time) {
	n := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].end > to })
	if n > 0 {
		switch arrives := f.segments[n-1].arrives.Add(f.late); {
		case at.Before(arrives):
			f.late += at.Sub(arrives)
		case f.ackedAt.After(arrives):
			f.late += f.ackedAt.Sub(arrives)
		}
		f.segments = f.segments[:copy(f.segments, f.segments[n:])]
	}
	if len(f.segments) == 0 {
		f.late = 0
	}
	f.ackedAt = at
}

// ackOverdueBy returns how long the oldest awaited acknowledgement has been overdue, 0 if it is
// not.
func (f *flight) ackOverdueBy(now time.Time) time.Duration {
	if len(f.segments) == 0 {
		return 0
	}
	return max(0, now.Sub(f.segments[0].due))
}

// postponeDue delays the due time of each acknowledgement by d.
func (f *flight) postponeDue(d time.Duration) {
	for i := range f.segments {
		f.segments[i].due = f.segments[i].due.Add(d)
	}
}

// clearSegments removes all segments.
func (f *flight) clearSegments() { f.segments, f.late = f.segments[:0], 0 }

// hopState is what a forecast uses of both hops.
type hopState struct {
	hop1       Hop
	owd1, owd2 time.Duration
	// bottleneck is the rate of the slowest hop, as far as it is known: that of a hop that was at
	// its limit, of a packet train or of pacing. 0 is unknown.
	bottleneck unit.Rate
	farGrowing bool // hop 2 was never seen at its limit: its TCP is in slow start
}

// limitBottleneck records that a hop carries at most r.
func (s *hopState) limitBottleneck(r unit.Rate) {
	if r > 0 && (s.bottleneck == 0 || r < s.bottleneck) {
		s.bottleneck = r
	}
}

// forecastSegment returns when n more bytes leave hop 1, and when the last of them arrives.
func (p *Subflow) forecastSegment(now time.Time, n unit.Bytes, s *hopState) (leaves, arrives time.Time) {
	leaves = p.leavesLocalHop(now, n, s)
	arrives = leaves.Add(s.owd1 + s.owd2)
	if at := p.leavesFarHop(now, n, s).Add(s.owd2); at.After(arrives) {
		arrives = at
	}
	if newest := p.flight.newestArrival(); newest.After(arrives) {
		arrives = newest
	}
	if s.bottleneck > 0 {
		arrives = arrives.Add(s.bottleneck.Time(n))
	}
	return leaves, arrives
}

// leavesLocalHop returns when the window of hop 1 permits n more bytes. They wait until as
// many bytes are acknowledged as exceed the window. In slow start half of them suffice, since each
// acknowledged byte permits two.
func (p *Subflow) leavesLocalHop(now time.Time, n unit.Bytes, s *hopState) time.Time {
	h := &s.hop1
	window := h.Cwnd
	if window == 0 || h.Blind {
		return now
	}
	if h.Queue == 0 {
		window = p.idleWindow(now, window, h.SRTT+max(4*h.RTTVar, minTimeout))
	}
	over := h.Queue + n - window
	if h.SlowStart {
		over /= 2
	}
	if over <= 0 || p.sent == 0 {
		return now
	}
	first := p.sent - min(p.sent, uint64(h.Queue))  // position of the first byte on hop 1
	position := min(first+uint64(over-1), p.sent-1) // the last byte that must be acknowledged
	if position < p.acked {
		return now
	}
	before, ok := p.flight.findSegmentAt(position)
	if !ok {
		return now
	}
	acked := before.leaves.Add(2 * s.owd1)
	if !p.Helped {
		acked = before.arrives.Add(s.owd1)
	}
	if acked.After(now) {
		return acked
	}
	return now
}

// leavesFarHop returns when the window of hop 2 permits n more bytes, while its TCP is in slow
// start. That window is an initial window, and what was acknowledged to the helper since hop 2 was
// idle.
func (p *Subflow) leavesFarHop(now time.Time, n unit.Bytes, s *hopState) time.Time {
	if !s.farGrowing || p.sent == 0 {
		return now
	}
	first := p.flight.arrivedBefore(now.Add(-s.owd2), p.acked) // the helper has acknowledgements up to it
	window := initialWindow + unit.Bytes(first-p.farIdleEnd)
	window = p.idleWindow(now, window, 2*s.owd2+minTimeout)
	over := (unit.Bytes(p.sent-first) + n - window) / 2
	if over <= 0 {
		return now
	}
	before, ok := p.flight.findSegmentAt(min(first+uint64(over-1), p.sent-1))
	if !ok {
		return now
	}
	return before.arrives.Add(s.owd2)
}

// idleWindow returns what is left of a congestion window after the idle time up to now.
func (p *Subflow) idleWindow(now time.Time, window unit.Bytes, timeout time.Duration) unit.Bytes {
	restarts := p.idleTimeouts(now, timeout)
	if restarts == 0 || window <= initialWindow {
		return window
	}
	return max(window>>min(restarts, 20), initialWindow)
}

// idleTimeouts returns for how many timeouts nothing has been in flight.
func (p *Subflow) idleTimeouts(now time.Time, timeout time.Duration) int {
	if p.sent != p.acked || p.sentAt.IsZero() {
		return 0
	}
	return int(now.Sub(p.sentAt) / timeout)
}

// AddForecast adds the forecast to an estimate for time now.
func (p *Subflow) AddForecast(n *Estimate, now time.Time) {
	_, arrives := p.forecastSegment(now, max(n.hops.hop1.MSS, guessMSS), &n.hops)
	n.Forecast = arrives.Sub(now) + n.AckLate
	n.TimeToAck = max(n.TimeToAck, n.Forecast+n.OWD+ackSlack)
	n.HalfArrives = n.OWD
	if middle, ok := p.flight.findSegmentAt(p.acked + (p.sent-p.acked)/2); ok {
		n.HalfArrives = middle.arrives.Sub(now)
	}
}

// helperAckLateness returns how long the oldest awaited acknowledgement of a helped subflow has
// been overdue. Of a direct one TCP itself reports losses.
func (p *Subflow) helperAckLateness(now time.Time) time.Duration {
	if !p.Helped {
		return 0
	}
	return p.flight.ackOverdueBy(now)
}
