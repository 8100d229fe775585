// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// runWithChange runs a download during which something happens to a hop, and returns
// how long it took and the longest gap in delivery.
func runWithChange(t *testing.T, scheduler string, size unit.Bytes, rates []unit.Rate, change func(*simNet)) (took,
	gap time.Duration) {
	t.Helper()
	n := newSim(t, scheduler, 0.2)
	n.addTriangle(rates[0], rates[1:]...)
	change(n)
	begin, tr := n.now, &transfer{size: int(size)}
	done := n.carry([]*transfer{tr})
	last, read := n.now, 0
	n.run(func() bool {
		if tr.read > read || tr.read == tr.size {
			gap, last, read = max(gap, n.now.Sub(last)), n.now, tr.read
		}
		return done()
	})
	return tr.done.Sub(begin), gap
}

// TestDeeperAtTheEnd: a helper holds enough at the end of a transfer to hide
// that its link falls, and no more than before the end where the app would wait
// for what lies behind that.
func TestDeeperAtTheEnd(t *testing.T) {
	m := unit.Mbps
	fall := func(n *simNet) {
		h := n.subflows[1].hops[1][0]
		h.steps = append(h.steps, simStep{n.now.Add(2 * time.Second), m})
	}
	auto, _ := runWithChange(t, "auto", 4*unit.MB, []unit.Rate{8 * m, 10 * m, 5 * m}, fall)
	pams, _ := runWithChange(t, "pams", 4*unit.MB, []unit.Rate{8 * m, 10 * m, 5 * m}, fall)
	t.Logf("HS-path 10 to 1 Mbit/s: auto %.3f s, pams %.3f s", auto.Seconds(), pams.Seconds())
	if auto > pams+30*time.Millisecond {
		t.Errorf("auto takes %v, pams %v", auto, pams)
	}
	for _, rates := range [][]unit.Rate{{8 * m, 10 * m, 5 * m}, {8 * m, 10 * m, 5 * m, 10 * m, 5 * m}} {
		_, gap := runWithChange(t, "auto", 20*unit.MB, rates, func(n *simNet) {
			for d := range 2 {
				h := n.subflows[0].hops[d][0]
				h.steps = append(h.steps, simStep{n.now.Add(3 * time.Second), 0})
			}
		})
		t.Logf("%v, PS-path silent: longest gap %.3f s", rates, gap.Seconds())
		if gap > 450*time.Millisecond {
			t.Errorf("%v, PS-path silent: longest gap %v", rates, gap)
		}
	}
}

// TestQueueGrows checks that a helper whose link to the server is fast gets few bytes ahead at the
// beginning of a transfer, after an idle time, and more as it goes on. The first transfer measures.
func TestQueueGrows(t *testing.T) {
	const pipe = 10 * unit.Mbps
	n := newSim(t, "auto", 0.2)
	n.addTriangle(2*unit.Mbps, 60*unit.Mbps, pipe)
	far := n.subflows[1].hops[1][1]
	for i := range 2 {
		begin, tr := n.now, &transfer{size: int(8 * unit.MB)}
		done := n.carry([]*transfer{tr})
		var early, late time.Duration // most that waited at the helper
		n.run(func() bool {
			waits := pipe.Time(unit.Bytes(far.written - far.acked))
			switch age := n.now.Sub(begin); {
			case age < 300*time.Millisecond:
				early = max(early, waits)
			case age > time.Second && age < 3*time.Second:
				late = max(late, waits)
			}
			return done()
		})
		t.Logf("%v waited at the helper in the first 0.3 s, %v after a second", early, late)
		if i > 0 && early > 120*time.Millisecond || late < 500*time.Millisecond || late > 850*time.Millisecond {
			t.Errorf("transfer %d: too much at the beginning, too little or too much later", i)
		}
		at := n.now.Add(time.Minute)
		n.after(time.Minute, func() {})
		n.run(func() bool { return !n.now.Before(at) })
	}
}

// TestSourceIsLimit: when the remaining bytes count as the last ones.
func TestSourceIsLimit(t *testing.T) {
	b := New(Config{OpensStreams: true, MetaBuffer: unit.MB})
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		write int
		want  bool
	}{{700_000, true}, {100_000, false}, {1 << 20, false}} {
		s.Write(make([]byte, c.write))
		if got := s.isSourceLimit(); got != c.want {
			t.Errorf("with %v of 1 MB waiting: %v", unit.Bytes(s.send.unsent.Size()), got)
		}
	}
	s.CloseWrite()
	if !s.isSourceLimit() {
		t.Error("not at hand though the source has ended")
	}
	b.AddSubflow(1, false, start)
	b.AddSubflow(2, false, start)
	if b.subflows.hasLowLatency(start) {
		t.Error("nothing is low-latency")
	}
	b.subflows.subflowByID(2).extendLowLatency(start.Add(time.Second))
	if !b.subflows.hasLowLatency(start) || b.subflows.hasLowLatency(start.Add(time.Second)) {
		t.Error("a low-latency subflow beside is not seen, or forever")
	}
}

// TestWithdrawn: what is recalled before its subflow's writer has begun with it
// is not sent there: by silence, by loss, and at the end of a transfer.
func TestWithdrawn(t *testing.T) {
	given := func(begun bool) (*Bond, *subflow, wire.DataSeq) {
		b := newFilledBond(t, 2)
		s := b.streams.all[1]
		before := wire.DataSeq(200_000) - wire.DataSeq(b.backlog.pending)
		b.MarkIdle(1)
		if id, _ := b.NextSegment(start, nil); id != 1 {
			t.Fatalf("segment for subflow %d", id)
		}
		if begun && !b.BeginSegment(1) {
			t.Fatal("a segment that nobody recalled may not be written")
		}
		if end := wire.DataSeq(200_000) - wire.DataSeq(b.backlog.pending); end <= before || s.send.unsent[0].From != end {
			t.Fatalf("no stream bytes in the segment: %v to %v", before, end)
		}
		return b, b.subflows.subflowByID(1), before
	}
	for _, begun := range []bool{false, true} {
		b, p, before := given(begun)
		sent := p.bytesSent
		b.stats.ReinjectedSilent += b.reinject.recallInFlight(p, 0, start, "silent")
		want := before // what really went out
		if begun {
			want = wire.DataSeq(p.streamBytesSent)
		}
		if b.BeginSegment(1) != begun || p.bytesSent == sent != begun || b.stats.ReinjectedSilent != unit.Bytes(want) ||
			p.streamBytesSent != unit.Bytes(want) {
			t.Errorf("begun %v: may be written %v, %d of %d bytes count as sent, %v as sent again, %v as given", begun,
				b.BeginSegment(1), p.bytesSent, sent, b.stats.ReinjectedSilent, p.streamBytesSent)
		}
		if p.est.BytesInFlight() != unit.Bytes(p.bytesSent) {
			t.Errorf("begun %v: %v outstanding, %d sent", begun, p.est.BytesInFlight(), p.bytesSent)
		}
		if b.backlog.pending != 200_000 {
			t.Errorf("begun %v: %v wait to be sent", begun, b.backlog.pending)
		}
		if p.inFlight.recallable != 0 {
			t.Errorf("begun %v: the queue of frames counts %d", begun, p.inFlight.recallable)
		}
		b.MarkIdle(1)
		if id, _ := b.NextSegment(start, nil); id != 1 || !b.BeginSegment(1) {
			t.Errorf("begun %v: no segment afterwards", begun)
		}
	}
	b, _, before := given(false)
	b.RemoveSubflow(1, start)
	if st := b.Stats(); st.LostSubflow != unit.Bytes(before) || b.BeginSegment(1) {
		t.Errorf("lost: %v sent again, want %v", st.LostSubflow, before)
	}
	// At the end of a transfer: the newest bytes of the slow subflow.
	b, p, before := given(false)
	s := b.streams.all[1]
	s.send.unsent = nil
	s.send.end = wire.DataSeq(p.streamBytesSent)
	b.backlog.updateStream(s)
	b.reinject.eta, b.reinject.scheduler = 0.2, onlyNewest{unit.Bytes(p.streamBytesSent) - unit.Bytes(before)}
	b.MarkIdle(2)
	id, _ := b.NextSegment(start, nil)
	if id != 2 || b.BeginSegment(1) || !b.BeginSegment(2) {
		t.Errorf("the end goes to subflow %d; subflow 1 may write %v", id, b.BeginSegment(1))
	}
	if b.stats.ReinjectedTail != 0 || b.reinject.ledger.SmallGapRecalls != 0 || len(s.send.alsoInFlight) != 0 {
		t.Errorf("counted as sent again: %v, %v of the allowance, shared %v", b.stats.ReinjectedTail,
			b.reinject.ledger.SmallGapRecalls,
			s.send.alsoInFlight)
	}
}

// onlyNewest recalls the newest n bytes of subflow 1, once.
type onlyNewest struct{ n unit.Bytes }

func (onlyNewest) Name() string { return "test" }
func (onlyNewest) Pick(subflows []sched.Subflow, _ unit.Bytes) sched.Decision {
	return sched.Decision{Subflow: subflows[len(subflows)-1].ID}
}
func (o onlyNewest) Recall(subflows []sched.Subflow, _ float64, _ sched.Ledger) sched.Recall {
	for _, p := range subflows {
		if p.ID == 1 && p.InFlight > o.n {
			return sched.Recall{From: 1, Bytes: o.n, Budget: sched.SmallGaps}
		}
	}
	return sched.Recall{}
}

// TestSmallGapOfHelped: for auto a gap at the end is small if it is under the round
// trip of the quickest subflow end to end, also where the hop next to the sender is
// a quick pipe, as in an upload: then it is copied within the allowance only.
func TestSmallGapOfHelped(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		copied unit.Bytes // before
		far    time.Duration
		want   bool
	}{
		{"small, and it is spent", 20_000, 70 * ms, false},
		{"small, within the allowance", 0, 70 * ms, true},
		{"large", 20_000, 5 * ms, true},
	} {
		b := newFilledBond(t, 5)
		p, s := b.subflows.subflowByID(1), b.streams.all[1]
		s.send.unsent = nil
		s.send.end = wire.DataSeq(p.streamBytesSent)
		b.backlog.updateStream(s)
		b.reinject.scheduler, _ = sched.New("auto")
		b.reinject.ledger = sched.Ledger{Given: 2 * unit.MB, SmallGapRecalls: c.copied}
		b.subflows.subflowByID(2).est.Helped = true
		b.ObserveLocalHop(2, start, estimate.Hop{SRTT: 5 * ms, MinRTT: 5 * ms, Cwnd: 100_000, MSS: 1448})
		b.ObserveFarHop(2, start, wire.HopState{RTT: c.far, Rate: 16 * unit.Mbps})
		b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 100_000, MSS: 1448, Queue: 180_000})
		gap := p.reinjectionView(start).Tail - b.subflows.subflowByID(2).reinjectionView(start).PAD
		if gap < 20*ms || gap > 70*ms {
			t.Fatalf("%s: a gap of %v", c.name, gap)
		}
		b.MarkIdle(2)
		b.reinject.reinjectTail(start)
		if got := b.stats.ReinjectedTail > 0; got != c.want {
			t.Errorf("%s: %v of a gap of %v are sent again", c.name, b.stats.ReinjectedTail, gap)
		}
		if small := c.far > gap; c.want && (b.reinject.ledger.SmallGapRecalls > c.copied) != small {
			t.Errorf("%s: %v of the allowance are used", c.name, b.reinject.ledger.SmallGapRecalls-c.copied)
		}
	}
}

// TestRecalledBefore: what was recalled because its subflow was silent still lies
// before what the subflow is given afterwards. That comes as late as if nothing had
// been recalled, and other subflows deliver it when it comes too late.
func TestRecalledBefore(t *testing.T) {
	at := func(n *simNet, after time.Duration, rate unit.Rate) {
		for d := range 2 {
			pipe := n.subflows[1].hops[d][d]
			pipe.steps = append(pipe.steps, simStep{n.now.Add(after), rate})
		}
	}
	for _, scheduler := range []string{"auto", "pams"} {
		took, _ := runWithChange(t, scheduler, unit.MB, []unit.Rate{8 * unit.Mbps, 10 * unit.Mbps, 4 * unit.Mbps},
			func(n *simNet) {
				at(n, 0, 0)
				at(n, 500*time.Millisecond, 4*unit.Mbps)
				at(n, 600*time.Millisecond, unit.Mbps)
			})
		t.Logf("%s: %.3f s", scheduler, took.Seconds())
		if most := 1500 * time.Millisecond; took > most {
			t.Errorf("%s: 1 MB takes %v over 8 Mbit/s and a pipe that comes back and falls, want %v at most", scheduler, took,
				most)
		}
	}
}
