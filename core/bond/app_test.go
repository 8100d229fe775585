// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"errors"
	"fmt"
	"io"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// transfer is one stream of a test: bytes in one direction or both.
type transfer struct {
	size int  // bytes of the main direction
	up   bool // the main direction is from the opener
	talk [2]talk

	mode  wire.Mode
	group wire.GroupID
	only  wire.SubflowID // both ends bind it; 0: they do not
	await int            // see streamPlan

	id    wire.StreamID
	s     [2]*Stream
	apps  [2]*simApp
	read  int          // of the main direction
	done  time.Time    // when its end was read
	reset [2]wire.Code // by which app, if any
	ended bool
}

// talk is how the app at one end behaves. Zero: it reads as fast as it can,
// writes nothing and closes.
type talk struct {
	Bytes     int           // to write
	WriteRate unit.Rate     // 0: as fast as there is room
	ReadRate  unit.Rate     // 0: as fast as it arrives
	Delay     time.Duration // before it writes, from the stream's beginning at this end
	AfterEOF  bool          // it writes when it has read the other's end
	CloseLate time.Duration // how long after its last byte it closes
	PauseAt   time.Duration // it does not read for Pause, from here on
	Pause     time.Duration
	Hold      time.Duration // it consumes what it has read that much later
	ResetAt   time.Duration // it resets the stream; 0: never
}

// quantum is how often an app with a rate writes or reads.
const quantum = 20 * time.Millisecond

// simApp is the app at one end of a stream. It acts only when the bond says
// that something changed for it, and by its own timers.
type simApp struct {
	n     *simNet
	d     int
	s     *Stream
	tr    *transfer
	since time.Time

	awake, over         bool
	sent, got           int
	closed, eof, opened bool
	writeAt, readAt     time.Time // not before
	closeAt             time.Time
	held                [][]byte // seen by Slices and not consumed
	timer               [2]time.Time
}

// open lets the opener open a stream.
func (n *simNet) open(tr *transfer) {
	s, err := n.ends[0].OpenStream(fmt.Sprintf("host:%d", len(n.transfers)))
	if err != nil {
		n.fatal("open: %v", err)
	}
	s.SetMode(tr.mode)
	s.SetGroup(tr.group)
	tr.id = s.ID()
	if int(tr.id) != len(n.transfers) {
		n.fatal("stream %d is called %d", len(n.transfers), tr.id)
	}
	n.transfers = append(n.transfers, tr)
	n.newApp(tr, 0, s)
}

// accept takes a stream at the acceptor.
func (n *simNet) accept(s *Stream) {
	id := int(s.ID())
	if s.ID() == n.foreign {
		return
	}
	if id >= len(n.transfers) || n.transfers[id] == nil {
		n.fatal("stream %d is accepted, which nobody opened", id)
	}
	tr := n.transfers[id]
	if tr.apps[1] != nil {
		n.fatal("stream %d is accepted twice", id)
	}
	if want := fmt.Sprintf("host:%d", id); s.Dest() != want {
		n.fatal("stream %d is for %q, not %q", id, s.Dest(), want)
	}
	n.newApp(tr, 1, s)
	s.SetOpened()
}

func (n *simNet) newApp(tr *transfer, d int, s *Stream) {
	a := &simApp{n: n, d: d, s: s, tr: tr, since: n.now}
	tr.apps[d], tr.s[d], s.User = a, s, a
	if tr.only != 0 && !s.BindToSubflow(tr.only) {
		n.fatal("stream %d is not bound to subflow %d", s.ID(), tr.only)
	}
	if r := tr.talk[d].ResetAt; r > 0 {
		n.at(n.now.Add(r), d, a.reset)
	}
	a.wake()
}

func (a *simApp) wake() {
	if !a.awake {
		a.awake = true
		a.n.woken[a.d] = append(a.n.woken[a.d], a)
	}
}

// sleep wakes the app again at a time; i distinguishes its two timers.
func (a *simApp) sleep(i int, until time.Time) {
	if a.timer[i].Equal(until) {
		return
	}
	a.timer[i] = until
	a.n.at(until, a.d, a.wake)
}

func (a *simApp) run() {
	if a.over {
		return
	}
	if err := a.s.Err(); err != nil {
		a.failed(err)
		return
	}
	if a.d == 0 && a.tr.await > 0 {
		a.s.RequestChunk(unit.Bytes(a.tr.await - a.got%a.tr.await))
	}
	a.opened = a.opened || a.s.Opened()
	if a.d == 0 && a.opened && a.tr.apps[1] == nil {
		a.n.fatal("stream %d counts as opened before it is", a.tr.id)
	}
	a.write()
	a.readAll()
	if a.eof && a.closed {
		a.end()
	}
}

func (a *simApp) write() {
	t := &a.tr.talk[a.d]
	if a.closed || t.AfterEOF && !a.eof {
		return
	}
	if at := a.since.Add(t.Delay); a.writeAt.Before(at) {
		a.writeAt = at
	}
	if a.n.now.Before(a.writeAt) {
		a.sleep(0, a.writeAt)
		return
	}
	for a.sent < t.Bytes {
		k := min(64<<10, t.Bytes-a.sent, a.s.Room())
		if t.WriteRate > 0 {
			k = min(k, max(1, int(t.WriteRate.Bytes(quantum))))
		}
		if k == 0 {
			return
		}
		if got := a.s.Write(a.n.fillPattern(a.tr.id, a.d, a.sent, k)); got != k {
			a.n.fatal("stream %d: wrote %d of %d though there was room", a.tr.id, got, k)
		}
		if a.sent += k; t.WriteRate > 0 && a.sent < t.Bytes {
			a.writeAt = a.n.now.Add(quantum)
			a.sleep(0, a.writeAt)
			return
		}
	}
	if a.closeAt.IsZero() {
		a.closeAt = a.n.now.Add(t.CloseLate)
	}
	if a.n.now.Before(a.closeAt) {
		a.sleep(0, a.closeAt)
		return
	}
	a.closed = true
	a.s.CloseWrite()
}

func (a *simApp) readAll() {
	t := &a.tr.talk[a.d]
	for !a.eof {
		if p := a.since.Add(t.PauseAt); t.Pause > 0 && !a.n.now.Before(p) && a.n.now.Before(p.Add(t.Pause)) {
			a.sleep(1, p.Add(t.Pause))
			return
		}
		if a.n.now.Before(a.readAt) {
			a.sleep(1, a.readAt)
			return
		}
		if a.held != nil {
			a.consume()
		}
		limit := 64 << 10
		if t.ReadRate > 0 {
			limit = min(limit, max(1, int(t.ReadRate.Bytes(quantum))))
		}
		if t.Hold > 0 && a.s.Readable() > 0 {
			a.s.ReadableSlices(limit, func(b []byte) { a.held = append(a.held, b) })
			a.readAt = a.n.now.Add(t.Hold)
			continue
		}
		k, err := a.s.Read(a.n.scratch[:limit])
		a.checkBytes(a.n.scratch[:k])
		if err == io.EOF {
			a.readEnd()
		} else if err != nil {
			a.failed(err)
			return
		} else if k == 0 {
			return
		}
		if t.ReadRate > 0 && !a.eof {
			a.readAt = a.n.now.Add(quantum)
		}
	}
}

// consume checks and frees what Slices has shown before.
func (a *simApp) consume() {
	total := 0
	for _, b := range a.held {
		a.checkBytes(b)
		total += len(b)
	}
	a.held = nil
	a.s.Consume(total)
}

// checkBytes takes bytes that were read.
func (a *simApp) checkBytes(b []byte) {
	if len(b) == 0 {
		return
	}
	a.n.checkPattern(a.tr.id, 1-a.d, a.got, b)
	a.n.addEntry(entry{end: a.d, stream: a.tr.id, dir: 1 - a.d, from: wire.DataSeq(a.got),
		to: wire.DataSeq(a.got + len(b)), text: "app reads"})
	a.got += len(b)
	if a.isRequester() {
		a.tr.read = a.got
	}
}

// isRequester reports whether this app reads the main direction.
func (a *simApp) isRequester() bool { return a.tr.up == (a.d == 1) }

func (a *simApp) readEnd() {
	from := a.tr.apps[1-a.d]
	if from == nil || !from.closed || a.got != a.tr.talk[1-a.d].Bytes {
		a.n.fail(focus{a.tr.id, 1 - a.d, wire.DataSeq(a.got), wire.DataSeq(a.got + 1)}, "stream %d from %s ends at %d of %d",
			a.tr.id, endNames[1-a.d], a.got, a.tr.talk[1-a.d].Bytes)
	}
	a.eof = true
	a.n.addEntry(entry{end: a.d, stream: a.tr.id, dir: 1 - a.d, from: wire.DataSeq(a.got), to: wire.DataSeq(a.got),
		text: "app reads the end"})
	if a.isRequester() {
		a.tr.done = a.n.now
	}
	a.wake() // to answer
}

// reset ends the stream from this end's app.
func (a *simApp) reset() {
	if a.over {
		return
	}
	a.n.addEntry(entry{end: a.d, stream: a.tr.id, text: "app resets"})
	a.tr.reset[a.d] = wire.CodeConnReset
	a.s.Reset(wire.CodeConnReset, endNames[a.d])
	a.end()
}

// failed takes the end of a stream that was reset.
func (a *simApp) failed(err error) {
	var r wire.Reset
	if a.tr.only != 0 && errors.As(err, &r) && r.Code == wire.CodeUnreachable {
		a.end() // with its subflow
		return
	}
	if !errors.As(err, &r) || a.tr.reset[1-a.d] != r.Code || r.Text != endNames[1-a.d] {
		a.n.fatal("stream %d ends at %s with %v; resets by the apps: %v", a.tr.id, endNames[a.d], err, a.tr.reset)
	}
	at := a.got
	for _, b := range a.held { // they stay as they are
		a.n.checkPattern(a.tr.id, 1-a.d, at, b)
		at += len(b)
	}
	a.end()
}

func (a *simApp) end() {
	if a.over {
		return
	}
	a.over = true
	b := a.tr.apps[1]
	if tr := a.tr; !tr.ended && tr.apps[0].over && (b == nil || b.over) {
		tr.ended = true
		a.n.over++
	}
}

// carry opens streams that carry bytes one way; the other direction is closed
// at once.
func (n *simNet) carry(list []*transfer) (done func() bool) {
	for _, tr := range list {
		from := 1
		if tr.up {
			from = 0
		}
		tr.talk[from].Bytes = tr.size
		n.open(tr)
	}
	n.dirty[0] = true
	return func() bool {
		for _, tr := range list {
			if tr.done.IsZero() {
				return false
			}
		}
		return true
	}
}

// unfinished describes what the transfers wait for.
func (n *simNet) unfinished() (text string) {
	for _, tr := range n.transfers {
		if tr == nil || tr.ended {
			continue
		}
		text += fmt.Sprintf("\n  stream %d:", tr.id)
		for d, a := range tr.apps {
			if a == nil {
				text += " not accepted;"
			} else {
				text += fmt.Sprintf(" %s wrote %d of %d, closed %v, read %d of %d, end read %v;", endNames[d],
					a.sent, tr.talk[d].Bytes, a.closed, a.got, tr.talk[1-d].Bytes, a.eof)
			}
		}
	}
	for _, p := range n.subflows {
		for d, b := range n.ends {
			if q := b.subflows.subflowByID(p.id); q != nil {
				text += fmt.Sprintf("\n  subflow %d at %s: idle %v, silent %v, %d frames in flight, %v; hops hold", p.id,
					endNames[d], q.idle, q.isSilent(), q.inFlight.len(), q.est.EstimateAt(n.now))
				for _, h := range p.hops[d] {
					text += fmt.Sprintf(" %d", h.written-h.acked)
				}
				text += fmt.Sprintf(", %d segments wait at the helper", len(p.waiting[d]))
			}
		}
	}
	for d, b := range n.ends {
		text += fmt.Sprintf("\n  %s: %v pending, %d control frames, ack pending %v, "+
			"last decision %+v, tick %v", endNames[d], b.backlog.pending, len(b.control.frames), b.acks.pending,
			b.trace.last, b.timer.next.Sub(simStart))
	}
	return text
}
