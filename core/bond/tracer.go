package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
)

// maxSeen bounds the paths that a kept decision shows.
const maxSeen = 8

// Decision is a scheduling decision as kept for people: what was chosen, why,
// and what the scheduler saw.
type Decision struct {
	At time.Time
	sched.Decision
	Remaining unit.Bytes
	Seen      [maxSeen]sched.Path // the first paths; those with ID 0 are none
}

// traceEvery is how often a trace shows the estimates of a subflow.
const traceEvery = 10 * time.Millisecond

// tracer passes events to the function that the owner of the bond has set, and keeps the
// newest decisions for people. It is called with the lock of the bond's owner held; it keeps
// nothing of an event. The zero value passes nothing on.
type tracer struct {
	to          func(trace.Event) // nil: nobody wants events
	changesOnly bool              // events of each segment are not wanted
	last        sched.Decision
	decisions   *trace.Ring[Decision]
}

// segments reports whether events of each segment are wanted.
func (t *tracer) segments() bool { return t.to != nil && !t.changesOnly }

// emit passes an event on as it is.
func (t *tracer) emit(e trace.Event) {
	if t.to != nil {
		t.to(e)
	}
}

// at passes on an event of now. Who makes one for each segment asks segments first.
func (t *tracer) at(now time.Time, e trace.Event) {
	if t.to != nil {
		e.T = now.UnixNano()
		t.to(e)
	}
}

// bytes passes on what happens to the bytes of a DATA frame.
func (t *tracer) bytes(now time.Time, k trace.Kind, p *subflow, f sentFrame, reason string) {
	if t.segments() {
		t.at(now, trace.Event{Kind: k, Path: uint32(p.id), Stream: uint64(f.stream.id), Offset: uint64(f.from),
			Length: unit.Bytes(f.to - f.from), Count: f.end, Reason: reason})
	}
}

// estimates passes on the estimates of each subflow, if it is time.
func (t *tracer) estimates(now time.Time, list []*subflow) {
	if !t.segments() {
		return
	}
	for _, p := range list {
		if now.Sub(p.lastTraced) < traceEvery {
			continue
		}
		p.lastTraced = now
		n, h := p.est.At(now), p.est.Hop()
		t.at(now, trace.Event{Kind: trace.PathState, Path: uint32(p.id), Rate: n.Th, PAD: n.PAD, SRTT: n.SRTT,
			Backlog: n.B1, Backlog2: n.B2, Cwnd: h.Cwnd, Length: h.Queue, Count: h.Acked})
	}
}

// decided keeps a decision about the remaining bytes and what the scheduler saw. Runs of the
// same choice for the same reason count as one, so that the list shows more than the last
// moment.
func (t *tracer) decided(now time.Time, d sched.Decision, remaining unit.Bytes, seen []sched.Path) {
	if t.segments() {
		e := trace.Event{Kind: trace.Decision, Length: remaining, Diff: d.Diff, Reason: d.Reason.String()}
		if !d.Wait {
			e.Path = uint32(d.Path)
		}
		t.at(now, e)
	}
	if d.Wait == t.last.Wait && d.Path == t.last.Path && d.Reason == t.last.Reason {
		return
	}
	t.last = d
	k := Decision{At: now, Decision: d, Remaining: remaining}
	copy(k.Seen[:], seen)
	t.decisions.Add(k)
}

// Decisions returns the newest decisions, oldest first.
func (b *Bond) Decisions() []Decision { return b.trace.decisions.All() }
