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

// decided keeps a decision. Runs of the same choice for the same reason count
// as one, so that the list shows more than the last moment.
func (b *Bond) decided(now time.Time, d sched.Decision, paths []sched.Path) {
	if b.tracing() {
		e := trace.Event{Kind: trace.Decision, Length: b.pending, Diff: d.Diff, Reason: d.Reason.String()}
		if !d.Wait {
			e.Path = uint32(d.Path)
		}
		b.trace(now, e)
		b.traceStates(now)
	}
	if d.Wait == b.last.Wait && d.Path == b.last.Path && d.Reason == b.last.Reason {
		return
	}
	b.last = d
	k := Decision{At: now, Decision: d, Remaining: b.pending}
	copy(k.Seen[:], paths)
	b.decisions.Add(k)
}

// traceStates tells the estimates of each path, if it is time.
func (b *Bond) traceStates(now time.Time) {
	if !b.tracing() {
		return
	}
	for _, p := range b.subflows {
		if now.Sub(p.lastTraced) < traceEvery {
			continue
		}
		p.lastTraced = now
		n, h := p.est.At(now), p.est.Hop()
		b.trace(now, trace.Event{Kind: trace.PathState, Path: uint32(p.id), Rate: n.Th, PAD: n.PAD, SRTT: n.SRTT,
			Backlog: n.B1, Backlog2: n.B2, Cwnd: h.Cwnd, Length: h.Queue, Count: h.Acked})
	}
}

// traceEvery is how often a trace tells the estimates of a path.
const traceEvery = 10 * time.Millisecond

// tracing reports whether events of each segment are wanted.
func (b *Bond) tracing() bool { return b.cfg.Trace != nil && !b.cfg.ChangesOnly }

// trace hands an event on. Who makes one for each segment asks tracing first.
func (b *Bond) trace(now time.Time, e trace.Event) {
	if b.cfg.Trace != nil {
		e.T = now.UnixNano()
		b.cfg.Trace(e)
	}
}

// traceBytes traces what happens to the bytes of a DATA frame.
func (b *Bond) traceBytes(now time.Time, k trace.Kind, p *subflow, f sentFrame, reason string) {
	if b.tracing() {
		b.trace(now, trace.Event{Kind: k, Path: uint32(p.id), Stream: uint64(f.stream.id), Offset: uint64(f.from),
			Length: unit.Bytes(f.to - f.from), Count: f.end, Reason: reason})
	}
}

// Decisions returns the newest decisions, oldest first.
func (b *Bond) Decisions() []Decision { return b.decisions.All() }
