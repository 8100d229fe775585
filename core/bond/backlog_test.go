// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// TestBusyTime checks that short pauses of a stream belong to its transfer, and long ones do not.
func TestBusyTime(t *testing.T) {
	var e backlogEntry
	at := time.Unix(1, 0)
	for _, c := range []struct {
		pause, busy, want time.Duration
	}{
		{0, time.Second, time.Second},
		{maxPause, time.Second, 2*time.Second + maxPause},
		{maxPause + 1, time.Second, time.Second},
	} {
		if c.pause > 0 {
			e.pausedAt = at
			at = at.Add(c.pause)
		}
		e.updateBusyTime(at)
		at = at.Add(c.busy)
		if got := e.updateBusyTime(at); got != c.want {
			t.Errorf("after a pause of %v: %v, want %v", c.pause, got, c.want)
		}
	}
}

// TestTransfersOfAStream checks when a stream that sends again begins another transfer.
func TestTransfersOfAStream(t *testing.T) {
	b := New(Config{OpensStreams: true})
	b.AddSubflow(1, false, start)
	b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, MSS: 1448})
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	began, now := start, start
	for _, pause := range []time.Duration{0, maxPause / 2, maxPause, maxPause + 1, maxPause / 2, time.Minute} {
		if now = now.Add(pause); pause > maxPause {
			began = now
		}
		for s.Write(make([]byte, 20_000)); len(s.send.unsent) > 0; {
			b.MarkIdle(1)
			if id, _ := b.NextSegment(now, nil); id == 0 {
				t.Fatal("no segment")
			}
			b.BeginSegment(1)
		}
		if !s.backlog.busySince.Equal(began) {
			t.Errorf("after a pause of %v: the transfer began at %v, want %v", pause, s.backlog.busySince, began)
		}
	}
}

// TestBacklog changes streams at random: the counts are the sums of what streams have to
// send, each that can send has one turn, and no other has one for long.
func TestBacklog(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		table := classTable{}
		table.replaceGroups(1, nil)
		l := backlog{classes: &table}
		all := map[wire.StreamID]*Stream{}
		for id := range wire.StreamID(6) {
			all[id] = &Stream{id: id, permission: permission{group: wire.GroupID(r.IntN(3)), mode: wire.Mode(r.IntN(3))}}
		}
		for range 300 {
			s := all[wire.StreamID(r.IntN(len(all)))]
			switch r.IntN(8) {
			case 0, 1:
				from := wire.DataSeq(r.IntN(1000))
				s.send.unsent.Add(from, from+wire.DataSeq(r.IntN(300)))
			case 2:
				from := wire.DataSeq(r.IntN(1000))
				s.send.unsent.Remove(from, from+wire.DataSeq(r.IntN(500)))
			case 3:
				s.send.limit = wire.DataSeq(r.IntN(1500))
			case 4:
				l.setStreamMode(s, wire.Mode(r.IntN(3)))
			case 5:
				s.permission.group = wire.GroupID(r.IntN(3))
				l.requeueStream(s)
			case 6:
				table.replaceGroups(table.serial+1,
					[]wire.Group{{ID: 1, Weight: uint8(1 + r.IntN(4)), Priority: wire.Priority(r.IntN(3))}, {ID: 2, Weight: 1}})
				l.reorderStreams(all)
			case 7:
				if l.dequeueStream(s); slices.Contains(l.ready, s) || slices.Contains(l.lowLatency, s) {
					t.Fatalf("seed %d: a stream that was removed has a turn", seed)
				}
			}
			l.updateStream(s)
			checkBacklog(t, &l, all)
		}
	}
}

// newBacklogStream returns a stream of the backlog with n bytes to send.
func newBacklogStream(l *backlog, id wire.StreamID, g wire.GroupID, n wire.DataSeq) *Stream {
	s := &Stream{id: id, permission: permission{group: g}}
	s.send.unsent.Add(0, n)
	s.send.limit = n
	l.updateStream(s)
	return s
}

// TestBytesUntilDone: until the last byte of a stream others send as much as their turns give them,
// but not more than they have.
func TestBytesUntilDone(t *testing.T) {
	table := classTable{}
	table.replaceGroups(1, nil)
	l := backlog{classes: &table}
	small, bulk := newBacklogStream(&l, 1, 0, 4000), newBacklogStream(&l, 2, 0, 1_000_000)
	heavy, high := newBacklogStream(&l, 3, 3, 200_000), newBacklogStream(&l, 4, 4, 50_000)
	want := func(s *Stream, n unit.Bytes) {
		t.Helper()
		if got := l.bytesUntilDone(s); got != n {
			t.Errorf("stream %d: %v bytes, want %v", s.id, got, n)
		}
	}
	want(small, 16_000)
	want(bulk, 1_254_000)
	want(heavy, 454_000)
	table.replaceGroups(2, []wire.Group{{ID: 3, Weight: 3}, {ID: 4, Weight: 1, Priority: wire.High}})
	want(small, 4000+4000+12_000+50_000)
	want(heavy, 200_000+4000+66_666+50_000)
	want(high, 50_000)
}

// TestShortStreamsFirst: streams with few bytes have their turns before others, in the order in
// which they came.
func TestShortStreamsFirst(t *testing.T) {
	table := classTable{}
	table.replaceGroups(1, nil)
	l := backlog{classes: &table}
	newBacklogStream(&l, 1, 0, 1_000_000)
	newBacklogStream(&l, 2, 0, 100)
	newBacklogStream(&l, 3, 0, wire.DataSeq(shortBurst)+1)
	newBacklogStream(&l, 4, 0, wire.DataSeq(shortBurst))
	tail := &Stream{id: 5, permission: permission{burst: shortBurst}} // the end of what it sends in one go
	tail.send.unsent.Add(0, 100)
	tail.send.limit = 100
	l.updateStream(tail)
	var order []wire.StreamID
	for _, s := range l.ready {
		order = append(order, s.id)
	}
	if want := []wire.StreamID{2, 4, 1, 3, 5}; !slices.Equal(order, want) {
		t.Errorf("turns of %v, want %v", order, want)
	}
}

// TestShortStreamsStarveNobody checks that a stream has a turn although ever more short ones come.
func TestShortStreamsStarveNobody(t *testing.T) {
	b := New(Config{OpensStreams: true})
	b.AddSubflow(1, false, start)
	b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, MSS: 1448})
	open := func(n int) *Stream {
		s, err := b.OpenStream("a:1")
		if err != nil {
			t.Fatal(err)
		}
		s.Write(make([]byte, n))
		return s
	}
	bulk := open(200_000)
	var sent unit.Bytes
	for bulk.permission.burst == 0 {
		open(3000)
		b.MarkIdle(1)
		id, segment := b.NextSegment(start, nil)
		if sent += unit.Bytes(len(segment)); id == 0 || sent > maxOvertaken*5/4 {
			t.Fatalf("after %v of short streams the other one has had no turn", sent)
		}
		b.BeginSegment(1)
	}
	if sent < maxOvertaken/2 {
		t.Errorf("%v of short streams preceded the other one", sent)
	}
}

func checkBacklog(t *testing.T, l *backlog, all map[wire.StreamID]*Stream) {
	t.Helper()
	var pending, lowLatency unit.Bytes
	var byClass [wire.PriorityCount]unit.Bytes
	for _, s := range all {
		n, turns := unit.Bytes(s.send.unsent.Size()), 0
		for _, x := range slices.Concat(l.ready, l.lowLatency) {
			if x == s {
				turns++
			}
		}
		if s.backlog.queued != (turns == 1) || s.send.isSendable() && turns == 0 || slices.Contains(l.ready, s) &&
			s.permission.mode == wire.ModeLatency {
			t.Fatalf("stream %d of mode %v has %d turns", s.id, s.permission.mode, turns)
		}
		if s.permission.mode == wire.ModeLatency {
			lowLatency += n
			continue
		}
		pending += n
		byClass[l.classes.rankInGroup(s.permission.group, nil).priority] += n
	}
	if pending != l.pending || lowLatency != l.lowLatencyPending || byClass != l.pendingByPriority {
		t.Fatalf("counts %v pending %v, %v low-latency; want %v %v, %v", l.pending, l.pendingByPriority, l.lowLatencyPending,
			pending, byClass, lowLatency)
	}
	if !l.classes.ranked {
		return
	}
	if i := slices.IndexFunc(l.ready[min(1, len(l.ready)):],
		func(s *Stream) bool { return l.rankStream(s).priority.Above(l.rankStream(l.ready[0]).priority) }); i >= 0 {
		t.Fatalf("the turn is of class %v, before one of %v", l.rankStream(l.ready[0]).priority,
			l.rankStream(l.ready[i+1]).priority)
	}
}

// TestDeferringRespectsPriority: a short stream makes a subflow defer the bulk data of streams of
// its priority, not of a higher one.
func TestDeferringRespectsPriority(t *testing.T) {
	for _, bulk := range []wire.Priority{wire.Low, wire.Normal, wire.High} {
		b := New(Config{OpensStreams: true})
		b.AddSubflow(1, false, start)
		b.SetClassTable([]wire.Group{{ID: 1, Weight: 1, Priority: bulk}})
		for group, n := range []int{100, 1 << 20} {
			s, err := b.OpenStream("a:1")
			if err != nil {
				t.Fatal(err)
			}
			s.SetGroup(wire.GroupID(group))
			s.Write(make([]byte, n))
		}
		p, short := b.subflows.subflowByID(1), b.streams.all[1]
		b.backlog.dequeueStream(short)
		b.writer.fillStream(p, short, fillSpec{room: 1000}, start, nil)
		if defers := start.Before(p.lowLatencyUntil); defers != (bulk != wire.High) {
			t.Errorf("bulk data of priority %v: deferred %v", bulk, defers)
		}
	}
}

// TestBusySubflowNeedsNoTimer: only a subflow that could take bulk data now is looked at again when
// its queue is short.
func TestBusySubflowNeedsNoTimer(t *testing.T) {
	c := newChooser()
	waitingStream(c, 1, wire.ModeBond)
	p := c.subflows.subflowByID(1)
	p.est.AddLocalSample(start, estimate.Hop{SRTT: 20 * time.Millisecond, MinRTT: 10 * time.Millisecond, Cwnd: 100_000,
		MSS: 1448, Queue: 1_000_000})
	p.extendLowLatency(start.Add(time.Second))
	for _, idle := range []bool{false, true} {
		p.idle = idle
		c.surveySubflows(start)
		if set := !c.timer.next.IsZero(); set != idle {
			t.Errorf("idle %v: the timer is set: %v", idle, set)
		}
	}
}
