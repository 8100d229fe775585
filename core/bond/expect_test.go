// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// TestDemandOfExpectation checks what the demand of a stream says of bytes that are not written yet.
func TestDemandOfExpectation(t *testing.T) {
	s := &Stream{send: sendBuffer{end: 1000}}
	expect := func(what string, more unit.Bytes, known bool) {
		t.Helper()
		if d := s.demandOf(200, time.Unix(1e9, 0)); d.Pending != 200 || d.More != more || d.MoreKnown != known {
			t.Errorf("%s: %+v; want %d more, known %v", what, d, more, known)
		}
	}
	expect("nothing is expected", 0, false)
	s.ExpectSent(Expectation{At: 1000, End: 1800})
	expect("800 bytes", 800, true)
	s.send.end = 1400
	expect("400 of them are written", 400, true)
	s.send.end = 1800
	expect("all are written", 0, true)
	s.send.end = 1900
	expect("an eighth more", 0, true)
	s.send.end = 1901
	expect("even more", 0, false)
	s.ExpectSent(Expectation{At: 1901, End: 5000})
	expect("another message", 3099, true)
	s.ExpectSent(Expectation{At: 1901, End: 0})
	expect("nothing is expected any more", 0, false)
	s.ExpectSent(Expectation{At: 5000, End: 2000})
	expect("an end before the beginning", 0, false)
	s.ExpectSent(Expectation{At: 1901, End: 5000})
	s.finSet = true
	expect("the app has ended", 0, true)
	s = &Stream{send: sendBuffer{end: 1000}, announcedEnd: 4000}
	s.ExpectSent(Expectation{At: 1000, End: 1200})
	expect("the app has announced a chunk", 3000, true)
	s.send.end = 5000
	expect("it is written", 0, true)
	s.send.firstUnacked = 4000
	expect("it has arrived", 0, false)
	for in, want := range map[time.Duration]time.Duration{time.Second: time.Second, 0: 0, -time.Second: 0} {
		now := time.Unix(1e9, 0)
		s.ExpectSent(Expectation{NeededAt: now.Add(in)})
		if d := s.demandOf(200, now); d.NeededIn != want {
			t.Errorf("needed in %v: %v", in, d.NeededIn)
		}
	}
}

// TestMessageRun checks which messages are expected to follow.
func TestMessageRun(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	tr := &transfer{size: 1}
	n.open(tr)
	s, now := tr.s[0], n.now
	const short = 10 * time.Millisecond
	for _, c := range []struct {
		name     string
		pause    time.Duration
		received wire.DataSeq // since bytes were last sent
		size     unit.Bytes
		want     int
		bytes    unit.Bytes
	}{
		{"a handshake", 0, 300, 3000, 0, 0},
		{"the first answer", short, 300, 500_000, 1, 3000},
		{"the second one", short, 300, 500_000, 1, 500_000},
		{"the third one", short, 300, 600_000, 2, 500_000},
		{"window updates, and more of it", short, 63, 100_000, 2, 500_000},
		{"the fourth one", maxRunPause, 300, 500_000, 3, 700_000},
		{"after a pause", maxRunPause + 1, 300, 12_000, 0, 0},
		{"a small one", short, 300, 12_000, 1, 12_000},
		{"a large one after small ones", short, 300, 900_000, 2, 12_000},
		{"another large one", short, 300, 900_000, 1, 900_000},
		{"the source pauses for long", maxRunPause + 1, 0, 1000, 0, 0},
	} {
		now = now.Add(c.pause)
		s.reassembly.nextExpected += c.received
		got := s.run.repetition(now, s)
		if got.Count != c.want || got.Bytes != c.bytes || got.Count > 0 && got.Pause < short {
			t.Errorf("%s: %+v, want %d of %d bytes", c.name, got, c.want, c.bytes)
		}
		for range 2 {
			s.run.recordSent(now, s, c.size/2)
			s.permission.burst += c.size / 2
			s.reassembly.nextExpected += 300 // a request meanwhile
			if again := s.run.repetition(now, s); again != got {
				t.Errorf("%s: within it %+v are expected, not %+v", c.name, again, got)
			}
		}
		s.run.received = s.reassembly.nextExpected // as when the last byte is sent
		s.permission.burst = 0
	}
	for range 100 {
		now = now.Add(short)
		s.reassembly.nextExpected += 300
		s.run.recordSent(now, s, 1000)
	}
	if got := s.run.repetition(now, s); got.Count != maxRun || got.Pause != short {
		t.Errorf("after 100 messages %+v", got)
	}
}

// TestGuideLearnsOfRuns checks that the server's guide is asked with the answers that went before.
func TestGuideLearnsOfRuns(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	g := &runGuide{}
	n.ends[1].SetGuide(g)
	tr := &transfer{}
	tr.talk = [2]talk{{Bytes: 300, CloseLate: time.Hour}, {CloseLate: time.Hour}}
	n.open(tr)
	for range 4 {
		n.run(func() bool { return tr.apps[1] != nil && tr.apps[1].got == tr.talk[0].Bytes })
		tr.talk[1].Bytes += 100_000
		tr.apps[1].wake()
		n.run(func() bool { return tr.apps[0].got == tr.talk[1].Bytes })
		tr.talk[0].Bytes += 300
		tr.apps[0].wake()
	}
	if !slices.Equal(g.counts, []int{0, 1, 2, 3}) {
		t.Errorf("the guide was asked with %v", g.counts)
	}
}

// runGuide allows all subflows and keeps how many messages were expected to follow.
type runGuide struct{ counts []int }

func (g *runGuide) AllowSubflows(subflows []GuideSubflow, d Demand) string {
	if n := d.Repetition.Count; d.Pending > 0 && (len(g.counts) == 0 || g.counts[len(g.counts)-1] != n) {
		g.counts = append(g.counts, n)
	}
	for i := range subflows {
		subflows[i].Allowed = true
	}
	return "test"
}

// TestSourceRate checks when the app is known to be slower than the subflows.
func TestSourceRate(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	tr := &transfer{size: 1 << 20}
	n.open(tr)
	s, start := tr.s[0], n.now
	for _, c := range []struct {
		name    string
		after   time.Duration
		written int
		blocked bool
		want    unit.Rate
	}{
		{"it just begins", 0, 10_000, false, 0},
		{"soon after", 50 * time.Millisecond, 10_000, false, 0},
		{"after 100 ms", 50 * time.Millisecond, 115_000, false, 10 * unit.Mbps},
		{"after 200 ms", 100 * time.Millisecond, 0, false, 5 * unit.Mbps},
		{"it had to wait", 100 * time.Millisecond, 0, true, 0},
		{"later", 100 * time.Millisecond, 10_000, false, 0},
	} {
		start = start.Add(c.after)
		s.send.end += wire.DataSeq(c.written)
		s.run.recordSent(start, s, 1000)
		s.permission.burst = 1000
		s.run.isBlocked = s.run.isBlocked || c.blocked
		if got := s.run.sourceRate(start, s); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// Nothing is known of a message that may follow.
	for _, c := range []struct {
		name     string
		pause    time.Duration
		received wire.DataSeq
		left     unit.Bytes // sent since none were left to send
		begins   bool
	}{
		{"the source pauses", 10 * time.Millisecond, 0, 0, false},
		{"window updates", 10 * time.Millisecond, leastRequest - 1, 0, false},
		{"a request within the message", 10 * time.Millisecond, 300, 1000, false},
		{"a request", 10 * time.Millisecond, 300, 0, true},
		{"a long pause", maxRunPause + 1, 0, 0, true},
	} {
		start = start.Add(c.pause)
		s.reassembly.nextExpected += c.received
		s.permission.burst, s.run.isBlocked, s.run.beganAt = c.left, false, n.now
		s.send.end += 1000
		if rate := s.run.sourceRate(start, s); (rate == 0) != c.begins {
			t.Errorf("%s: the app is said to write %v", c.name, rate)
		}
		s.run.isBlocked = true
		if s.run.recordSent(start, s, 1000); s.run.isBlocked == c.begins {
			t.Errorf("%s: another message begins: %v", c.name, !c.begins)
		}
	}
}

// sourceGuide allows all subflows, and keeps the rates at which the app is known to write.
type sourceGuide struct {
	net   *simNet
	rates map[time.Duration]unit.Rate // by time since the beginning
}

func (g *sourceGuide) AllowSubflows(subflows []GuideSubflow, d Demand) string {
	if d.Pending > 0 {
		g.rates[g.net.now.Sub(start)] = d.SourceRate
	}
	for i := range subflows {
		subflows[i].Allowed = true
	}
	return "test"
}

// TestGuideLearnsOfSlowSources checks that the guide of the server learns how fast an app writes that is
// slower than the subflows, and of no rate where they are slower.
func TestGuideLearnsOfSlowSources(t *testing.T) {
	for rate, want := range map[unit.Rate]unit.Rate{2 * unit.Mbps: 2 * unit.Mbps, 0: 0} {
		n := newSim(t, "auto", 0.2)
		n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
		g := &sourceGuide{net: n, rates: map[time.Duration]unit.Rate{}}
		n.ends[1].SetGuide(g)
		tr := &transfer{size: 64 << 20}
		tr.talk[1] = talk{Bytes: tr.size, WriteRate: rate}
		n.open(tr)
		n.run(func() bool { return n.now.Sub(start) > 2*time.Second })
		late := 0
		for at, got := range g.rates {
			if at < time.Second {
				continue
			}
			if late++; got < want*9/10 || got > want*11/10 {
				t.Errorf("the app writes %v: after %v the guide has %v", rate, at, got)
			}
		}
		if late < 10 {
			t.Errorf("the app writes %v: the guide was asked %d times", rate, late)
		}
	}
}

// TestGuideLearnsOfTrains checks that the rate of a packet train bounds what a guessed rate may grow to.
func TestGuideLearnsOfTrains(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	p := n.ends[1].subflows.list[0]
	for train, want := range map[unit.Rate]unit.Rate{3 * unit.Mbps: 3 * unit.Mbps, 0: 0} {
		p.est = estimate.Subflow{}
		p.est.AddLocalSample(n.now, estimate.Hop{SRTT: 80 * time.Millisecond, MinRTT: 80 * time.Millisecond, MSS: 1448,
			Cwnd: 14_480, SlowStart: true})
		p.est.SetTrain(train, 80*time.Millisecond)
		if got := p.guideView(n.now).Ceiling; got != want {
			t.Errorf("after a train of %v the ceiling is %v", train, got)
		}
	}
}

// TestWhoAnnouncesChunks checks that a chunk that the primary's app announces counts as expected at
// the sending end, and that one that a server announces does not.
func TestWhoAnnouncesChunks(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	tr := &transfer{size: 1 << 20}
	tr.talk[1].Bytes = tr.size
	n.open(tr)
	n.run(func() bool { return tr.read > 0 })
	server := n.ends[1].streams.all[tr.s[0].id]
	for end, s := range []*Stream{tr.s[0], server} {
		f := wire.Chunk{Stream: s.id, End: 50 << 20}
		if err := n.ends[end].ReceiveFrame(1, f.Type(), f.AppendPayload(nil), n.now); err != nil {
			t.Fatal(err)
		}
		s.finSet = false // the end of a stream is known in any case
		if d := s.demandOf(0, n.now); d.MoreKnown != (end == 1) || d.More > 50<<20 {
			t.Errorf("end %d received CHUNK: %+v", end, d)
		}
	}
	before := tr.s[0].send.end
	tr.s[0].MarkChunkEnd(5000)
	if d := tr.s[0].demandOf(0, n.now); !d.MoreKnown || d.More != 5000 {
		t.Errorf("a chunk of the app, after %d bytes: %+v", before, d)
	}
}

// expectingGuide allows all subflows, and keeps the demands with a known size.
type expectingGuide struct{ demands []Demand }

func (g *expectingGuide) AllowSubflows(subflows []GuideSubflow, d Demand) string {
	if d.MoreKnown {
		g.demands = append(g.demands, d)
	}
	for i := range subflows {
		subflows[i].Allowed = true
	}
	return "test"
}

// TestExpectReceived checks that what the primary expects of a download reaches the guide of the
// server, for the first answer and while another one arrives, and that the primary refuses EXPECT.
func TestExpectReceived(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	g := &expectingGuide{}
	n.ends[1].SetGuide(g)
	const size = 16 * unit.MB // more than the server buffers
	tr := &transfer{size: int(size)}
	tr.talk[1].Bytes = tr.size
	n.open(tr)
	if !tr.s[0].ExpectReceived(n.now, Expectation{End: wire.DataSeq(size), NeededAt: n.now.Add(time.Minute)}) {
		t.Error("the first expectation is not queued")
	}
	n.run(func() bool { return tr.read > int(size/4) })
	at := wire.DataSeq(tr.read)
	if len(g.demands) == 0 || g.demands[0].More+g.demands[0].Pending > size {
		t.Errorf("the server's guide was asked about %+v", g.demands)
	}
	if in := g.demands[0].NeededIn; in < 58*time.Second || in > time.Minute+time.Second {
		t.Errorf("the guide of the server has %v until the app needs the message, want about a minute", in)
	}
	before := len(g.demands)
	tr.s[0].ExpectReceived(n.now, Expectation{At: at, End: wire.DataSeq(2 * size)})
	n.run(func() bool { return tr.read > int(size/2) })
	if last := g.demands[len(g.demands)-1]; len(g.demands) == before || last.More < size ||
		last.NeededIn != 0 {
		t.Errorf("after the second expectation the server's guide was asked about %+v", last)
	}
	s := n.ends[1].streams.all[tr.s[0].id]
	late := wire.Expect{Stream: s.id, At: at - 1, End: 5 * wire.DataSeq(size)}
	if err := n.ends[1].receiveExpect(nil, late.AppendPayload(nil), n.now); err != nil ||
		s.permission.expected.End != 2*wire.DataSeq(size) {
		t.Errorf("after an older expectation %d is expected, %v", s.permission.expected.End, err)
	}
	n.run(func() bool { return tr.s[0].Done() })
	f := wire.Expect{Stream: tr.s[0].id, End: 5}
	if err := n.ends[0].ReceiveFrame(1, f.Type(), f.AppendPayload(nil), n.now); err == nil {
		t.Error("the primary takes an EXPECT")
	}
	for what, id := range map[string]wire.StreamID{"an ended stream": tr.s[0].id, "one that was never opened": 999} {
		f.Stream = id
		if err := n.ends[1].ReceiveFrame(1, f.Type(), f.AppendPayload(nil), n.now); err != nil {
			t.Errorf("of %s: %v", what, err)
		}
	}
}

// TestExpectReplacesWaiting checks that a stream has one waiting EXPECT at most, and that these
// leave room for other notices.
func TestExpectReplacesWaiting(t *testing.T) {
	var q controlQueue
	q.queueNotice(wire.FlowEnd{Flow: 1})
	for end := range wire.DataSeq(100) {
		q.queueExpect(wire.Expect{Stream: 1, End: end})
		q.queueExpect(wire.Expect{Stream: 2, End: end})
	}
	if len(q.notices) != 3 || q.notices[1] != (wire.Expect{Stream: 1, End: 99}) {
		t.Errorf("%d notices wait: %+v", len(q.notices), q.notices)
	}
	for id := range wire.StreamID(2 * maxNotices) {
		q.queueExpect(wire.Expect{Stream: id})
	}
	if len(q.notices) != maxNotices/2 || !q.hasNoticeRoom() {
		t.Errorf("%d notices wait", len(q.notices))
	}
	if !q.queueExpect(wire.Expect{Stream: 1, End: 5}) || q.queueExpect(wire.Expect{Stream: 9999}) {
		t.Error("what is queued and what is dropped is not reported")
	}
}
