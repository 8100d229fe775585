// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// newSilence returns a detector over two subflows with round trips of 50 ms, which have made
// progress at start.
func newSilence() (*silenceDetector, *subflow, *subflow) {
	d := &silenceDetector{subflows: &subflowTable{}, filter: &subflowFilter{}, timer: &wakeTimer{}, opensStreams: true}
	for id := range wire.SubflowID(2) {
		p := &subflow{id: id + 1, lastProgress: start, lastHopProgress: start}
		sampleRTT(p, 50*time.Millisecond)
		d.subflows.insertSubflow(p)
	}
	return d, d.subflows.list[0], d.subflows.list[1]
}

func TestSilenceLimit(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ srtt, minRTT, want time.Duration }{
		{50 * ms, 50 * ms, minSilence},
		{300 * ms, 50 * ms, 600 * ms},
		{3000 * ms, 50 * ms, maxSilence}, // a long queue, or a helper that reports a long round trip
		{700 * ms, 600 * ms, 1200 * ms},
		{9000 * ms, 9000 * ms, 2 * maxRTT}, // a helper that delays also the handshake
	} {
		if got := silenceLimit(c.srtt, c.minRTT); got != c.want {
			t.Errorf("round trip %v, at least %v: %v, want %v", c.srtt, c.minRTT, got, c.want)
		}
		if got := hopSilenceLimit(estimate.Hop{SRTT: c.srtt, MinRTT: c.minRTT}); got != c.want {
			t.Errorf("a hop's round trip of %v, at least %v: %v, want %v", c.srtt, c.minRTT, got, c.want)
		}
	}
}

// TestHopProgress: a hop that acknowledges often is silent sooner than its round trips say, once it has been
// busy for long enough.
func TestHopProgress(t *testing.T) {
	const ms = time.Millisecond
	const byRoundTrips = 800 * ms
	for _, c := range []struct {
		name   string
		busy   time.Duration // how long it has been
		every  time.Duration // acknowledgements
		before time.Duration // one longer gap, long before the last one
		want   time.Duration
	}{
		{"often", 4 * time.Second, 10 * ms, 0, minSilence},
		{"not for long", time.Second, 10 * ms, 0, byRoundTrips},
		{"seldom", 4 * time.Second, 100 * ms, 0, 300 * ms},
		{"once a round trip", 4 * time.Second, 400 * ms, 0, byRoundTrips},
		{"one longer gap", 4 * time.Second, 10 * ms, 500 * ms, 0}, // between both
		{"long ago", 20 * time.Second, 10 * ms, 500 * ms, minSilence},
	} {
		var g hopProgress
		now := start
		g.addSample(now, true, false)
		if c.before > 0 {
			now = now.Add(c.before)
			g.addSample(now, true, true)
		}
		for ; now.Sub(start) < c.busy; g.addSample(now, true, true) {
			for range 4 {
				now = now.Add(c.every / 4)
				g.addSample(now, true, false)
			}
		}
		got := g.limitFor(byRoundTrips)
		least, most := c.want, c.want+c.want/20
		if c.want == 0 {
			least, most = minSilence+1, byRoundTrips-1
		}
		if got < least || got > most {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		g.addSample(now, false, false)
		if idle := g.limitFor(byRoundTrips); idle != byRoundTrips {
			t.Errorf("%s, then idle: %v", c.name, idle)
		}
	}
}

// sleepingGuide is a Guide to which the radio of one subflow sleeps.
type sleepingGuide struct{ asleep wire.SubflowID }

func (sleepingGuide) AllowSubflows([]GuideSubflow, Demand) string { return "test" }

func (g sleepingGuide) WakeDelay(p GuideSubflow) time.Duration {
	if p.ID == g.asleep {
		return 260 * time.Millisecond
	}
	return 0
}

// TestPauseForgetsRhythm: after a pause of this process a hop has no rhythm.
func TestPauseForgetsRhythm(t *testing.T) {
	d, p, _ := newSilence()
	p.progress = hopProgress{busySince: start, last: start.Add(time.Hour), gap: time.Millisecond}
	d.discountPause(time.Minute)
	if got := p.progress.limitFor(time.Second); got != time.Second {
		t.Errorf("the limit is %v", got)
	}
}

// TestWaitProbesNoOther: while a stall may be over before another radio is awake, no probe wakes that.
func TestWaitProbesNoOther(t *testing.T) {
	for asleep, want := range map[wire.SubflowID]bool{1: true, 2: false} {
		d, p, q := newSilence()
		d.filter = &subflowFilter{subflows: d.subflows, guide: sleepingGuide{asleep}}
		d.lastAck = start.Add(time.Hour)
		p.inFlight.pushSentFrame(sentFrame{end: 1})
		now := start.Add(minSilence + time.Millisecond)
		q.lastData = start.Add(-time.Hour)
		d.updateSubflow(p, now)
		if d.markQuietProbes(now); q.probeDue != want {
			t.Errorf("subflow %d sleeps: the other one is probed at once: %v", asleep, q.probeDue)
		}
		now = now.Add(time.Second)
		d.updateSubflow(p, now)
		if d.markQuietProbes(now); !q.probeDue {
			t.Errorf("subflow %d sleeps: the other one is never probed", asleep)
		}
	}
}

// TestSilenceWakesNoRadio: while the only other radio sleeps, a stall must last for as long again as that
// takes to wake until the subflow is silent.
func TestSilenceWakesNoRadio(t *testing.T) {
	for asleep, wait := range map[wire.SubflowID]time.Duration{1: 0, 2: 260 * time.Millisecond} {
		d, p, _ := newSilence()
		d.filter = &subflowFilter{subflows: d.subflows, guide: sleepingGuide{asleep}}
		d.lastAck = start.Add(time.Hour)
		p.inFlight.pushSentFrame(sentFrame{end: 1})
		noticed := start.Add(minSilence + time.Millisecond)
		d.updateSubflow(p, noticed)
		if p.isSilent() != (wait == 0) || p.stalledSince != noticed {
			t.Errorf("subflow %d sleeps: silent %v at once", asleep, p.isSilent())
		}
		if wait > 0 {
			if d.updateSubflow(p, noticed.Add(wait-1)); p.isSilent() {
				t.Error("it is silent too soon")
			}
			if c := d.updateSubflow(p, noticed.Add(wait)); !c.began || !c.recall {
				t.Errorf("it is not silent in time: %+v", c)
			}
		}
	}
}

func TestStalls(t *testing.T) {
	for _, c := range []struct {
		name    string
		flight  bool       // frames are in flight
		queue   unit.Bytes // at the hop
		lastAck time.Duration
		limit   unit.Rate // of the hop
		at      time.Duration
		want    stall
	}{
		{"nothing in flight", false, 0, time.Hour, 0, time.Hour, notStalled},
		{"others are acknowledged", true, 0, minSilence + 1, 0, minSilence + 1, allStalled},
		{"just before", true, 0, minSilence, 0, minSilence, notStalled},
		{"no ACK at all", true, 0, 0, 0, 2 * minSilence, notStalled},
		{"nor for twice as long", true, 0, 0, 0, 2*minSilence + 1, allStalled},
		{"the hop's TCP gets none", true, 1000, 0, 0, minSilence + 1, hopStalled},
		{"both", true, 1000, minSilence + 1, 0, minSilence + 1, allStalled},
		{"packets are far apart", true, 1000, 0, 100 * unit.Kbps, minSilence + 1, notStalled},
		{"and even for that it takes long", false, 1000, 0, 100 * unit.Kbps, 500 * time.Millisecond, hopStalled},
	} {
		d, p, _ := newSilence()
		if c.flight {
			p.recordSentFrame(1000, sentFrame{frameType: wire.TypePing})
		}
		p.est.AddLocalSample(start, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond,
			Rate: 10 * unit.Mbps, Queue: c.queue, PacingLimit: c.limit})
		d.lastAck = start.Add(c.lastAck)
		if got := d.detectStall(p, start.Add(c.at)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestSilenceUpdate: a stalled subflow is silent while another one is alive, from then on its
// bytes are recalled, and progress ends it.
func TestSilenceUpdate(t *testing.T) {
	d, one, two := newSilence()
	one.recordSentFrame(1000, sentFrame{frameType: wire.TypePing})
	now := start.Add(time.Second)
	want := func(p *subflow, c silenceChange) {
		t.Helper()
		if got := d.updateSubflow(p, now); got != c {
			t.Errorf("subflow %d: %+v, want %+v", p.id, got, c)
		}
	}
	want(two, silenceChange{})
	want(one, silenceChange{began: true, recall: true})
	want(one, silenceChange{recall: true})
	two.recordSentFrame(1000, sentFrame{frameType: wire.TypePing})
	want(two, silenceChange{}) // the last one that is alive
	if two.isSilent() || !two.stalledSince.Equal(now) {
		t.Errorf("the last subflow: silent %v, stalled since %v", two.isSilent(), two.stalledSince)
	}
	one.lastProgress = now
	want(one, silenceChange{ended: true})
	if one.isSilent() || !one.stalledSince.IsZero() {
		t.Error("progress did not end its silence")
	}
	want(two, silenceChange{began: true, recall: true})
	d, one, _ = newSilence()
	one.recordSentFrame(5000, sentFrame{frameType: wire.TypePing})
	one.est.AddLocalSample(start, estimate.Hop{SRTT: 50 * time.Millisecond, Queue: 2000})
	now = start.Add(minSilence + 1)
	want(one, silenceChange{began: true, recall: true, recallFrom: 3000})
}

// TestProbeQuiet: after bytes came, the subflow that brought the last ones is asked once, when
// nothing has come for a second. If it was alive after them, it is not asked if they answered a request, and else
// when nothing has come for a quarter longer than the pause before.
func TestProbeQuiet(t *testing.T) {
	for _, c := range []struct {
		name  string
		opens bool
		pause time.Duration // before the last byte
		asked bool          // in that pause
		alive bool          // what was sent last has arrived
		blind bool          // the system does not report what the hop has acknowledged
		want  time.Duration // after the last byte; 0: never
	}{
		{"primary", true, 0, true, false, false, minQuietTime},
		{"server", false, 0, true, false, false, 0},
		{"known to be alive", true, 0, true, true, false, 0},
		{"a blind hop", true, 0, true, true, true, minQuietTime},
		{"a pause, and a request", true, 2 * time.Second, true, true, false, 0},
		{"a pause", true, 2 * time.Second, false, true, false, 2500 * time.Millisecond},
		{"a pause, but not known to be alive", true, 2 * time.Second, false, false, false, minQuietTime},
		{"a long pause", true, 4 * time.Second, false, true, false, maxQuietTime},
		{"a new beginning", true, recentActivity, false, true, false, minQuietTime},
		{"a new beginning with a request", true, recentActivity, true, true, false, 0},
	} {
		d, p, other := newSilence()
		d.opensStreams = c.opens
		p.est.AddLocalSample(start, estimate.Hop{Blind: c.blind, SRTT: 50 * time.Millisecond})
		d.lastRequest = start.Add(-time.Millisecond)
		d.recordNewBytes(p, start)
		last := start.Add(c.pause)
		if c.asked && c.pause > 0 {
			d.lastRequest = last.Add(-50 * time.Millisecond)
		}
		d.recordNewBytes(p, last)
		if c.alive {
			p.lastSent = last
		}
		asked := time.Duration(0)
		for now := last; now.Before(last.Add(2 * recentActivity)); now = now.Add(10 * time.Millisecond) {
			if d.markQuietProbes(now); p.probeDue && asked == 0 {
				asked = now.Sub(last)
				p.probeDue = false
			} else if p.probeDue || other.probeDue {
				t.Errorf("%s: asked again, or the other one", c.name)
			}
		}
		if asked != c.want {
			t.Errorf("%s: asked after %v, want %v", c.name, asked, c.want)
		}
	}
}

// TestHopLimit: the rhythm counts once the acknowledgement of the oldest bytes is late, and not on blind hops.
func TestHopLimit(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		sent  bool
		after time.Duration
		blind bool
		quick bool
	}{{"nothing sent", false, time.Second, false, false}, {"in time", true, 10 * ms, false, false},
		{"late", true, time.Second, false, true}, {"a blind hop", true, time.Second, true, false}} {
		_, p, _ := newSilence()
		p.progress = hopProgress{busySince: start, last: start.Add(time.Minute), gap: ms}
		if c.sent {
			p.est.OnSent(start, 1000)
		}
		h := estimate.Hop{Blind: c.blind, SRTT: 400 * ms, MinRTT: 50 * ms}
		want := hopSilenceLimit(h)
		if c.quick {
			want = minSilence
		}
		if got := p.hopLimit(h, start.Add(c.after)); got != want {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
