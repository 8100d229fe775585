// Package replay runs a recorded transfer again, offline and in virtual time,
// with any scheduler. It stands beside the data path: from the events of
// package trace it rebuilds what each hop could carry (capacity.go), lets the
// real core, package bond, send the same bytes over a virtual network of those
// hops (network.go), and tells recording and replay in the same words
// (tally.go). It is pure: events and a scheduler in, a result out.
//
// What a hop could carry is known where it was at its limit. Elsewhere the
// replay takes the nearest known rate, or, where a hop never was at its limit,
// what it did carry: see Hop.Measured. TCP is modelled by its window: slow start
// from the recorded window, up to the most that was recorded in the socket;
// losses only show as the rate they led to. What the other direction carries
// (acknowledgements) is taken as unhindered, and the source as never slow.
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

// Recording is what a trace tells about all that one sender sent in one bond.
// Times count from its first segment.
type Recording struct {
	Sender   string    `json:"sender"` // as the trace calls it
	Bond     string    `json:"bond"`
	Subflows []Subflow `json:"paths"`
	Streams  []Stream  `json:"streams"`
	// Notes say, for people, what makes a replay less true.
	Notes []string `json:"notes,omitempty"`
	// Recorded is what happened.
	Recorded Result `json:"recorded"`
}

// Subflow is a subflow of a recording.
type Subflow struct {
	ID        wire.SubflowID `json:"id"`
	Device    string         `json:"device"`
	Helped    bool           `json:"helped"`
	Up        time.Duration  `json:"up_ns"`
	Down      time.Duration  `json:"down_ns,omitempty"` // 0: it stayed
	FirstHop  Hop            `json:"near"`              // the sender's own
	SecondHop Hop            `json:"far"`               // a helped subflow's second
}

// Stream is what an app was sent.
type Stream struct {
	ID   uint64        `json:"id"`
	At   time.Duration `json:"at_ns"` // its first segment
	Size unit.Bytes    `json:"size"`
}

// maxEvents bounds the memory for a trace: about 1 GB.
const maxEvents = 4 << 20

// Read takes the events of a trace, as package trace reads them. If there are
// several senders or bonds it takes the one that sent most.
func Read(events iter.Seq2[trace.Event, error]) (*Recording, error) {
	type key struct{ who, bond string }
	bySender := map[key][]trace.Event{}
	sent := map[key]unit.Bytes{}
	n, known := 0, false
	for e, err := range events {
		if err != nil {
			return nil, fault.New(fault.Integrity, err, "name a file that `mpbond-lab run --trace DIR` or `--trace FILE` wrote: events.jsonl or SENDER-trace.jsonl")
		}
		if n++; n > maxEvents {
			return nil, fault.New(fault.Limit, fmt.Errorf("the trace has over %d events", maxEvents), "record a shorter transfer")
		}
		known = known || slices.Contains(trace.Kinds(), e.Kind)
		k := key{e.Who, e.Bond}
		bySender[k] = append(bySender[k], e)
		if e.Kind == trace.Segment {
			sent[k] += e.Length
		}
	}
	if !known {
		return nil, fault.New(fault.Integrity, errors.New("this is no trace: it has no event of a known kind"),
			"name a file that `mpbond-lab run --trace DIR` wrote: events.jsonl or SENDER-trace.jsonl")
	}
	best := key{}
	for k, size := range sent {
		if b := sent[best]; size > b || size == b && (k.who < best.who || k.who == best.who && k.bond < best.bond) {
			best = k
		}
	}
	if sent[best] == 0 {
		return nil, fault.New(fault.NotFound, errors.New("no event of this trace tells of bytes sent"),
			"take the trace of the end that sends: the server's for a download, the primary's for an upload, or events.jsonl, which has both")
	}
	r := &Recording{Sender: best.who, Bond: best.bond}
	return r, r.collect(bySender[best])
}

// collect makes the recording from the sender's events.
func (r *Recording) collect(events []trace.Event) error {
	// Goroutines that write a trace overtake each other by microseconds.
	slices.SortStableFunc(events, func(a, b trace.Event) int { return cmp.Compare(a.T, b.T) })
	first := slices.IndexFunc(events, func(e trace.Event) bool { return e.Kind == trace.Segment })
	g := eventCollector{start: events[first].Time(), streams: map[uint64]*Stream{}, histories: map[wire.SubflowID]*subflowHistory{}}
	g.lastSegment = g.start
	for i := range events {
		if err := g.addEvent(&events[i]); err != nil {
			return err
		}
	}
	r.Notes = g.notes
	if g.lostEvents > 0 {
		r.addNote("the recorder lost %d events", g.lostEvents)
	}
	for _, s := range g.streams {
		r.Streams = append(r.Streams, *s)
	}
	slices.SortFunc(r.Streams, func(a, b Stream) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID)) })
	for _, h := range g.histories {
		if p, ok := h.buildSubflow(); ok {
			r.Subflows = append(r.Subflows, p)
		} else {
			r.addNote("path %d (%s) is left out: nothing was measured on it", h.ID, h.Device)
		}
	}
	if len(r.Subflows) == 0 {
		return fault.New(fault.NotFound, errors.New("no subflow's rate can be told from this trace"), "record a longer transfer")
	}
	slices.SortFunc(r.Subflows, func(a, b Subflow) int { return cmp.Compare(a.ID, b.ID) })
	r.tallyEvents(events, g.pauseTime)
	return nil
}

// tallyEvents says what happened in the recording, which paused for still in all.
func (r *Recording) tallyEvents(events []trace.Event, still time.Duration) {
	t := newTally(r)
	for _, e := range events {
		t.addEvent(e)
	}
	r.Recorded = t.finishResult("recorded")
	// Programs that were ended after the transfer did it no harm.
	for i := range r.Subflows {
		if p := &r.Subflows[i]; p.Down.Seconds() > r.Recorded.Seconds {
			p.Down = 0
		}
	}
	if !t.isComplete() {
		r.addNote("the recording ends before all bytes had arrived")
	}
	if all := r.Recorded.Seconds; still.Seconds() > all/10 {
		r.addNote("for %.1f of %.1f s nothing was sent: if the source was slow then, the replay is too quick", still.Seconds(), all)
	}
}

func (r *Recording) addNote(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// eventCollector is what the events of a sender tell, one after the other in order of time.
type eventCollector struct {
	start       time.Time // of the first segment
	streams     map[uint64]*Stream
	histories   map[wire.SubflowID]*subflowHistory
	notes       []string
	lostEvents  uint64 // events
	lastSegment time.Time
	pauseTime   time.Duration // sum of the pauses between segments
}

// historyOf is the history of one, which is new if there is none.
func (g *eventCollector) historyOf(id uint32) *subflowHistory {
	h := g.histories[wire.SubflowID(id)]
	if h == nil {
		h = &subflowHistory{Subflow: Subflow{ID: wire.SubflowID(id)}}
		g.histories[h.ID] = h
	}
	return h
}

// addEvent takes in an event.
func (g *eventCollector) addEvent(e *trace.Event) error {
	at := e.Time().Sub(g.start)
	switch e.Kind {
	case trace.Segment:
		return g.addSegment(at, e)
	case trace.SubflowUp:
		h := g.historyOf(e.Subflow)
		h.Device, h.Helped, h.Up = e.Device, e.Reason == "helped", max(at, 0)
		if h.Down != 0 {
			h.Down = 0
			g.notes = append(g.notes, fmt.Sprintf("path %d left and came back; in a replay it is dead between", e.Subflow))
		}
	case trace.SubflowDown:
		g.historyOf(e.Subflow).Down = max(at, 1)
	case trace.SubflowState:
		g.historyOf(e.Subflow).addState(at, e)
	case trace.PipeState:
		g.historyOf(e.Subflow).addReport(at, e)
	case trace.Dropped:
		g.lostEvents += e.Count
	}
	return nil
}

// addSegment takes in one that was sent.
func (g *eventCollector) addSegment(at time.Duration, e *trace.Event) error {
	if e.Count == 0 {
		return fault.New(fault.Unsupported, errors.New("this trace was recorded by an earlier mpbond, without what a replay needs"), "record it again")
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
	g.historyOf(e.Subflow)
	return nil
}

// minPause between segments is no sign that there was nothing to send.
const minPause = 250 * time.Millisecond
