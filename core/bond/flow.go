package bond

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Datagram flows. A flow is pinned to the path of least delay, so that this end
// never re-orders it; it moves
//
//   - when its path is gone or silent: at once, with what waits;
//   - when another path has been clearly quicker for a while (patience).
//
// Only around a move may datagrams overtake each other. Those that cannot leave
// within a moment are dropped, oldest first, as a router with a short queue
// would; nothing is sent twice, except by a redundant flow, which has two legs
// on different paths and whose later copies the receiver drops. Where only one
// path is left, one leg has none; no path carries both copies of a datagram,
// also when legs move while some wait.
const (
	defaultMaxFlows = 1024
	// flowIdle ends unused flows, at the accepting end a little later so that
	// both agree (RFC 4787 section 4.3: at least two minutes, five recommended;
	// well-known ports may have less).
	flowIdle    = 5 * time.Minute
	flowIdleDNS = 30 * time.Second
	flowGrace   = 20 * time.Second

	sojourn      = 200 * time.Millisecond // a datagram leaves within this time or not at all
	maxLegQueue  = 512 * unit.KB
	maxFlowBytes = 16 * unit.MB // of all flows, in each direction
	maxNotices   = 256
	datagramCost = 128 // what a queued datagram takes besides its bytes

	// Another path is clearly quicker if a datagram saves a quarter of its
	// delay and clearlyQuicker on it, for as long as patience.
	clearlyQuicker = 10 * time.Millisecond
	patience       = time.Second
)

// Flow is one datagram flow inside a bond, seen from one end. Like its bond it
// is not safe for concurrent use.
type Flow struct {
	// User is for the owner of the bond.
	User any

	id        wire.FlowID
	bond      *Bond
	redundant bool
	group     wire.GroupID
	legs      [2]leg // the second one is of redundant flows
	next      uint64 // number of the next datagram
	err       error
	used      time.Time // of the last datagram
	onlyDNS   bool      // every datagram so far was to port 53
	stats     FlowStats

	in        []Received
	inBytes   unit.Bytes
	got       numbers
	inChanged bool
}

// FlowStats counts the datagrams of a flow at one end.
type FlowStats struct {
	Sent, Received int // given to a path; handed over to be received
	// SentBytes and ReceivedBytes are what was in these, a copy not counted.
	SentBytes, ReceivedBytes unit.Bytes
	// Dropped waited too long or found no room, at this end.
	Dropped int
	// Duplicate came a second time, as those of redundant flows do.
	Duplicate int
	Moves     int
}

// Received is a datagram that arrived, or the news that some were refused.
type Received struct {
	Addr    wire.Addr // where it came from, or is refused to be sent to
	Bytes   []byte
	Refused bool
	Code    wire.Code // valid, with MTU and Text, if Refused: see wire.FlowRefused
	MTU     uint16
	Text    string
}

// cost is what it takes while it waits.
func (r *Received) cost() unit.Bytes {
	return unit.Bytes(len(r.Bytes)+len(r.Text)+len(r.Addr.Name)) + datagramCost
}

// leg is a flow's queue to the path it is pinned to.
type leg struct {
	f *Flow
	pin
	q       []queued
	bytes   unit.Bytes
	inReady bool
	pinned  bool   // it has had a path
	had     uint64 // see turns
	bulk    bool   // more waits than what a network would keep: it takes turns with streams
}

// queued is a frame that waits, encoded.
type queued struct {
	frame []byte
	data  unit.Bytes // of it, those of an app
	at    time.Time
	went  *wire.PathID // the path that carries a copy of it, or 0; all copies share it
}

// flows is the bond's part that is about datagrams.
type flows struct {
	all      map[wire.FlowID]*Flow
	next     wire.FlowID // the opening end's newest
	seen     numbers     // the accepting end's: a number is used once
	accepted []*Flow
	changed  []*Flow
	ready    []*leg // with something queued, in turn
	out, in  unit.Bytes
	notices  []wire.Frame // FLOW_END, FLOW_REFUSED and CHOICE to be sent, once
	check    time.Time    // when unused ones are looked for
}

// OpenFlow makes a flow. Only the end that opens may call it. A redundant flow
// sends everything on two paths, in both directions.
func (b *Bond) OpenFlow(redundant bool, now time.Time) (*Flow, error) {
	if len(b.flows.all) >= b.cfg.MaxFlows && !b.evict(now) {
		return nil, wire.Reset{Code: wire.CodeLimit, Text: fmt.Sprintf("%d datagram flows are in use, which is the limit", len(b.flows.all))}
	}
	b.flows.next++
	return b.newFlow(b.flows.next, redundant, now), nil
}

func (b *Bond) newFlow(id wire.FlowID, redundant bool, now time.Time) *Flow {
	f := &Flow{id: id, bond: b, redundant: redundant, used: now, onlyDNS: true}
	for i := range f.legs {
		f.legs[i].f = f
	}
	if b.flows.all == nil {
		b.flows.all = map[wire.FlowID]*Flow{}
	}
	b.flows.all[id] = f
	b.stats.FlowsTotal++
	b.trace.at(now, trace.Event{Kind: trace.FlowOpen, Flow: uint64(id)})
	b.wakeForFlows(now)
	return f
}

// AcceptFlow returns a flow that the other end has opened, or nil.
func (b *Bond) AcceptFlow() *Flow {
	if len(b.flows.accepted) == 0 {
		return nil
	}
	f := b.flows.accepted[0]
	b.flows.accepted = b.flows.accepted[1:]
	return f
}

// ChangedFlow returns a flow that has something to be received, or has ended,
// since it was last returned, or nil.
func (b *Bond) ChangedFlow() *Flow {
	if len(b.flows.changed) == 0 {
		return nil
	}
	f := b.flows.changed[0]
	b.flows.changed = b.flows.changed[1:]
	f.inChanged = false
	return f
}

func (b *Bond) notifyFlow(f *Flow) {
	if !f.inChanged {
		f.inChanged = true
		b.flows.changed = append(b.flows.changed, f)
	}
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
	if f.next == 0 {
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
	frame := wire.Append(nil, wire.Datagram{Flow: f.id, Number: f.next, Redundant: f.redundant, Group: f.group, Addr: addr, Bytes: p})
	if len(frame) > wire.HeaderLen+wire.MaxPayload {
		return wire.ErrTooLarge
	}
	f.next++
	f.touch(addr, now)
	f.enqueue(queued{frame: frame, data: unit.Bytes(len(p)), at: now})
	return nil
}

// SetGroup puts the flow into a group of the plan, in both directions. It takes
// effect before the first datagram is sent.
func (f *Flow) SetGroup(g wire.GroupID) {
	if f.next == 0 {
		f.group = g
	}
}

func (f *Flow) touch(addr wire.Addr, now time.Time) {
	f.used = now
	f.onlyDNS = f.onlyDNS && addr.Port == 53
}

// enqueue gives each leg that shall have it a frame.
func (f *Flow) enqueue(q queued) {
	b, now := f.bond, q.at
	q.went = new(wire.PathID)
	for i := range f.legs {
		l := &f.legs[i]
		if i > 0 && !f.redundant {
			break
		}
		b.pin(l, now)
		if l.path == nil && (i > 0 || l.taken() != nil) {
			continue // no second path
		}
		cost := unit.Bytes(len(q.frame)) + datagramCost
		for l.bytes+cost > maxLegQueue {
			l.drop()
		}
		if b.flows.out+cost > maxFlowBytes || !b.memory.take(cost) {
			f.stats.Dropped++
			b.stats.DatagramsDropped++
			continue
		}
		l.q = append(l.q, q)
		l.bytes += cost
		b.flows.out += cost
		if l.path != nil && !l.bulk {
			l.path.extendLowLatency(now.Add(expressFor))
		}
		if !l.inReady {
			l.inReady = true
			b.enqueueLeg(l)
		}
	}
}

// take removes the oldest frame.
func (l *leg) take() queued {
	q := l.q[0]
	l.q[0] = queued{}
	if l.q = l.q[1:]; len(l.q) == 0 {
		l.q, l.bulk = nil, false
	}
	l.uncount(q)
	return q
}

// uncount tells that a frame waits no longer.
func (l *leg) uncount(q queued) {
	cost := unit.Bytes(len(q.frame)) + datagramCost
	l.bytes -= cost
	l.f.bond.flows.out -= cost
	l.f.bond.memory.give(cost)
}

// drop drops the oldest frame, which counts if no copy of it was sent.
func (l *leg) drop() {
	if *l.take().went == 0 {
		l.f.stats.Dropped++
		l.f.bond.stats.DatagramsDropped++
	}
}

// Receive returns the next datagram or refusal. Without one it returns false,
// and the reason if the flow has ended.
func (f *Flow) Receive() (r Received, ok bool, err error) {
	if len(f.in) == 0 {
		return r, false, f.err
	}
	r = f.in[0]
	f.in[0] = Received{}
	if f.in = f.in[1:]; len(f.in) == 0 {
		f.in = nil
	}
	f.release(r.cost())
	return r, true, nil
}

// Discard drops what was received and will not be read.
func (f *Flow) Discard() {
	f.release(f.inBytes)
	f.in = nil
}

// release counts n bytes as received no longer.
func (f *Flow) release(n unit.Bytes) {
	f.inBytes -= n
	f.bond.flows.in -= n
	f.bond.memory.give(n)
}

// Refuse tells the other end that datagrams to an address do not get there. It
// sets the flow's number.
func (f *Flow) Refuse(r wire.FlowRefused) {
	if f.err == nil {
		r.Flow = f.id
		f.bond.notice(r)
	}
}

// notice lets a frame be sent that may get lost.
func (b *Bond) notice(f wire.Frame) {
	if len(b.flows.notices) < maxNotices {
		b.flows.notices = append(b.flows.notices, f)
	}
}

// End ends the flow at both ends. What was sent before still leaves.
func (f *Flow) End(code wire.Code, text string, now time.Time) {
	if f.err != nil {
		return
	}
	// On the leg, so that it does not overtake datagrams.
	f.enqueue(queued{frame: wire.Append(nil, wire.FlowEnd{Flow: f.id, Code: code, Text: text}), at: now})
	f.fail(wire.Reset{Code: code, Text: text}, now)
}

// fail ends the flow at this end.
func (f *Flow) fail(why wire.Reset, now time.Time) {
	if f.err != nil {
		return
	}
	f.err = why
	delete(f.bond.flows.all, f.id)
	f.bond.trace.at(now, trace.Event{Kind: trace.FlowClose, Flow: uint64(f.id), Count: uint64(f.stats.Sent + f.stats.Received), Reason: why.Error()})
	f.bond.notifyFlow(f)
}

// evict makes room by ending the flow that was unused for longest, if that is
// long enough.
func (b *Bond) evict(now time.Time) bool {
	var oldest *Flow
	for _, f := range b.flows.all {
		if oldest == nil || f.used.Before(oldest.used) {
			oldest = f
		}
	}
	if oldest == nil || now.Sub(oldest.used) < flowIdleDNS {
		return false
	}
	oldest.End(wire.CodeClosed, "it was unused, and others needed its place", now)
	return true
}

// expireFlows ends flows that nobody has used for long.
func (b *Bond) expireFlows(now time.Time) {
	b.dropOld(now)
	if now.Before(b.flows.check) {
		return
	}
	for _, f := range b.flows.all {
		limit := flowIdle
		if f.onlyDNS {
			limit = flowIdleDNS
		}
		if !b.cfg.Opens {
			limit += flowGrace
		}
		if now.Sub(f.used) > limit {
			f.End(wire.CodeClosed, "it was unused for long", now)
		}
	}
	b.flows.check = now.Add(flowIdleDNS / 2)
}

// wakeForFlows asks for the next look at unused flows and old datagrams.
func (b *Bond) wakeForFlows(now time.Time) {
	if len(b.flows.ready) > 0 {
		b.timer.wakeAt(now.Add(sojourn))
	}
	if len(b.flows.all) > 0 {
		if b.flows.check.Before(now) {
			b.flows.check = now.Add(flowIdleDNS / 2)
		}
		b.timer.wakeAt(b.flows.check)
	}
}

// receiveFlow takes a frame about flows.
func (b *Bond) receiveFlow(p *subflow, t wire.Type, payload []byte, now time.Time) error {
	switch t {
	case wire.TypeDatagram:
		d, err := wire.ParseDatagram(payload)
		if err != nil {
			return err
		}
		return b.receiveDatagram(p, d, now)
	case wire.TypeFlowEnd:
		e, err := wire.ParseFlowEnd(payload)
		if err != nil {
			return err
		}
		if f := b.flows.all[e.Flow]; f != nil {
			f.fail(wire.Reset{Code: e.Code, Text: e.Text}, now)
		} else if !b.cfg.Opens {
			b.flows.seen.fresh(uint64(e.Flow)) // it overtook what would open it
		}
		return nil
	}
	r, err := wire.ParseFlowRefused(payload)
	if f := b.flows.all[r.Flow]; err == nil && f != nil {
		f.hand(Received{Addr: r.Addr, Refused: true, Code: r.Code, MTU: r.MTU, Text: r.Text})
	}
	return err
}

func (b *Bond) receiveDatagram(p *subflow, d wire.Datagram, now time.Time) error {
	f := b.flows.all[d.Flow]
	if f == nil {
		if b.cfg.Opens && d.Flow > b.flows.next {
			return fmt.Errorf("flow %d was never opened: %w", d.Flow, wire.ErrMalformed)
		}
		if b.cfg.Opens || !b.flows.seen.fresh(uint64(d.Flow)) {
			b.notice(wire.FlowEnd{Flow: d.Flow, Code: wire.CodeClosed, Text: "it has ended"})
			return nil
		}
		if b.classes.retired(d.Group) {
			return nil // it comes late
		}
		if len(b.flows.all) >= b.cfg.MaxFlows && !b.evict(now) {
			b.notice(wire.FlowEnd{Flow: d.Flow, Code: wire.CodeLimit, Text: fmt.Sprintf("%d datagram flows are in use, which is the limit", len(b.flows.all))})
			return nil
		}
		f = b.newFlow(d.Flow, d.Redundant, now)
		f.group = d.Group
		b.flows.accepted = append(b.flows.accepted, f)
	}
	if !f.got.fresh(d.Number) {
		f.stats.Duplicate++
		b.stats.Duplicate += unit.Bytes(len(d.Bytes))
		return nil
	}
	b.brought(p, now)
	f.touch(d.Addr, now)
	f.hand(Received{Addr: d.Addr, Bytes: append([]byte{}, d.Bytes...)})
	return nil
}

// hand lets r be received, if there is room.
func (f *Flow) hand(r Received) {
	cost := r.cost()
	if f.inBytes+cost > maxLegQueue || f.bond.flows.in+cost > maxFlowBytes || !f.bond.memory.take(cost) {
		f.stats.Dropped++
		f.bond.stats.DatagramsDropped++
		return
	}
	f.stats.Received++
	f.stats.ReceivedBytes += unit.Bytes(len(r.Bytes))
	f.in = append(f.in, r)
	f.inBytes += cost
	f.bond.flows.in += cost
	f.bond.notifyFlow(f)
}

// FlowInfo describes a flow for status output.
type FlowInfo struct {
	ID        wire.FlowID
	Path      wire.PathID // 0: none yet
	Second    wire.PathID // of a redundant flow
	Redundant bool
	Used      time.Time
	User      any
	FlowStats
}

// Flows describes the flows, the one used last first, at most limit of them.
func (b *Bond) Flows(limit int) []FlowInfo {
	list := make([]FlowInfo, 0, len(b.flows.all))
	for _, f := range b.flows.all {
		i := FlowInfo{ID: f.id, Redundant: f.redundant, Used: f.used, User: f.User, FlowStats: f.stats}
		for l := range f.legs {
			if p := f.legs[l].path; p != nil {
				i.Path, i.Second = cmp.Or(i.Path, p.id), p.id
			}
		}
		if i.Second == i.Path {
			i.Second = 0
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(x, y FlowInfo) int { return cmp.Or(y.Used.Compare(x.Used), cmp.Compare(x.ID, y.ID)) })
	return list[:min(len(list), limit)]
}

// FlowCount is how many flows exist.
func (b *Bond) FlowCount() int { return len(b.flows.all) }
