// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"maps"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// measureOutage runs a download at 5/10/5 Mbit/s during which one hop is dead for a
// second, if one is named, and returns the longest gap in delivery.
func measureOutage(t *testing.T, scheduler string, redundant bool,
	hop func(n *simNet, dir int) *simHop) (gap time.Duration, st Stats) {
	t.Helper()
	n := newSim(t, scheduler, 0.2)
	n.addTriangle(5*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	if hop != nil {
		for d := range 2 {
			h := hop(n, d)
			h.steps = append(h.steps, simStep{n.now.Add(time.Second), 0}, simStep{n.now.Add(2 * time.Second), 5 * unit.Mbps})
		}
	}
	tr := &transfer{size: int(2 * unit.MB)}
	done := n.carry([]*transfer{tr})
	last, read := n.now, 0
	n.run(func() bool {
		if tr.s[1] != nil && redundant {
			tr.s[1].SetMode(wire.ModeRedundant)
		}
		if tr.read > read {
			if read == 0 {
				last = n.now
			}
			gap, last, read = max(gap, n.now.Sub(last)), n.now, tr.read
		}
		return done()
	})
	return gap, n.ends[1].Stats()
}

// TestRedundant: no link's outage is felt, and every byte is sent twice; for
// the scheduler, and for a stream that asks for it under another one.
func TestRedundant(t *testing.T) {
	for _, c := range []struct {
		name string
		hop  func(n *simNet, dir int) *simHop
	}{
		{"nothing", nil},
		{"PS-path", func(n *simNet, d int) *simHop { return n.subflows[0].hops[d][0] }},
		{"HS-path", func(n *simNet, d int) *simHop { return n.subflows[1].hops[d][1-d] }},
		{"pipe", func(n *simNet, d int) *simHop { return n.subflows[1].hops[d][d] }},
	} {
		once, _ := measureOutage(t, "pams", false, c.hop)
		for _, how := range []string{"redundant", "pams"} {
			gap, st := measureOutage(t, how, how == "pams", c.hop)
			t.Logf("%s cut: longest gap %v by %s, %v with each byte once; %+v", c.name, gap.Round(time.Millisecond), how,
				once.Round(time.Millisecond), st)
			if gap > 50*time.Millisecond {
				t.Errorf("%s cut: %v without delivery by %s", c.name, gap, how)
			}
			if c.hop != nil {
				if once < 3*gap {
					t.Errorf("%s cut: %v without delivery though every byte goes once: the test shows nothing", c.name, once)
				}
				continue
			}
			if st.Redundant < 2*unit.MB*8/10 || st.Redundant > 2*unit.MB || st.ReinjectedTail > 0 {
				t.Errorf("%s: copies of %v of 2 MB", how, st.Redundant)
			}
		}
	}
}

// oneForSmall is a guide that allows subflow 1 alone for small data, or with stream set for streams.
type oneForSmall struct{ stream bool }

func (g oneForSmall) AllowSubflows(list []GuideSubflow, d Demand) string {
	for i := range list {
		list[i].Allowed = list[i].ID == 1 || (d == Demand{}) == g.stream
	}
	return "test"
}

// newMessenger returns a bond with direct subflows of the given round trips, in order, that has
// carried a number of bytes, and a stream.
func newMessenger(t *testing.T, scheduler string, carried uint64, rtts ...time.Duration) (*Bond, *Stream) {
	t.Helper()
	use, err := sched.New(scheduler)
	if err != nil {
		t.Fatal(err)
	}
	b := New(Config{OpensStreams: true, Scheduler: use})
	for i, rtt := range rtts {
		id := wire.SubflowID(i + 1)
		b.AddSubflow(id, false, start)
		b.ObserveLocalHop(id, start, estimate.Hop{SRTT: rtt, MinRTT: rtt, Cwnd: 10_000, MSS: 1448})
		b.subflows.subflowByID(id).trainLeft = 0
	}
	b.subflows.subflowByID(1).bytesReceived += carried
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	return b, s
}

// sendMessage sends n bytes of a stream and returns how many of them each subflow got.
func sendMessage(t *testing.T, b *Bond, s *Stream, n int) map[wire.SubflowID]int {
	t.Helper()
	s.Write(make([]byte, n))
	got := map[wire.SubflowID]int{}
	for range 30 {
		for _, p := range b.subflows.list {
			b.MarkIdle(p.id)
		}
		id, segment := b.NextSegment(start, nil)
		if id == 0 {
			return got
		}
		err := eachFrame(segment, func(f wire.Type, payload []byte) error {
			if f == wire.TypeData {
				d, err := wire.ParseData(payload)
				got[id] += len(d.Bytes)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.BeginSegment(id)
	}
	t.Fatal("there is no end of segments")
	return nil
}

// TestMessageCopies checks which messages go over a second subflow too.
func TestMessageCopies(t *testing.T) {
	const rtt, more, most = 50 * time.Millisecond, 60 * time.Millisecond, 70 * time.Millisecond
	once, twice := map[wire.SubflowID]int{1: 200}, map[wire.SubflowID]int{1: 200, 2: 200}
	for _, c := range []struct {
		name      string
		scheduler string
		carried   uint64
		rtts      []time.Duration
		change    func(*Bond, *Stream)
		want      map[wire.SubflowID]int
	}{
		{"a request", "auto", 1e6, []time.Duration{rtt, more}, nil, twice},
		{"three subflows", "auto", 1e6, []time.Duration{rtt, most, more}, nil, map[wire.SubflowID]int{1: 200, 3: 200}},
		{"beyond the budget", "auto", 28_000, []time.Duration{rtt, more}, nil, once},
		{"within the budget", "auto", 31_000, []time.Duration{rtt, more}, nil, twice},
		{"another scheduler", "pams", 1e6, []time.Duration{rtt, more}, nil, once},
		{"a low-latency stream", "auto", 1e6, []time.Duration{rtt, more},
			func(_ *Bond, s *Stream) { s.SetMode(wire.ModeLatency) }, once},
		{"one is allowed for small data", "auto", 1e6, []time.Duration{rtt, more},
			func(b *Bond, _ *Stream) { b.SetGuide(oneForSmall{}) }, once},
		{"one is allowed for the stream", "auto", 1e6, []time.Duration{rtt, more},
			func(b *Bond, _ *Stream) { b.SetGuide(oneForSmall{stream: true}) }, once},
		{"the second one measures", "auto", 1e6, []time.Duration{rtt, more},
			func(b *Bond, _ *Stream) {
				p := b.subflows.subflowByID(2)
				p.trainLeft, p.trainUntil = trainLength, start.Add(time.Second)
			}, once},
		{"bytes of a higher priority wait", "auto", 1e6, []time.Duration{rtt, more},
			func(b *Bond, _ *Stream) { b.backlog.pendingByPriority[wire.High] = 1000 }, once},
		{"the second one may be silent", "auto", 1e6, []time.Duration{rtt, more},
			func(b *Bond, _ *Stream) {
				p := b.subflows.subflowByID(2)
				p.inFlight.pushSentFrame(sentFrame{frameType: wire.TypePing})
				p.lastProgress = start.Add(-time.Second)
			}, once},
		{"bytes wait at the second one's helper", "auto", 1e6, []time.Duration{rtt, more},
			func(b *Bond, _ *Stream) {
				e := &b.subflows.subflowByID(2).est
				e.Helped, e.JoinRTT = true, more
				e.AddHelperReport(start, wire.HopState{Rate: unit.Mbps, RTT: 30 * time.Millisecond})
				e.OnSent(start, 20_000)
			}, once},
		{"the second one is full of copies", "auto", 1e6, []time.Duration{rtt, more},
			func(b *Bond, s *Stream) {
				p := b.subflows.subflowByID(2)
				p.copies, p.idle = make([]copiedSpan, maxMessageCopies), false
				for i := range p.copies {
					p.copies[i] = copiedSpan{stream: s, to: 1000}
				}
			}, nil},
	} {
		b, s := newMessenger(t, c.scheduler, c.carried, c.rtts...)
		if c.change != nil {
			c.change(b, s)
		}
		if c.want == nil { // it sends the copies at once: look at the list
			s.Write(make([]byte, 200))
			b.MarkIdle(1)
			b.NextSegment(start, nil)
			if n := len(b.subflows.subflowByID(2).copies); n > maxMessageCopies {
				t.Errorf("%s: %d copies are listed", c.name, n)
			}
			continue
		}
		if got := sendMessage(t, b, s, 200); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		for _, p := range b.subflows.list {
			if len(p.copies) > 0 {
				t.Errorf("%s: subflow %d has a copy that it does not send", c.name, p.id)
			}
		}
	}
}

// TestMessageCopiesAreFew checks that only messages of one packet are copied, once, when all that
// the stream sent before has arrived, and within the budget.
func TestMessageCopiesAreFew(t *testing.T) {
	b, s := newMessenger(t, "auto", 1e6, 50*time.Millisecond, 50*time.Millisecond)
	for size := maxMessage + 1; size < 12*maxMessage; size += 1100 {
		sendMessage(t, b, s, size)
		acknowledge(t, b, start)
	}
	if n := b.Stats().Redundant; n != 0 {
		t.Errorf("%d bytes of longer messages were copied", n)
	}
	if got := sendMessage(t, b, s, maxMessage); got[1] != maxMessage || got[2] != maxMessage {
		t.Errorf("a packet: %v", got)
	}
	if got := sendMessage(t, b, s, 300); got[1]+got[2] != 300 {
		t.Errorf("while another message is in flight: %v", got)
	}
	acknowledge(t, b, start)
	sendMessage(t, b, s, 300)
	for _, p := range b.subflows.list {
		if p.inFlight.recallable > 0 {
			t.Errorf("subflow %d: a message that another one carries too may be recalled", p.id)
		}
	}
	acknowledge(t, b, start)
	before := b.Stats().Redundant
	for range 100 {
		sendMessage(t, b, s, 300)
		acknowledge(t, b, start)
	}
	carried := uint64(0)
	for _, p := range b.subflows.list {
		carried += p.bytesSent + p.bytesReceived
	}
	n, most := b.Stats().Redundant-before, carried/messageCopyDivisor
	if cost := uint64(n/300*(300+messageCopyCost)) + uint64(before) + 2*messageCopyCost; cost > most || cost < most-1000 {
		t.Errorf("%v were copied, and %d bytes carried", n, carried)
	}
}

// TestCopyIsDropped checks that a listed copy is not sent over a subflow that the stream may not use
// any more, nor once the message has arrived.
func TestCopyIsDropped(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *Bond, *Stream){
		"the guide forbids it":    func(_ *testing.T, b *Bond, _ *Stream) { b.SetGuide(oneForSmall{}) },
		"the message has arrived": func(t *testing.T, b *Bond, _ *Stream) { acknowledge(t, b, start) },
		"the stream was reset":    func(_ *testing.T, _ *Bond, s *Stream) { s.Reset(wire.CodeLimit, "test") },
	} {
		b, s := newMessenger(t, "auto", 1e6, 50*time.Millisecond, 60*time.Millisecond)
		s.Write(make([]byte, 200))
		b.MarkIdle(1)
		if id, _ := b.NextSegment(start, nil); id != 1 || len(b.subflows.subflowByID(2).copies) != 1 {
			t.Fatalf("%s: subflow %d, and no copy is listed", name, id)
		}
		b.BeginSegment(1)
		change(t, b, s)
		if sendMessage(t, b, s, 0); b.Stats().Redundant != 0 {
			t.Errorf("%s: the copy is sent", name)
		}
	}
}

// TestRequestOverADeadSubflow checks that a request does not wait until the subflow that it takes
// counts as silent.
func TestRequestOverADeadSubflow(t *testing.T) {
	request := func(scheduler string) time.Duration {
		n := newSim(t, scheduler, 0.2)
		n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
		n.run(n.carry([]*transfer{{size: int(unit.MB)}}))
		dead := n.now.Add(time.Second)
		for d := range 2 {
			h := n.subflows[0].hops[d][0]
			h.steps = append(h.steps, simStep{dead, 0})
		}
		n.after(time.Second+time.Millisecond, func() {})
		n.run(func() bool { return n.now.After(dead) })
		begin, tr := n.now, &transfer{size: 300, up: true}
		n.carry([]*transfer{tr})
		n.run(func() bool { return tr.read == tr.size })
		return n.now.Sub(begin)
	}
	auto, pams := request("auto"), request("pams")
	if auto > 100*time.Millisecond || pams < 200*time.Millisecond {
		t.Errorf("the request takes %v, and %v without a copy", auto, pams)
	}
}
