// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"time"

	"mpbond/link/wire"
)

// helperDelay measures how long bytes wait at a helper, from its reports alone: what has left the
// helper by this report had been received by an earlier report. The result describes bytes that are
// gone, not how long those that wait now will take. MPBond (MobiSys 2020, section 4.2) therefore
// estimates from the backlog instead. helperDelay exists for comparison.
//
// The zero value is ready. Not safe for concurrent use.
type helperDelay struct {
	marks     []arrivalMark // by time, beginning with the newest mark that has left completely
	forwarded uint64
	delay     time.Duration // the newest measurement
}

// arrivalMark records how much the helper had received at a time.
type arrivalMark struct {
	at       time.Time
	received uint64
}

// reportDelay is about how long after receiving data a helper reports it.
const reportDelay = 100 * time.Millisecond

// maxMarks bounds memory when a helper keeps receiving and forwards nothing. The oldest marks are
// dropped.
const maxMarks = 1024

// addDelayReport adds a report. Its round trip is that of the pipe: an acknowledged byte has spent
// this time outside the helper.
func (h *helperDelay) addDelayReport(now time.Time, s wire.HopState) {
	if len(h.marks) == maxMarks {
		h.marks = h.marks[:copy(h.marks, h.marks[maxMarks/2:])]
	}
	h.marks = append(h.marks, arrivalMark{now, s.Received})
	if s.Forwarded <= h.forwarded {
		return // nothing has left: keep the last measurement
	}
	h.forwarded = s.Forwarded
	i := 0
	for i+1 < len(h.marks) && h.marks[i+1].received < s.Forwarded {
		i++
	}
	h.marks = h.marks[:copy(h.marks, h.marks[i:])]
	arrivedAt := h.marks[0].at // of the bytes that have just left
	if first := h.marks[0].received; len(h.marks) > 1 && first < s.Forwarded {
		next := h.marks[1]
		// nothing came before, or an earlier report would have said so
		if from := next.at.Add(-reportDelay); from.After(arrivedAt) {
			arrivedAt = from
		}
		arrivedAt = arrivedAt.Add(time.Duration(
			float64(next.at.Sub(arrivedAt)) * float64(s.Forwarded-first) / float64(next.received-first)))
	}
	h.delay = max(0, now.Sub(arrivedAt)-s.RTT)
}
