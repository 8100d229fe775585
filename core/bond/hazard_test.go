// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
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

// TestHints checks when the primary sends hints: while the bond carries something, if a handoff is likely,
// was likely or has happened, and at most each hintInterval.
func TestHints(t *testing.T) {
	b, now := New(Config{OpensStreams: true}), start
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.AddSubflow(id, false, now)
		b.subflows.subflowByID(id).trainLeft = 0
		b.MarkIdle(id)
	}
	serial := uint64(0)
	expect := func(what string, want ...wire.Hint) {
		t.Helper()
		var all []wire.Hint
		for id, frames := b.NextSegment(now, nil); id != 0; id, frames = b.NextSegment(now, nil) {
			all = append(all, hintsIn(t, frames)...)
			b.MarkIdle(id)
		}
		for i := range want {
			serial++
			want[i].Serial = serial
		}
		if !slices.Equal(all, want) {
			t.Errorf("%s: %+v, want %+v", what, all, want)
		}
	}
	hazard := func(p float64, handedOff bool) {
		b.SetHazard(1, Hazard{Probability: p, Until: now.Add(2 * time.Second), HandedOff: handedOff}, now)
	}
	hazard(0.6, true)
	expect("the bond is idle")
	s, err := b.OpenStream("web:80")
	if err != nil {
		t.Fatal(err)
	}
	expect("a stream is opened", wire.Hint{Subflow: 1, Probability: 0.6, ValidFor: 2 * time.Second, HandedOff: true})
	hazard(0.4, true)
	b.SetHazard(99, Hazard{Probability: 1, Until: now.Add(time.Second)}, now)
	expect("at once again, and of an unknown subflow")
	hazard(0.2, false)
	b.timer.clearWakeTime()
	expect("still at once")
	if at := b.NextTick(); at != now.Add(hintInterval) {
		t.Errorf("the next tick is %v later", at.Sub(now))
	}
	now = now.Add(hintInterval)
	expect("after the interval", wire.Hint{Subflow: 1, Probability: 0.2, ValidFor: 1900 * time.Millisecond,
		HandedOff: true})
	now = now.Add(time.Second)
	hazard(0, false)
	expect("no longer likely", wire.Hint{Subflow: 1, ValidFor: 2 * time.Second})
	now = now.Add(time.Second)
	hazard(0.05, false)
	expect("not likely before and after")
	now = now.Add(time.Second)
	hazard(0.05, true)
	expect("a handoff that was not foreseen", wire.Hint{Subflow: 1, Probability: 13. / 255, ValidFor: 2 * time.Second,
		HandedOff: true})

	if !b.IsActive(now) {
		t.Error("the bond is not active with bytes in flight")
	}
	// What is in flight is acknowledged, and the stream stays open without data.
	for _, p := range b.subflows.list {
		for p.inFlight.len() > 0 {
			p.inFlight.popOldestFrame()
		}
	}
	if now = now.Add(recentActivity); b.IsActive(now) {
		t.Error("an idle bond is active")
	}
	hazard(0.8, true)
	expect("an idle stream is open")
	now = now.Add(time.Hour)
	s.Write([]byte("hello"))
	expect("it carries data after the forecast has ended", wire.Hint{Subflow: 1, Probability: 0.8})
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

// TestReceiveHint: a hint counts for its time, for its subflow alone, and may be about none. One that a
// later hint has overtaken changes nothing.
func TestReceiveHint(t *testing.T) {
	b := New(Config{})
	b.AddSubflow(1, false, start)
	b.AddSubflow(2, false, start)
	receive := func(f wire.Hint) {
		t.Helper()
		if err := b.ReceiveFrame(2, f.Type(), f.AppendPayload(nil), start); err != nil {
			t.Fatal(err)
		}
	}
	receive(wire.Hint{Subflow: 7, Serial: 9, Probability: 1})
	receive(wire.Hint{Subflow: 1, Serial: 3, Probability: 1, ValidFor: time.Second})
	p, q := b.subflows.subflowByID(1), b.subflows.subflowByID(2)
	if got := p.expectedStall(start); got != usualStall || q.expectedStall(start) != 0 {
		t.Errorf("a handoff that is certain delays by %v", got)
	}
	if got := p.expectedStall(start.Add(time.Second)); got != 0 {
		t.Errorf("after the forecast has ended: %v", got)
	}
	for _, serial := range []uint64{2, 3} {
		receive(wire.Hint{Subflow: 1, Serial: serial})
		if p.expectedStall(start) != usualStall {
			t.Errorf("hint %d counts after hint 3", serial)
		}
	}
	if receive(wire.Hint{Subflow: 1, Serial: 4}); p.expectedStall(start) != 0 {
		t.Error("the last hint does not count")
	}
	receive(wire.Hint{Subflow: 1, Serial: 5, Probability: 0.6, ValidFor: time.Second})
	if got := p.expectedStall(start); (got - usualStall*36/100).Abs() > time.Microsecond {
		t.Errorf("a handoff with a probability of 0.6 delays by %v", got)
	}
}

// TestStallHistory: what handoffs delay is learnt from how long the subflow stalled around them, while it
// carried something.
func TestStallHistory(t *testing.T) {
	after := func(d time.Duration) time.Time { return start.Add(d) }
	const second = time.Second
	for _, c := range []struct {
		name    string
		subflow subflow
		want    time.Duration
	}{
		{"it was not busy", subflow{lastActive: start, lastInFlight: start}, usualStall},
		{"no stall", subflow{wasBusyAtHandoff: true}, usualStall * 4 / 5},
		{"an old stall", subflow{wasBusyAtHandoff: true, stallBegan: after(-9 * second), stallEnded: after(-8 * second)},
			usualStall * 4 / 5},
		{"a later stall", subflow{wasBusyAtHandoff: true, stallBegan: after(8 * second), stallEnded: after(9 * second)},
			usualStall * 4 / 5},
		{"one that was counted lasts", subflow{wasBusyAtHandoff: true, stalledSince: start}, usualStall},
		{"a short stall before", subflow{stallBegan: after(-second), stallEnded: after(50*time.Millisecond - second)},
			(4*usualStall + 50*time.Millisecond) / 5},
		{"a long stall after", subflow{stallBegan: after(second), stallEnded: after(4 * second)},
			(4*usualStall + maxStall) / 5},
		{"a stall that lasts", subflow{stallBegan: after(1900 * time.Millisecond), stalledSince: after(second)},
			(4*usualStall + 100*time.Millisecond) / 5},
	} {
		p := &c.subflow
		p.handoffAt = start
		if p.learnStallInTime(after(aroundHandoff - 1)); p.stalls.count != 0 {
			t.Errorf("%s: learnt too early", c.name)
		}
		for range 2 { // the second time there is no handoff
			p.learnStallInTime(after(aroundHandoff))
		}
		if got := p.stalls.meanStall(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	p := &subflow{handoffAt: start, stallBegan: start, stallEnded: after(100 * time.Millisecond), wasBusyAtHandoff: true}
	p.learnStall(start)
	p.handoffAt = after(second)
	if p.learnStall(after(second)); p.stalls != (stallHistory{2, 100 * time.Millisecond}) {
		t.Errorf("two handoffs with one stall: %+v", p.stalls)
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

// TestHazardMovesSmallData: small data and control frames change their subflow when a handoff becomes likely.
func TestHazardMovesSmallData(t *testing.T) {
	b := New(Config{})
	b.AddSubflow(1, false, start)
	b.AddSubflow(2, false, start)
	for id, rtt := range map[wire.SubflowID]time.Duration{1: 50 * time.Millisecond, 2: 80 * time.Millisecond} {
		b.ObserveLocalHop(id, start, estimate.Hop{SRTT: rtt, MinRTT: rtt, MSS: 1448, Cwnd: 14_480})
	}
	before := b.filter.generation
	carrier := func() wire.SubflowID {
		for _, p := range b.subflows.list {
			p.idle = true
		}
		p, _ := b.chooser.surveySubflows(start)
		return p.id
	}
	if p := b.filter.fastestPermitted(nil, nil, start); p.id != 1 || carrier() != 1 {
		t.Fatalf("subflow %d is the fastest", p.id)
	}
	b.SetHazard(1, Hazard{Probability: 1, Until: start.Add(time.Second)}, start)
	if id := carrier(); id != 2 {
		t.Errorf("subflow %d carries control frames", id)
	}
	if p := b.filter.fastestPermitted(nil, nil, start); p.id != 2 || b.filter.generation == before {
		t.Errorf("subflow %d while the other is likely to stall; the guide is asked again: %v", p.id,
			b.filter.generation != before)
	}
}

// TestIdleBondLearnsNothing: hints that arrive while nothing is carried are no handoffs without a stall.
func TestIdleBondLearnsNothing(t *testing.T) {
	b, now := New(Config{}), start
	b.AddSubflow(1, false, now)
	for serial := range uint64(40) {
		now = now.Add(5 * time.Second)
		f := wire.Hint{Subflow: 1, Serial: serial + 1, Probability: 1, ValidFor: time.Second, HandedOff: true}
		if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), now); err != nil {
			t.Fatal(err)
		}
		b.Tick(now.Add(3 * time.Second))
	}
	if p := b.subflows.subflowByID(1); p.stalls.meanStall() != usualStall {
		t.Errorf("a handoff is taken to stall for %v", p.stalls.meanStall())
	}
}

// TestHandoffMovesPins: a pinned flow or stream moves at once when a handoff of its link is likely, and
// otherwise only after another subflow was faster for a while.
func TestHandoffMovesPins(t *testing.T) {
	b := New(Config{})
	for id, rtt := range map[wire.SubflowID]time.Duration{1: 50 * time.Millisecond, 2: 60 * time.Millisecond} {
		b.AddSubflow(id, false, start)
		b.ObserveLocalHop(id, start, estimate.Hop{SRTT: rtt, MinRTT: rtt, MSS: 1448, Cwnd: 14_480})
	}
	p, q := b.subflows.subflowByID(1), b.subflows.subflowByID(2)
	pin := pinnedSubflow{subflow: p}
	if move, why := pin.shouldMove(q, start); move {
		t.Errorf("it moves to a slower one: %s", why)
	}
	b.SetHazard(1, Hazard{Probability: 0.6, Until: start.Add(time.Second)}, start)
	if move, why := pin.shouldMove(q, start); !move || why != "a handoff is likely" {
		t.Errorf("a handoff is likely: %v, %q", move, why)
	}
	b.SetHazard(2, Hazard{Probability: 0.6, Until: start.Add(time.Second)}, start)
	if move, why := pin.shouldMove(q, start); move {
		t.Errorf("it moves to one that may stall too: %s", why)
	}
	pin = pinnedSubflow{subflow: q}
	b.ObserveLocalHop(2, start, estimate.Hop{SRTT: 400 * time.Millisecond, MinRTT: 400 * time.Millisecond, MSS: 1448,
		Cwnd: 14_480})
	if move, why := pin.shouldMove(p, start); move {
		t.Errorf("it moves at once to a much faster one that may stall too: %s", why)
	}
}

// TestBusyBondLearns: a handoff while bytes are in flight, which go on being acknowledged, is learnt two
// seconds later as one without a stall, if they were in flight for a second before.
func TestBusyBondLearns(t *testing.T) {
	for busyFor, want := range map[time.Duration]int{handoffReport / 2: 0, 2 * handoffReport: 1} {
		b := newFilledBond(t, 3)
		p := b.subflows.list[0]
		now := start
		pass := func(d time.Duration) {
			for end := now.Add(d); now.Before(end); now = now.Add(checkInterval) {
				p.lastProgress, p.lastHopProgress = now, now
				b.Tick(now)
			}
		}
		pass(busyFor)
		b.SetHazard(p.id, Hazard{HandedOff: true}, now)
		if pass(aroundHandoff); p.stalls.count != 0 {
			t.Error("learnt too early")
		}
		if pass(2 * checkInterval); p.stalls != (stallHistory{count: want}) {
			t.Errorf("busy for %v: %+v", busyFor, p.stalls)
		}
	}
}

// TestHandoffOfIdleTime: the other end does not learn of a handoff that is long over when the bond carries
// something again.
func TestHandoffOfIdleTime(t *testing.T) {
	b, now := New(Config{OpensStreams: true}), start
	b.AddSubflow(1, false, now)
	b.subflows.list[0].trainLeft = 0
	b.MarkIdle(1)
	for range 10 { // reports go on each second
		now = now.Add(time.Second)
		b.SetHazard(1, Hazard{Probability: 0.5, Until: now.Add(2 * time.Second), HandedOff: now.Sub(start) < 2*time.Second},
			now)
	}
	if _, err := b.OpenStream("web:80"); err != nil {
		t.Fatal(err)
	}
	_, frames := b.NextSegment(now, nil)
	if hints := hintsIn(t, frames); len(hints) != 1 || hints[0].HandedOff || hints[0].Probability == 0 {
		t.Errorf("%+v", hints)
	}
}
