// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
)

// Result describes a recorded or replayed transfer by the sender's events.
type Result struct {
	Scheduler string `json:"scheduler"` // "recorded" for the recording
	// Seconds count from the first segment until the sender knew that the last byte had arrived.
	Seconds  float64         `json:"seconds"`
	Subflows []SubflowResult `json:"subflows"`
	// EndedApart is the time between the ends of the subflows that delivered new bytes.
	EndedApart float64 `json:"ended_apart_seconds"`
	// Wasted counts bytes sent again, by cause: eta, silent, lost, copy.
	Wasted map[string]unit.Bytes `json:"wasted_bytes"`
	// Decisions counts the scheduler's decisions by reason.
	Decisions map[string]int `json:"decisions"`
}

// SubflowResult is the part of one subflow.
type SubflowResult struct {
	ID     uint32     `json:"subflow"`
	Device string     `json:"device"`
	Bytes  unit.Bytes `json:"bytes"` // given to it
	Share  float64    `json:"share"`
	// Ended is when its last bytes that were new to the peer were acknowledged, 0 if there were
	// none.
	Ended float64 `json:"ended_seconds"`
}

// transferTally computes a Result from a sender's events.
type transferTally struct {
	start      time.Time // time of the first segment
	lastNewAck time.Time // newest acknowledgement of new bytes
	bytesLeft  unit.Bytes
	received   map[uint64]*byteRanges
	inFlight   map[uint32][]trace.Event // unacknowledged segments by subflow
	result     Result
}

// newTransferTally returns an empty tally for a recording.
func newTransferTally(r *Recording) *transferTally {
	t := &transferTally{received: map[uint64]*byteRanges{}, inFlight: map[uint32][]trace.Event{},
		result: Result{Wasted: map[string]unit.Bytes{}, Decisions: map[string]int{}}}
	for _, s := range r.Streams {
		t.bytesLeft += s.Size
	}
	for _, p := range r.Subflows {
		t.result.Subflows = append(t.result.Subflows, SubflowResult{ID: uint32(p.ID), Device: p.Device})
	}
	return t
}

// subflowResult returns the result of a subflow, a new one if there is none.
func (t *transferTally) subflowResult(id uint32) *SubflowResult {
	for i := range t.result.Subflows {
		if t.result.Subflows[i].ID == id {
			return &t.result.Subflows[i]
		}
	}
	t.result.Subflows = append(t.result.Subflows, SubflowResult{ID: id})
	return &t.result.Subflows[len(t.result.Subflows)-1]
}

// tallyTraceEvent adds an event.
func (t *transferTally) tallyTraceEvent(e trace.Event) {
	switch e.Kind {
	case trace.Segment:
		if t.start.IsZero() {
			t.start = e.Time()
		}
		t.subflowResult(e.Subflow).Bytes += e.Length
		t.inFlight[e.Subflow] = append(t.inFlight[e.Subflow], e)
		if e.Reason == "copy" {
			t.result.Wasted["copy"] += e.Length
		}
	case trace.Ack:
		q := t.inFlight[e.Subflow]
		for len(q) > 0 && q[0].Count <= e.Offset {
			t.recordArrival(q[0], e)
			q = q[1:]
		}
		t.inFlight[e.Subflow] = q
	case trace.Reinject:
		t.result.Wasted[e.Reason] += e.Length
	case trace.Decision:
		t.result.Decisions[e.Reason]++
	}
}

// recordArrival records that e acknowledges segment s.
func (t *transferTally) recordArrival(s, e trace.Event) {
	p := t.received[s.Stream]
	if p == nil {
		p = &byteRanges{}
		t.received[s.Stream] = p
	}
	if n := p.addArrivedRange(s.Offset, s.Offset+uint64(s.Length)); n > 0 {
		t.bytesLeft -= n
		t.lastNewAck = e.Time()
		t.subflowResult(e.Subflow).Ended = e.Time().Sub(t.start).Seconds()
	}
}

// allBytesArrived reports whether all bytes have arrived.
func (t *transferTally) allBytesArrived() bool { return t.bytesLeft <= 0 }

// finishResult returns the result.
func (t *transferTally) finishResult(scheduler string) Result {
	r := t.result
	r.Scheduler = scheduler
	if !t.lastNewAck.IsZero() {
		r.Seconds = t.lastNewAck.Sub(t.start).Seconds()
	}
	var all unit.Bytes
	first, last := 0.0, 0.0
	for _, p := range r.Subflows {
		all += p.Bytes
		if p.Ended > 0 {
			if first == 0 || p.Ended < first {
				first = p.Ended
			}
			last = max(last, p.Ended)
		}
	}
	for i := range r.Subflows {
		r.Subflows[i].Share = float64(r.Subflows[i].Bytes) / float64(max(all, 1))
	}
	r.EndedApart = last - first
	return r
}

// byteRanges are the ranges of a stream that have arrived, in order and disjoint.
type byteRanges struct{ ranges [][2]uint64 }

// addArrivedRange adds a range and returns how many of its bytes are new.
func (p *byteRanges) addArrivedRange(from, to uint64) unit.Bytes {
	if from >= to {
		return 0
	}
	added := to - from
	i := 0
	for i < len(p.ranges) && p.ranges[i][1] < from {
		i++
	}
	j := i
	for ; j < len(p.ranges) && p.ranges[j][0] <= to; j++ {
		q := p.ranges[j]
		if a, b := max(q[0], from), min(q[1], to); a < b {
			added -= b - a
		}
	}
	if j > i {
		from, to = min(from, p.ranges[i][0]), max(to, p.ranges[j-1][1])
	}
	p.ranges = slices.Replace(p.ranges, i, j, [2]uint64{from, to})
	return unit.Bytes(added)
}
