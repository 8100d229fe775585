package estimate

import (
	"time"

	"mpbond/link/wire"
)

// helperDelay measures how long bytes wait at a helper, from its reports alone: what has
// left it when a report comes, had been received when an earlier one came. Such
// a measurement is of the past: it tells what happened to bytes that are gone,
// not how long what is there now will take (MPBond, MobiSys 2020, section 4.2,
// which estimates from the backlog instead). It is there for comparison.
//
// The zero value is ready. Not safe for concurrent use.
type helperDelay struct {
	marks     []arrivalMark // in order of time, from the newest one on that has left as a whole
	forwarded uint64
	delay     time.Duration
}

// arrivalMark is how much the helper had received at a time.
type arrivalMark struct {
	at       time.Time
	received uint64
}

// reportDelay is how long after data came a helper tells of it, about.
const reportDelay = 100 * time.Millisecond

// maxMarks bounds the memory of a helper that goes on receiving and passes
// nothing on; the oldest are forgotten.
const maxMarks = 1024

// addReport takes a report. Its round trip is that of the pipe, for which a byte that
// was acknowledged there has been away besides.
func (h *helperDelay) addReport(now time.Time, s wire.HopState) {
	if len(h.marks) == maxMarks {
		h.marks = h.marks[:copy(h.marks, h.marks[maxMarks/2:])]
	}
	h.marks = append(h.marks, arrivalMark{now, s.Received})
	if s.Forwarded <= h.forwarded {
		return // nothing has left: what was measured stays
	}
	h.forwarded = s.Forwarded
	i := 0
	for i+1 < len(h.marks) && h.marks[i+1].received < s.Forwarded {
		i++
	}
	h.marks = h.marks[:copy(h.marks, h.marks[i:])]
	came := h.marks[0].at
	if first := h.marks[0].received; len(h.marks) > 1 && first < s.Forwarded {
		next := h.marks[1]
		if from := next.at.Add(-reportDelay); from.After(came) { // nothing came before it, or it would have been told
			came = from
		}
		came = came.Add(time.Duration(float64(next.at.Sub(came)) * float64(s.Forwarded-first) / float64(next.received-first)))
	}
	h.delay = max(0, now.Sub(came)-s.RTT)
}
