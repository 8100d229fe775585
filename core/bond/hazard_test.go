// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

// hintsIn returns the HINTs among frames.
func hintsIn(t *testing.T, frames []byte) (all []wire.Hint) {
	t.Helper()
	for len(frames) > 0 {
		n := wire.HeaderLen + int(frames[1])<<16 + int(frames[2])<<8 + int(frames[3])
		if wire.Type(frames[0]) == wire.TypeHint {
			f, err := wire.ParseHint(frames[wire.HeaderLen:n])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, f)
		}
		frames = frames[n:]
	}
	return all
}

// TestHints checks when the primary sends hints: while a stream is open, if a handoff is likely, was
// likely or has happened, and at most each hintInterval.
func TestHints(t *testing.T) {
	b, now := New(Config{OpensStreams: true}), start
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.AddSubflow(id, false, now)
		b.subflows.subflowByID(id).trainLeft = 0
		b.MarkIdle(id)
	}
	expect := func(what string, want ...wire.Hint) {
		t.Helper()
		var all []wire.Hint
		for id, frames := b.NextSegment(now, nil); id != 0; id, frames = b.NextSegment(now, nil) {
			all = append(all, hintsIn(t, frames)...)
			b.MarkIdle(id)
		}
		if len(all) != len(want) || len(all) > 0 && all[0] != want[0] {
			t.Errorf("%s: %+v, want %+v", what, all, want)
		}
		now = now.Add(time.Second)
	}
	hazard := func(p float64, handedOff bool) {
		b.SetHazard(1, Hazard{Probability: p, Until: now.Add(2 * time.Second), HandedOff: handedOff}, now)
	}
	hazard(0.6, true)
	expect("no stream is open")
	if _, err := b.OpenStream("web:80"); err != nil {
		t.Fatal(err)
	}
	expect("a stream is opened", wire.Hint{Subflow: 1, Probability: 0.6, Holds: time.Second, HandedOff: true})
	hazard(0.6, false)
	b.SetHazard(99, Hazard{Probability: 1, Until: now.Add(time.Second)}, now)
	expect("again, and one of an unknown subflow", wire.Hint{Subflow: 1, Probability: 0.6, Holds: 2 * time.Second})
	hazard(0.2, true)
	hazard(0.4, false)
	expect("two at once", wire.Hint{Subflow: 1, Probability: 0.2, Holds: 2 * time.Second, HandedOff: true})
	hazard(0, false)
	expect("no longer likely", wire.Hint{Subflow: 1, Holds: 2 * time.Second})
	hazard(0.05, false)
	expect("not likely before and after")
	hazard(0.05, true)
	expect("a handoff that was not foreseen", wire.Hint{Subflow: 1, Probability: 13. / 255, Holds: 2 * time.Second,
		HandedOff: true})
	now = now.Add(time.Hour)
	if _, err := b.OpenStream("web:80"); err != nil {
		t.Fatal(err)
	}
	expect("a stream is opened after the forecast has ended")
}

// TestHintReplacesWaiting: a subflow has one waiting HINT, which keeps that there was a handoff.
func TestHintReplacesWaiting(t *testing.T) {
	var q controlQueue
	q.queueHint(wire.Hint{Subflow: 1, HandedOff: true})
	q.queueHint(wire.Hint{Subflow: 2})
	q.queueHint(wire.Hint{Subflow: 1, Probability: 0.4})
	if len(q.notices) != 2 || q.notices[0] != (wire.Hint{Subflow: 1, Probability: 0.4, HandedOff: true}) {
		t.Errorf("%+v", q.notices)
	}
}

// TestReceiveHint: a hint counts for its time, for its subflow alone, and may be about none.
func TestReceiveHint(t *testing.T) {
	b := New(Config{})
	b.AddSubflow(1, false, start)
	b.AddSubflow(2, false, start)
	for _, f := range []wire.Hint{{Subflow: 1, Probability: 1, Holds: time.Second}, {Subflow: 7, Probability: 1}} {
		if err := b.ReceiveFrame(2, f.Type(), f.AppendPayload(nil), start); err != nil {
			t.Fatal(err)
		}
	}
	p, q := b.subflows.subflowByID(1), b.subflows.subflowByID(2)
	if got := p.expectedStall(start); got != usualStall || q.expectedStall(start) != 0 {
		t.Errorf("a handoff that is certain delays by %v", got)
	}
	if got := p.expectedStall(start.Add(time.Second)); got != 0 {
		t.Errorf("after the forecast has ended: %v", got)
	}
}

// TestStallHistory: what handoffs delay is learnt from how long the subflow stalled around them, while it
// carried something.
func TestStallHistory(t *testing.T) {
	for _, c := range []struct {
		name    string
		subflow subflow
		want    time.Duration
	}{
		{"it carried nothing", subflow{lastActive: start.Add(-time.Minute)}, usualStall},
		{"no stall", subflow{lastActive: start}, usualStall * 4 / 5},
		{"an old stall", subflow{lastActive: start, stallBegan: start.Add(-9 * time.Second),
			stallEnded: start.Add(-8 * time.Second)}, usualStall * 4 / 5},
		{"a short stall", subflow{stallBegan: start.Add(-300 * time.Millisecond),
			stallEnded: start.Add(-250 * time.Millisecond)}, (4*usualStall + 50*time.Millisecond) / 5},
		{"a long stall", subflow{stallBegan: start.Add(-5 * time.Second), stallEnded: start},
			(4*usualStall + maxStall) / 5},
		{"a stall that lasts", subflow{stallBegan: start.Add(-100 * time.Millisecond), stalledSince: start},
			(4*usualStall + 100*time.Millisecond) / 5},
	} {
		c.subflow.recordHandoff(start)
		if got := c.subflow.stalls.meanStall(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	var h stallHistory
	for range 1000 {
		h.addStall(0)
	}
	if got := h.meanStall(); got > usualStall/10 {
		t.Errorf("after 1000 handoffs without a stall: %v", got)
	}
	for range 2 * maxStallHistory {
		h.addStall(time.Hour)
	}
	if got := h.meanStall(); got < maxStall*7/10 {
		t.Errorf("after as many that stalled: %v", got)
	}
}

// TestStallIsRecorded: silence detection stores when a stall began and ended.
func TestStallIsRecorded(t *testing.T) {
	b := newFilledBond(t, 3)
	p := b.subflows.list[0]
	now := start
	for p.stalledSince.IsZero() && now.Sub(start) < 10*time.Second {
		now = now.Add(checkInterval)
		b.silence.updateSubflow(p, now)
	}
	began := p.stallBegan
	if began.IsZero() || !p.stallEnded.IsZero() || now.Sub(began) < minSilence {
		t.Fatalf("a stall seen at %v began at %v", now.Sub(start), began.Sub(start))
	}
	p.lastProgress, p.lastHopProgress = now, now
	b.silence.updateSubflow(p, now.Add(time.Millisecond))
	if p.stallEnded != now.Add(time.Millisecond) || p.stallBegan != began {
		t.Errorf("it ended at %v", p.stallEnded)
	}
}

// TestHazardAvoidsSubflow: small messages go over a subflow that is a little slower while a handoff of the
// faster one is likely, and the guide sees that.
func TestHazardAvoidsSubflow(t *testing.T) {
	subflows := []sched.Subflow{
		{ID: 1, Idle: true, Forecast: 40 * time.Millisecond, Th: 10 * unit.Mbps, MSS: 1448},
		{ID: 2, Idle: true, Forecast: 60 * time.Millisecond, Th: 10 * unit.Mbps, MSS: 1448},
	}
	s, err := sched.New("auto")
	if err != nil {
		t.Fatal(err)
	}
	for stall, want := range map[time.Duration]wire.SubflowID{0: 1, 10 * time.Millisecond: 1, 30 * time.Millisecond: 2} {
		subflows[0].ExpectedStall = stall
		if d := s.Pick(subflows, 1000); d.Subflow != want {
			t.Errorf("a stall of %v is expected: subflow %d", stall, d.Subflow)
		}
	}
	b := New(Config{})
	b.AddSubflow(1, false, start)
	p := b.subflows.subflowByID(1)
	before := p.guideView(start).Delay
	b.SetHazard(1, Hazard{Probability: 1, Until: start.Add(time.Second)}, start)
	if got := p.guideView(start).Delay - before; got != usualStall {
		t.Errorf("the guide sees %v more", got)
	}
	if v := p.schedulerView(p.est.EstimateAt(start), start); v.ExpectedStall != usualStall {
		t.Errorf("the scheduler sees %v", v.ExpectedStall)
	}
}
