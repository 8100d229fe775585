// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math/rand/v2"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// simHop is one direction of one hop: TCP over a link. A rate change is a new
// value of rate from then on; rate 0 is an outage.
type simHop struct {
	delay      time.Duration
	steps      []simStep // rising times; the first one's is the start
	moves      []simMove // rising times
	back       *simHop   // the other direction, which carries acknowledgements
	window     unit.Bytes
	written    uint64
	acked      uint64
	knownRates bool // after its first step the sender knows rates as limits

	// A lost segment comes again after a round trip and this; what follows
	// waits for it.
	loss       float64
	retransmit time.Duration
	rng        *rand.Rand

	freeAt   time.Time // when the last byte given to it has left
	lastOut  time.Time // when it arrives
	lastAck  time.Time
	nowStep  int // hints where to begin to search
	freeStep int
}

type simStep struct {
	at   time.Time
	rate unit.Rate
}

// simMove is a new delay from a time on.
type simMove struct {
	at    time.Time
	delay time.Duration
}

// hop makes one direction of a hop with a queue of 1.5 delay-bandwidth
// products or 64 KB.
func (n *simNet) hop(rate unit.Rate, oneWay time.Duration) *simHop {
	return &simHop{delay: oneWay, steps: []simStep{{n.now, rate}}, freeAt: n.now,
		window: max(64*unit.KB, rate.Bytes(3*oneWay))}
}

// find is the step in force at t.
func (h *simHop) find(t time.Time, hint int) int {
	for hint > 0 && h.steps[hint].at.After(t) {
		hint--
	}
	for hint+1 < len(h.steps) && !h.steps[hint+1].at.After(t) {
		hint++
	}
	return hint
}

func (h *simHop) rate(t time.Time) unit.Rate {
	h.nowStep = h.find(t, h.nowStep)
	return h.steps[h.nowStep].rate
}

func (h *simHop) delayAt(t time.Time) time.Duration {
	d := h.delay
	for _, m := range h.moves {
		if !m.at.After(t) {
			d = m.delay
		}
	}
	return d
}

func (h *simHop) roundTrip(t time.Time) time.Duration { return h.delayAt(t) + h.back.delayAt(t) }

// never is far beyond any test.
const never = 1e6 * time.Hour

// departureTime is when size bytes that are ready at t have left the hop.
func (h *simHop) departureTime(t time.Time, size int) time.Time {
	if h.freeAt.After(t) {
		t = h.freeAt
	}
	bits := float64(size * 8)
	for i := h.find(t, h.freeStep); ; i++ {
		h.freeStep = i
		s := h.steps[i]
		last := i+1 == len(h.steps)
		if s.rate > 0 {
			need := time.Duration(bits / float64(s.rate) * 1e9)
			if last || !t.Add(need).After(h.steps[i+1].at) {
				h.freeAt = t.Add(need)
				return h.freeAt
			}
			bits -= float64(s.rate) * h.steps[i+1].at.Sub(t).Seconds()
		}
		if last {
			h.freeAt = simStart.Add(never)
			return h.freeAt
		}
		t = h.steps[i+1].at
	}
}

// passTime is when what leaves at t arrives: later if there is an outage
// meanwhile.
func (h *simHop) passTime(t time.Time) time.Time {
	for i := h.find(t, h.freeStep); ; i++ {
		arrives := t.Add(h.delayAt(t))
		switch last := i+1 == len(h.steps); {
		case h.steps[i].rate == 0 && last:
			return simStart.Add(never)
		case h.steps[i].rate == 0:
			t = h.steps[i+1].at
		case last || h.steps[i+1].at.After(arrives):
			return arrives
		}
	}
}

// carrySegment takes size bytes and returns when they arrive, in order.
func (h *simHop) carrySegment(now time.Time, size int) time.Time {
	h.written += uint64(size)
	left := h.departureTime(now, size)
	at := h.passTime(left)
	if h.loss > 0 && h.rng.Float64() < h.loss {
		at = at.Add(h.roundTrip(left) + h.retransmit)
	}
	if at.Before(h.lastOut) {
		at = h.lastOut
	}
	h.lastOut = at
	return at
}

// ackAt is when the acknowledgement of what arrives at t is back.
func (h *simHop) ackAt(t time.Time) time.Time {
	at := h.back.passTime(t)
	if at.Before(h.lastAck) {
		at = h.lastAck
	}
	h.lastAck = at
	return at
}

// srtt is the round trip with q bytes under way, measured when there was a rate.
func (h *simHop) srtt(t time.Time, q unit.Bytes) time.Duration {
	rtt := h.roundTrip(t)
	for i := h.find(t, h.nowStep); i >= 0; i-- {
		if r := h.steps[i].rate; r > 0 {
			return rtt + r.Time(min(q, h.window))
		}
	}
	return rtt
}

// States of a subflow at an end.
const (
	unknown = iota
	joined
	gone
)

// simSubflow is a subflow; hops[d] are those of direction d in the order a byte
// takes them (0: from the opener).
type simSubflow struct {
	id   wire.SubflowID
	hops [2][]*simHop
	at   [2]int // unknown, joined or left, at each end
	// holds reports that an end's writer has not begun a segment.
	holds [2]bool
	dead  bool // nothing arrives any more

	// The helper of a helped subflow.
	buffer    unit.Bytes  // for each direction; 0: boundless
	waiting   [2][][]byte // segments that it has no room for, oldest first
	relay     bool        // its reports about the pipe go by the opener
	reporting [2]bool
	reported  [2]wire.HopState
	reports   *[2]falseReports // by direction; nil: it is honest

	early [2][][]byte // segments that arrived before the end had the subflow
	got   [2]uint64   // bytes delivered to each end
}

// newSubflow connects hops; far and pipe by direction, pipe nil for a direct subflow.
func (n *simNet) newSubflow(id wire.SubflowID, far, pipe *[2]*simHop) *simSubflow {
	p := &simSubflow{id: id}
	for d := range 2 {
		far[d].back = far[1-d]
		p.hops[d] = []*simHop{far[d]}
		if pipe != nil {
			pipe[d].back = pipe[1-d]
			p.hops[d] = []*simHop{far[d], pipe[d]}
			if d == 0 {
				p.hops[d] = []*simHop{pipe[d], far[d]}
			}
		}
	}
	n.subflows = append(n.subflows, p)
	return p
}

// addSubflow joins a subflow at both ends.
func (n *simNet) addSubflow(id wire.SubflowID, far, pipe *[2]*simHop) *simSubflow {
	p := n.newSubflow(id, far, pipe)
	for d := range 2 {
		n.join(p, d)
	}
	return p
}

// join adds a subflow at one end.
func (n *simNet) join(p *simSubflow, d int) {
	if p.at[d] != unknown {
		return
	}
	n.addEntry(entry{end: d, subflow: p.id, text: "the subflow joins"})
	p.at[d] = joined
	helped := len(p.hops[d]) > 1
	n.ends[d].AddSubflow(p.id, helped, n.now)
	n.sampleHop(p, d)
	n.ends[d].MarkIdle(p.id)
	if helped {
		n.report(p, d)
	}
	for _, seg := range p.early[d] {
		n.deliver(p, 1-d, seg)
	}
	p.early[d] = nil
}

// leave removes a subflow at one end.
func (n *simNet) leave(p *simSubflow, d int) {
	if p.at[d] == gone {
		return
	}
	n.addEntry(entry{end: d, subflow: p.id, text: "the subflow is gone"})
	if p.at[d] == joined {
		n.ends[d].RemoveSubflow(p.id, n.now)
	}
	p.at[d], p.early[d] = gone, nil
	p.dead = p.dead || p.at[1-d] == gone
}

// kill ends a subflow; the other end learns of it after a moment.
func (n *simNet) kill(p *simSubflow) {
	p.dead = true
	n.leave(p, 0)
	n.at(n.now.Add(30*time.Millisecond), 1, func() { n.leave(p, 1) })
}

// report sends the helper's reports about its far hop to the sender of direction d every 20 ms, as
// long as they change.
func (n *simNet) report(p *simSubflow, d int) {
	if p.dead || p.reporting[d] {
		return
	}
	far := p.hops[d][1]
	s := wire.HopState{Received: far.written, Forwarded: far.acked, Rate: far.rate(n.now), RTT: far.roundTrip(n.now),
		AppLimited: far.written == far.acked}
	heard := true
	if p.reports != nil {
		s, heard = p.reports[d].distortReport(s, n.now.Sub(simStart))
	}
	if s == p.reported[d] || !heard {
		return
	}
	p.reported[d], p.reporting[d] = s, true
	if d == 1 && p.relay {
		n.at(p.hops[1][1].passTime(n.now), 0, func() {
			if !p.dead && p.at[0] == joined {
				n.ends[0].RelayReport(wire.PipeState{Subflow: p.id, HopState: s}, n.now)
			}
		})
	} else {
		n.at(p.hops[d][0].back.passTime(n.now), d, func() {
			if !p.dead && p.at[d] == joined {
				n.ends[d].ObserveFarHop(p.id, n.now, s)
			}
		})
	}
	n.at(n.now.Add(20*time.Millisecond), nobody, func() {
		p.reporting[d] = false
		n.report(p, d)
	})
}

// write gives a segment to a subflow of end d.
func (n *simNet) write(p *simSubflow, d int, seg []byte) {
	h := p.hops[d][0]
	arrives := h.carrySegment(n.now, len(seg))
	if len(p.hops[d]) == 1 {
		n.acknowledge(p, d, arrives, len(seg))
		n.at(arrives, 1-d, func() { n.deliver(p, d, seg) })
	} else {
		n.at(arrives, nobody, func() { n.relay(p, d, seg) })
	}
	n.at(n.now, d, func() { n.writable(p, d) })
}

// acknowledge lets the first hop's TCP know at its sender what arrives.
func (n *simNet) acknowledge(p *simSubflow, d int, arrives time.Time, size int) {
	h := p.hops[d][0]
	n.at(h.ackAt(arrives), d, func() { h.acked += uint64(size); n.writable(p, d) })
}

// writable marks a subflow's socket as writable at an end.
func (n *simNet) writable(p *simSubflow, d int) {
	h := p.hops[d][0]
	if p.at[d] == joined && !p.holds[d] && unit.Bytes(h.written-h.acked) < h.window+16*unit.KB {
		n.sampleHop(p, d)
		n.ends[d].MarkIdle(p.id)
	}
}

// relay takes a segment at the helper.
func (n *simNet) relay(p *simSubflow, d int, seg []byte) {
	p.waiting[d] = append(p.waiting[d], seg)
	n.forward(p, d)
	n.report(p, d)
}

// forward gives the last hop the helper's waiting bytes that fit its buffer. The rest stays in the
// first hop, unacknowledged.
func (n *simNet) forward(p *simSubflow, d int) {
	h := p.hops[d][1]
	for len(p.waiting[d]) > 0 && !p.dead && (p.buffer == 0 || unit.Bytes(h.written-h.acked) < p.buffer) {
		seg := p.waiting[d][0]
		p.waiting[d] = slices.Delete(p.waiting[d], 0, 1)
		n.acknowledge(p, d, n.now, len(seg))
		arrives, size := h.carrySegment(n.now, len(seg)), len(seg)
		n.at(arrives, 1-d, func() { n.deliver(p, d, seg) })
		n.at(h.ackAt(arrives), nobody, func() {
			h.acked += uint64(size)
			n.forward(p, d)
			n.report(p, d)
		})
	}
}

// deliver takes a segment at the end of its last hop.
func (n *simNet) deliver(p *simSubflow, d int, seg []byte) {
	to := 1 - d
	switch {
	case p.dead || p.at[to] == gone:
		n.recycleSegment(seg)
		return
	case p.at[to] == unknown:
		p.early[to] = append(p.early[to], seg)
		return
	}
	if n.doctor != nil {
		seg = n.doctor(d, seg)
	}
	err := eachFrame(seg, func(t wire.Type, payload []byte) error {
		p.got[to] += uint64(wire.HeaderLen + len(payload))
		n.noteFrame(to, p.id, true, t, payload)
		return n.ends[to].ReceiveFrame(p.id, t, payload, n.now)
	})
	if err != nil {
		n.fatal("%s refuses what arrives on subflow %d: %v", endNames[to], p.id, err)
	}
	n.recycleSegment(seg)
}
