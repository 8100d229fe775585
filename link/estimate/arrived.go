package estimate

import (
	"cmp"
	"time"

	"mpbond/base/unit"
)

// arrivals measures what arrives end to end, from the acknowledgements of the far
// end. No device in between can forge these: a helper can only report. So arrivals
// bound a helper's reports: the subflow carries no more than what arrived while
// bytes were waiting, and a byte takes at least as long as the oldest one that has
// not arrived has waited already. They also show which bytes are late, against what
// was estimated when they were sent.
//
// The zero value is ready. Not safe for concurrent use.
type arrivals struct {
	pending   []pendingAck // what was sent and has not arrived, oldest first
	points    []samplePoint
	rate      unit.Rate
	rateKnown bool          // rate was once measured while bytes were waiting
	minRTT    time.Duration // the least seen, 0 before any
}

// Tuning.
const (
	// Acknowledgements that are delayed by so much are not counted as late.
	ackSlack = 40 * time.Millisecond
	// A longer pause of acknowledgements is not part of a measurement: they were lost,
	// perhaps, with the subflow that carried them.
	maxAckGap = 250 * time.Millisecond
	// headroom is how much more than what arrived a helper's report may claim:
	// measurements vary.
	headroom = 5.0 / 4
)

// pendingAck is a mark of bytes sent at about one time, with the time when the
// acknowledgement of the first of them is due by the estimates of that moment.
type pendingAck struct {
	arrivalMark
	due time.Time
}

// needsMark reports whether bytes that are sent now get a mark of their own.
func (a *arrivals) needsMark(now time.Time) bool {
	n := len(a.pending)
	return n == 0 || n < maxMarks && now.Sub(a.pending[n-1].at) >= pointInterval
}

// recordSent notes that bytes from a position on were given to the subflow, and that their
// acknowledgement is expected within a time.
func (a *arrivals) recordSent(now time.Time, from uint64, within time.Duration) {
	a.pending = append(a.pending, pendingAck{arrivalMark{now, from}, now.Add(within)})
}

// overdueBy returns how long the oldest acknowledgement has been due.
func (a *arrivals) overdueBy(now time.Time) time.Duration {
	if len(a.pending) == 0 {
		return 0
	}
	return max(0, now.Sub(a.pending[0].due))
}

// postponeDue makes each acknowledgement due later by d.
func (a *arrivals) postponeDue(d time.Duration) {
	for i := range a.pending {
		a.pending[i].due = a.pending[i].due.Add(d)
	}
}

// dropUnsent forgets bytes from a position on.
func (a *arrivals) dropUnsent(from uint64) {
	for n := len(a.pending); n > 0 && a.pending[n-1].received >= from; n-- {
		a.pending = a.pending[:n-1]
	}
}

// recordAcked notes that the bytes up to a position have arrived. The news left the far
// end at a time.
func (a *arrivals) recordAcked(at time.Time, to uint64, sent uint64) {
	i := 0
	for i < len(a.pending) && a.pending[i].received < to {
		i++
	}
	if i > 0 {
		// The byte of the newest mark that is covered has arrived.
		if rtt := max(at.Sub(a.pending[i-1].at), time.Millisecond); a.minRTT == 0 || rtt < a.minRTT {
			a.minRTT = rtt
		}
		if to < sent && (i == len(a.pending) || to < a.pending[i].received) {
			i-- // its bytes go on up to the next mark
		}
		a.pending = a.pending[:copy(a.pending, a.pending[i:])]
	}
}

// endToEndRTT is the shortest round trip that was seen end to end, that of the handshake
// included if it is known.
func (a *arrivals) endToEndRTT(join time.Duration) time.Duration {
	if a.minRTT == 0 || join > 0 && join < a.minRTT {
		return join
	}
	return a.minRTT
}

// oldestAge is how long the oldest byte that has not arrived has been under way.
func (a *arrivals) oldestAge(now time.Time) time.Duration {
	if len(a.pending) == 0 {
		return 0
	}
	return now.Sub(a.pending[0].at)
}

// addSample takes a sample of what has arrived and of what is under way.
func (a *arrivals) addSample(now time.Time, acked uint64, outstanding unit.Bytes) {
	n := len(a.points)
	if n > 0 && now.Sub(a.points[n-1].at) > maxAckGap {
		a.points, n = a.points[:0], 0
	}
	if n > 0 && now.Sub(a.points[n-1].at) < pointInterval {
		return
	}
	span := min(max(2*a.minRTT+ackSlack, 2*minSpan), time.Second)
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
	// What was under way two round trips ago and has not arrived has waited: so all
	// that the subflow carries is what came meanwhile.
	waited := acked < first.acked+uint64(first.queue)
	if waited && r > 0 || r > a.rate {
		a.rate, a.rateKnown = r, a.rateKnown || waited
	}
}

// rateBound is the most that the subflow is believed to carry. Until bytes have waited
// that is what doubles with each round trip, as in TCP's slow start.
func (a *arrivals) rateBound(acked uint64, rtt time.Duration) unit.Rate {
	window := unit.RateOf(initialWindow+unit.Bytes(acked), cmp.Or(a.minRTT, max(rtt, time.Millisecond)))
	if !a.rateKnown {
		return max(window, a.rate)
	}
	return unit.Rate(float64(a.rate) * headroom)
}
