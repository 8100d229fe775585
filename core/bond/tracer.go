// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
)

// Decision is a scheduling decision kept for display: the choice and its reason.
type Decision struct {
	At time.Time
	sched.Decision
	// Remaining is how many unsent bytes all streams have. The scheduler may have been given fewer:
	// those that are sent until the last one of its stream (backlog.bytesUntilDone).
	Remaining unit.Bytes
	PAD       time.Duration // of the subflow that was chosen; 0: none was
}

// traceEvery is the least time between two traced estimates of a subflow.
const traceEvery = 10 * time.Millisecond

// tracer passes events to the function set by the owner of the bond, and keeps the newest decisions
// for display. It is called with the lock of the bond's owner held, and keeps no event. The zero
// value discards events.
type tracer struct {
	sink        func(trace.Event) // nil: discard events
	changesOnly bool              // omit events of each segment
	last        sched.Decision
	decisions   *trace.Ring[Decision]
}

// wantsSegments reports whether events of each segment are traced.
func (t *tracer) wantsSegments() bool { return t.sink != nil && !t.changesOnly }

// emitUnstamped passes an event on unchanged.
func (t *tracer) emitUnstamped(e trace.Event) {
	if t.sink != nil {
		t.sink(e)
	}
}

// emitTimestamped passes on an event with the time now. Before building an event for each segment,
// check wantsSegments.
func (t *tracer) emitTimestamped(now time.Time, e trace.Event) {
	if t.sink != nil {
		e.T = now.UnixNano()
		t.sink(e)
	}
}

// traceBytes traces an event about the bytes of a DATA frame.
func (t *tracer) traceBytes(now time.Time, k trace.Kind, p *subflow, f sentFrame, reason string) {
	if t.wantsSegments() {
		t.emitTimestamped(now, trace.Event{Kind: k, Subflow: uint32(p.id), Stream: uint64(f.stream.id),
			Offset: uint64(f.from),
			Length: unit.Bytes(f.to - f.from), Count: f.end, Reason: reason})
	}
}

// traceEstimates traces the estimates of each subflow that is due.
func (t *tracer) traceEstimates(now time.Time, list []*subflow) {
	if !t.wantsSegments() {
		return
	}
	for _, p := range list {
		if now.Sub(p.lastTraced) < traceEvery {
			continue
		}
		p.lastTraced = now
		n, h := p.est.EstimateAt(now), p.est.LocalHop()
		t.emitTimestamped(now, trace.Event{Kind: trace.SubflowState, Subflow: uint32(p.id), Rate: n.Th, PAD: n.PAD,
			SRTT:         n.SRTT,
			LocalBacklog: n.B1, FarBacklog: n.B2, Cwnd: h.Cwnd, Length: h.Queue, Count: h.Acked})
	}
}

// traceDecision traces and keeps a decision, with the unsent bytes of all streams. It keeps only
// the first of consecutive decisions with the same choice and reason, so that the list covers more
// time.
func (t *tracer) traceDecision(now time.Time, d sched.Decision, remaining unit.Bytes, seen []sched.Subflow) {
	isNew := d.Wait != t.last.Wait || d.Subflow != t.last.Subflow || d.Reason != t.last.Reason
	if !isNew && !t.wantsSegments() {
		return
	}
	pad := time.Duration(0)
	if i := slices.IndexFunc(seen, func(p sched.Subflow) bool { return p.ID == d.Subflow }); i >= 0 && !d.Wait {
		pad = seen[i].PAD
	}
	if t.wantsSegments() {
		e := trace.Event{Kind: trace.Decision, Length: remaining, Diff: d.Diff, Reason: d.Reason.String(), PAD: pad}
		if !d.Wait {
			e.Subflow = uint32(d.Subflow)
		}
		t.emitTimestamped(now, e)
	}
	if isNew {
		t.last = d
		t.decisions.Add(Decision{At: now, Decision: d, Remaining: remaining, PAD: pad})
	}
}

// Decisions returns the newest decisions, oldest first.
func (b *Bond) Decisions() []Decision { return b.trace.decisions.All() }
