// SPDX-License-Identifier: Apache-2.0

// Package replay repeats a recorded transfer offline and in virtual time with any scheduler. From
// the events of package trace it estimates the capacity of each hop (capacity.go). The real core,
// package bond, sends the same bytes over a virtual network of those hops (network.go). Recording
// and replay are described by the same results (tally.go). The package is pure: its inputs are
// events and a scheduler, its output is a result.
//
// The capacity of a hop is known where it limited the transfer. Elsewhere the replay uses the
// nearest known rate. For a hop that never was the limit it uses the rate carried: see
// Hop.Measured. TCP is modeled by its window: slow start from the recorded window up to the maximum
// recorded in the socket. Losses appear only as the resulting rate. The reverse direction
// (acknowledgements) is not limited, and the source is never slow.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Recording describes all that one sender sent in one bond. Times count from its first segment.
type Recording struct {
	Sender   string    `json:"sender"` // its name in the trace
	Bond     string    `json:"bond"`
	Subflows []Subflow `json:"subflows"`
	Streams  []Stream  `json:"streams"`
	// Notes tell users what makes a replay less accurate.
	Notes []string `json:"notes,omitempty"`
	// Recorded is the result of the recorded transfer.
	Recorded Result `json:"recorded"`
}

// Subflow is a subflow of a recording.
type Subflow struct {
	ID       wire.SubflowID `json:"id"`
	Device   string         `json:"device"`
	Helped   bool           `json:"helped"`
	Up       time.Duration  `json:"up_ns"`
	Down     time.Duration  `json:"down_ns,omitempty"` // 0: it stayed up
	LocalHop Hop            `json:"local_hop"`         // from the sender
	FarHop   Hop            `json:"far_hop"`           // only of a helped subflow
}

// Stream is the data of one application stream.
type Stream struct {
	ID   uint64        `json:"id"`
	At   time.Duration `json:"at_ns"` // its first segment
	Size unit.Bytes    `json:"size"`
}

// maxEvents bounds the memory of a trace to about 1 GB.
const maxEvents = 4 << 20

// Read builds a recording from the events of a trace, as package trace reads them. Of several
// senders or bonds it selects the one that sent most.
func Read(events iter.Seq2[trace.Event, error]) (*Recording, error) {
	type key struct{ who, bond string }
	bySender := map[key][]trace.Event{}
	sent := map[key]unit.Bytes{}
	n, known := 0, false
	for e, err := range events {
		if err != nil {
			return nil, fault.New(fault.Integrity, err, "give a file that `mpbond-lab run --trace DIR` or "+
				"`--trace FILE` wrote: events.jsonl or SENDER-trace.jsonl")
		}
		if n++; n > maxEvents {
			return nil, fault.New(fault.Limit, fmt.Errorf("trace has over %d events", maxEvents),
				"record a shorter transfer")
		}
		known = known || slices.Contains(trace.Kinds(), e.Kind)
		k := key{e.Who, e.Bond}
		bySender[k] = append(bySender[k], e)
		if e.Kind == trace.Segment {
			sent[k] += e.Length
		}
	}
	if !known {
		return nil, fault.New(fault.Integrity, errors.New("not a trace: no event has a known kind"),
			"give a file that `mpbond-lab run --trace DIR` wrote: events.jsonl or SENDER-trace.jsonl")
	}
	best := key{}
	for k, size := range sent {
		if b := sent[best]; size > b || size == b && (k.who < best.who || k.who == best.who && k.bond < best.bond) {
			best = k
		}
	}
	if sent[best] == 0 {
		return nil, fault.New(fault.NotFound, errors.New("trace has no sent segments"),
			"take the trace of the sender (the server for a download, the primary for an upload), or events.jsonl")
	}
	r := &Recording{Sender: best.who, Bond: best.bond}
	return r, r.buildFromEvents(bySender[best])
}

// buildFromEvents builds the recording from the sender's events.
func (r *Recording) buildFromEvents(events []trace.Event) error {
	// Goroutines that write a trace may reorder events by microseconds.
	slices.SortStableFunc(events, func(a, b trace.Event) int { return cmp.Compare(a.T, b.T) })
	first := slices.IndexFunc(events, func(e trace.Event) bool { return e.Kind == trace.Segment })
	g := eventCollector{
		start:     events[first].Time(),
		streams:   map[uint64]*Stream{},
		histories: map[wire.SubflowID]*subflowHistory{},
	}
	g.lastSegment = g.start
	for i := range events {
		if err := g.collectTraceEvent(&events[i]); err != nil {
			return err
		}
	}
	r.Notes = g.notes
	if g.lostEvents > 0 {
		r.addAccuracyNote("recorder lost %d events", g.lostEvents)
	}
	for _, s := range g.streams {
		r.Streams = append(r.Streams, *s)
	}
	slices.SortFunc(r.Streams, func(a, b Stream) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID)) })
	for _, h := range g.histories {
		if p, ok := h.buildSubflow(); ok {
			r.Subflows = append(r.Subflows, p)
		} else {
			r.addAccuracyNote("subflow %d (%s) is left out: it has no measurements", h.ID, h.Device)
		}
	}
	if len(r.Subflows) == 0 {
		return fault.New(fault.NotFound, errors.New("trace does not show the rate of any subflow"),
			"record a longer transfer")
	}
	slices.SortFunc(r.Subflows, func(a, b Subflow) int { return cmp.Compare(a.ID, b.ID) })
	r.tallyEvents(events, g.pauseTime)
	return nil
}

// tallyEvents computes the result of the recording. pauses is the sum of its pauses.
func (r *Recording) tallyEvents(events []trace.Event, pauses time.Duration) {
	t := newTransferTally(r)
	for _, e := range events {
		t.tallyTraceEvent(e)
	}
	r.Recorded = t.finishResult("recorded")
	// Subflows that ended after the transfer did not affect it.
	for i := range r.Subflows {
		if p := &r.Subflows[i]; p.Down.Seconds() > r.Recorded.Seconds {
			p.Down = 0
		}
	}
	if !t.allBytesArrived() {
		r.addAccuracyNote("recording ends before all bytes have arrived")
	}
	if all := r.Recorded.Seconds; pauses.Seconds() > all/10 {
		r.addAccuracyNote("nothing was sent for %.1f of %.1f s: if the source was slow, the replay is too fast",
			pauses.Seconds(), all)
	}
}

// addAccuracyNote adds a note.
func (r *Recording) addAccuracyNote(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// eventCollector collects a sender's events in order of time.
type eventCollector struct {
	start       time.Time // time of the first segment
	streams     map[uint64]*Stream
	histories   map[wire.SubflowID]*subflowHistory
	notes       []string
	lostEvents  uint64 // events
	lastSegment time.Time
	pauseTime   time.Duration // sum of the pauses between segments
}

// historyOfSubflow returns the history of a subflow, a new one if there is none.
func (g *eventCollector) historyOfSubflow(id uint32) *subflowHistory {
	h := g.histories[wire.SubflowID(id)]
	if h == nil {
		h = &subflowHistory{Subflow: Subflow{ID: wire.SubflowID(id)}}
		g.histories[h.ID] = h
	}
	return h
}

// collectTraceEvent adds an event.
func (g *eventCollector) collectTraceEvent(e *trace.Event) error {
	at := e.Time().Sub(g.start)
	switch e.Kind {
	case trace.Segment:
		return g.collectSegment(at, e)
	case trace.SubflowUp:
		h := g.historyOfSubflow(e.Subflow)
		h.Device, h.Helped, h.Up = e.Device, e.Reason == "helped", max(at, 0)
		if h.Down != 0 {
			h.Down = 0
			g.notes = append(g.notes,
				fmt.Sprintf("subflow %d left and came back: in a replay it is silent in between", e.Subflow))
		}
	case trace.SubflowDown:
		g.historyOfSubflow(e.Subflow).Down = max(at, 1)
	case trace.SubflowState:
		g.historyOfSubflow(e.Subflow).addSubflowState(at, e)
	case trace.PipeState:
		g.historyOfSubflow(e.Subflow).addFarHopReport(at, e)
	case trace.Dropped:
		g.lostEvents += e.Count
	}
	return nil
}

// collectSegment adds a sent segment.
func (g *eventCollector) collectSegment(at time.Duration, e *trace.Event) error {
	if e.Count == 0 {
		return fault.New(fault.Unsupported, errors.New("trace of an earlier mpbond lacks data for a replay"),
			"record it again")
	}
	s := g.streams[e.Stream]
	if s == nil {
		s = &Stream{ID: e.Stream, At: at}
		g.streams[e.Stream] = s
	}
	s.Size = max(s.Size, unit.Bytes(e.Offset)+e.Length)
	if gap := e.Time().Sub(g.lastSegment); gap > minPause {
		g.pauseTime += gap
	}
	g.lastSegment = e.Time()
	g.historyOfSubflow(e.Subflow)
	return nil
}

// minPause is the shortest gap between segments that counts as a pause of the source.
const minPause = 250 * time.Millisecond
