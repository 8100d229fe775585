package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"mpbond/base/event"
	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// A virtual network: a sender and a receiver, which are real bonds, and lanes
// of one or two lines between them.
//
//	sender ══ near ══════════════════ receiver     direct
//	       ══ near ═ helper ═ far ════              helped
//	       ←─────────── back ─────────              acknowledgements

// Constants of the model.
const (
	helperBuffer = 4 * unit.MB // what a helper holds for a subflow
	reportEvery  = 20 * time.Millisecond
	backRate     = unit.Gbps
)

// epoch is when a replay begins: any time will do.
var epoch = time.Unix(1e9, 0)

type network struct {
	now    time.Time
	events event.Queue[func()] // by the time since epoch
	ends   [2]*bond.Bond       // sender, receiver
	ticks  [2]time.Time        // when the next one is planned
	lanes  []*lane
	err    error
}

func (n *network) at(t time.Time, do func()) {
	n.events.Push(t.Sub(epoch), do)
}

// line is one direction of one hop: TCP with a window over a link with a rate.
type line struct {
	net     *network
	Hop     // its rates and windows
	freeAt  time.Time
	cwnd    unit.Bytes
	srtt    time.Duration
	waiting [][]byte   // given, not yet allowed to leave
	unsent  unit.Bytes // their size
	flying  unit.Bytes
	written uint64
	acked   uint64
	room    func() unit.Bytes // at the other end; nil: without limit
	out     func([]byte)
	moved   func() // something was acknowledged
}

func newLine(n *network, h Hop) *line {
	h.Window = max(h.Window, 10*segment)
	if h.FirstWindow == 0 {
		h.FirstWindow = h.Window
	}
	return &line{net: n, Hop: h, freeAt: n.now, cwnd: min(h.FirstWindow, h.Window), srtt: h.RTT}
}

func (l *line) write(seg []byte) {
	l.written += uint64(len(seg))
	l.waiting = append(l.waiting, seg)
	l.unsent += unit.Bytes(len(seg))
	l.pump()
}

// pump lets go what the window allows.
func (l *line) pump() {
	for len(l.waiting) > 0 && l.flying < l.cwnd && (l.room == nil || l.flying < l.room()) {
		seg := l.waiting[0]
		l.waiting = l.waiting[1:]
		size := unit.Bytes(len(seg))
		l.unsent -= size
		l.flying += size
		sent := l.net.now
		left := l.departs(len(seg))
		l.net.at(left.Add(l.RTT/2), func() { l.out(seg) })
		l.net.at(left.Add(l.RTT), func() {
			l.acked += uint64(size)
			l.flying -= size
			l.srtt += (l.net.now.Sub(sent) - l.srtt) / 8
			l.cwnd = min(l.cwnd+size, l.Window) // slow start
			l.pump()
			l.moved()
		})
	}
}

// departs is when size bytes that are ready now have left.
func (l *line) departs(size int) time.Time {
	t := l.net.now
	if l.freeAt.After(t) {
		t = l.freeAt
	}
	bits := float64(size * 8)
	for i, s := range l.Rates {
		last := i+1 == len(l.Rates)
		if !last && !epoch.Add(l.Rates[i+1].At).After(t) {
			continue
		}
		if s.Rate > 0 {
			need := time.Duration(bits / float64(s.Rate) * 1e9)
			if last || !t.Add(need).After(epoch.Add(l.Rates[i+1].At)) {
				l.freeAt = t.Add(need)
				return l.freeAt
			}
			bits -= float64(s.Rate) * epoch.Add(l.Rates[i+1].At).Sub(t).Seconds()
		}
		if last {
			break
		}
		t = epoch.Add(l.Rates[i+1].At)
	}
	l.freeAt = t.Add(1e4 * time.Hour) // never
	return l.freeAt
}

func (l *line) queue() unit.Bytes { return unit.Bytes(l.written - l.acked) }

func (l *line) sample() estimate.Hop {
	return estimate.Hop{SRTT: l.srtt, MinRTT: l.RTT, Cwnd: l.cwnd, SlowStart: l.cwnd < l.Window, MSS: segment,
		Queue: l.queue(), Unsent: l.unsent, Acked: l.acked, AppLimited: l.queue() == 0}
}

// writable is what the kernel reports with TCP_NOTSENT_LOWAT.
func (l *line) writable() bool { return l.unsent < notSent }

// lane is a subflow: first[d] is the line that end d writes to.
type lane struct {
	id    wire.PathID
	first [2]*line
	far   *line // beyond the helper, or nil
	meter estimate.Meter
	told  uint64 // what the newest report told, to see whether there is news
	up    bool
}

// join puts a lane to use at both ends.
func (n *network) join(p Path) {
	l := &lane{id: p.ID, up: true}
	near := newLine(n, p.Near)
	back := newLine(n, Hop{RTT: p.Near.RTT + p.Far.RTT, Rates: []Step{{0, backRate}}, Window: 1 << 30})
	l.first = [2]*line{near, back}
	near.out = func(seg []byte) { n.deliver(l, 1, seg) }
	if p.Helped {
		far := newLine(n, p.Far)
		far.Window = 1 << 30
		far.cwnd = max(p.Far.Rates[0].Rate.Bytes(p.Far.RTT), 64*unit.KB)
		far.out = near.out
		far.moved = near.pump
		near.out = far.write
		near.room = func() unit.Bytes { return helperBuffer - far.queue() }
		l.far = far
	}
	back.out = func(seg []byte) { n.deliver(l, 0, seg) }
	n.lanes = append(n.lanes, l)
	for d, first := range l.first {
		first.moved = func() { n.idle(l, d) }
		n.ends[d].AddPath(p.ID, d == 0 && p.Helped, n.now)
		n.ends[d].Local(p.ID, n.now, first.sample())
		n.ends[d].Idle(p.ID)
	}
	if l.far != nil {
		n.report(l)
	}
}

func (n *network) leave(id wire.PathID) {
	for _, l := range n.lanes {
		if l.id == id && l.up {
			l.up = false
			n.ends[0].RemovePath(id, n.now)
			n.ends[1].RemovePath(id, n.now)
		}
	}
}

func (n *network) idle(l *lane, d int) {
	if l.up && l.first[d].writable() {
		n.ends[d].Idle(l.id)
	}
}

// report tells the sender of the helper's state, if there is news.
func (n *network) report(l *lane) {
	if !l.up {
		return
	}
	far := l.far
	l.meter.Add(n.now, far.sample())
	if now := far.written + far.acked; now != l.told {
		l.told = now
		s := wire.HopState{Received: far.written, Forwarded: far.acked, RTT: far.RTT}
		s.Rate, s.AppLimited = l.meter.Rate()
		n.at(n.now.Add(l.first[0].RTT/2), func() { n.ends[0].Remote(l.id, n.now, s) })
	}
	n.at(n.now.Add(reportEvery), func() { n.report(l) })
}

// deliver hands a segment to end d.
func (n *network) deliver(l *lane, d int, seg []byte) {
	r := wire.NewReader(bytes.NewReader(seg))
	for l.up && n.err == nil {
		t, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = n.ends[d].Receive(l.id, t, payload, n.now)
		}
		if err != nil {
			n.err = fmt.Errorf("path %d: %w", l.id, err)
		}
	}
}

// dispatch hands out segments and plans ticks.
func (n *network) dispatch() {
	for d, b := range n.ends {
		for {
			for _, l := range n.lanes {
				if l.up {
					b.Local(l.id, n.now, l.first[d].sample())
				}
			}
			id, seg := b.Next(n.now, nil)
			if id == 0 {
				break
			}
			for _, l := range n.lanes {
				if l.id == id && l.up {
					b.Begun(id)
					l.first[d].write(seg)
					n.at(n.now, func() { n.idle(l, d) })
				}
			}
		}
		if at := b.NextTick(); !at.IsZero() && !at.Equal(n.ticks[d]) {
			n.ticks[d] = at
			n.at(at, func() {
				if n.ticks[d].Equal(at) {
					n.ticks[d] = time.Time{}
				}
				if next := b.NextTick(); !next.IsZero() && !next.After(n.now) {
					b.Tick(n.now)
				}
			})
		}
	}
}

// Options of a replay. The zero value is a bond's default.
type Options struct {
	Eta float64 // reinjection threshold; negative: off
	// Trace, if set, is told the virtual sender's events.
	Trace func(trace.Event)
}

// Run replays with a scheduler. It fails if that does not bring all bytes over
// within 20 times the recorded time.
func (r *Recording) Run(s sched.Scheduler, o Options) (Result, error) {
	n := &network{now: epoch}
	t := newTally(r)
	n.ends[1] = bond.New(bond.Config{})
	n.ends[0] = bond.New(bond.Config{Opens: true, Scheduler: s, Eta: o.Eta, Trace: func(e trace.Event) {
		if e.T == 0 {
			e.T = n.now.UnixNano()
		}
		e.Who, e.Bond = r.Sender, r.Bond
		if o.Trace != nil {
			o.Trace(e)
		}
		t.add(e)
	}})
	tell := func(k trace.Kind, p Path, reason string) {
		if o.Trace != nil {
			o.Trace(trace.Event{T: n.now.UnixNano(), Who: r.Sender, Bond: r.Bond, Kind: k, Path: uint32(p.ID), Device: p.Device, Reason: reason})
		}
	}
	for _, p := range r.Paths {
		n.at(epoch.Add(p.Up), func() {
			tell(trace.PathUp, p, map[bool]string{false: "direct", true: "helped"}[p.Helped])
			n.join(p)
		})
		if p.Down > 0 {
			n.at(epoch.Add(p.Down), func() {
				tell(trace.PathDown, p, "left in the recording")
				n.leave(p.ID)
			})
		}
	}
	a := &apps{net: n}
	for _, s := range r.Streams {
		n.at(epoch.Add(s.At), func() { a.open(s.Size) })
	}
	limit := time.Minute + 20*time.Duration(r.Recorded.Seconds*float64(time.Second))
	for !t.complete() {
		if n.err != nil {
			return Result{}, n.err
		}
		if n.events.Len() == 0 || n.events.Next() > limit {
			return Result{}, fmt.Errorf("%s leaves %v undelivered after %v", s.Name(), t.left, n.now.Sub(epoch).Round(time.Second))
		}
		at, do := n.events.Pop()
		n.now = epoch.Add(at)
		do()
		a.step()
		n.dispatch()
	}
	return t.result(s.Name()), nil
}

// apps write and read the streams.
type apps struct {
	net  *network
	left map[*bond.Stream]unit.Bytes
	buf  [64 << 10]byte
}

func (a *apps) open(size unit.Bytes) {
	s, err := a.net.ends[0].Open("replay:1")
	if err != nil {
		a.net.err = err
		return
	}
	if a.left == nil {
		a.left = map[*bond.Stream]unit.Bytes{}
	}
	a.left[s] = size
	a.write(s)
}

func (a *apps) write(s *bond.Stream) {
	left, ok := a.left[s]
	if !ok {
		return
	}
	for left > 0 {
		k := s.Write(a.buf[:min(left, unit.Bytes(len(a.buf)))])
		if k == 0 {
			break
		}
		left -= unit.Bytes(k)
	}
	a.left[s] = left
	if left == 0 {
		delete(a.left, s)
		s.CloseWrite()
	}
}

// step does what streams that have changed need.
func (a *apps) step() {
	for s := a.net.ends[0].Changed(); s != nil; s = a.net.ends[0].Changed() {
		a.write(s)
		a.read(s)
	}
	for s := a.net.ends[1].Accept(); s != nil; s = a.net.ends[1].Accept() {
		s.CloseWrite()
	}
	for s := a.net.ends[1].Changed(); s != nil; s = a.net.ends[1].Changed() {
		a.read(s)
	}
}

// read takes what there is, and the end once: a stream that has ended tells so
// each time.
func (a *apps) read(s *bond.Stream) {
	for s.User == nil {
		k, err := s.Read(a.buf[:])
		if err != nil {
			s.User = err
		}
		if k == 0 {
			return
		}
	}
}
