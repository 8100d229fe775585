// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// pings is a datagram flow of the test: the acceptor sends one datagram of size
// bytes every interval once the opener's first has come.
type pings struct {
	n     *simNet
	f     [2]*Flow
	got   map[uint64]time.Duration // one-way delay of each that came
	order []uint64
	twice int
	sent  uint64
	last  time.Time
	gap   time.Duration // longest time without a delivery
}

// addPings starts a flow, to be served beside what carry does.
func (n *simNet) addPings(redundant bool, every time.Duration, size int) *pings {
	g := &pings{n: n, got: map[uint64]time.Duration{}}
	var err error
	if g.f[0], err = n.ends[0].OpenFlow(redundant, n.now); err != nil {
		n.fatal("open: %v", err)
	}
	addr := wire.Addr{Name: "far", Port: 7}
	if err := g.f[0].Send(addr, []byte("start"), n.now); err != nil {
		n.fatal("send: %v", err)
	}
	var tick func()
	tick = func() {
		b := binary.BigEndian.AppendUint64(nil, g.sent)
		b = binary.BigEndian.AppendUint64(b, uint64(n.now.UnixNano()))
		if err := g.f[1].Send(addr, append(b, make([]byte, size-16)...), n.now); err != nil {
			n.fatal("send: %v", err)
		}
		g.sent++
		n.after(every, tick)
	}
	before, started := n.onEnd, false
	n.onEnd[0] = func(b *Bond) {
		if before[0] != nil {
			before[0](b)
		}
		for {
			r, ok, _ := g.f[0].Receive()
			if !ok {
				return
			}
			i := binary.BigEndian.Uint64(r.Bytes)
			if _, ok := g.got[i]; ok {
				g.twice++
			}
			g.got[i] = n.now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(r.Bytes[8:]))))
			g.order = append(g.order, i)
			if !g.last.IsZero() {
				g.gap = max(g.gap, n.now.Sub(g.last))
			}
			g.last = n.now
		}
	}
	n.onEnd[1] = func(b *Bond) {
		if before[1] != nil {
			before[1](b)
		}
		if g.f[1] = b.flows.all[g.f[0].ID()]; g.f[1] != nil && !started {
			started = true
			tick()
		}
	}
	return g
}

// quantile of the delays of those that came, but for the first ones: at the
// start of a download a hop's rate has to be found out by overfeeding it.
func (g *pings) quantile(q float64) time.Duration {
	var list []time.Duration
	for i, d := range g.got {
		if i >= 75 {
			list = append(list, d)
		}
	}
	slices.Sort(list)
	if len(list) == 0 {
		return 0
	}
	return list[int(q*float64(len(list)-1))]
}

func (g *pings) reordered() (n int) {
	for i := 1; i < len(g.order); i++ {
		if g.order[i] < g.order[i-1] {
			n++
		}
	}
	return n
}

// useDeepQueues makes a sender's window cover a queue of 300 ms, as in networks of phones.
func (n *simNet) useDeepQueues() {
	for _, p := range n.subflows {
		for d := range 2 {
			for _, h := range p.hops[d] {
				h.window = h.rate(n.now).Bytes(h.roundTrip(n.now) + 300*time.Millisecond)
			}
		}
	}
}

// TestDatagramsBesideBulk: a download costs a flow little delay, and the flow
// costs the download little.
func TestDatagramsBesideBulk(t *testing.T) {
	for _, c := range []struct {
		name    string
		build   func(*simNet)
		idle    time.Duration // the delay of an unused bond
		slowest float64       // of the download, to that without the flow
	}{
		{"one subflow of 10 Mbit/s", func(n *simNet) { n.addTriangle(10 * unit.Mbps) }, 25 * time.Millisecond, 1.05},
		{"8/10/5", func(n *simNet) { n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps) }, 25 * time.Millisecond, 1.05},
		{"1/18/5", func(n *simNet) { n.addTriangle(1*unit.Mbps, 18*unit.Mbps, 5*unit.Mbps) }, 25 * time.Millisecond, 1.08},
		{"helper only, 10/5", func(n *simNet) {
			n.addSubflow(1, n.newHopPair(10*unit.Mbps, 35*time.Millisecond), n.newHopPair(5*unit.Mbps, 2500*time.Microsecond))
		}, 38 * time.Millisecond, 1.05},
	} {
		run := func(with bool) (took time.Duration, g *pings) {
			n := newSim(t, "auto", 0.2)
			c.build(n)
			n.useDeepQueues()
			start := n.now
			tr := &transfer{size: int(10 * unit.MB)}
			done := n.carry([]*transfer{tr})
			if with {
				g = n.addPings(false, 20*time.Millisecond, 120)
			}
			n.run(done)
			return tr.done.Sub(start), g
		}
		alone, _ := run(false)
		beside, g := run(true)
		p95 := g.quantile(.95)
		t.Logf("%s: delay p50 %v p95 %v, on an unused bond %v; %d of %d came; download %.3f s, alone %.3f s", c.name,
			g.quantile(.5).Round(time.Millisecond/10), p95.Round(time.Millisecond/10), c.idle, len(g.got), g.sent,
			beside.Seconds(), alone.Seconds())
		// Two packets at 1 Mbit/s take 23 ms.
		if most := c.idle + maxStandingQueue + 25*time.Millisecond; p95 > most {
			t.Errorf("%s: p95 of the delay is %v, want at most %v", c.name, p95, most)
		}
		if r := float64(beside) / float64(alone); r > c.slowest {
			t.Errorf("%s: the download takes %.3f times what it takes alone", c.name, r)
		}
		if lost := int(g.sent) - len(g.got); lost > 5 || g.twice > 0 {
			t.Errorf("%s: %d of %d did not come, %d came twice", c.name, lost, g.sent, g.twice)
		}
		if g.reordered() > g.f[1].stats.Moves {
			t.Errorf("%s: %d overtook others in %d moves", c.name, g.reordered(), g.f[1].stats.Moves)
		}
	}
}

// TestFlowSurvivesItsSubflow: datagrams continue over another subflow within half a second, none
// twice.
func TestFlowSurvivesItsSubflow(t *testing.T) {
	for _, redundant := range []bool{false, true} {
		for _, how := range []string{"silent", "silent pipe", "gone"} {
			n := newSim(t, "auto", 0.2)
			n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
			on := 0
			if how == "silent pipe" { // the flow starts there
				n.subflows[0].hops[1][0].delay = 80 * time.Millisecond
				n.subflows[0].hops[0][0].delay = 80 * time.Millisecond
				on = 1
			}
			n.carry(nil)
			g := n.addPings(redundant, 10*time.Millisecond, 200)
			n.after(2*time.Second, func() {
				if got := n.ends[1].ListFlows(1)[0].Subflow; int(got) != on+1 {
					n.fatal("%s: pinned to subflow %d", how, got)
				}
				if how == "gone" {
					n.kill(n.subflows[on])
					return
				}
				for d := range 2 {
					hops := n.subflows[on].hops[d]
					h := hops[(len(hops)-1)*d]
					h.steps = append(h.steps, simStep{n.now, 0})
				}
			})
			end := n.now.Add(5 * time.Second)
			n.run(func() bool { return n.now.After(end) })
			t.Logf("%s, redundant %v: %d of %d came, longest gap %v, %+v", how, redundant, len(g.got), g.sent, g.gap,
				g.f[1].stats)
			most := 500 * time.Millisecond
			if redundant {
				most = 60 * time.Millisecond
			}
			if g.gap > most || g.twice > 0 || len(g.got) < 440 || redundant && g.f[0].stats.Duplicate < 150 {
				t.Errorf("%s, redundant %v: longest gap %v, %d of %d came, %d twice, copies %d", how, redundant, g.gap,
					len(g.got), g.sent, g.twice, g.f[0].stats.Duplicate)
			}
			if g.reordered() > 0 && !redundant && how != "silent pipe" {
				t.Errorf("%s: %d overtook others", how, g.reordered())
			}
		}
	}
}

// TestFlowMovesToAFasterSubflow: only when it is clearly faster, and for a while.
func TestFlowMovesToAFasterSubflow(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration // of the other subflow, against 50 ms
		moves int
	}{{45 * time.Millisecond, 0}, {15 * time.Millisecond, 1}} {
		n := newSim(t, "auto", 0.2)
		n.addSubflow(1, n.newHopPair(8*unit.Mbps, 50*time.Millisecond), nil)
		n.carry(nil)
		g := n.addPings(false, 10*time.Millisecond, 200)
		start := n.now
		n.after(time.Second, func() { n.addSubflow(2, n.newHopPair(8*unit.Mbps, c.delay), nil) })
		n.run(func() bool {
			if at := n.now.Sub(start); at < time.Second+moveDelay && g.f[1] != nil && g.f[1].stats.Moves > 0 {
				n.fatal("moved after %v", at)
			}
			return n.now.After(start.Add(5 * time.Second))
		})
		if g.f[1].stats.Moves != c.moves || g.twice > 0 || int(g.sent)-len(g.got) > 10 {
			t.Errorf("beside %v: %d moves, want %d; %d of %d came, %d twice", c.delay, g.f[1].stats.Moves, c.moves, len(g.got),
				g.sent, g.twice)
		}
	}
}

// TestFloodAndStreamShare: a flow that fills a subflow takes turns with a stream. Its excess is
// dropped, and a small flow beside it does not wait.
func TestFloodAndStreamShare(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(10 * unit.Mbps)
	tr := &transfer{size: int(2 * unit.MB)}
	start := n.now
	done := n.carry([]*transfer{tr})
	flood := n.addPings(false, 500*time.Microsecond, 1250) // 20 Mbit/s
	small := n.addPings(false, 20*time.Millisecond, 120)
	n.run(done)
	took := tr.done.Sub(start)
	carried := unit.RateOf(unit.Bytes(len(flood.got)*1250), took)
	t.Logf("stream %v, flood carried %v, dropped %d; small one %v", took, carried, flood.f[1].stats.Dropped,
		small.quantile(.95))
	if fair := (5 * unit.Mbps).Time(2 * unit.MB); took > fair*5/4 || carried < 3500*unit.Kbps {
		t.Errorf("the stream took %v, the flood was carried at %v", took, carried)
	}
	if d := flood.quantile(1); d > 25*time.Millisecond+maxQueueTime+100*time.Millisecond {
		t.Errorf("a datagram of the flood arrived after %v", d)
	}
	if d := small.quantile(.95); d > 100*time.Millisecond {
		t.Errorf("p95 of the small flow's delay is %v", d)
	}
	if out := n.ends[1].flows.outBytes; out > maxLegQueue {
		t.Errorf("%v wait", out)
	}
}

// TestFlowsEnd: by their user at either end, unused, one too many; and a number
// that has ended stays so.
func TestFlowsEnd(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(10 * unit.Mbps)
	n.limit = n.now.Add(time.Hour)
	for _, b := range n.ends {
		b.flows.maxFlows = 3
	}
	open := func(port uint16) *Flow {
		f, err := n.ends[0].OpenFlow(false, n.now)
		if err != nil {
			n.fatal("%v", err)
		}
		if err := f.Send(wire.Addr{Name: "x", Port: port}, []byte("last words"), n.now); err != nil {
			n.fatal("%v", err)
		}
		return f
	}
	wait := func(d time.Duration) {
		end := n.now.Add(d)
		n.after(d, func() {})
		n.run(func() bool { return !n.now.Before(end) })
	}
	a := open(80)
	a.End(wire.CodeClosed, "done", n.now)
	wait(time.Second)
	far := n.ends[1].AcceptFlow()
	if r, ok, _ := far.Receive(); !ok || string(r.Bytes) != "last words" {
		t.Errorf("what was sent before the end: %q, %v", r.Bytes, ok)
	}
	if _, ok, err := far.Receive(); ok || err == nil || err.(wire.Reset).Text != "done" {
		t.Errorf("after it: %v, %v", ok, err)
	}
	if a.Send(wire.Addr{Name: "x", Port: 1}, nil, n.now) == nil {
		t.Error("an ended flow sends")
	}
	// A datagram of the ended flow, late.
	late := wire.Datagram{Flow: a.ID(), Number: 5, Addr: wire.Addr{Name: "x", Port: 1}}
	if _, err := n.ends[1].flows.dispatchDatagram(late, n.now); err != nil || n.ends[1].AcceptFlow() != nil {
		t.Errorf("a late datagram opened its flow again, or %v", err)
	}
	// Ended by the accepting end.
	c := open(80)
	wait(time.Second)
	n.ends[1].AcceptFlow().End(wire.CodeUnreachable, "no", n.now)
	wait(time.Second)
	if r, _ := c.Err().(wire.Reset); r.Code != wire.CodeUnreachable {
		t.Errorf("at the other end: %v", c.Err())
	}
	dns, used := open(53), open(80)
	open(80)
	if _, err := n.ends[0].OpenFlow(false, n.now); err == nil {
		t.Error("a fourth flow of three was opened")
	}
	wait(dnsIdleTimeout + 16*time.Second)
	if dns.Err() == nil || used.Err() != nil {
		t.Errorf("unused for a moment: %v, %v", dns.Err(), used.Err())
	}
	open(80)
	open(80) // in place of the one unused for longest
	if n.ends[0].FlowCount() != 3 {
		t.Errorf("%d flows", n.ends[0].FlowCount())
	}
	wait(flowIdleTimeout + time.Minute)
	if c0, c1 := n.ends[0].FlowCount(), n.ends[1].FlowCount(); c0+c1 != 0 {
		t.Errorf("%d and %d flows after minutes without use", c0, c1)
	}
}

// TestFlowBuffersAreBounded: neither end keeps more than it may, and both give
// all back.
func TestFlowBuffersAreBounded(t *testing.T) {
	b := New(Config{OpensStreams: true})
	now := time.Unix(1e9, 0)
	addr := wire.Addr{Name: "x", Port: 1}
	var list []*Flow
	for range 100 {
		f, err := b.OpenFlow(false, now)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
		for i := range 600 {
			if err := f.Send(addr, make([]byte, 1000), now); err != nil {
				t.Fatal(err)
			}
			in := wire.Datagram{Flow: f.ID(), Number: uint64(i), Addr: addr, Bytes: make([]byte, 1000)}
			b.AddSubflow(1, false, now)
			if err := b.ReceiveFrame(1, wire.TypeDatagram, in.AppendPayload(nil), now); err != nil {
				t.Fatal(err)
			}
		}
	}
	if b.flows.outBytes > maxFlowBytes || b.flows.inBytes > maxFlowBytes || b.flows.outBytes < maxFlowBytes/2 {
		t.Errorf("%v to send, %v received", b.flows.outBytes, b.flows.inBytes)
	}
	b.Tick(now.Add(time.Second))
	for _, f := range list {
		for ok := true; ok; {
			_, ok, _ = f.Receive()
		}
	}
	if b.flows.outBytes != 0 || b.flows.inBytes != 0 || len(b.flows.ready) != 0 {
		t.Errorf("left: %v, %v, %d", b.flows.outBytes, b.flows.inBytes, len(b.flows.ready))
	}
	if err := list[0].Send(addr, make([]byte, wire.MaxDatagram+1), now); err == nil {
		t.Error("a datagram larger than UDP's was taken")
	}
}

// TestNumbers compares the window with a set.
func TestNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var w replayWindow
		seen, top := map[uint64]bool{}, uint64(0)
		for range 3000 {
			n := top + uint64(rng.IntN(40))
			if k := uint64(rng.IntN(1100)); rng.IntN(2) == 0 && k <= top {
				n = top - k
			}
			if rng.IntN(300) == 0 {
				n = top + uint64(rng.IntN(3000))
			}
			want := !seen[n] && n+replayWindowSize > top
			if n >= top {
				want = !seen[n]
			}
			if got := w.recordIfNew(n); got != want {
				t.Fatalf("add(%d) = %v with %d the highest, want %v", n, got, top, want)
			}
			if want {
				seen[n] = true
			}
			top = max(top, n)
		}
	}
}

// TestRedundantFlowAndOneSubflow: while only one subflow is left it carries each datagram once.
// With a second one there are two copies again, and never two on one subflow (recordSent checks
// that in each random transfer too).
func TestRedundantFlowAndOneSubflow(t *testing.T) {
	for dead := range 2 {
		n := newSim(t, "auto", 0.2)
		n.addSubflow(1, n.newHopPair(8*unit.Mbps, 20*time.Millisecond), nil)
		n.addSubflow(2, n.newHopPair(8*unit.Mbps, 30*time.Millisecond), nil)
		n.openFlow(flowPlan{every: 10 * time.Millisecond, count: [2]int{300, 300}, size: 200, redundant: true})
		g := n.flows[1]
		n.after(time.Second, func() { n.kill(n.subflows[dead]) })
		n.after(2*time.Second, func() { n.addSubflow(3, n.newHopPair(8*unit.Mbps, 40*time.Millisecond), nil) })
		end := n.now.Add(4 * time.Second)
		n.run(func() bool { return n.now.After(end) })
		for d, by := range g.by {
			copies := [3]int{}
			for number, subflows := range by.subflows {
				// not around a change
				if at := by.at[number].Sub(simStart).Milliseconds(); at%1000 > 150 && at%1000 < 850 {
					copies[at/1000] += len(subflows)
					if want := [3]int{2, 1, 2}[at/1000]; len(subflows) != want {
						t.Fatalf("subflow %d ends: datagram %d from %s, after %d ms, is given to %v", dead+1, number, endNames[d],
							at, subflows)
					}
				}
			}
			if lost := int(by.sent) - len(by.got); lost > 0 || copies[1] == 0 {
				t.Errorf("subflow %d ends: %d of %d from %s are lost, %v were given to subflows", dead+1, lost, by.sent,
					endNames[d],
					copies)
			}
			if want := unit.Bytes(300 * 208); g.f[d].stats.SentBytes != want || g.f[d].stats.ReceivedBytes != want {
				t.Errorf("subflow %d ends: %+v at %s, want %d bytes each way, no copy counted", dead+1, g.f[d].stats, endNames[d],
					want)
			}
		}
		if dropped := g.f[0].stats.Dropped + g.f[1].stats.Dropped; dropped > 0 {
			t.Errorf("%d count as dropped", dropped)
		}
	}
}
