// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
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
	ackedAt time.Time // the latest time that an acknowledgement gave for the bytes it covers
}

// segmentForecast says when a segment leaves hop 1, when it arrives if it is not late, and when its
// acknowledgement is due by the estimates at its sending.
type segmentForecast struct {
	end                  uint64 // position after its last byte
	leaves, arrives, due time.Time
}

// addFlightSegment adds a segment, which arrives at s.arrives with the lateness late. Beyond maxMarks
// it is merged with the newest one. Bytes arrive in order, so no segment is due after a later one.
func (f *flight) addFlightSegment(s segmentForecast, late time.Duration) {
	s.arrives = s.arrives.Add(-late)
	n := len(f.segments)
	for i := n - 1; i >= 0 && f.segments[i].due.After(s.due); i-- {
		f.segments[i].due = s.due
	}
	if n >= maxMarks {
		s.due = f.segments[n-1].due
		f.segments[n-1] = s
	} else {
		f.segments = append(f.segments, s)
	}
}

// latenessAt returns how much later than forecast segments arrive, as known at time now. The oldest
// one had not arrived when its acknowledgement would have had to leave, ackTime before now.
func (f *flight) latenessAt(now time.Time, ackTime time.Duration) time.Duration {
	if len(f.segments) == 0 {
		return f.late
	}
	return max(f.late, now.Add(-ackTime).Sub(f.segments[0].arrives))
}

// findSegmentAt returns the segment with the byte at a position, or the oldest one if that byte is
// acknowledged. It returns false if the byte was not sent.
func (f *flight) findSegmentAt(position uint64, late time.Duration) (s segmentForecast, ok bool) {
	i := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].end > position })
	if i == len(f.segments) {
		return s, false
	}
	s = f.segments[i]
	s.arrives = s.arrives.Add(late)
	return s, true
}

// arrivedBefore returns the position up to which bytes have arrived before a time, at least acked.
func (f *flight) arrivedBefore(at time.Time, acked uint64, late time.Duration) uint64 {
	at = at.Add(-late)
	i := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].arrives.After(at) })
	if i == 0 {
		return acked
	}
	return max(acked, f.segments[i-1].end)
}

// newestArrival returns when the newest byte arrives; zero if nothing is in flight.
func (f *flight) newestArrival(late time.Duration) time.Time {
	if len(f.segments) == 0 {
		return time.Time{}
	}
	return f.segments[len(f.segments)-1].arrives.Add(late)
}

// dropUnsentSegments removes the bytes from a position on.
func (f *flight) dropUnsentSegments(from uint64) {
	for n := len(f.segments); n > 0 && f.segments[n-1].end > from; n-- {
		if n == maxMarks && f.segments[n-2].end < from {
			f.segments[n-1].end = from // it was merged
			return
		}
		f.segments = f.segments[:n-1]
	}
}

// recordSegmentAck records that the bytes before a position had arrived by time at, but not by the
// time of the acknowledgement before. If the forecast lies outside of these times, all segments
// that follow are corrected by the difference. Acknowledgements may be delayed and overtake each
// other, so the earlier time is the upper bound.
func (f *flight) recordSegmentAck(to uint64, at time.Time) {
	n := sort.Search(len(f.segments), func(i int) bool { return f.segments[i].end > to })
	if n > 0 {
		switch arrives := f.segments[n-1].arrives.Add(f.late); {
		case at.Before(arrives):
			f.late += at.Sub(arrives)
		case f.ackedAt.After(arrives):
			f.late += earlierOf(f.ackedAt, at).Sub(arrives)
		}
		f.segments = f.segments[:copy(f.segments, f.segments[n:])]
	}
	if len(f.segments) == 0 {
		f.late = 0
	}
	f.ackedAt = laterOf(f.ackedAt, at)
}

func earlierOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ackLateBy returns how late the oldest awaited acknowledgement is, 0 if it is not.
func (f *flight) ackLateBy(now time.Time) time.Duration {
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
	// its limit, of a packet train or of pacing. 0 is unknown: then only windows delay bytes.
	bottleneck unit.Rate
	farGrowing bool          // hop 2 was never seen at its limit: its TCP is in slow start
	late       time.Duration // flight.latenessAt
}

// limitBottleneck records that a hop carries at most r.
func (s *hopState) limitBottleneck(r unit.Rate) {
	if r > 0 && (s.bottleneck == 0 || r < s.bottleneck) {
		s.bottleneck = r
	}
}

// forecastSegment returns when n more bytes leave hop 1, and when the last of them arrives.
func (p *Subflow) forecastSegment(now time.Time, n unit.Bytes, s *hopState) (leaves, arrives time.Time) {
	leaves = p.localHopDeparture(now, n, s)
	arrives = laterOf(leaves.Add(s.owd1+s.owd2), p.farHopDeparture(now, n, s).Add(s.owd2))
	arrives = laterOf(arrives, p.flight.newestArrival(s.late))
	if s.bottleneck > 0 {
		arrives = arrives.Add(s.bottleneck.Time(n))
	}
	return leaves, arrives
}

// localHopDeparture returns when the window of hop 1 permits n more bytes. They wait until as many
// bytes are acknowledged as exceed the window. In slow start half of them suffice, since each
// acknowledged byte permits two. TCP counts packets, whatever their size.
func (p *Subflow) localHopDeparture(now time.Time, n unit.Bytes, s *hopState) time.Time {
	h := &s.hop1
	window, slowStart := h.Cwnd, h.SlowStart
	if window == 0 || h.Blind || p.sent == 0 {
		return now
	}
	if h.Queue == 0 {
		left := p.windowAfterIdle(now, window, h.SRTT+max(4*h.RTTVar, minTimeout))
		window, slowStart = left, slowStart || left < window
	}
	full := max(h.Queue, h.Unsent+unit.Bytes(h.InFlight)*h.MSS) // as if all packets were full
	over := full + n - window
	if slowStart {
		over /= 2
	}
	if over <= 0 {
		return now
	}
	if full > h.Queue {
		over = max(over*h.Queue/full, 1)
	}
	first := p.sent - min(p.sent, uint64(h.Queue))  // position of the first byte on hop 1
	position := min(first+uint64(over-1), p.sent-1) // the last byte that must be acknowledged
	if position < p.acked {
		return now
	}
	before, ok := p.flight.findSegmentAt(position, s.late)
	if !ok {
		return now
	}
	acked := before.leaves.Add(2 * s.owd1)
	if !p.Helped {
		acked = before.arrives.Add(s.owd1)
	}
	return laterOf(now, acked)
}

// farHopDeparture returns when the window of hop 2 permits n more bytes, while its TCP is in slow
// start.
func (p *Subflow) farHopDeparture(now time.Time, n unit.Bytes, s *hopState) time.Time {
	if !s.farGrowing || p.sent == 0 {
		return now
	}
	first := p.flight.arrivedBefore(now.Add(-s.owd2), p.acked, s.late) // acknowledged to the helper
	window := p.windowAfterIdle(now, p.farWindow(first), farTimeout(s))
	over := (unit.Bytes(p.sent-first) + n - window) / 2
	if over <= 0 {
		return now
	}
	before, ok := p.flight.findSegmentAt(min(first+uint64(over-1), p.sent-1), s.late)
	if !ok {
		return now
	}
	return before.arrives.Add(s.owd2)
}

// farWindow returns the window of hop 2 in slow start when the bytes before a position have been
// acknowledged to the helper.
func (p *Subflow) farWindow(acked uint64) unit.Bytes {
	return initialWindow + unit.Bytes(acked-p.farWindowStart)
}

// farTimeout returns the retransmission timeout of hop 2.
func farTimeout(s *hopState) time.Duration { return 2*s.owd2 + minTimeout }

// shrinkFarWindow makes the window of hop 2 begin again at what an idle time has left of it.
func (p *Subflow) shrinkFarWindow(now time.Time, s *hopState) {
	left := p.windowAfterIdle(now, p.farWindow(p.acked), farTimeout(s))
	p.farWindowStart = p.acked - uint64(left-initialWindow)
}

// windowAfterIdle returns what is left of a congestion window after the idle time up to now: half of
// it for each timeout in which nothing was in flight.
func (p *Subflow) windowAfterIdle(now time.Time, window unit.Bytes, timeout time.Duration) unit.Bytes {
	if p.sent != p.acked || p.sentAt.IsZero() || window <= initialWindow {
		return window
	}
	timeouts := now.Sub(laterOf(p.sentAt, p.ackedAt)) / timeout
	return max(window>>min(max(timeouts, 0), 20), initialWindow)
}

// AddForecast adds Forecast and HalfArrives to an estimate for time now. TimeToAck then is that of a
// byte that arrives when forecast.
func (p *Subflow) AddForecast(n *Estimate, now time.Time) {
	s := &n.hops
	_, arrives := p.forecastSegment(now, cmp.Or(s.hop1.MSS, guessMSS), s)
	n.Forecast = max(arrives.Sub(now), n.OWD+n.AckLate)
	if s.bottleneck == 0 && (s.hop1.Blind || s.hop1.Cwnd == 0) {
		n.Forecast = max(n.Forecast, n.PAD) // neither a rate nor a window is known
	}
	n.TimeToAck = max(n.TimeToAck, n.Forecast+n.OWD+ackSlack)
	n.HalfArrives = n.OWD
	if middle, ok := p.flight.findSegmentAt(p.acked+(p.sent-p.acked)/2, s.late); ok {
		n.HalfArrives = middle.arrives.Sub(now)
	}
}

// AckLateness returns how late the oldest awaited acknowledgement of the far end is, 0 if it is not.
// It counts for a direct subflow too: while other subflows have nothing to do, what is late there may
// go over them.
func (p *Subflow) AckLateness(now time.Time) time.Duration { return p.flight.ackLateBy(now) }

// helperAckLateness returns how late the oldest awaited acknowledgement of a helped subflow is. That
// delays new bytes by as much. Those of a direct one are delayed by its TCP's queue, which PAD knows.
func (p *Subflow) helperAckLateness(now time.Time) time.Duration {
	if !p.Helped {
		return 0
	}
	return p.flight.ackLateBy(now)
}
