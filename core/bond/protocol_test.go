// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"errors"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

var start = time.Unix(1e9, 0)

// TestViolations: what a peer of our version never sends ends the subflow and
// changes nothing else.
func TestViolations(t *testing.T) {
	big := make([]byte, 1000)
	for _, c := range []struct {
		name  string
		opens bool
		f     wire.Frame
	}{
		{"data beyond the window", false, wire.Data{Stream: 1, Seq: wire.DataSeq(wire.InitialWindow) - 999, Bytes: big}},
		{"data far beyond the window", false, wire.Data{Stream: 1, Seq: wire.MaxSeq, Bytes: big}},
		{"more streams than allowed", false, wire.Data{Stream: 5000, Bytes: big}},
		{"a stream number out of all bounds", false, wire.Open{Stream: wire.StreamID(wire.MaxSeq), Dest: "a:1"}},
		{"a stream that we never opened", true, wire.Data{Stream: 1, Bytes: big}},
		{"an acknowledgement of what was never sent", true, wire.Ack{Subflows: []wire.SubflowAck{{Subflow: 1, Received: 1}}}},
		{"a hop's frame", true, wire.InitOK{}},
		{"a handshake's frame", false, wire.OK{Instance: 1}},
		{"the server's hint", true, wire.Hint{Subflow: 1}},
	} {
		b := New(Config{OpensStreams: c.opens})
		b.AddSubflow(1, false, start)
		err := b.ReceiveFrame(1, c.f.Type(), c.f.AppendPayload(nil), start)
		if !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", c.name, err)
		}
		if b.pool.inUse > 0 {
			t.Errorf("%s: took %d pages", c.name, b.pool.inUse)
		}
	}
	b := New(Config{})
	b.AddSubflow(1, false, start)
	receive := func(f wire.Frame) error { return b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), start) }
	if err := receive(wire.Data{Stream: 1, Seq: 100, Bytes: big}); err != nil {
		t.Fatal(err)
	}
	if err := receive(wire.Fin{Stream: 1, Seq: 1099}); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("an end before what was received: %v", err)
	}
	if err := receive(wire.Fin{Stream: 1, Seq: 1100}); err != nil {
		t.Fatal(err)
	}
	if err := receive(wire.Data{Stream: 1, Seq: 1100, Bytes: big[:1]}); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("data beyond the end: %v", err)
	}
	if err := b.ReceiveFrame(1, 0x90, big, start); err != nil {
		t.Errorf("an unknown frame that may be skipped: %v", err)
	}
	if err := b.ReceiveFrame(7, wire.TypeData, nil, start); err != nil {
		t.Errorf("a frame of a subflow removed a moment ago: %v", err)
	}
}

// newFilledBond returns a sending end with two subflows. The first one was given segments while the
// second was busy.
func newFilledBond(t *testing.T, segments int) *Bond {
	t.Helper()
	pams, _ := sched.New("pams") // it takes back nothing but for silence and at the end
	b := New(Config{OpensStreams: true, Scheduler: pams})
	hop := estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, Cwnd: 100_000, MSS: 1448}
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.AddSubflow(id, false, start)
		b.ObserveLocalHop(id, start, hop)
	}
	skipTrains(b)
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	s.Write(make([]byte, 200_000))
	for range segments {
		b.MarkIdle(1)
		if id, _ := b.NextSegment(start, nil); id != 1 {
			t.Fatalf("segment for subflow %d", id)
		}
		b.BeginSegment(1)
	}
	return b
}

// TestSilentSubflowGivesBackEverything: first the bytes that its own TCP still holds are requeued.
// If no ACK arrives for the others, these are too: the far TCP may hold them out of order.
func TestSilentSubflowGivesBackEverything(t *testing.T) {
	b := newFilledBond(t, 5)
	p := b.subflows.subflowByID(1)
	sent := b.streams.all[1].send.end - wire.DataSeq(b.backlog.pending)
	queue := unit.Bytes(sent / 4)
	for i := 1; i <= 100; i++ {
		now := start.Add(time.Duration(i) * 20 * time.Millisecond)
		b.ObserveLocalHop(1, now, estimate.Hop{SRTT: 50 * time.Millisecond, MSS: 1448, Queue: queue, Acked: 1000})
		b.Tick(now)
		switch back := unit.Bytes(b.streams.all[1].send.unsent.Size()) - (200_000 - unit.Bytes(sent)); {
		case now.Sub(start) < minSilence && back != 0:
			t.Fatalf("after %v %v are given back", now.Sub(start), back)
		case i == 15 && (back < queue/2 || back > 2*queue || !p.isSilent()):
			t.Errorf("after 300 ms %v are given back, want about the %v in its TCP; silent: %v", back, queue, p.isSilent())
		case i == 100 && back != unit.Bytes(sent):
			t.Errorf("in the end %v of %v are given back", back, unit.Bytes(sent))
		}
	}
	if st := b.Stats(); st.ReinjectedSilent != unit.Bytes(sent) {
		t.Errorf("counted %v as sent again, want %v", st.ReinjectedSilent, unit.Bytes(sent))
	}
}

// TestNoRivalNoSilence: a subflow that is the only one keeps its bytes.
func TestNoRivalNoSilence(t *testing.T) {
	b := newFilledBond(t, 3)
	b.RemoveSubflow(2, start)
	for i := 1; i <= 100; i++ {
		now := start.Add(time.Duration(i) * 20 * time.Millisecond)
		b.ObserveLocalHop(1, now, estimate.Hop{SRTT: 50 * time.Millisecond, MSS: 1448, Queue: 1000, Acked: 1})
		b.Tick(now)
	}
	if st := b.Stats(); st.ReinjectedSilent != 0 || b.subflows.subflowByID(1).isSilent() {
		t.Errorf("%v given back with nobody to carry it", st.ReinjectedSilent)
	}
}

// TestOwnPauseBlamesNobody: when this process did not run, no subflow is to
// blame for the silence.
func TestOwnPauseBlamesNobody(t *testing.T) {
	b := newFilledBond(t, 3)
	now := start.Add(10 * time.Millisecond)
	b.Tick(now)
	now = now.Add(time.Second)
	b.Tick(now)
	if b.subflows.subflowByID(1).isSilent() {
		t.Error("a pause of our own made the subflow silent")
	}
}

// skipTrains lets no subflow of b send a packet train.
func skipTrains(b *Bond) {
	for _, p := range b.subflows.list {
		p.trainLeft = 0
	}
}

// TestControlPrefersTheQuickest: an end of stream does not queue behind bulk
// data on a slow subflow only because that one is idle.
func TestControlPrefersTheQuickest(t *testing.T) {
	b := newFilledBond(t, 2)
	b.ObserveLocalHop(2, start, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, Cwnd: 10_000,
		MSS: 1448, Queue: 2_000_000})
	s := b.streams.all[1]
	s.send.unsent = nil
	b.backlog.updateStream(s)
	s.CloseWrite()
	b.MarkIdle(2)
	if id, _ := b.NextSegment(start, nil); id != 0 {
		t.Errorf("the end went to subflow %d at once", id)
	}
	b.MarkIdle(1)
	if id, seg := b.NextSegment(start, nil); id != 1 || len(seg) == 0 {
		t.Errorf("the end went to subflow %d", id)
	}
}

// TestAckOnItsOwnSubflow: what comes on a slow subflow is acknowledged by the
// quickest one, and once by itself, since that one may be a black hole.
func TestAckOnItsOwnSubflow(t *testing.T) {
	b := New(Config{})
	for id, rtt := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond} {
		b.AddSubflow(wire.SubflowID(id+1), false, start)
		b.ObserveLocalHop(wire.SubflowID(id+1), start, estimate.Hop{SRTT: rtt, MinRTT: rtt, Cwnd: 100_000, MSS: 1448})
	}
	skipTrains(b)
	sent := map[wire.SubflowID]int{}
	for i := range 50 { // 500 ms
		now := start.Add(time.Duration(i) * 10 * time.Millisecond)
		if i%5 == 0 && i < 25 {
			f := wire.Data{Stream: 1, Seq: wire.DataSeq(i), Bytes: make([]byte, 5)}
			if err := b.ReceiveFrame(1, wire.TypeData, f.AppendPayload(nil), now); err != nil {
				t.Fatal(err)
			}
		}
		b.Tick(now)
		for {
			b.MarkIdle(1)
			b.MarkIdle(2)
			id, _ := b.NextSegment(now, nil)
			if id == 0 {
				break
			}
			sent[id]++
		}
	}
	if sent[2] != 4 || sent[1] != 1 {
		t.Errorf("acknowledgements by subflow: %v, want 4 on the quick one and the last on the slow one", sent)
	}
}

// TestSlowConfirmationWakesNoHelper: the TCP of a loaded direct subflow needs longer than 200 ms to
// confirm an ACK. The clock waits for it, so that a helper's radio sleeps on. Once it confirms
// nothing more, bytes from the helper are soon acknowledged on the helped subflow.
func TestSlowConfirmationWakesNoHelper(t *testing.T) {
	b := New(Config{})
	const ms = time.Millisecond
	b.AddSubflow(1, true, start)
	b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 5 * ms, MinRTT: 5 * ms, Cwnd: 100_000, MSS: 1448})
	b.AddSubflow(2, false, start)
	direct := estimate.Hop{SRTT: 180 * ms, MinRTT: 50 * ms, RTTVar: 20 * ms, Cwnd: 100_000, MSS: 1448}
	b.ObserveLocalHop(2, start, direct)
	b.ObserveFarHop(1, start, wire.HopState{RTT: 500 * ms, Rate: unit.Mbps})
	skipTrains(b)
	type written struct {
		at   time.Duration
		size int
	}
	var unheard []written
	deaf := 3 * time.Second
	var own time.Duration // when the helped subflow carried an ACK
	for at := time.Duration(0); at < 4*time.Second && own == 0; at += 10 * ms {
		now := start.Add(at)
		f := wire.Data{Stream: 1, Seq: wire.DataSeq(at / ms), Bytes: make([]byte, 10)}
		if err := b.ReceiveFrame(1, wire.TypeData, f.AppendPayload(nil), now); err != nil {
			t.Fatal(err)
		}
		// 170 to 230 ms after each was written
		for len(unheard) > 0 && at < deaf && at-unheard[0].at >= (170+unheard[0].at/ms%7*10)*ms {
			direct.Acked += uint64(unheard[0].size)
			direct.Queue -= unit.Bytes(unheard[0].size)
			unheard = unheard[1:]
		}
		b.ObserveLocalHop(2, now, direct)
		b.Tick(now)
		for {
			b.MarkIdle(1)
			b.MarkIdle(2)
			id, seg := b.NextSegment(now, nil)
			if id == 1 {
				own = at
			}
			if id != 2 {
				break
			}
			unheard = append(unheard, written{at, len(seg)})
			direct.Queue += unit.Bytes(len(seg))
			b.ObserveLocalHop(2, now, direct)
		}
	}
	if own < deaf || own > deaf+maxSubflowAckDelay+subflowAckDelay {
		t.Errorf("the helped subflow carries an ACK at %v; the direct one tells of them until %v", own, deaf)
	}
}

// TestReportsAreNoQueue: unacknowledged frames do not use up the budget of a slow subflow. A
// relayed report leaves with an ACK, not alone.
func TestReportsAreNoQueue(t *testing.T) {
	b := New(Config{OpensStreams: true})
	b.AddSubflow(1, true, start)
	b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 10 * time.Millisecond, MinRTT: 10 * time.Millisecond, Cwnd: 10_000,
		MSS: 1448})
	b.ObserveFarHop(1, start, wire.HopState{Rate: 200 * unit.Kbps, RTT: 10 * time.Millisecond})
	skipTrains(b)
	now := start
	for range 2000 {
		now = now.Add(20 * time.Millisecond)
		b.MarkIdle(1)
		b.RelayReport(wire.PipeState{Subflow: 1}, now)
		if id, _ := b.NextSegment(now, nil); id != 0 {
			t.Fatal("a report leaves by itself")
		}
		if err := b.ReceiveFrame(1, wire.TypePing, nil, now); err != nil {
			t.Fatal(err)
		}
		id, seg := b.NextSegment(now.Add(ackDelay), nil)
		if ack := len(wire.Append(nil, wire.Ack{Subflows: []wire.SubflowAck{{Subflow: 1,
			Received: b.subflows.subflowByID(1).bytesReceived}}})); id != 1 || len(seg) <= ack {
			t.Fatalf("%d bytes leave by subflow %d, an ACK has %d", len(seg), id, ack)
		}
	}
	now = now.Add(time.Second)
	b.MarkIdle(1)
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	s.Write(make([]byte, 1000))
	if id, seg := b.NextSegment(now, nil); id != 1 || len(seg) < 1000 {
		t.Errorf("subflow %d gets %d bytes: %+v", id, len(seg), b.trace.last)
	}
}

// TestLateReport: a report that nothing took along while it was new is not passed
// on later; the next one is.
func TestLateReport(t *testing.T) {
	b := New(Config{OpensStreams: true})
	b.AddSubflow(1, true, start)
	b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 10 * time.Millisecond, MinRTT: 10 * time.Millisecond, Cwnd: 10_000,
		MSS: 1448})
	now := start
	for _, c := range []struct {
		late time.Duration
		want bool
	}{{0, true}, {maxReportAge, true}, {maxReportAge + time.Millisecond, false}, {10 * time.Second, false}, {0, true}} {
		now = now.Add(20 * time.Second)
		b.MarkIdle(1)
		b.RelayReport(wire.PipeState{Subflow: 1}, now)
		if err := b.ReceiveFrame(1, wire.TypePing, nil, now.Add(c.late-ackDelay)); err != nil {
			t.Fatal(err)
		}
		ack := len(wire.Append(nil, wire.Ack{Delay: ackDelay,
			Subflows: []wire.SubflowAck{{Subflow: 1, Received: b.subflows.subflowByID(1).bytesReceived}}}))
		if id, seg := b.NextSegment(now.Add(c.late), nil); id != 1 || len(seg) < ack || len(seg) > ack != c.want {
			t.Errorf("%v late: %d bytes leave by subflow %d, an ACK has %d", c.late, len(seg), id, ack)
		}
		b.MarkIdle(1)
		if err := b.ReceiveFrame(1, wire.TypePing, nil, now.Add(c.late)); err != nil {
			t.Fatal(err)
		}
		if _, seg := b.NextSegment(now.Add(c.late+ackDelay), nil); len(seg) > ack+1 {
			t.Errorf("%v late: %d bytes leave the second time", c.late, len(seg))
		}
	}
}

// TestPeerCannotTakeOurMemory: neither a boundless window without
// acknowledgements nor control frames that it does not read make us keep
// without bound.
func TestPeerCannotTakeOurMemory(t *testing.T) {
	b := newFilledBond(t, 1)
	s := b.streams.all[1]
	f := wire.Window{Stream: 1, Limit: 1 << 60}
	if err := b.ReceiveFrame(1, wire.TypeWindow, f.AppendPayload(nil), start); err != nil {
		t.Fatal(err)
	}
	total := 0
	for range 10_000 {
		n := s.Write(make([]byte, 256<<10))
		total += n
		b.MarkIdle(1)
		if id, _ := b.NextSegment(start, nil); n == 0 && id == 0 {
			break
		}
	}
	if bound := int(maxWindow + defaultMetaBuffer); total > bound {
		t.Errorf("%d bytes were taken, bound %d", total, bound)
	}
	b = New(Config{})
	b.AddSubflow(1, false, start)
	var err error
	n := wire.StreamID(0)
	for ; err == nil && n < 1<<20; n++ {
		f := wire.Open{Stream: n + 1, Dest: "a:1"}
		err = b.ReceiveFrame(1, wire.TypeOpen, f.AppendPayload(nil), start)
		for a := b.AcceptStream(); a != nil; a = b.AcceptStream() {
			a.Reset(wire.CodeForbidden, "no")
		}
	}
	if !errors.Is(err, wire.ErrMalformed) || int(n) > maxUnackedFrames+10 {
		t.Errorf("%d resets queue up for a peer that does not read: %v", n, err)
	}
}

// TestUnknownHopFallsSilent: a subflow whose hop cannot be sampled, for example because its pipe
// broke, becomes silent though nothing was queued when it was last sampled. So nothing waits for
// it.
func TestUnknownHopFallsSilent(t *testing.T) {
	b := New(Config{OpensStreams: true})
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.AddSubflow(id, id == 2, start)
		b.ObserveLocalHop(id, start, estimate.Hop{SRTT: 20 * time.Millisecond, MinRTT: 20 * time.Millisecond, Cwnd: 100_000,
			MSS: 1448})
	}
	now := start
	for now.Sub(start) < 2*minSilence {
		now = now.Add(20 * time.Millisecond)
		b.ObserveLocalHop(1, now, estimate.Hop{SRTT: 20 * time.Millisecond, MinRTT: 20 * time.Millisecond, Cwnd: 100_000,
			MSS: 1448})
		b.ObserveUnknownHop(2, now)
		b.Tick(now)
		if b.subflows.subflowByID(2).isSilent() && now.Sub(start) < minSilence {
			t.Fatalf("silent after %v", now.Sub(start))
		}
	}
	if !b.subflows.subflowByID(2).isSilent() || b.subflows.subflowByID(1).isSilent() {
		t.Errorf("silent: %v and %v, want the second only", b.subflows.subflowByID(1).isSilent(),
			b.subflows.subflowByID(2).isSilent())
	}
}

// TestUnacknowledgedFramesAreBounded: a peer that acknowledges nothing gets no more frames.
func TestUnacknowledgedFramesAreBounded(t *testing.T) {
	b := New(Config{})
	b.AddSubflow(1, false, start)
	b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 20 * time.Millisecond, MinRTT: 20 * time.Millisecond, Cwnd: 100_000,
		MSS: 1448})
	p := wire.Datagram{Flow: 1, Number: 1, Addr: wire.Addr{Name: "far", Port: 7}, Bytes: []byte("x")}.AppendPayload(nil)
	if err := b.ReceiveFrame(1, wire.TypeDatagram, p, start); err != nil {
		t.Fatal(err)
	}
	f := b.AcceptFlow()
	buf := make([]byte, 0, 1<<16)
	for range 3 * maxUnackedFrames {
		_ = f.Send(wire.Addr{Name: "far", Port: 7}, []byte("x"), start)
		b.MarkIdle(1)
		b.NextSegment(start, buf[:0])
	}
	if n := b.subflows.subflowByID(1).inFlight.len(); n > maxUnackedFrames+1000 {
		t.Errorf("%d frames are remembered", n)
	}
}

// TestDiscardedDatagramsAreNotCounted: what a closed flow had received makes
// room for others.
func TestDiscardedDatagramsAreNotCounted(t *testing.T) {
	b := New(Config{})
	b.AddSubflow(1, false, start)
	for i := range uint64(20) {
		p := wire.Datagram{Flow: 1, Number: i + 1, Addr: wire.Addr{Name: "far", Port: 7},
			Bytes: make([]byte, 1000)}.AppendPayload(nil)
		if err := b.ReceiveFrame(1, wire.TypeDatagram, p, start); err != nil {
			t.Fatal(err)
		}
	}
	f := b.AcceptFlow()
	if f == nil || b.flows.inBytes < 20_000 {
		t.Fatalf("%v wait to be received", b.flows.inBytes)
	}
	f.End(wire.CodeClosed, "", start)
	f.Discard()
	if b.flows.inBytes != 0 {
		t.Errorf("%v are still counted", b.flows.inBytes)
	}
}
