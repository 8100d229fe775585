// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"cmp"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// addPlans puts streams and flows into groups. In the end each may use the first subflow, which
// then works.
func (sc *scenario) addPlans(r dice) {
	for i := range sc.streams {
		sc.streams[i].group = wire.GroupID(r.IntN(3))
	}
	for i := range sc.flows {
		sc.flows[i].group = wire.GroupID(r.IntN(3))
	}
	for at, last := time.Duration(0), false; !last; at += r.duration(ms, 3*time.Second) {
		last = r.chance(0.5)
		p := classPlan{at: at, class: wire.Priority(r.IntN(3)), weight: uint8(1 + r.IntN(5))}
		for g := range p.subflows {
			p.subflows[g] = uint(r.IntN(1 << len(sc.subflows)))
			if last && r.chance(0.5) {
				p.subflows[g] |= 1
			} else if last {
				p.subflows[g] = 0
			}
		}
		sc.plans = append(sc.plans, p)
	}
}

// buildGroups returns the class table of the bond.
func (p classPlan) buildGroups(subflows int) []wire.Group {
	list := []wire.Group{{ID: 1, Priority: p.class, Weight: p.weight}, {ID: 2, Weight: 1}}
	for g := range list {
		list[g].Limited = p.subflows[g] != 0
		for i := range subflows {
			if p.subflows[g]&(1<<i) != 0 {
				list[g].Subflows = append(list[g].Subflows, wire.SubflowID(i+1))
			}
		}
	}
	return list
}

// simGroups assigns IDs to the groups of a scenario. A group without streams and flows is omitted
// from the table, and gets a new ID when it is needed again.
type simGroups struct {
	n      *simNet
	plan   []wire.Group // by their numbers in the scenario; nil before the first
	number map[wire.GroupID]wire.GroupID
	newest wire.GroupID
	had    int // streams and flows
}

func newSimGroups(n *simNet) *simGroups {
	s := &simGroups{n: n, number: map[wire.GroupID]wire.GroupID{}}
	before := n.onEnd[0]
	n.onEnd[0] = func(b *Bond) {
		if before != nil {
			before(b)
		}
		now := len(b.streams.all) + len(b.flows.all)
		if now < s.had {
			s.use(s.plan)
		}
		s.had = now
	}
	return s
}

// of is the number for something new of a group of the scenario.
func (s *simGroups) of(g wire.GroupID) wire.GroupID {
	if g > 0 && s.number[g] == 0 {
		s.newest++
		s.number[g] = s.newest
		s.use(s.plan)
		s.number[g] = s.newest // nothing was of it yet
	}
	return s.number[g]
}

// use sets the class table, without unused groups.
func (s *simGroups) use(plan []wire.Group) {
	if s.plan = plan; plan == nil {
		return
	}
	b := s.n.ends[0]
	used := b.UsedGroups()
	var groups []wire.Group
	for _, g := range plan {
		n := s.number[g.ID]
		if n == 0 || !used[n] && n < s.newest {
			delete(s.number, g.ID)
			continue
		}
		g.ID = n
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(x, y wire.Group) int { return cmp.Compare(x.ID, y.ID) })
	b.SetClassTable(groups)
}

// newAlone returns a bond with one subflow and no other end, and a function that passes it a frame.
func newAlone(t *testing.T) (*Bond, func(wire.Frame)) {
	b := New(Config{})
	b.AddSubflow(1, false, start)
	return b, func(f wire.Frame) {
		t.Helper()
		if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), start); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlanLeavesOut: what is of a group that was left out is over at the other end
// too, without a word, but for what was reset, and what comes of it later is
// nothing new.
func TestPlanLeavesOut(t *testing.T) {
	b, receive := newAlone(t)
	group := func(id wire.GroupID) wire.Group { return wire.Group{ID: id, Weight: 1} }
	datagram := func(flow wire.FlowID, of wire.GroupID) wire.Datagram {
		return wire.Datagram{Flow: flow, Group: of, Addr: simAddr, Bytes: []byte("?")}
	}
	receive(wire.ClassTable{Serial: 1, Groups: []wire.Group{group(1), group(2)}})
	for i := range 3 {
		receive(wire.Open{Stream: wire.StreamID(i + 1), Group: 1, Dest: "a:1"})
	}
	receive(wire.Open{Stream: 4, Group: 2, Dest: "a:1"})
	receive(wire.Fin{Stream: 1})
	receive(datagram(1, 1))
	receive(datagram(2, 2))
	var list []*Stream
	for s := b.AcceptStream(); s != nil; s = b.AcceptStream() {
		list = append(list, s)
	}
	for _, s := range list[:2] {
		s.Write(make([]byte, 1000))
		s.CloseWrite()
	}
	list[2].Write(make([]byte, 1000))
	if _, err := list[0].Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	receive(wire.ClassTable{Serial: 2, Groups: []wire.Group{group(2), group(3)}})
	if b.streams.all[1] != nil || b.streams.all[2] == nil || b.streams.all[3] == nil || b.streams.all[4] == nil ||
		b.flows.all[1] != nil || b.flows.all[2] == nil {
		t.Errorf("%d streams and %d flows are left", len(b.streams.all), len(b.flows.all))
	}
	if len(list[1].send.unsent) > 0 || len(list[2].send.unsent) == 0 || list[1].err != nil {
		t.Errorf("to be sent: %v, %v", list[1].send.unsent, list[2].send.unsent)
	}
	receive(wire.Fin{Stream: 2})
	if _, err := list[1].Read(make([]byte, 1)); err != io.EOF || b.streams.all[2] != nil {
		t.Error("a stream is not over when its app has read everything", err)
	}
	receive(datagram(3, 1))
	receive(wire.ClassTable{Serial: 1, Groups: []wire.Group{group(1)}}) // out of date
	receive(datagram(4, 1))
	if len(b.flows.all) != 1 {
		t.Errorf("%d flows", len(b.flows.all))
	}
	receive(datagram(5, 4)) // a later class table names it
	if len(b.flows.all) != 2 {
		t.Errorf("%d flows", len(b.flows.all))
	}
}

// runWithClasses runs downloads of that size at once, the i-th in group i+1. It returns when each
// was done and the bytes on each subflow.
func runWithClasses(t *testing.T, size unit.Bytes, build func(*simNet), plan ...wire.Group) (took []time.Duration,
	over []uint64) {
	n := newSim(t, "auto", 0.2)
	build(n)
	var trs []*transfer
	for i := range plan {
		plan[i].ID = wire.GroupID(i + 1)
		trs = append(trs, &transfer{size: int(size), group: plan[i].ID})
	}
	n.ends[0].SetClassTable(plan)
	n.run(n.carry(trs))
	for _, tr := range trs {
		took = append(took, tr.done.Sub(simStart))
	}
	for _, p := range n.subflows {
		over = append(over, n.ends[1].subflows.subflowByID(p.id).bytesSent)
	}
	return took, over
}

func buildTriangle(n *simNet) { n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps) }

// TestClassTableLimits: streams use all subflows that the class table permits and no others, at
// both ends. Other streams are not delayed.
func TestClassTableLimits(t *testing.T) {
	limited := func(subflows ...wire.SubflowID) wire.Group {
		return wire.Group{Weight: 1, Limited: true, Subflows: subflows}
	}
	const size = 2 * unit.MB
	took, over := runWithClasses(t, size, buildTriangle, limited(1))
	if over[1] > uint64(size/100) || took[0] > 2400*time.Millisecond {
		t.Errorf("over subflow 1 only: %v bytes, took %v", over, took)
	}
	took, over = runWithClasses(t, size, buildTriangle, limited(2))
	if over[0] > uint64(size/50) { // it carries control frames
		t.Errorf("over subflow 2 only: %v bytes, took %v", over, took)
	}
	took, over = runWithClasses(t, size, buildTriangle, limited(1, 2))
	free, _ := runWithClasses(t, size, buildTriangle, wire.Group{Weight: 1})
	if over[1] < uint64(size/5) || took[0] > free[0]*105/100 {
		t.Errorf("over both: %v bytes, took %v, without a limit %v", over, took, free)
	}
	// One each: both are done as if alone.
	took, over = runWithClasses(t, size, buildTriangle, limited(1), limited(2))
	if took[0] > 2400*time.Millisecond || took[1] > 3800*time.Millisecond {
		t.Errorf("one subflow each: %v bytes, took %v", over, took)
	}
	// A stream that waits for a slow subflow delays none on a fast one.
	slow := func(n *simNet) { n.addTriangle(unit.Mbps/4, 10*unit.Mbps, 10*unit.Mbps) }
	alone, _ := runWithClasses(t, size, slow, limited(2))
	took, over = runWithClasses(t, size, slow, limited(2), limited(1))
	if took[0] > alone[0]*110/100 {
		t.Errorf("beside one on a slow subflow: %v bytes, took %v, alone %v", over, took, alone)
	}
}

// TestClassTableWaits: a stream waits while no subflow is permitted, delays no other stream, and
// continues when there is one.
func TestClassTableWaits(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	buildTriangle(n)
	n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: 1, Limited: true}})
	waits, other := &transfer{size: int(unit.MB), group: 1}, &transfer{size: int(unit.MB)}
	done := n.carry([]*transfer{waits, other})
	var early int
	n.after(5*time.Second, func() {
		early = waits.read
		n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: 1, Limited: true, Subflows: []wire.SubflowID{2}}})
	})
	n.run(done)
	if early != 0 || other.done.Sub(simStart) > 1200*time.Millisecond {
		t.Errorf("%d bytes came by no subflow; the other one took %v", early, other.done.Sub(simStart))
	}
	if took := waits.done.Sub(simStart); took > 8*time.Second {
		t.Errorf("allowed after 5 s, it took %v", took)
	}
}

// TestClassTableSubflowSilent: a stream whose only subflow falls silent waits for it and does not
// use others.
func TestClassTableSubflowSilent(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	buildTriangle(n)
	for d := range 2 {
		h := n.subflows[0].hops[d][0]
		h.steps = append(h.steps, simStep{n.now.Add(500 * time.Millisecond), 0},
			simStep{n.now.Add(3 * time.Second), 8 * unit.Mbps})
	}
	n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: 1, Limited: true, Subflows: []wire.SubflowID{1}}})
	tr := &transfer{size: int(2 * unit.MB), group: 1}
	n.run(n.carry([]*transfer{tr}))
	if over := n.ends[1].subflows.subflowByID(2).bytesSent; over > 100_000 {
		t.Errorf("%d bytes went over the other subflow", over)
	}
	if took := tr.done.Sub(simStart); took > 7*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestClasses: a stream of a higher class hardly waits for others, which are done
// after it. It does not overtake what is on its way, and others have turns while
// its window or slow start does not let it.
func TestClasses(t *testing.T) {
	const size = 2 * unit.MB
	alone, _ := runWithClasses(t, size, buildTriangle, wire.Group{Weight: 1})
	took, _ := runWithClasses(t, size, buildTriangle, wire.Group{Weight: 1, Priority: wire.Low}, wire.Group{Weight: 1},
		wire.Group{Weight: 1, Priority: wire.High})
	if took[2] > alone[0]*140/100 || took[1] < took[2]*3/2 || took[0] < took[1] {
		t.Errorf("low, normal and high take %v, alone it takes %v", took, alone)
	}
}

// TestClassGetsItsRate: a stream of a higher priority that sends less than the links carry gets its
// rate. The many bytes of a lower priority do not delay it, and get the rest. The same holds for a
// stream of the same priority that has few bytes to send at each moment.
func TestClassGetsItsRate(t *testing.T) {
	const rate = 4 * unit.Mbps
	run := func(class wire.Priority) (took, lag time.Duration, other int) {
		n := newSim(t, "auto", 0.2)
		buildTriangle(n)
		n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: 1, Priority: class}, {ID: 2, Weight: 1}})
		call, bulk := &transfer{size: int(4 * unit.MB), group: 1}, &transfer{size: int(14 * unit.MB), group: 2}
		call.talk[1].WriteRate = rate
		done := n.carry([]*transfer{call, bulk})
		var look func()
		look = func() {
			if !call.done.IsZero() {
				return
			}
			if n.now.Sub(simStart) > 1500*time.Millisecond { // before it bulk finds out what the links carry
				lag = max(lag, rate.Time(unit.Bytes(call.apps[1].sent-call.read)))
			}
			n.after(20*time.Millisecond, look)
		}
		n.after(20*time.Millisecond, look)
		n.run(func() bool {
			if other == 0 && !call.done.IsZero() {
				other = bulk.read
			}
			return done()
		})
		return call.done.Sub(simStart), lag, other
	}
	needs := rate.Time(4 * unit.MB)
	for _, priority := range []wire.Priority{wire.High, wire.Normal} {
		took, lag, other := run(priority)
		t.Logf("%v: %v, at most %v behind, bulk has %d bytes", priority, took, lag, other)
		if took > needs*102/100 || lag > 120*time.Millisecond {
			t.Errorf("%v: %v of bytes took %v, at most %v behind", priority, needs, took, lag)
		}
		if least := int((13*unit.Mbps - rate).Bytes(took)); other < least*95/100 {
			t.Errorf("%v: the other one got %d bytes meanwhile, there was room for %d", priority, other, least)
		}
	}
}

// TestWeights: streams of one class that always have bytes to send are given
// subflows as their weights say, to a percent. What has been read is so too, but
// for what waits for its order at that moment: much, of one that gets little.
func TestWeights(t *testing.T) {
	for _, links := range [][]unit.Rate{{10}, {8, 10, 5}, {1, 18, 5}} {
		for _, w := range [][2]uint8{{2, 1}, {7, 3}, {10, 1}} {
			n := newSim(t, "auto", 0.2)
			for i := range links {
				links[i] *= unit.Mbps
			}
			n.addTriangle(links[0], links[1:]...)
			for i := range links {
				links[i] /= unit.Mbps
			}
			n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: w[0]}, {ID: 2, Weight: w[1]}})
			a, b := &transfer{size: int(8 * unit.MB), group: 1}, &transfer{size: int(8 * unit.MB), group: 2}
			given := func(tr *transfer) float64 {
				return float64(tr.s[1].send.end - tr.s[1].send.unsent.Size())
			}
			done := n.carry([]*transfer{a, b})
			var gave, read float64
			n.run(func() bool {
				if gave == 0 && a.read >= int(7*unit.MB) {
					gave, read = given(a)/given(b), float64(a.read)/float64(b.read)
				}
				return done()
			})
			want := float64(w[0]) / float64(w[1])
			if math.Abs(gave/want-1) > 0.01 || w[0] < 10 && math.Abs(read/want-1) > 0.15 {
				t.Errorf("links %v, weights %v: given %.3f, read %.3f, want %.3f", links, w, gave, read, want)
			}
		}
	}
}

// TestDatagramsAndClasses: datagrams that come faster than a link carries them
// yield to streams of a higher class, go before those of a lower one, and stand to
// each other in the same order.
func TestDatagramsAndClasses(t *testing.T) {
	build := func(n *simNet) { n.addTriangle(10 * unit.Mbps) }
	// beside runs a download beside a flow that offers 20 Mbit/s. It returns how long the download
	// took and the part of the flow that arrived meanwhile.
	beside := func(stream, flow wire.Priority) (took time.Duration, came float64) {
		n := newSim(t, "auto", 0.2)
		build(n)
		n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: 1, Priority: stream}, {ID: 2, Weight: 1, Priority: flow}})
		n.openFlow(flowPlan{every: 500 * time.Microsecond, count: [2]int{1, 8000}, size: 1250, group: 2})
		tr := &transfer{size: int(3 * unit.MB), group: 1}
		done, at, got := n.carry([]*transfer{tr}), time.Time{}, 0
		n.run(func() bool {
			if at.IsZero() && !tr.done.IsZero() {
				at, got = n.now, len(n.flows[1].by[1].got)
			}
			return done() && n.flowsDone()
		})
		return tr.done.Sub(simStart), float64(got) * 1250 / 3e6
	}
	alone := (10 * unit.Mbps).Time(3 * unit.MB)
	high, little := beside(wire.High, wire.Normal)
	same, half := beside(wire.Normal, wire.Normal)
	low, much := beside(wire.Low, wire.Normal)
	t.Logf("above datagrams %v (%.2f of its bytes beside), in turn %v (%.2f), below %v (%.2f); alone %v", high, little,
		same, half, low, much, alone)
	if high > alone*125/100 || little > 0.2 {
		t.Errorf("above datagrams it took %v, and %.2f of its bytes went beside it", high, little)
	}
	if same < alone*150/100 || half < 0.4 {
		t.Errorf("in turn with datagrams it took %v, and %.2f of its bytes went beside it", same, half)
	}
	if low < 4*time.Second || much < 1.2 {
		t.Errorf("below datagrams it took %v, and %.2f of its bytes went beside it", low, much)
	}
	n := newSim(t, "auto", 0.2)
	build(n)
	n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: 1, Priority: wire.High}, {ID: 2, Weight: 3}, {ID: 3, Weight: 1}})
	for g := range 3 { // 4, 20 and 20 Mbit/s
		every := 500 * time.Microsecond
		if g == 0 {
			every = 2500 * time.Microsecond
		}
		n.openFlow(flowPlan{every: every, count: [2]int{1, int(4 * time.Second / every)}, size: 1250,
			group: wire.GroupID(g + 1)})
	}
	n.run(func() bool { return n.now.Sub(simStart) > 5*time.Second && n.flowsDone() })
	got := func(i int) float64 { return float64(len(n.flows[i].by[1].got)) }
	t.Logf("of 1600 of a high class %v came; of weight 3 %v, of weight 1 %v", got(1), got(2), got(3))
	if r := got(2) / got(3); got(1) < 1580 || r < 2.7 || r > 3.3 {
		t.Errorf("of 1600 of a high class %v came; the ratio of weights 3 and 1 is %.2f", got(1), r)
	}
}

// TestWeightsOfDatagrams: a flow that offers more than a link carries and a stream
// that always has bytes share it as their weights say.
func TestWeightsOfDatagrams(t *testing.T) {
	for _, w := range [][2]uint8{{1, 3}, {3, 1}, {1, 1}, {9, 1}} {
		n := newSim(t, "auto", 0.2)
		n.addTriangle(10 * unit.Mbps)
		n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: w[0]}, {ID: 2, Weight: w[1], Priority: wire.Low},
			{ID: 3, Weight: w[1]}})
		n.openFlow(flowPlan{every: 500 * time.Microsecond, count: [2]int{1, 16000}, size: 1250, group: 3})
		tr := &transfer{size: int(20 * unit.MB), group: 1}
		n.carry([]*transfer{tr})
		var read, got int
		// by when both know what the link carries
		n.after(2*time.Second, func() { read, got = tr.read, len(n.flows[1].by[1].got) })
		n.run(func() bool { return n.now.Sub(simStart) > 8*time.Second })
		stream, flow := float64(tr.read-read), float64(len(n.flows[1].by[1].got)-got)*1250
		want := float64(w[0]) / float64(w[1])
		t.Logf("weights %v: stream %.0f, flow %.0f bytes: %.3f, want %.3f", w, stream, flow, stream/flow, want)
		if math.Abs(stream/flow/want-1) > 0.1 || (stream+flow)*8 < 0.9*6*1e7 {
			t.Errorf("weights %v: %.3f, want %.3f; both have %.0f bytes", w, stream/flow, want, stream+flow)
		}
	}
}

// TestWaitingEarnsNothing: a stream that begins late, or had nothing to send,
// takes turns from then on, and does not make up for the time before.
func TestWaitingEarnsNothing(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(10 * unit.Mbps)
	n.ends[0].SetClassTable([]wire.Group{{ID: 1, Weight: 2}})
	first, late := &transfer{size: int(8 * unit.MB)}, &transfer{size: int(4 * unit.MB)}
	late.talk[1].Delay = 3 * time.Second
	done, then := n.carry([]*transfer{first, late}), 0
	n.after(3*time.Second, func() { then = first.read })
	ratio := 0.0
	n.run(func() bool {
		if ratio == 0 && late.read >= int(unit.MB) {
			ratio = float64(first.read-then) / float64(late.read)
		}
		return done()
	})
	if ratio < 0.9 || ratio > 1.3 { // what was on its way then counts for the first
		t.Errorf("beside a late one the first gets %.2f of what that gets", ratio)
	}
}
