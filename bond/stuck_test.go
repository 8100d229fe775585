package bond

import (
	"testing"
	"time"

	"mpbond/estimate"
	"mpbond/unit"
	"mpbond/wire"
)

// receiving is a bond with two idle paths, the first of which has just brought
// bytes of a download.
func receiving(t *testing.T) *Bond {
	t.Helper()
	b := New(Config{Opens: true})
	for id := wire.PathID(1); id <= 2; id++ {
		b.AddPath(id, id == 2, start)
		b.Local(id, start, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, Cwnd: 100_000, MSS: 1448})
	}
	if _, err := b.Open("a:1"); err != nil {
		t.Fatal(err)
	}
	drain(b, start)
	acknowledge(t, b, start)
	f := wire.Data{Stream: 1, Bytes: make([]byte, 1000)}
	if err := b.Receive(1, f.Type(), f.AppendPayload(nil), start); err != nil {
		t.Fatal(err)
	}
	return b
}

// drain lets all paths send what they have, and returns which sent a PING.
func drain(b *Bond, now time.Time) (pings []wire.PathID) {
	for {
		b.Idle(1)
		b.Idle(2)
		id, _ := b.Next(now, nil)
		if id == 0 {
			return pings
		}
		for _, f := range b.path(id).flight.all() {
			if f.t == wire.TypePing {
				pings = append(pings, id)
			}
		}
	}
}

// acknowledge has everything arrive.
func acknowledge(t *testing.T, b *Bond, now time.Time) {
	t.Helper()
	a := wire.Ack{Paths: []wire.PathAck{{Path: 1, Received: b.path(1).sent}, {Path: 2, Received: b.path(2).sent}}}
	if err := b.Receive(2, a.Type(), a.AppendPayload(nil), now); err != nil {
		t.Fatal(err)
	}
}

// run ticks from one second after start to another, and returns the pings.
func run(b *Bond, from, to float64) (pings []wire.PathID) {
	for s := from; s < to; s += 0.02 {
		now := start.Add(time.Duration(s * float64(time.Second)))
		b.Tick(now)
		pings = append(pings, drain(b, now)...)
	}
	return pings
}

// TestQuietPathIsAskedOnce: the path that carried bytes a moment ago is asked,
// and no other, whose radio may sleep.
func TestQuietPathIsAskedOnce(t *testing.T) {
	b := receiving(t)
	if pings := run(b, 0, 0.98); len(pings) > 0 {
		t.Fatalf("asked %v after less than a second", pings)
	}
	if pings := run(b, 0.98, 1.1); len(pings) != 1 || pings[0] != 1 {
		t.Fatalf("asked %v", pings)
	}
	acknowledge(t, b, start.Add(1100*time.Millisecond))
	if pings := run(b, 1.1, 60); len(pings) > 0 || b.path(1).silent() {
		t.Errorf("asked again: %v", pings)
	}
	if b.NextTick(); !b.nextTick.IsZero() {
		t.Errorf("an idle bond wakes at %v", b.nextTick.Sub(start))
	}
}

// bring has path id bring the next bytes of the download, s seconds after start.
func bring(t *testing.T, b *Bond, id wire.PathID, s float64) {
	t.Helper()
	f := wire.Data{Stream: 1, Seq: b.streams[1].inNext, Bytes: make([]byte, 1000)}
	if err := b.Receive(id, f.Type(), f.AppendPayload(nil), start.Add(time.Duration(s*float64(time.Second)))); err != nil {
		t.Fatal(err)
	}
}

// TestOneIsAskedForAll: of two paths that brought bytes to the end the direct one
// is asked; of two of which one fell silent before the other, both; and when the
// one does not answer the other is asked as well.
func TestOneIsAskedForAll(t *testing.T) {
	for _, c := range []struct {
		helped, direct float64 // when they brought their last bytes
		answers        bool
		want           []wire.PathID
	}{
		{0.15, 0, true, []wire.PathID{1}},
		{0, 0.15, true, []wire.PathID{1}},
		{0, 0.5, true, []wire.PathID{1, 2}},
		{0.5, 0, true, []wire.PathID{1, 2}},
		{0.15, 0, false, []wire.PathID{1, 2}},
	} {
		b := receiving(t)
		first, second := c.helped, c.direct
		if first < second {
			bring(t, b, 2, first)
			bring(t, b, 1, second)
		} else {
			bring(t, b, 1, second)
			bring(t, b, 2, first)
		}
		last := max(first, second)
		run(b, last, last+0.9)
		acknowledge(t, b, start.Add(time.Duration((last+0.9)*float64(time.Second))))
		asked := map[wire.PathID]bool{}
		for s := last + 0.9; s < last+3; s += 0.1 {
			for _, id := range run(b, s, s+0.1) {
				asked[id] = true
			}
			if c.answers {
				acknowledge(t, b, start.Add(time.Duration((s+0.1)*float64(time.Second))))
			}
		}
		if len(asked) != len(c.want) || !asked[c.want[0]] || !asked[c.want[len(c.want)-1]] {
			t.Errorf("%+v: asked %v", c, asked)
		}
	}
}

// TestPauseLikeTheOneBefore: a direct path that was well after its last byte is
// not asked in a pause that is no longer than the one before; one whose last ACK
// is not known to have arrived is, and any is when the pause gets longer.
func TestPauseLikeTheOneBefore(t *testing.T) {
	for _, c := range []struct {
		name  string
		queue unit.Bytes // of the path's TCP, in the second pause
		after float64    // when it is asked in the second pause
	}{{"well", 0, 2.5}, {"nothing heard", 100, 1}} {
		b := receiving(t)
		if pings := run(b, 0.98, 1.1); len(pings) != 1 {
			t.Fatalf("in the first pause: %v", pings)
		}
		acknowledge(t, b, start.Add(1100*time.Millisecond))
		bring(t, b, 1, 2)
		if drain(b, start.Add(2020*time.Millisecond)); b.path(1).sentAt.Before(b.path(1).lastData) {
			t.Fatal("no ACK was sent")
		}
		ticked := 2.02
		for s := 2.02; s < 6; s += 0.02 {
			b.Local(1, start.Add(time.Duration(s*float64(time.Second))), estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond,
				Cwnd: 100_000, MSS: 1448, Queue: c.queue, Acked: uint64(s * 1000)})
			if ticked = s; len(run(b, s, s+0.01)) > 0 {
				break
			}
		}
		if ticked < 2+c.after-0.001 || ticked > 2+c.after+0.05 {
			t.Errorf("%s: asked after %.2f s, want %.2f", c.name, ticked-2, c.after)
		}
	}
}

// TestAllPathsStuck: when no answer comes, the others are asked; when none has
// an answer, all are told to be stuck, the last one too.
func TestAllPathsStuck(t *testing.T) {
	b := receiving(t)
	asked := map[wire.PathID]bool{}
	for _, id := range run(b, 0.98, 6) {
		asked[id] = true
	}
	if !asked[1] || !asked[2] {
		t.Errorf("asked %v", asked)
	}
	for _, p := range b.Paths(nil, start.Add(6*time.Second)) {
		if p.StuckFor < time.Second {
			t.Errorf("path %d is stuck for %v", p.ID, p.StuckFor)
		}
	}
	if b.path(1).silent() == b.path(2).silent() {
		t.Error("one of them is left for use")
	}
}

func TestNoStreamsNoQuestions(t *testing.T) {
	b := receiving(t)
	b.Fail(wire.CodeClosed, "done", start)
	drain(b, start)
	acknowledge(t, b, start)
	if pings := run(b, 0, 10); len(pings) > 0 {
		t.Errorf("asked %v", pings)
	}
}

// TestRestingStreamHoldsNoPages: what was read, and what was acknowledged,
// costs nothing.
func TestRestingStreamHoldsNoPages(t *testing.T) {
	b := receiving(t)
	s := b.streams[1]
	for i := range 3 {
		at := wire.DataSeq(s.inNext)
		f := wire.Data{Stream: 1, Seq: at, Bytes: make([]byte, 20_000)}
		if err := b.Receive(1, f.Type(), f.AppendPayload(nil), start); err != nil {
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
		drain(b, start)
		acknowledge(t, b, start)
		if b.pool.inUse != 0 {
			t.Errorf("round %d: %d pages are held", i, b.pool.inUse)
		}
	}
}
