package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
)

// maxViewed bounds the paths that a kept decision shows.
const maxViewed = 8

// Decision is a scheduling decision as kept for people: what was chosen, why,
// and what the scheduler saw.
type Decision struct {
	At time.Time
	sched.Decision
	Remaining unit.Bytes
	Seen      [maxViewed]sched.Subflow // the first paths; those with ID 0 are none
}

// traceEvery is how often a trace shows the estimates of a subflow.
const traceEvery = 10 * time.Millisecond

// tracer passes events to the function that the owner of the bond has set, and keeps the
// newest decisions for people. It is called with the lock of the bond's owner held; it keeps
// nothing of an event. The zero value passes nothing on.
type tracer struct {
	sink        func(trace.Event) // nil: nobody wants events
	changesOnly bool              // events of each segment are not wanted
	last        sched.Decision
	decisions   *trace.Ring[Decision]
}

// wantsSegments reports whether events of each segment are wanted.
func (t *tracer) wantsSegments() bool { return t.sink != nil && !t.changesOnly }

// emit passes an event on as it is.
func (t *tracer) emit(e trace.Event) {
	if t.sink != nil {
		t.sink(e)
	}
}

// emitAt passes on an event of now. Who makes one for each segment asks segments first.
func (t *tracer) emitAt(now time.Time, e trace.Event) {
	if t.sink != nil {
		e.T = now.UnixNano()
		t.sink(e)
	}
}

// traceBytes passes on what happens to the bytes of a DATA frame.
func (t *tracer) traceBytes(now time.Time, k trace.Kind, p *subflow, f sentFrame, reason string) {
	if t.wantsSegments() {
		t.emitAt(now, trace.Event{Kind: k, Subflow: uint32(p.id), Stream: uint64(f.stream.id), Offset: uint64(f.from),
			Length: unit.Bytes(f.to - f.from), Count: f.end, Reason: reason})
	}
}

// traceEstimates passes on the estimates of each subflow, if it is time.
func (t *tracer) traceEstimates(now time.Time, list []*subflow) {
	if !t.wantsSegments() {
		return
	}
	for _, p := range list {
		if now.Sub(p.lastTraced) < traceEvery {
			continue
		}
		p.lastTraced = now
		n, h := p.est.EstimateAt(now), p.est.LastHop()
		t.emitAt(now, trace.Event{Kind: trace.SubflowState, Subflow: uint32(p.id), Rate: n.Th, PAD: n.PAD, SRTT: n.SRTT,
			Backlog: n.B1, Backlog2: n.B2, Cwnd: h.Cwnd, Length: h.Queue, Count: h.Acked})
	}
}

// traceDecision keeps a decision about the remaining bytes and what the scheduler saw. Runs of the
// same choice for the same reason count as one, so that the list shows more than the last
// moment.
func (t *tracer) traceDecision(now time.Time, d sched.Decision, remaining unit.Bytes, seen []sched.Subflow) {
	if t.wantsSegments() {
		e := trace.Event{Kind: trace.Decision, Length: remaining, Diff: d.Diff, Reason: d.Reason.String()}
		if !d.Wait {
			e.Subflow = uint32(d.Subflow)
		}
		t.emitAt(now, e)
	}
	if d.Wait == t.last.Wait && d.Subflow == t.last.Subflow && d.Reason == t.last.Reason {
		return
	}
	t.last = d
	k := Decision{At: now, Decision: d, Remaining: remaining}
	copy(k.Seen[:], seen)
	t.decisions.Add(k)
}

// Decisions returns the newest decisions, oldest first.
func (b *Bond) Decisions() []Decision { return b.trace.decisions.All() }
