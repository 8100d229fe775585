// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// newReceiver returns a bond with two idle subflows. The first one has just brought bytes of a
// download.
func newReceiver(t *testing.T) *Bond {
	t.Helper()
	b := New(Config{OpensStreams: true})
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.AddSubflow(id, id == 2, start)
	}
	observeUnacked(b, start, 100)
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	s.Write(make([]byte, 100)) // a request
	takeProbes(b, start)
	acknowledge(t, b, start)
	f := wire.Data{Stream: 1, Bytes: make([]byte, 1000)}
	if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), start); err != nil {
		t.Fatal(err)
	}
	return b
}

// observeUnacked records that the TCP of both subflows makes progress, and has so many bytes unacknowledged.
func observeUnacked(b *Bond, now time.Time, queue unit.Bytes) {
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.ObserveLocalHop(id, now, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, Cwnd: 100_000,
			MSS: 1448, Queue: queue, Acked: uint64(now.Sub(start)/time.Millisecond) + 1})
	}
}

// takeProbes lets all subflows send what they have, and returns which sent a PING.
func takeProbes(b *Bond, now time.Time) (pings []wire.SubflowID) {
	for {
		b.MarkIdle(1)
		b.MarkIdle(2)
		id, _ := b.NextSegment(now, nil)
		if id == 0 {
			return pings
		}
		for _, f := range b.subflows.subflowByID(id).inFlight.unackedFrames() {
			if f.frameType == wire.TypePing {
				pings = append(pings, id)
			}
		}
	}
}

// acknowledge has everything arrive.
func acknowledge(t *testing.T, b *Bond, now time.Time) {
	t.Helper()
	a := wire.Ack{Subflows: []wire.SubflowAck{{Subflow: 1, Received: b.subflows.subflowByID(1).bytesSent},
		{Subflow: 2, Received: b.subflows.subflowByID(2).bytesSent}}}
	if err := b.ReceiveFrame(2, a.Type(), a.AppendPayload(nil), now); err != nil {
		t.Fatal(err)
	}
}

// runProbes ticks from one second after start to another, and returns the pings. TCP always has something
// unacknowledged.
func runProbes(b *Bond, from, to float64) (pings []wire.SubflowID) {
	for s := from; s < to; s += 0.02 {
		now := start.Add(time.Duration(s * float64(time.Second)))
		observeUnacked(b, now, 100)
		b.Tick(now)
		pings = append(pings, takeProbes(b, now)...)
	}
	return pings
}

// TestQuietSubflowIsProbedOnce: only the recently active subflow is probed. The radio of another
// one may sleep.
func TestQuietSubflowIsProbedOnce(t *testing.T) {
	b := newReceiver(t)
	if pings := runProbes(b, 0, 0.98); len(pings) > 0 {
		t.Fatalf("asked %v after less than a second", pings)
	}
	if pings := runProbes(b, 0.98, 1.1); len(pings) != 1 || pings[0] != 1 {
		t.Fatalf("asked %v", pings)
	}
	acknowledge(t, b, start.Add(1100*time.Millisecond))
	if pings := runProbes(b, 1.1, 60); len(pings) > 0 || b.subflows.subflowByID(1).isSilent() {
		t.Errorf("asked again: %v", pings)
	}
	observeUnacked(b, start.Add(time.Minute), 0)
	b.Tick(start.Add(time.Minute))
	if !b.NextTick().IsZero() {
		t.Errorf("an idle bond wakes at %v", b.timer.next.Sub(start))
	}
}

// receiveBytes delivers the next bytes of the download on subflow id, s seconds after start.
func receiveBytes(t *testing.T, b *Bond, id wire.SubflowID, s float64) {
	t.Helper()
	f := wire.Data{Stream: 1, Seq: b.streams.all[1].reassembly.nextExpected, Bytes: make([]byte, 1000)}
	if err := b.ReceiveFrame(id, f.Type(), f.AppendPayload(nil),
		start.Add(time.Duration(s*float64(time.Second)))); err != nil {
		t.Fatal(err)
	}
}

// TestOneIsAskedForAll: of subflows that brought bytes until the end one is probed, a direct one if
// there is one, and of those the newest. One that fell silent before is probed too. If the first
// one does not answer, or brings bytes that were in flight on another, that other one is probed.
func TestOneIsAskedForAll(t *testing.T) {
	for _, c := range []struct {
		helped [2]bool
		last   [2]float64 // when they brought their last bytes
		mute   bool       // no question is answered
		again  float64    // so long after its last bytes the first one brings more; 0: never
		want   []wire.SubflowID
	}{
		{[2]bool{false, true}, [2]float64{0, 0.15}, false, 0, []wire.SubflowID{1}},
		{[2]bool{false, true}, [2]float64{0.15, 0.1}, false, 0, []wire.SubflowID{1}},
		{[2]bool{true, false}, [2]float64{0.15, 0.1}, false, 0, []wire.SubflowID{2}},
		{[2]bool{false, false}, [2]float64{0, 0.15}, false, 0, []wire.SubflowID{2}},
		{[2]bool{false, false}, [2]float64{0.15, 0.1}, false, 0, []wire.SubflowID{1}},
		{[2]bool{true, true}, [2]float64{0, 0.15}, false, 0, []wire.SubflowID{2}},
		{[2]bool{true, true}, [2]float64{0.15, 0.1}, false, 0, []wire.SubflowID{1}},
		{[2]bool{false, true}, [2]float64{0.5, 0}, false, 0, []wire.SubflowID{1}}, // the other never brought any
		{[2]bool{false, true}, [2]float64{0.5, 0.2}, false, 0, []wire.SubflowID{1, 2}},
		{[2]bool{false, true}, [2]float64{0, 0.5}, false, 0, []wire.SubflowID{1, 2}},
		{[2]bool{false, true}, [2]float64{0, 0.15}, true, 0, []wire.SubflowID{1, 2}},
		{[2]bool{false, true}, [2]float64{0, 0.15}, false, 1.3, []wire.SubflowID{1, 2}},
	} {
		b := newReceiver(t)
		for i, helped := range c.helped {
			b.subflows.subflowByID(wire.SubflowID(i + 1)).est.Helped = helped
		}
		first, second := wire.SubflowID(1), wire.SubflowID(2)
		if c.last[1] < c.last[0] {
			first, second = second, first
		}
		for _, id := range []wire.SubflowID{first, second} {
			if c.last[id-1] > 0 {
				receiveBytes(t, b, id, c.last[id-1])
			}
		}
		again := c.last[0] + c.again
		asked := map[wire.SubflowID]bool{}
		for s := c.last[second-1]; s < 4; s += 0.1 {
			if c.again > 0 && s >= again {
				receiveBytes(t, b, 1, s)
				again = math.Inf(1)
			}
			for _, id := range runProbes(b, s, s+0.1) {
				asked[id] = true
			}
			if !c.mute {
				acknowledge(t, b, start.Add(time.Duration((s+0.1)*float64(time.Second))))
			}
		}
		if len(asked) != len(c.want) || !asked[c.want[0]] || !asked[c.want[len(c.want)-1]] {
			t.Errorf("%+v: asked %v", c, asked)
		}
	}
}

// TestAliveAfterLastByte: after an answer, a direct subflow whose TCP has acknowledged what was sent since its last
// byte is not probed, however long it is quiet. Any other one is.
func TestAliveAfterLastByte(t *testing.T) {
	for _, c := range []struct {
		name    string
		helped  bool       // also the first subflow
		unacked unit.Bytes // by the TCP of the first subflow
		want    bool
	}{
		{"alive", false, 0, false},
		{"nothing heard", false, 100, true},
		{"by a helper", true, 0, true},
	} {
		b := newReceiver(t)
		b.subflows.subflowByID(1).est.Helped = c.helped
		var asked []wire.SubflowID
		for s := 0.02; s < 15; s += 0.02 {
			now := start.Add(time.Duration(s * float64(time.Second)))
			observeUnacked(b, now, c.unacked)
			b.Tick(now)
			asked = append(asked, takeProbes(b, now)...)
			acknowledge(t, b, now)
		}
		if got := len(asked) == 1 && asked[0] == 1; got != c.want || len(asked) > 1 {
			t.Errorf("%s: asked %v", c.name, asked)
		}
	}
}

// TestPauseLikeTheOneBefore: where bytes come without a request, a direct subflow that was alive after its last
// byte is not probed in a pause at most a quarter longer than the last one. Any other subflow is probed, and any
// is probed when the pause gets longer.
func TestPauseLikeTheOneBefore(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		helped bool
		queue  unit.Bytes    // of the subflow's TCP
		answer time.Duration // how long each question waits for one
		brings []time.Duration
		after  time.Duration // when it is asked after the last bytes
	}{
		{"well", false, 0, 100 * ms, []time.Duration{2000 * ms}, 2500 * ms},
		{"nothing heard", false, 100, 100 * ms, []time.Duration{2000 * ms}, 1000 * ms},
		{"by a helper", true, 0, 100 * ms, []time.Duration{2000 * ms}, 1000 * ms},
		{"while it may be asked", false, 0, 100 * ms, []time.Duration{4500 * ms}, 4000 * ms},
		{"a gap is no pause", false, 0, 100 * ms, []time.Duration{2000 * ms, 2100 * ms}, 2500 * ms},
		{"the newest", false, 0, 100 * ms, []time.Duration{2000 * ms, 3200 * ms}, 1500 * ms},
		{"a new beginning", false, 0, 100 * ms, []time.Duration{2000 * ms, 7500 * ms}, 1000 * ms},
		{"a stall", false, 0, 900 * ms, []time.Duration{2000 * ms}, 1000 * ms},
	} {
		b := newReceiver(t)
		observeUnacked(b, start, 0)
		b.silence.isUnasked = true
		p := b.subflows.subflowByID(1)
		p.est.Helped = c.helped
		var last, unanswered, asked time.Duration
		for at := 20 * ms; at < 15*time.Second && asked == 0; at += 20 * ms {
			now := start.Add(at)
			b.ObserveLocalHop(1, now, estimate.Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 100_000, MSS: 1448, Queue: c.queue,
				Acked: uint64(at / ms)})
			if unanswered > 0 && at >= unanswered+c.answer {
				acknowledge(t, b, now)
				unanswered = 0
			}
			if len(c.brings) > 0 && at >= c.brings[0] {
				receiveBytes(t, b, 1, at.Seconds())
				last, c.brings = at, c.brings[1:]
			}
			sentSince := !p.lastSent.Before(p.lastData)
			b.Tick(now)
			if pings := takeProbes(b, now); len(pings) > 0 && unanswered == 0 {
				if !sentSince {
					t.Fatalf("%s: no ACK was sent before the question", c.name)
				}
				if unanswered = at; len(c.brings) == 0 {
					asked = at
				}
			}
		}
		if got := asked - last; got < c.after || got > c.after+50*ms {
			t.Errorf("%s: asked after %v, want %v", c.name, got, c.after)
		}
	}
}

// TestEarlierSubflowDoesNotWait: a pause like the last one does not delay the probe of a subflow
// that brought nothing until the end.
func TestEarlierSubflowDoesNotWait(t *testing.T) {
	b := newReceiver(t)
	b.silence.lastPause = 3 * time.Second
	b.subflows.subflowByID(2).est.Helped = false
	for _, s := range []float64{0.1, 0.2, 0.3} {
		receiveBytes(t, b, 2, s)
	}
	at := 0.0
	for s := 0.3; s < 3 && at == 0; s += 0.02 {
		now := start.Add(time.Duration(s * float64(time.Second)))
		observeUnacked(b, now, 0)
		b.Tick(now)
		if pings := takeProbes(b, now); len(pings) > 0 && pings[0] == 1 {
			at = s
		}
		acknowledge(t, b, now)
	}
	if at < 1.28 || at > 1.34 {
		t.Errorf("the first one is asked after %.2f s", at)
	}
}

// TestStalledSubflowProbesOthers: when a subflow is stalled another one is probed once it has
// brought nothing for 200 ms. One that still brings bytes is not probed.
func TestStalledSubflowProbesOthers(t *testing.T) {
	for _, c := range []struct{ until, want float64 }{
		{0.1, 0.42}, // quiet when the first one is found stuck
		{0.36, 0.56},
		{1.5, 2.5}, // all have been quiet for a second
	} {
		b := newReceiver(t)
		b.subflows.subflowByID(1).probeDue = true
		if pings := takeProbes(b, start); len(pings) != 1 || pings[0] != 1 {
			t.Fatalf("%v sent a PING", pings)
		}
		asked, found := 0.0, 0.0
		for i := 1; i < 200 && asked == 0; i++ {
			s := float64(i) / 50
			if s <= c.until {
				receiveBytes(t, b, 2, s)
			}
			if len(runProbes(b, s, s+0.01)) > 0 && b.subflows.subflowByID(2).inFlight.len() > 0 {
				asked = s
			}
			if found == 0 && !b.subflows.subflowByID(1).stalledSince.IsZero() {
				found = s
			}
		}
		if found < 0.35 || found > 0.43 {
			t.Fatalf("the first subflow is found stuck after %v s", found)
		}
		if asked < c.want-0.001 || asked > c.want+0.041 {
			t.Errorf("bytes until %v s: asked after %v s, want %v", c.until, asked, c.want)
		}
	}
}

// TestAllSubflowsStalled: without an answer the other subflows are probed. If none answers, all are
// reported as stalled, the last one too.
func TestAllSubflowsStalled(t *testing.T) {
	b := newReceiver(t)
	asked := map[wire.SubflowID]bool{}
	for _, id := range runProbes(b, 0.98, 6) {
		asked[id] = true
	}
	if !asked[1] || !asked[2] {
		t.Errorf("asked %v", asked)
	}
	for _, p := range b.ListSubflows(nil, start.Add(6*time.Second)) {
		if p.StalledFor < time.Second {
			t.Errorf("subflow %d is stuck for %v", p.ID, p.StalledFor)
		}
	}
	if b.subflows.subflowByID(1).isSilent() == b.subflows.subflowByID(2).isSilent() {
		t.Error("one of them is left for use")
	}
}

func TestNoStreamsNoQuestions(t *testing.T) {
	b := newReceiver(t)
	b.ResetAll(wire.CodeClosed, "done", start)
	takeProbes(b, start)
	acknowledge(t, b, start)
	if pings := runProbes(b, 0, 10); len(pings) > 0 {
		t.Errorf("asked %v", pings)
	}
}

// TestRestingStreamHoldsNoPages: what was read, and what was acknowledged,
// costs nothing.
func TestRestingStreamHoldsNoPages(t *testing.T) {
	b := newReceiver(t)
	s := b.streams.all[1]
	for i := range 3 {
		at := wire.DataSeq(s.reassembly.nextExpected)
		f := wire.Data{Stream: 1, Seq: at, Bytes: make([]byte, 20_000)}
		if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), start); err != nil {
			t.Fatal(err)
		}
		s.Write(make([]byte, 30_000))
		if b.pool.inUse == 0 {
			t.Error("bytes without pages")
		}
		buf := make([]byte, 30_000)
		if n, err := s.Read(buf[:100]); n != 100 || err != nil || b.pool.inUse == 0 {
			t.Fatal(n, err)
		}
		for s.Readable() > 0 {
			_, _ = s.Read(buf)
		}
		takeProbes(b, start)
		acknowledge(t, b, start)
		if b.pool.inUse != 0 {
			t.Errorf("round %d: %d pages are held", i, b.pool.inUse)
		}
	}
}

// TestControlWhileAllAreLate: where every subflow is late, control frames still go by the
// quickest of them.
func TestControlWhileAllAreLate(t *testing.T) {
	now := time.Unix(1000, 0)
	b := New(Config{OpensStreams: true})
	for id := range wire.SubflowID(2) {
		b.AddSubflow(id+1, true, now)
		b.ObserveLocalHop(id+1, now, estimate.Hop{SRTT: 20 * time.Millisecond, MinRTT: 20 * time.Millisecond})
		b.MarkIdle(id + 1)
		b.subflows.subflowByID(id+1).est.OnSent(now, 10_000)
	}
	now = now.Add(time.Second)
	for _, p := range b.subflows.list {
		if p.est.EstimateAt(now).AckLate == 0 {
			t.Fatalf("subflow %d is not late", p.id)
		}
	}
	if _, err := b.OpenStream("example.com:80"); err != nil {
		t.Fatal(err)
	}
	if id, buf := b.NextSegment(now, nil); id == 0 || len(buf) == 0 {
		t.Error("a stream was opened, and nothing leaves while both helpers are late")
	}
}
