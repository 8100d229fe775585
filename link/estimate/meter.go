// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"time"

	"mpbond/base/unit"
)

// Meter measures the throughput of one TCP hop at its sending end, from successive samples of Hop:
// the bytes acknowledged within about one round trip. The kernel's own delivery rate does not serve
// here. It counts packets, so that small ones inflate it. It also reports a hop as limited by the
// application while the window is not full, however long the queue in the network is. On a pipe of
// 5 Mbit/s fed with 10 it reported "9.7 Mbit/s, app-limited".
//
// The zero Meter is ready. Not safe for concurrent use.
type Meter struct {
	points    []samplePoint
	rate      unit.Rate // the estimate
	limitSeen bool      // rate was measured at least once while the hop was the limit

	fellAt   time.Time // when the hop was last found to carry less than half of what it did before
	fellFrom unit.Rate // the rate before
}

// samplePoint is what a measurement keeps of a sample.
type samplePoint struct {
	at            time.Time
	acked         uint64
	queue, unsent unit.Bytes
	paced         bool
}

// Tuning.
const (
	// A measurement spans one round trip within these bounds, but at least one over empty queues.
	// Shorter spans suffer from delayed acknowledgements and see a part of a burst, longer ones
	// notice a drop too late.
	minSpan, maxSpan = 40 * time.Millisecond, 250 * time.Millisecond
	// maxRTT bounds the round trip that a measurement spans, and with it the samples that are kept:
	// the other end or a helper can delay all that it acknowledges.
	maxRTT = 2 * time.Second
	// maxSampleGap is the longest pause between samples within one measurement.
	maxSampleGap = 100 * time.Millisecond
	// minPackets is how many packets must be acknowledged within a measurement that shows a hop at its
	// limit. A receiver acknowledges two at a time. Fewer may be acknowledged because
	// acknowledgements wait behind data of the other direction. If fewer are in maxSpan, that many
	// bound the rate.
	minPackets = 2
	// fallMemory is how long a fall counts. Later a long queue may be that of other traffic, which
	// would take the share of a hop that kept its own part short.
	fallMemory = 3 * time.Second
	// pointInterval is the least time between samples that are kept.
	pointInterval = 4 * time.Millisecond
)

// Add adds a sample.
func (m *Meter) Add(now time.Time, h Hop) {
	n := len(m.points)
	if n > 0 && now.Sub(m.points[n-1].at) > maxSampleGap {
		m.points, n = m.points[:0], 0
	}
	if n > 0 && now.Sub(m.points[n-1].at) < pointInterval {
		return
	}
	span := min(max(h.SRTT, minSpan), max(min(h.MinRTT, maxRTT), maxSpan))
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
	acked := unit.Bytes(h.Acked - min(first.acked, h.Acked))
	r := unit.RateOf(acked, took)
	limit := r
	if enough := minPackets * h.MSS; acked < enough {
		limit = 0
		if bound := unit.RateOf(enough, took); span >= maxSpan && bound < m.rate {
			limit = bound // it carries less than that, however late acknowledgements are
		}
	}
	switch {
	case limit > 0 && m.isHopLimited(limit, h):
		// A queue shows that the network is the limit, and not TCP, as after a loss.
		if limit < m.rate/2 && h.SRTT > h.MinRTT*3/2 {
			m.fellAt, m.fellFrom = now, m.rate
		}
		m.rate, m.limitSeen = limit, true
	case r > m.rate:
		m.rate = r
	}
}

// isHopLimited reports whether the hop limited the rate r during all points. Either TCP always had
// bytes that it could not send yet, or clearly more was in flight than fits a round trip with an
// empty queue. A pace that we set does not count as the hop's limit.
func (m *Meter) isHopLimited(r unit.Rate, h Hop) bool {
	if h.isRateGrowing() {
		return false
	}
	full := max(r, m.rate).Bytes(h.MinRTT)*5/4 + 2*h.MSS
	for _, p := range m.points {
		if p.paced || p.unsent == 0 && p.queue <= full {
			return false
		}
	}
	return r > 0
}

// hasFallen reports whether the hop has lately become less than half as fast as it was, and still is.
func (m *Meter) hasFallen(now time.Time) bool {
	return m.rate < m.fellFrom/2 && now.Sub(m.fellAt) < fallMemory
}

// Rate returns the estimate, 0 before the first. lowerBound reports that the hop was never seen at
// its limit and may carry more. An estimate at the limit remains until a later one,
// or until more was carried.
func (m *Meter) Rate() (r unit.Rate, lowerBound bool) { return m.rate, !m.limitSeen }
