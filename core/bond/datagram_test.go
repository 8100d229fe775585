// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// flowPlan is a datagram flow beside the transfers. The acceptor's app sends
// from when the flow is there.
type flowPlan struct {
	at, every time.Duration
	count     [2]int // of each end
	size      int
	redundant bool
	group     wire.GroupID
	end       time.Duration // when the opener ends it; 0: after all
}

// simFlow is a datagram flow with the apps at both ends.
type simFlow struct {
	n    *simNet
	plan flowPlan
	f    [2]*Flow
	by   [2]simSender // by sender
}

// simSender is the state of the datagrams of one direction.
type simSender struct {
	sent     uint64
	done     bool
	subflows [][]wire.SubflowID // by number: what each was given to
	at       []time.Time        // by number: when it was sent
	got      map[uint64]bool
	last     map[wire.SubflowID]uint64 // the newest that arrived, by subflow; not of redundant flows
	// delays are those of the datagrams that came, in the order in which they did.
	delays []time.Duration
}

var simAddr = wire.Addr{Name: "far", Port: 7}

// openDatagramFlow lets the opener begin a flow.
func (n *simNet) openFlow(plan flowPlan) {
	f, err := n.ends[0].OpenFlow(plan.redundant, n.now)
	if err == nil {
		f.SetGroup(plan.group)
	}
	if err != nil {
		n.fatal("open: %v", err)
	}
	g := &simFlow{n: n, plan: plan}
	for d := range g.by {
		g.by[d].got, g.by[d].last = map[uint64]bool{}, map[wire.SubflowID]uint64{}
	}
	if int(f.ID()) != len(n.flows) {
		n.fatal("flow %d is called %d", len(n.flows), f.ID())
	}
	n.flows = append(n.flows, g)
	g.start(0, f)
	if plan.end > 0 {
		n.at(n.now.Add(plan.end), 0, func() { f.End(wire.CodeClosed, "enough", n.now) })
	}
}

// acceptFlow takes a flow at the acceptor.
func (n *simNet) acceptFlow(f *Flow) {
	if int(f.ID()) >= len(n.flows) || n.flows[f.ID()] == nil || n.flows[f.ID()].f[1] != nil {
		n.fatal("flow %d is accepted, which nobody opened, or twice", f.ID())
	}
	n.flows[f.ID()].start(1, f)
}

func (g *simFlow) start(d int, f *Flow) {
	g.f[d], f.User = f, g
	g.send(d)
}

// send sends datagrams of an end, one after the other.
func (g *simFlow) send(d int) {
	by := &g.by[d]
	if by.sent >= uint64(g.plan.count[d]) || g.f[d].Err() != nil {
		by.done = true
		return
	}
	if err := g.f[d].Send(simAddr, g.datagram(d, by.sent), g.n.now); err != nil {
		g.n.fatal("flow %d: %v", g.f[d].ID(), err)
	}
	by.at = append(by.at, g.n.now)
	by.subflows = append(by.subflows, nil)
	by.sent++
	g.n.at(g.n.now.Add(g.plan.every), d, func() { g.send(d) })
}

// datagram is the one of a number from an end.
func (g *simFlow) datagram(d int, number uint64) []byte {
	id := wire.StreamID(1<<40 + g.f[0].ID())
	b := binary.BigEndian.AppendUint64(nil, number)
	return append(b, g.n.fillPattern(id, d, int(number), g.plan.size)...)
}

// recordSent checks a datagram that end d gives to a subflow.
func (g *simFlow) recordSent(d int, subflow wire.SubflowID, number uint64) {
	by := &g.by[d]
	if number >= uint64(len(by.subflows)) {
		g.n.fatal("flow %d: datagram %d was never sent", g.f[d].ID(), number)
	}
	before := by.subflows[number]
	if len(before) > 1 || len(before) > 0 && !g.plan.redundant {
		g.n.fatal("flow %d: datagram %d from %s is given to subflow %d, after %v", g.f[d].ID(), number, endNames[d], subflow,
			before)
	}
	if slices.Contains(before, subflow) {
		g.n.fatal("flow %d: both copies of datagram %d from %s are given to subflow %d", g.f[d].ID(), number,
			endNames[d], subflow)
	}
	by.subflows[number] = append(before, subflow)
	if late := g.n.now.Sub(by.at[number]); late > maxQueueTime+checkInterval+g.n.lag[d] &&
		g.n.frozen[d].Before(by.at[number]) {
		g.n.fatal("flow %d: datagram %d from %s leaves after %v", g.f[d].ID(), number, endNames[d], late)
	}
}

// receive takes what came for an end.
func (g *simFlow) receive(to int) {
	n, by := g.n, &g.by[1-to]
	for {
		r, ok, _ := g.f[to].Receive()
		if !ok {
			return
		}
		if len(r.Bytes) < 8 || r.Refused {
			n.fatal("flow %d: %s gets %+v", g.f[to].ID(), endNames[to], r)
		}
		number := binary.BigEndian.Uint64(r.Bytes)
		if number >= by.sent || !bytes.Equal(r.Bytes, g.datagram(1-to, number)) || r.Addr != simAddr {
			n.fatal("flow %d: what %s gets as datagram %d was never sent so", g.f[to].ID(), endNames[to], number)
		}
		if by.got[number] {
			n.fatal("flow %d: datagram %d comes twice to %s", g.f[to].ID(), number, endNames[to])
		}
		by.got[number] = true
		by.delays = append(by.delays, n.now.Sub(by.at[number]))
		if g.plan.redundant {
			continue
		}
		subflow := by.subflows[number][0]
		if last, ok := by.last[subflow]; ok && last > number {
			n.fatal("flow %d: datagram %d comes to %s after %d, both over subflow %d", g.f[to].ID(), number, endNames[to], last,
				subflow)
		}
		by.last[subflow] = number
	}
}

// dropped returns the bytes of datagrams that an end counts as received twice. They may exceed the
// bytes sent twice: datagrams older than the window count too.
func (n *simNet) dropped(d int) (size unit.Bytes) {
	for _, g := range n.flows[1:] {
		if g.f[d] != nil {
			size += unit.Bytes(g.f[d].stats.Duplicate * (g.plan.size + 8))
		}
	}
	return size
}

// flowsDone reports whether all flows have sent what they want to.
func (n *simNet) flowsDone() bool {
	for _, g := range n.flows[1:] {
		for d := range g.by {
			if g.f[d] != nil && !g.by[d].done {
				return false
			}
		}
	}
	return true
}

// endFlows ends all flows, at both ends.
func (n *simNet) endFlows() {
	for _, g := range n.flows[1:] {
		for d := range g.f {
			if g.f[d] != nil {
				g.f[d].End(wire.CodeClosed, "enough", n.now)
			}
		}
	}
}
