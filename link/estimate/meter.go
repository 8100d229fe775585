package estimate

import (
	"time"

	"mpbond/base/unit"
)

// Meter measures the throughput of one TCP hop at its sending end from
// successive samples of Hop: the bytes acknowledged within about a round trip.
// The kernel's own delivery rate is no good here: it counts packets, so that
// small ones inflate it, and takes a hop for limited by the application as long
// as the window is not full, however long the queue in the network has become
// (measured on a pipe of 5 Mbit/s fed with 10: "9.7 Mbit/s, app-limited").
//
// The zero Meter is ready. Not safe for concurrent use.
type Meter struct {
	points    []samplePoint
	rate      unit.Rate // the estimate
	limitSeen bool      // rate was once measured while the hop was the limit
}

type samplePoint struct {
	at            time.Time
	acked         uint64
	queue, unsent unit.Bytes
	paced         bool
}

// Tuning.
const (
	// A measurement spans a round trip, within these bounds: shorter ones are
	// spoilt by delayed acknowledgements, longer ones believe a drop too late.
	minSpan, maxSpan = 40 * time.Millisecond, 250 * time.Millisecond
	// A pause in the samples is not part of a measurement.
	maxSampleGap = 100 * time.Millisecond
	// pointInterval thins the samples out.
	pointInterval = 4 * time.Millisecond
)

// Add takes a sample.
func (m *Meter) Add(now time.Time, h Hop) {
	n := len(m.points)
	if n > 0 && now.Sub(m.points[n-1].at) > maxSampleGap {
		m.points, n = m.points[:0], 0
	}
	if n > 0 && now.Sub(m.points[n-1].at) < pointInterval {
		return
	}
	span := min(max(h.SRTT, minSpan), maxSpan)
	old := 0
	for old+1 < n && now.Sub(m.points[old+1].at) >= span {
		old++
	}
	m.points = m.points[:copy(m.points, m.points[old:])]
	m.points = append(m.points, samplePoint{now, h.Acked, h.Queue, h.Unsent, h.PacingLimit > 0})
	first := m.points[0]
	took := now.Sub(first.at)
	if took < span {
		return
	}
	r := unit.RateOf(unit.Bytes(h.Acked-min(first.acked, h.Acked)), took)
	switch {
	case m.isHopLimited(r, h):
		m.rate, m.limitSeen = r, true
	case r > m.rate:
		m.rate = r
	}
}

// isHopLimited reports whether the hop, and not what fed it, set the pace r for as
// long as the points span: TCP always had bytes that it could not send yet, or
// clearly more was under way than fits a round trip without queue. A pace that
// we keep to is none of the hop's doing.
func (m *Meter) isHopLimited(r unit.Rate, h Hop) bool {
	full := max(r, m.rate).Bytes(h.MinRTT)*5/4 + 2*h.MSS
	for _, p := range m.points {
		if p.paced || p.unsent == 0 && p.queue <= full {
			return false
		}
	}
	return r > 0
}

// Rate is the estimate, 0 before the first. Limited tells that it is a lower
// bound only: the hop was never seen at its limit. An estimate at the limit
// stays until a later one, or until more than it was carried.
func (m *Meter) Rate() (r unit.Rate, limited bool) { return m.rate, !m.limitSeen }
