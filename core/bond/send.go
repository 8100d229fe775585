package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

// Next takes the next decision: it appends to buf a segment, which is to be
// written whole to the subflow it names, and marks that subflow busy. Without
// a segment to send now it returns 0: after the next event (a frame received,
// a subflow idle, bytes written, a tick) it is worth asking again. Who writes the
// segment asks Begun first.
func (b *Bond) Next(now time.Time, buf []byte) (wire.PathID, []byte) {
	if p := b.acks.dueOn(now); p != nil {
		start := len(buf)
		p.startWatch(now)
		buf = p.appendUnreliable(buf, b.acks.frame(p, now))
		b.gave(p, len(buf)-start, now)
		return p.id, buf
	}
	if b.backlog.scheduled(b.subflows.list) || b.overdue(now) {
		b.rebalance(now)
	}
	// Control frames and acks go by the quickest subflow, or by an idle one that
	// is nearly as quick; if there is none they wait a moment.
	b.filter.refreshSmall(now)
	var onTime, any quickest // a late helper carries them only where all are late
	view := b.schedView[:0]
	live, timely, idle := 0, 0, false
	for _, p := range b.subflows.list {
		if !p.silent() {
			live++
			if p.inFlight.tooLate == 0 {
				timely++
			}
		}
	}
	if live < 2 {
		b.avoid = 0
	}
	for _, p := range b.subflows.list {
		if p.silent() && live > 0 {
			continue
		}
		n := p.est.At(now)
		idle = idle || p.idle
		if b.filter.permitsSmall(p) {
			any.offer(p, n.PAD)
			if n.Late == 0 {
				onTime.offer(p, n.PAD)
			}
		}
		if p.id != b.avoid && (timely == 0 || p.inFlight.tooLate == 0) {
			v := p.schedulerView(n, now)
			v.Idle = v.Idle && (b.backlog.pending == 0 || !p.holdsBulk(n, now, &b.timer))
			view = append(view, v)
		}
	}
	b.schedView = view
	if !idle {
		return 0, buf
	}
	carrier := onTime.carrier()
	if !onTime.found {
		carrier = any.carrier()
	}
	t := b.choose(now, view)
	p := t.path
	if carrier != nil && (!b.control.empty() || b.acks.due(now)) {
		p = carrier
	}
	if p == nil {
		p = b.subflows.probeTarget()
	}
	if p == nil {
		return 0, buf
	}
	p.startWatch(now)
	start := len(buf)
	if p == carrier {
		buf = b.fillControl(p, now, buf)
	}
	only := t.kind == bulk && len(buf) == start
	if p == t.path {
		switch t.kind {
		case datagrams:
			buf = b.flows.fill(p, &b.backlog, now, buf)
		case express:
			buf = b.fillExpress(p, t.stream, now, buf)
		case copies:
			buf = b.fillCopies(p, now, buf)
		case bulk:
			buf = b.fillData(p, t, now, buf)
		}
	}
	only = only && !p.probeDue
	buf = p.appendProbe(buf)
	n := len(buf) - start
	if n == 0 {
		return 0, buf
	}
	b.gave(p, n, now)
	if only {
		p.unwritten = unit.Bytes(n)
	}
	return p.id, buf
}

// startWatch starts the watch for silence of a subflow that had nothing in flight.
func (p *subflow) startWatch(now time.Time) {
	if p.inFlight.len() == 0 {
		p.lastProgress = now
	}
	if p.est.Hop().Queue == 0 {
		p.lastHopProgress = now
	}
}

// gave tells that n bytes are for path p.
func (b *Bond) gave(p *subflow, n int, now time.Time) {
	p.est.Sent(now, unit.Bytes(n))
	b.acks.sent(p, n, now)
	p.settleIdle(now)
	p.idle, p.lastActive, p.lastSent, p.unwritten, p.withdrawn = false, now, now, 0, false
	b.timer.wakeAt(now.Add(probeEvery))
}

// turn is what the next segment is filled with, and for which path; nil is none.
type turn struct {
	path     *subflow
	kind     turnKind
	stream   *Stream        // express, bulk
	decision sched.Decision // bulk
}

type turnKind uint8

const (
	datagrams turnKind = iota
	express            // of a stream that must not wait
	copies             // of what other subflows carry
	bulk               // as the scheduler says
)

// choose decides whose turn is next, the most urgent first. Datagrams that came
// faster than a network would take them take turns with streams.
func (b *Bond) choose(now time.Time, view []sched.Path) turn {
	var flow *subflow
	if l := b.flows.next(now); l != nil {
		if flow = l.subflow; !b.flows.streamsFirst(l, &b.backlog) {
			return turn{path: flow, kind: datagrams}.bounded()
		}
	}
	var t turn
	if p, s := b.expressStream(now); p != nil {
		t = turn{path: p, kind: express, stream: s}
	} else if p := b.copyTarget(now); p != nil {
		t = turn{path: p, kind: copies}
	} else if len(b.backlog.ready) > 0 {
		t = b.bulkTurn(now, view)
	}
	if flow != nil && flow != t.path {
		t = turn{path: flow, kind: datagrams}
	}
	return t.bounded()
}

// bounded is no turn for a path whose other end acknowledges nothing: what is
// noted of each frame would take ever more memory.
func (t turn) bounded() turn {
	if t.path != nil && t.path.inFlight.len() > maxUntold {
		return turn{}
	}
	return t
}

// fillControl appends what must be told: control frames, acknowledgements and
// relayed reports.
func (b *Bond) fillControl(p *subflow, now time.Time, buf []byte) []byte {
	if len(buf) <= maxSegment {
		b.control.takeFrames(func(c control, again bool) bool {
			f := b.frame(c)
			if f == nil {
				return true
			}
			at := len(buf)
			buf = wire.Append(buf, f)
			note := sentFrame{frameType: c.t, stream: c.s, repeated: again, copied: c.t == wire.TypeFin && c.s.finRecalled}
			if t, ok := f.(wire.Treat); ok {
				note.from, note.to = wire.DataSeq(t.Serial), wire.DataSeq(t.Serial)
			}
			p.noteFrame(len(buf)-at, note)
			return len(buf) <= maxSegment
		})
	}
	if b.acks.pending {
		buf = p.appendUnreliable(buf, b.acks.frame(p, now))
	}
	for _, q := range b.subflows.list {
		if now.Sub(q.relayAt) <= relayWithin {
			buf = p.appendUnreliable(buf, q.relay)
		}
		q.relayAt = time.Time{}
	}
	if len(buf) <= maxSegment {
		b.control.takeNotices(func(f wire.Frame) bool {
			buf = p.appendUnreliable(buf, f)
			return len(buf) <= maxSegment
		})
	}
	return buf
}

// appendUnreliable appends a frame that is not sent again when it is lost.
func (p *subflow) appendUnreliable(buf []byte, f wire.Frame) []byte {
	at := len(buf)
	buf = wire.Append(buf, f)
	p.bytesSent += uint64(len(buf) - at)
	return buf
}

// noteFrame remembers a reliable frame of n bytes as in flight. It returns the
// subflow's byte count after it.
func (p *subflow) noteFrame(n int, f sentFrame) uint64 {
	p.bytesSent += uint64(n)
	f.end = p.bytesSent
	p.streamBytesSent += unit.Bytes(f.to - f.from)
	p.inFlight.push(f)
	return f.end
}

// frame makes the frame, or nil if it has become pointless.
func (b *Bond) frame(c control) wire.Frame {
	s := c.s
	switch c.t {
	case wire.TypeBye:
		return wire.Bye{}
	case wire.TypePlan:
		return b.classes.frame()
	}
	if c.t == wire.TypeReset {
		r, _ := s.err.(wire.Reset)
		return r
	}
	if s.err != nil {
		return nil
	}
	switch c.t {
	case wire.TypeOpen:
		return wire.Open{Stream: s.id, Mode: s.route.mode, Group: s.route.group, Dest: s.dest}
	case wire.TypeOpened:
		return wire.Opened{Stream: s.id}
	case wire.TypeFin:
		return wire.Fin{Stream: s.id, Seq: s.send.end}
	case wire.TypeChunk:
		return wire.Chunk{Stream: s.id, End: s.wanted}
	case wire.TypeWindow:
		return wire.Window{Stream: s.id, Limit: s.reassembly.limit}
	case wire.TypeTreat:
		return wire.Treat{Stream: s.id, Serial: s.groups.serial, Mode: s.route.mode, Group: s.route.group}
	}
	return nil
}

// Bye tells the other end that this one gives up the bond.
func (b *Bond) Bye() { b.control.add(nil, wire.TypeBye) }

// Told reports that the other end has acknowledged every control frame.
func (b *Bond) Told() bool {
	for _, p := range b.subflows.list {
		for _, f := range p.inFlight.all() {
			if f.frameType != wire.TypeData && f.frameType != wire.TypeDatagram && !f.recalled {
				return false
			}
		}
	}
	return len(b.control.frames) == 0
}

// fillData appends a segment of stream bytes for path p.
//
// d.Diff is what quicker subflows will take before p delivers (PAMS). So p is
// given bytes from that far ahead in the meta buffer, not the next ones:
// then they arrive about when they are needed, little waits for reassembly, and
// what a slow subflow loses is not what the app waits for.
func (b *Bond) fillData(p *subflow, t turn, now time.Time, buf []byte) []byte {
	l := &b.backlog
	l.moveToFront(t.stream)
	f := fill{room: p.segmentSize(now), copies: t.decision.Copy, fromEnd: b.avoid != 0,
		ahead: l.share(t.decision.Diff, t.stream)} // streams share the quicker subflows
	p.streamsFirst = false
	redundant := len(l.ready) > 0 && l.ready[0].route.mode == wire.Redundant
	for i, n := 0, len(l.ready); n > 0 && f.room > wire.MaxDataHeader; n-- {
		s := l.ready[i]
		if (s.route.mode == wire.Redundant) != redundant {
			break
		}
		if i > 0 || n < len(l.ready) { // the scheduler was asked about the first one
			b.refreshRoute(s, now)
		}
		if !b.filter.permits(&s.route, p.id) {
			i++
			continue
		}
		l.ready = append(l.ready[:i], l.ready[i+1:]...)
		// It goes to the end of the turn while it has more.
		buf, f.room = b.fillStream(p, s, f, now, buf)
		if f.room > wire.MaxDataHeader && len(s.send.unsent) > 0 {
			b.blocked++
		}
	}
	return buf
}

// quickest is the quickest of some subflows, and the quickest of those that are idle.
type quickest struct {
	found     bool
	least     time.Duration // PAD of the quickest
	idle      *subflow
	idleLeast time.Duration // PAD of idle
}

func (q *quickest) offer(p *subflow, pad time.Duration) {
	if !q.found || pad < q.least {
		q.found, q.least = true, pad
	}
	if p.idle && (q.idle == nil || pad < q.idleLeast) {
		q.idle, q.idleLeast = p, pad
	}
}

// carrier returns the idle subflow, or nil if there is none that is nearly as quick as the
// quickest.
func (q *quickest) carrier() *subflow {
	if q.idleLeast > q.least*5/4+5*time.Millisecond {
		return nil
	}
	return q.idle
}
