// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Datagram flows. A flow is pinned to the subflow of least delay, so that this end does not reorder
// it. It moves
//
//   - at once, with its queue, when its subflow is removed or silent, or another one is clearly faster
//     since a handoff of its link is likely;
//   - when another subflow has been clearly faster for moveDelay.
//
// Datagrams can overtake each other only around a move. Those that cannot leave soon are dropped,
// oldest first, as by a router with a short queue. Nothing is retransmitted. A redundant flow has
// two legs on different subflows; the receiver drops the later copy. If only one subflow is left,
// one leg has none. No subflow carries both copies of a datagram, even if legs move while datagrams
// wait.
const (
	defaultMaxFlows = 1024
	// flowIdleTimeout ends unused flows, idleGrace later at the accepting end so that both ends
	// agree (RFC 4787 section 4.3: at least two minutes, five recommended; well-known ports may
	// have less).
	flowIdleTimeout = 5 * time.Minute
	dnsIdleTimeout  = 30 * time.Second
	idleGrace       = 20 * time.Second

	maxQueueTime = 200 * time.Millisecond // a datagram leaves within this time or is dropped
	maxLegQueue  = 512 * unit.KB
	maxFlowBytes = 16 * unit.MB // of all flows, in each direction
	datagramCost = 128          // overhead of a queued datagram

	// Another subflow is clearly faster if it saves a datagram a quarter of its delay, at least
	// clearlyFaster, for moveDelay.
	clearlyFaster = 10 * time.Millisecond
	moveDelay     = time.Second
)

// Flow is one datagram flow inside a bond, seen from one end. Not safe for concurrent use.
type Flow struct {
	// User is free for use by the owner of the bond.
	User any

	id         wire.FlowID
	table      *flowTable
	redundant  bool
	group      wire.GroupID
	legs       [2]leg // redundant flows use the second one
	nextNumber uint64 // number of the next datagram
	err        error
	lastUsed   time.Time // of the last datagram
	onlyDNS    bool      // every datagram so far was to port 53
	stats      FlowStats

	in        []ReceivedDatagram
	inBytes   unit.Bytes
	received  replayWindow
	inChanged bool
}

// FlowStats counts the datagrams of a flow at one end.
type FlowStats struct {
	Sent, Received int // given to a subflow; queued to be received
	// SentBytes and ReceivedBytes count their payloads, without copies.
	SentBytes, ReceivedBytes unit.Bytes
	// Dropped waited too long or found no room, at this end.
	Dropped int
	// Duplicate arrived a second time, as copies of redundant flows do.
	Duplicate int
	Moves     int
}

// ReceivedDatagram is a received datagram, or a report that datagrams were refused.
type ReceivedDatagram struct {
	Addr    wire.Addr // source, or the destination of refused datagrams
	Bytes   []byte
	Refused bool
	Code    wire.Code // valid, with MTU and Text, if Refused: see wire.FlowRefused
	MTU     uint16
	Text    string
}

// memoryCost returns the memory that it uses while it waits.
func (r *ReceivedDatagram) memoryCost() unit.Bytes {
	return unit.Bytes(len(r.Bytes)+len(r.Text)+len(r.Addr.Name)) + datagramCost
}

// ID returns the flow's ID.
func (f *Flow) ID() wire.FlowID { return f.id }

// Err returns why the flow has ended, a wire.Reset, or nil.
func (f *Flow) Err() error { return f.err }

// Redundant reports whether each datagram is sent over two subflows.
func (f *Flow) Redundant() bool { return f.redundant }

// SetRedundant sets whether each datagram is sent over two subflows, in both directions. It takes
// effect only before the first datagram.
func (f *Flow) SetRedundant(on bool) {
	if f.nextNumber == 0 {
		f.redundant = on
	}
}

// Send queues a datagram to or, from the server, from an address. It copies p. A datagram without
// room, or one that cannot leave soon, is dropped silently. After the end of the flow Send returns
// the reason of the end.
func (f *Flow) Send(addr wire.Addr, p []byte, now time.Time) error {
	if f.err != nil {
		return f.err
	}
	if len(p) > wire.MaxDatagram {
		return wire.ErrTooLarge
	}
	frame := wire.Append(nil, wire.Datagram{Flow: f.id, Number: f.nextNumber, Redundant: f.redundant, Group: f.group,
		Addr: addr, Bytes: p})
	if len(frame) > wire.HeaderLen+wire.MaxPayload {
		return wire.ErrTooLarge
	}
	f.nextNumber++
	f.recordFlowUse(addr, now)
	f.enqueueFrame(datagram{frame: frame, payloadSize: unit.Bytes(len(p)), queuedAt: now})
	return nil
}

// SetGroup sets the flow's group, for both directions. It takes effect only before the first
// datagram.
func (f *Flow) SetGroup(g wire.GroupID) {
	if f.nextNumber == 0 {
		f.group = g
	}
}

// recordFlowUse records a datagram to or from an address.
func (f *Flow) recordFlowUse(addr wire.Addr, now time.Time) {
	f.lastUsed = now
	f.onlyDNS = f.onlyDNS && addr.Port == 53
}

// enqueueFrame queues a frame on each leg that must carry it.
func (f *Flow) enqueueFrame(q datagram) {
	t, now := f.table, q.queuedAt
	q.sentOn = new(wire.SubflowID)
	for i := range f.legs {
		l := &f.legs[i]
		if i > 0 && !f.redundant {
			break
		}
		t.updateLegPin(l, now)
		if l.subflow == nil && (i > 0 || l.otherLegSubflow() != nil) {
			continue // there is no second subflow
		}
		cost := unit.Bytes(len(q.frame)) + datagramCost
		for l.bytes+cost > maxLegQueue {
			l.dropOldestFrame()
		}
		if t.outBytes+cost > maxFlowBytes || !t.memory.takeFromBudget(cost) {
			f.stats.Dropped++
			t.stats.DatagramsDropped++
			continue
		}
		l.waiting = append(l.waiting, q)
		l.bytes += cost
		t.outBytes += cost
		if l.subflow != nil && !l.isBulk {
			l.subflow.extendLowLatency(now.Add(lowLatencyPeriod))
		}
		if !l.queued {
			l.queued = true
			t.enqueueLeg(l)
		}
	}
}

// Receive returns the next datagram or refusal. If there is none, ok is false, and err is the
// reason if the flow has ended.
func (f *Flow) Receive() (r ReceivedDatagram, ok bool, err error) {
	if len(f.in) == 0 {
		return r, false, f.err
	}
	r = f.in[0]
	f.in[0] = ReceivedDatagram{}
	if f.in = f.in[1:]; len(f.in) == 0 {
		f.in = nil
	}
	f.releaseReceived(r.memoryCost())
	return r, true, nil
}

// Discard drops received datagrams.
func (f *Flow) Discard() {
	f.releaseReceived(f.inBytes)
	f.in = nil
}

// releaseReceived releases the memory of n received bytes.
func (f *Flow) releaseReceived(n unit.Bytes) {
	f.inBytes -= n
	f.table.inBytes -= n
	f.table.memory.returnToBudget(n)
}

// Refuse reports to the other end that datagrams do not reach an address. It sets the flow's ID.
func (f *Flow) Refuse(r wire.FlowRefused) {
	if f.err == nil {
		r.Flow = f.id
		f.table.control.queueNotice(r)
	}
}

// End ends the flow at both ends. Queued datagrams still leave.
func (f *Flow) End(code wire.Code, text string, now time.Time) {
	if f.err != nil {
		return
	}
	// Queue it on the leg, so that it does not overtake datagrams.
	f.enqueueFrame(datagram{frame: wire.Append(nil, wire.FlowEnd{Flow: f.id, Code: code, Text: text}), queuedAt: now})
	f.failDatagramFlow(wire.Reset{Code: code, Text: text}, now)
}

// failDatagramFlow ends the flow at this end.
func (f *Flow) failDatagramFlow(why wire.Reset, now time.Time) {
	if f.err != nil {
		return
	}
	f.err = why
	delete(f.table.all, f.id)
	f.table.trace.emitTimestamped(now, trace.Event{Kind: trace.FlowClose, Flow: uint64(f.id),
		Count: uint64(f.stats.Sent + f.stats.Received), Reason: why.Error()})
	f.table.notifyFlowChange(f)
}

// deliverDatagram queues r to be received, or drops it if there is no room.
func (f *Flow) deliverDatagram(r ReceivedDatagram) {
	cost := r.memoryCost()
	if f.inBytes+cost > maxLegQueue || f.table.inBytes+cost > maxFlowBytes || !f.table.memory.takeFromBudget(cost) {
		f.stats.Dropped++
		f.table.stats.DatagramsDropped++
		return
	}
	f.stats.Received++
	f.stats.ReceivedBytes += unit.Bytes(len(r.Bytes))
	f.in = append(f.in, r)
	f.inBytes += cost
	f.table.inBytes += cost
	f.table.notifyFlowChange(f)
}
