// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/span"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// newChooser returns a chooser with its own parts and three idle subflows.
func newChooser() *turnChooser {
	f := newFlowTable(false)
	c := &turnChooser{subflows: f.filter.subflows, filter: f.filter, classes: f.classes,
		backlog: &backlog{classes: f.classes}, control: &controlQueue{},
		flows: f, trace: f.trace, timer: f.timer, scheduler: sched.Redundant}
	c.trace.decisions = trace.NewRing[Decision](4)
	for i, p := range c.subflows.list {
		p.lastProgress = start
		sampleRTT(p, time.Duration(10*(i+1))*time.Millisecond)
		p.idle = true
	}
	return c
}

// waitingStream returns a stream of a mode with bytes to send.
func waitingStream(c *turnChooser, id wire.StreamID, m wire.Mode) *Stream {
	s := &Stream{id: id, permission: permission{mode: m}, send: sendBuffer{end: 1000, limit: 1000,
		unsent: span.Set[wire.DataSeq]{{From: 0, To: 1000}}}}
	s.bond = &Bond{streams: streamTable{all: map[wire.StreamID]*Stream{id: s}}}
	c.backlog.updateStream(s)
	return s
}

// TestTurnsByUrgency: datagrams go first, then streams that must not wait, copies, and what the
// scheduler says.
func TestTurnsByUrgency(t *testing.T) {
	c := newChooser()
	f, err := c.flows.openDatagramFlow(false, start)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Send(simAddr, []byte("?"), start); err != nil {
		t.Fatal(err)
	}
	lowLatency, bulkStream := waitingStream(c, 1, wire.ModeLatency), waitingStream(c, 2, wire.ModeRedundant)
	two := c.subflows.subflowByID(2)
	two.copies = []copiedSpan{{stream: bulkStream, to: 100}}
	want := func(kind turnKind, p wire.SubflowID) {
		t.Helper()
		if _, idle := c.surveySubflows(start); !idle {
			t.Fatal("no subflow is idle")
		}
		if got := c.chooseTurn(start); got.kind != kind || got.subflow == nil || got.subflow.id != p {
			t.Errorf("turn %+v, want one of kind %d for subflow %d", got, kind, p)
		}
	}
	want(turnDatagrams, 1)
	c.flows.fillDatagrams(c.subflows.subflowByID(1), c.backlog, start, nil)
	want(turnLowLatency, 1)
	c.backlog.dequeueStream(lowLatency)
	want(turnCopies, 2)
	two.copies = nil
	want(turnBulk, 1)
	c.backlog.dequeueStream(bulkStream)
	if got := c.chooseTurn(start); got.subflow != nil {
		t.Errorf("a turn without anything to send: %+v", got)
	}
}

// TestBulkHeldBesideShortStream: while subflows have long queues and are low-latency, only a short
// stream gets a turn.
func TestBulkHeldBesideShortStream(t *testing.T) {
	c := newChooser()
	for _, p := range c.subflows.list {
		p.est.AddLocalSample(start, estimate.Hop{SRTT: 20 * time.Millisecond, MinRTT: 10 * time.Millisecond, Cwnd: 100_000,
			MSS: 1448, Queue: 1_000_000})
		p.extendLowLatency(start.Add(time.Second))
	}
	bulk := waitingStream(c, 1, wire.ModeRedundant)
	bulk.permission.burst = shortBurst
	c.surveySubflows(start)
	if got := c.chooseTurn(start); got.subflow != nil {
		t.Errorf("bulk data gets subflow %d", got.subflow.id)
	}
	short := waitingStream(c, 2, wire.ModeRedundant)
	c.surveySubflows(start)
	if got := c.chooseTurn(start); got.subflow == nil || got.stream != short {
		t.Errorf("turn %+v, want one of the short stream", got)
	}
}

// TestNoTurnWithoutBound: a subflow without acknowledgements gets no more frames.
func TestNoTurnWithoutBound(t *testing.T) {
	c := newChooser()
	waitingStream(c, 1, wire.ModeRedundant)
	for range maxUnackedFrames + 1 {
		for _, p := range c.subflows.list {
			p.recordSentFrame(1, sentFrame{frameType: wire.TypePing})
		}
	}
	c.surveySubflows(start)
	if got := c.chooseTurn(start); got.subflow != nil {
		t.Errorf("a turn for subflow %d", got.subflow.id)
	}
}

// TestSurveyCarrier: control frames go by the fastest subflow, or by an idle one that is
// nearly as fast; a silent one is left out while another is alive.
func TestSurveyCarrier(t *testing.T) {
	c := newChooser()
	want := func(id wire.SubflowID, idle bool) {
		t.Helper()
		p, some := c.surveySubflows(start)
		if some != idle || (p == nil) != (id == 0) || p != nil && p.id != id {
			t.Errorf("carrier %v, idle %v; want %d, %v", p, some, id, idle)
		}
	}
	want(1, true)
	one, two, three := c.subflows.subflowByID(1), c.subflows.subflowByID(2), c.subflows.subflowByID(3)
	one.idle = false
	two.idle = false
	want(0, true) // the third is much slower
	three.idle = false
	want(0, false)
	three.idle = true
	one.silentSince, two.silentSince = start, start
	want(3, true)
	if len(c.view) != 1 {
		t.Errorf("the scheduler sees %d subflows", len(c.view))
	}
}

// TestSurveyCarrierBehindTrain: control frames wait behind a packet train only if all others are
// slower by far, and what a late subflow carries is repeated on another one if there is one.
func TestSurveyCarrierBehindTrain(t *testing.T) {
	c := newChooser()
	want := func(why string, id wire.SubflowID) {
		t.Helper()
		var got wire.SubflowID
		if p, _ := c.surveySubflows(start); p != nil {
			got = p.id
		}
		if got != id {
			t.Errorf("%s: carrier %d; want %d", why, got, id)
		}
	}
	one, two, three := c.subflows.subflowByID(1), c.subflows.subflowByID(2), c.subflows.subflowByID(3)
	one.recordSentFrame(1000, sentFrame{frameType: wire.TypeTrain})
	want("a train on the fastest one", 2)
	sampleRTT(two, 2*time.Second)
	sampleRTT(three, 2*time.Second)
	want("the others are slower than any train", 1)
	c.control.queueFrame(nil, wire.TypeBye)
	c.control.repeatedFrom = 1
	want("a repetition of what the fastest one carries", 2)
	two.silentSince, three.silentSince = start, start
	want("a repetition without another subflow", 1)
	two.silentSince = time.Time{}
	c.control.takeFrames(func(controlFrame, bool) bool { return true })
	c.control.queueFrame(nil, wire.TypeBye)
	want("the repetition was sent, another frame waits", 1)
}

// TestLateSubflowCarriesOthers checks that a subflow from which bytes were recalled carries other
// streams, and the same one as soon as nothing of it is missing.
func TestLateSubflowCarriesOthers(t *testing.T) {
	c := newChooser()
	late, other := waitingStream(c, 1, wire.ModeBond), waitingStream(c, 2, wire.ModeBond)
	one := c.subflows.subflowByID(1)
	one.recordSentFrame(1000, sentFrame{frameType: wire.TypeData, stream: late, from: 0, to: 500, recalled: true,
		tailRecalled: true})
	one.inFlight.tailRecalledFrames++
	c.surveySubflows(start)
	permits := func(s *Stream) bool {
		for _, v := range c.withoutRecalledFrom(c.view, s) {
			if v.ID == one.id {
				return true
			}
		}
		return false
	}
	if permits(late) || !permits(other) {
		t.Errorf("late subflow: carries the stream %v, another one %v", permits(late), permits(other))
	}
	late.send.acknowledge(seqSpan{From: 0, To: 500})
	if !permits(late) {
		t.Error("all recalled bytes have arrived, but the subflow must not carry the stream")
	}
}

// TestAcknowledgedStreamBlocksNobody checks that a stream whose recalled bytes have arrived
// meanwhile loses its turn. auto would wait for a faster subflow, since nothing remains to be sent.
func TestAcknowledgedStreamBlocksNobody(t *testing.T) {
	c := newChooser()
	c.scheduler, _ = sched.New("auto")
	one, bulk := waitingStream(c, 1, wire.ModeBond), waitingStream(c, 2, wire.ModeBond)
	bulk.send.unsent.Add(1000, 1_000_000)
	bulk.send.limit, bulk.send.end = 1_000_000, 1_000_000
	c.backlog.updateStream(bulk)
	bulk.finSet = true
	one.send.acknowledge(seqSpan{From: 0, To: 1000})
	c.backlog.updateStream(one)
	c.subflows.subflowByID(1).idle = false
	c.surveySubflows(start)
	if got := c.chooseTurn(start); got.subflow == nil || got.stream != bulk {
		t.Errorf("turn %+v, want one of the other stream", got)
	}
	if one.backlog.pausedAt != start {
		t.Errorf("the acknowledged stream pauses since %v", one.backlog.pausedAt)
	}
}

// TestKeptDecision: a kept decision has the delay of its subflow, and repeated ones are kept once.
func TestKeptDecision(t *testing.T) {
	c := newChooser()
	seen := []sched.Subflow{{ID: 1, PAD: time.Second}, {ID: 2, PAD: 3 * time.Millisecond}}
	for range 2 {
		c.trace.traceDecision(start, sched.Decision{Subflow: 2}, 10, seen)
	}
	c.trace.traceDecision(start, sched.Decision{Wait: true, Subflow: 1}, 20, seen)
	list := c.trace.decisions.All()
	if len(list) != 2 || list[0].PAD != 3*time.Millisecond || list[0].Remaining != 10 || list[1].PAD != 0 {
		t.Errorf("kept: %+v", list)
	}
}
