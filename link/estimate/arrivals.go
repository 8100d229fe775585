// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
	"time"

	"mpbond/base/unit"
)

// arrivals measures what arrives at the far end, from its own acknowledgements. A helper can only
// report, it cannot forge acknowledgements. So arrivals limit what a helper's reports may claim:
// the subflow carries no more than what arrived while bytes were waiting.
//
// The zero value is ready. Not safe for concurrent use.
type arrivals struct {
	pending   []arrivalMark // bytes sent that have not arrived, oldest first
	points    []samplePoint
	rate      unit.Rate
	rateKnown bool          // rate was measured at least once while bytes were waiting
	minRTT    time.Duration // the smallest seen, 0 before the first
}

// Tuning.
const (
	// ackSlack is how much acknowledgements may be delayed before they count as late.
	ackSlack = 40 * time.Millisecond
	// maxAckGap is the longest pause between acknowledgements within one measurement, unless a
	// round trip is longer. After a longer pause they were probably lost with the subflow that
	// carried them.
	maxAckGap = 250 * time.Millisecond
	// headroom is how far a helper's report may exceed what arrived, since measurements vary.
	headroom = 5.0 / 4
)

// needsArrivalMark reports whether bytes sent now need a mark of their own.
func (a *arrivals) needsArrivalMark(now time.Time) bool {
	n := len(a.pending)
	return n == 0 || n < maxMarks && now.Sub(a.pending[n-1].at) >= pointInterval
}

// recordSentBytes records that bytes from a position on were given to the subflow.
func (a *arrivals) recordSentBytes(now time.Time, from uint64) {
	a.pending = append(a.pending, arrivalMark{now, from})
}

// dropUnsentMarks removes bytes from position from on.
func (a *arrivals) dropUnsentMarks(from uint64) {
	for n := len(a.pending); n > 0 && a.pending[n-1].received >= from; n-- {
		a.pending = a.pending[:n-1]
	}
}

// recordArrivedBytes records that the bytes before position to have arrived. The acknowledgement
// left the far end at time at.
func (a *arrivals) recordArrivedBytes(at time.Time, to uint64, sent uint64) {
	i := 0
	for i < len(a.pending) && a.pending[i].received < to {
		i++
	}
	if i > 0 {
		// The first byte of the newest covered mark has arrived.
		if rtt := max(at.Sub(a.pending[i-1].at), time.Millisecond); a.minRTT == 0 || rtt < a.minRTT {
			a.minRTT = rtt
		}
		if to < sent && (i == len(a.pending) || to < a.pending[i].received) {
			i-- // the mark also covers bytes that have not arrived
		}
		a.pending = a.pending[:copy(a.pending, a.pending[i:])]
	}
}

// endToEndRTT returns the smallest round trip seen end to end, including that of the handshake
// (join, 0 if unknown).
func (a *arrivals) endToEndRTT(join time.Duration) time.Duration {
	if a.minRTT == 0 || join > 0 && join < a.minRTT {
		return join
	}
	return a.minRTT
}

// oldestMissingAge returns how long the oldest byte that has not arrived has been in flight, 0 if
// there is none.
func (a *arrivals) oldestMissingAge(now time.Time) time.Duration {
	if len(a.pending) == 0 {
		return 0
	}
	return now.Sub(a.pending[0].at)
}

// addArrivalSample adds a sample of the bytes acknowledged and the bytes in flight.
func (a *arrivals) addArrivalSample(now time.Time, acked uint64, outstanding unit.Bytes) {
	n, rtt := len(a.points), min(a.minRTT, maxRTT)
	if n > 0 && now.Sub(a.points[n-1].at) > max(maxAckGap, rtt) {
		a.points, n = a.points[:0], 0
	}
	if n > 0 && now.Sub(a.points[n-1].at) < pointInterval {
		return
	}
	span := max(2*rtt+ackSlack, 2*minSpan)
	old := 0
	for old+1 < n && now.Sub(a.points[old+1].at) >= span {
		old++
	}
	a.points = a.points[:copy(a.points, a.points[old:])]
	a.points = append(a.points, samplePoint{at: now, acked: acked, queue: outstanding})
	first := a.points[0]
	took := now.Sub(first.at)
	if took < span {
		return
	}
	r := unit.RateOf(unit.Bytes(acked-min(first.acked, acked)), took)
	// Bytes that were in flight two round trips ago and have not arrived have waited. So the bytes
	// that arrived since then are all that the subflow can carry.
	waited := acked < first.acked+uint64(first.queue)
	if waited && r > 0 || r > a.rate {
		a.rate, a.rateKnown = r, a.rateKnown || waited
	}
}

// helperRateBound returns the highest rate that a helper's reports may claim for the subflow. Until
// bytes have waited, this bound doubles with each round trip, like TCP's slow start.
func (a *arrivals) helperRateBound(acked uint64, rtt time.Duration) unit.Rate {
	window := unit.RateOf(initialWindow+unit.Bytes(acked), cmp.Or(a.minRTT, max(rtt, time.Millisecond)))
	if !a.rateKnown {
		return max(window, a.rate)
	}
	return unit.Rate(float64(a.rate) * headroom)
}
