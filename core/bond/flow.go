package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Datagram flows. A flow is pinned to the subflow of least delay, so that this end
// never re-orders it; it moves
//
//   - when its subflow is gone or silent: at once, with what waits;
//   - when another one has been clearly faster for a while (patience).
//
// Only around a move may datagrams overtake each other. Those that cannot leave
// within a moment are dropped, oldest first, as a router with a short queue
// would; nothing is sent twice, except by a redundant flow, which has two legs
// on different paths and whose later copies the receiver drops. Where only one
// subflow is left, one leg has none; none carries both copies of a datagram,
// also when legs move while some wait.
const (
	defaultMaxFlows = 1024
	// flowIdleTimeout ends unused flows, at the accepting end a little later so that
	// both agree (RFC 4787 section 4.3: at least two minutes, five recommended;
	// well-known ports may have less).
	flowIdleTimeout = 5 * time.Minute
	dnsIdleTimeout  = 30 * time.Second
	idleGrace       = 20 * time.Second

	maxQueueTime = 200 * time.Millisecond // a datagram leaves within this time or not at all
	maxLegQueue  = 512 * unit.KB
	maxFlowBytes = 16 * unit.MB // of all flows, in each direction
	datagramCost = 128          // what a queued datagram takes besides its bytes

	// Another subflow is clearly faster if a datagram saves a quarter of its
	// delay and clearlyFaster on it, for as long as patience.
	clearlyFaster = 10 * time.Millisecond
	moveDelay     = time.Second
)

// Flow is one datagram flow inside a bond, seen from one end. Like its bond it
// is not safe for concurrent use.
type Flow struct {
	// User is for the owner of the bond.
	User any

	id         wire.FlowID
	table      *flowTable
	redundant  bool
	group      wire.GroupID
	legs       [2]leg // the second one is of redundant flows
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
	Sent, Received int // given to a subflow; handed over to be received
	// SentBytes and ReceivedBytes are what was in these, a copy not counted.
	SentBytes, ReceivedBytes unit.Bytes
	// Dropped waited too long or found no room, at this end.
	Dropped int
	// Duplicate came a second time, as those of redundant flows do.
	Duplicate int
	Moves     int
}

// ReceivedDatagram is a datagram that arrived, or the news that some were refused.
type ReceivedDatagram struct {
	Addr    wire.Addr // where it came from, or is refused to be sent to
	Bytes   []byte
	Refused bool
	Code    wire.Code // valid, with MTU and Text, if Refused: see wire.FlowRefused
	MTU     uint16
	Text    string
}

// memoryCost is what it takes while it waits.
func (r *ReceivedDatagram) memoryCost() unit.Bytes {
	return unit.Bytes(len(r.Bytes)+len(r.Text)+len(r.Addr.Name)) + datagramCost
}

// ID is the flow's number.
func (f *Flow) ID() wire.FlowID { return f.id }

// Err is why the flow has ended, a wire.Reset, or nil.
func (f *Flow) Err() error { return f.err }

// Redundant reports whether each datagram is sent on two paths.
func (f *Flow) Redundant() bool { return f.redundant }

// SetRedundant lets each datagram be sent on two paths, in both directions, or
// on one. It takes effect before the first datagram is sent.
func (f *Flow) SetRedundant(on bool) {
	if f.nextNumber == 0 {
		f.redundant = on
	}
}

// Send queues a datagram to, or from, an address. It copies p. One that finds
// no room, or cannot leave soon, is dropped without a word. After the end of
// the flow it returns why it ended.
func (f *Flow) Send(addr wire.Addr, p []byte, now time.Time) error {
	if f.err != nil {
		return f.err
	}
	if len(p) > wire.MaxDatagram {
		return wire.ErrTooLarge
	}
	frame := wire.Append(nil, wire.Datagram{Flow: f.id, Number: f.nextNumber, Redundant: f.redundant, Group: f.group, Addr: addr, Bytes: p})
	if len(frame) > wire.HeaderLen+wire.MaxPayload {
		return wire.ErrTooLarge
	}
	f.nextNumber++
	f.markUsed(addr, now)
	f.enqueueFrame(datagram{frame: frame, payloadSize: unit.Bytes(len(p)), queuedAt: now})
	return nil
}

// SetGroup puts the flow into a group of the plan, in both directions. It takes
// effect before the first datagram is sent.
func (f *Flow) SetGroup(g wire.GroupID) {
	if f.nextNumber == 0 {
		f.group = g
	}
}

func (f *Flow) markUsed(addr wire.Addr, now time.Time) {
	f.lastUsed = now
	f.onlyDNS = f.onlyDNS && addr.Port == 53
}

// enqueueFrame gives each leg that shall have it a frame.
func (f *Flow) enqueueFrame(q datagram) {
	t, now := f.table, q.queuedAt
	q.sentOn = new(wire.SubflowID)
	for i := range f.legs {
		l := &f.legs[i]
		if i > 0 && !f.redundant {
			break
		}
		t.pinLeg(l, now)
		if l.subflow == nil && (i > 0 || l.otherLegSubflow() != nil) {
			continue // no second subflow
		}
		cost := unit.Bytes(len(q.frame)) + datagramCost
		for l.bytes+cost > maxLegQueue {
			l.dropOldest()
		}
		if t.outBytes+cost > maxFlowBytes || !t.memory.take(cost) {
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

// Receive returns the next datagram or refusal. Without one it returns false,
// and the reason if the flow has ended.
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

// Discard drops what was received and will not be read.
func (f *Flow) Discard() {
	f.releaseReceived(f.inBytes)
	f.in = nil
}

// releaseReceived counts n bytes as received no longer.
func (f *Flow) releaseReceived(n unit.Bytes) {
	f.inBytes -= n
	f.table.inBytes -= n
	f.table.memory.release(n)
}

// Refuse tells the other end that datagrams to an address do not get there. It
// sets the flow's number.
func (f *Flow) Refuse(r wire.FlowRefused) {
	if f.err == nil {
		r.Flow = f.id
		f.table.control.queueNotice(r)
	}
}

// End ends the flow at both ends. What was sent before still leaves.
func (f *Flow) End(code wire.Code, text string, now time.Time) {
	if f.err != nil {
		return
	}
	// On the leg, so that it does not overtake datagrams.
	f.enqueueFrame(datagram{frame: wire.Append(nil, wire.FlowEnd{Flow: f.id, Code: code, Text: text}), queuedAt: now})
	f.failFlow(wire.Reset{Code: code, Text: text}, now)
}

// failFlow ends the flow at this end.
func (f *Flow) failFlow(why wire.Reset, now time.Time) {
	if f.err != nil {
		return
	}
	f.err = why
	delete(f.table.all, f.id)
	f.table.trace.emitAt(now, trace.Event{Kind: trace.FlowClose, Flow: uint64(f.id), Count: uint64(f.stats.Sent + f.stats.Received), Reason: why.Error()})
	f.table.notifyChange(f)
}

// hand lets r be received, if there is room.
func (f *Flow) deliverDatagram(r ReceivedDatagram) {
	cost := r.memoryCost()
	if f.inBytes+cost > maxLegQueue || f.table.inBytes+cost > maxFlowBytes || !f.table.memory.take(cost) {
		f.stats.Dropped++
		f.table.stats.DatagramsDropped++
		return
	}
	f.stats.Received++
	f.stats.ReceivedBytes += unit.Bytes(len(r.Bytes))
	f.in = append(f.in, r)
	f.inBytes += cost
	f.table.inBytes += cost
	f.table.notifyChange(f)
}
