// SPDX-License-Identifier: Apache-2.0

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

// The virtual network has a sender and a receiver, which are real bonds, and subflows of one or two
// hops between them.
//
//	sender ══ local hop ═══════════════════════ receiver     direct
//	       ══ local hop ═ helper ═ far hop ══                helped
//	       ←─────────── back ──────────────────              acknowledgements
const (
	helperBuffer = 4 * unit.MB // buffer of a helper for one subflow
	reportEvery  = 20 * time.Millisecond
	backRate     = unit.Gbps
)

// epoch is the arbitrary time at which a replay begins.
var epoch = time.Unix(1e9, 0)

// virtualNet is the running network.
type virtualNet struct {
	now      time.Time
	events   event.Queue[func()] // by time since epoch
	ends     [2]*bond.Bond       // sender, receiver
	ticks    [2]time.Time        // next scheduled tick of each end
	subflows []*subflow
	err      error
}

// scheduleCallback calls do at time t.
func (n *virtualNet) scheduleCallback(t time.Time, do func()) {
	n.events.Push(t.Sub(epoch), do)
}

// tcpHop is one direction of one hop: TCP with a window over a link with a rate.
type tcpHop struct {
	net      *virtualNet
	Hop      // its rates and windows
	freeAt   time.Time
	cwnd     unit.Bytes
	srtt     time.Duration
	pending  [][]byte   // not yet sent
	unsent   unit.Bytes // bytes in pending
	inFlight unit.Bytes
	written  uint64
	acked    uint64
	peerRoom func() unit.Bytes // buffer space at the other end; nil: no limit
	deliver  func([]byte)      // called when a segment arrives
	onAcked  func()            // called when bytes are acknowledged
}

// newTCPHop returns an idle hop.
func newTCPHop(n *virtualNet, h Hop) *tcpHop {
	h.Window = max(h.Window, 10*segment)
	if h.FirstWindow == 0 {
		h.FirstWindow = h.Window
	}
	return &tcpHop{net: n, Hop: h, freeAt: n.now, cwnd: min(h.FirstWindow, h.Window), srtt: h.RTT}
}

// writeSegment queues a segment.
func (l *tcpHop) writeSegment(seg []byte) {
	l.written += uint64(len(seg))
	l.pending = append(l.pending, seg)
	l.unsent += unit.Bytes(len(seg))
	l.sendWithinWindow()
}

// sendWithinWindow sends what the window allows.
func (l *tcpHop) sendWithinWindow() {
	for len(l.pending) > 0 && l.inFlight < l.cwnd && (l.peerRoom == nil || l.inFlight < l.peerRoom()) {
		seg := l.pending[0]
		l.pending = l.pending[1:]
		size := unit.Bytes(len(seg))
		l.unsent -= size
		l.inFlight += size
		sent := l.net.now
		left := l.hopDepartureTime(len(seg))
		l.net.scheduleCallback(left.Add(l.RTT/2), func() { l.deliver(seg) })
		l.net.scheduleCallback(left.Add(l.RTT), func() {
			l.acked += uint64(size)
			l.inFlight -= size
			l.srtt += (l.net.now.Sub(sent) - l.srtt) / 8
			l.cwnd = min(l.cwnd+size, l.Window) // slow start
			l.sendWithinWindow()
			l.onAcked()
		})
	}
}

// hopDepartureTime returns when size bytes that are ready now have left.
func (l *tcpHop) hopDepartureTime(size int) time.Time {
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

// queuedBytes returns the bytes written and not acknowledged.
func (l *tcpHop) queuedBytes() unit.Bytes { return unit.Bytes(l.written - l.acked) }

// sampleTCPState returns the state that TCP reports.
func (l *tcpHop) sampleTCPState() estimate.Hop {
	return estimate.Hop{SRTT: l.srtt, MinRTT: l.RTT, Cwnd: l.cwnd, SlowStart: l.cwnd < l.Window, MSS: segment,
		Queue: l.queuedBytes(), Unsent: l.unsent, Acked: l.acked, AppLimited: l.queuedBytes() == 0}
}

// isHopWritable reports whether the kernel would report the socket writable with TCP_NOTSENT_LOWAT.
func (l *tcpHop) isHopWritable() bool { return l.unsent < notSentLowat }

// subflow connects both ends. hops[d] is the hop to which end d writes.
type subflow struct {
	id           wire.SubflowID
	hops         [2]*tcpHop
	farHop       *tcpHop // behind the helper, or nil
	meter        estimate.Meter
	lastReported uint64 // state of the newest report, to skip reports without change
	up           bool
}

// addReplaySubflow adds a subflow to both ends.
func (n *virtualNet) addReplaySubflow(p Subflow) {
	l := &subflow{id: p.ID, up: true}
	local := newTCPHop(n, p.LocalHop)
	back := newTCPHop(n, Hop{RTT: p.LocalHop.RTT + p.FarHop.RTT, Rates: []Step{{0, backRate}}, Window: 1 << 30})
	l.hops = [2]*tcpHop{local, back}
	local.deliver = func(seg []byte) { n.deliverSegment(l, 1, seg) }
	if p.Helped {
		far := newTCPHop(n, p.FarHop)
		far.Window = 1 << 30
		far.cwnd = max(p.FarHop.Rates[0].Rate.Bytes(p.FarHop.RTT), 64*unit.KB)
		far.deliver = local.deliver
		far.onAcked = local.sendWithinWindow
		local.deliver = far.writeSegment
		local.peerRoom = func() unit.Bytes { return helperBuffer - far.queuedBytes() }
		l.farHop = far
	}
	back.deliver = func(seg []byte) { n.deliverSegment(l, 0, seg) }
	n.subflows = append(n.subflows, l)
	for d, first := range l.hops {
		first.onAcked = func() { n.notifyIdle(l, d) }
		n.ends[d].AddSubflow(p.ID, d == 0 && p.Helped, n.now)
		n.ends[d].ObserveLocalHop(p.ID, n.now, first.sampleTCPState())
		n.ends[d].MarkIdle(p.ID)
	}
	if l.farHop != nil {
		n.sendHelperReport(l)
	}
}

// dropReplaySubflow removes a subflow from both ends.
func (n *virtualNet) dropReplaySubflow(id wire.SubflowID) {
	for _, l := range n.subflows {
		if l.id == id && l.up {
			l.up = false
			n.ends[0].RemoveSubflow(id, n.now)
			n.ends[1].RemoveSubflow(id, n.now)
		}
	}
}

// notifyIdle notifies end d if the subflow is writable.
func (n *virtualNet) notifyIdle(l *subflow, d int) {
	if l.up && l.hops[d].isHopWritable() {
		n.ends[d].MarkIdle(l.id)
	}
}

// sendHelperReport sends the helper's state to the sender if it has changed, and schedules the next
// report.
func (n *virtualNet) sendHelperReport(l *subflow) {
	if !l.up {
		return
	}
	far := l.farHop
	l.meter.Add(n.now, far.sampleTCPState())
	if now := far.written + far.acked; now != l.lastReported {
		l.lastReported = now
		s := wire.HopState{Received: far.written, Forwarded: far.acked, RTT: far.RTT}
		s.Rate, s.AppLimited = l.meter.Rate()
		n.scheduleCallback(n.now.Add(l.hops[0].RTT/2), func() { n.ends[0].ObserveFarHop(l.id, n.now, s) })
	}
	n.scheduleCallback(n.now.Add(reportEvery), func() { n.sendHelperReport(l) })
}

// deliverSegment passes a segment to end d.
func (n *virtualNet) deliverSegment(l *subflow, d int, seg []byte) {
	r := wire.NewReader(bytes.NewReader(seg))
	for l.up && n.err == nil {
		t, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = n.ends[d].ReceiveFrame(l.id, t, payload, n.now)
		}
		if err != nil {
			n.err = fmt.Errorf("subflow %d: %w", l.id, err)
		}
	}
}

// sendReadySegments sends the segments that the ends have ready, and schedules their ticks.
// Direction d is the one in which end b sends.
func (n *virtualNet) sendReadySegments() {
	for d, b := range n.ends {
		for {
			for _, l := range n.subflows {
				if l.up {
					b.ObserveLocalHop(l.id, n.now, l.hops[d].sampleTCPState())
				}
			}
			id, seg := b.NextSegment(n.now, nil)
			if id == 0 {
				break
			}
			for _, l := range n.subflows {
				if l.id == id && l.up {
					b.BeginSegment(id)
					l.hops[d].writeSegment(seg)
					n.scheduleCallback(n.now, func() { n.notifyIdle(l, d) })
				}
			}
		}
		if at := b.NextTick(); !at.IsZero() && !at.Equal(n.ticks[d]) {
			n.ticks[d] = at
			n.scheduleCallback(at, func() {
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

// Options configure a replay. The zero value has the defaults of a bond.
type Options struct {
	Eta float64 // reinjection threshold; negative: off
	// Trace, if set, is called with the events of the virtual sender.
	Trace func(trace.Event)
}

// Run replays with a scheduler. It fails if not all bytes are delivered within a minute plus 20
// times the recorded time.
func (r *Recording) Run(s sched.Scheduler, o Options) (Result, error) {
	n := &virtualNet{now: epoch}
	t := newTransferTally(r)
	n.ends[1] = bond.New(bond.Config{})
	n.ends[0] = bond.New(bond.Config{OpensStreams: true, Scheduler: s, Eta: o.Eta, Trace: func(e trace.Event) {
		if e.T == 0 {
			e.T = n.now.UnixNano()
		}
		e.Who, e.Bond = r.Sender, r.Bond
		if o.Trace != nil {
			o.Trace(e)
		}
		t.tallyTraceEvent(e)
	}})
	emit := func(k trace.Kind, p Subflow, reason string) {
		if o.Trace != nil {
			o.Trace(trace.Event{
				T: n.now.UnixNano(), Who: r.Sender, Bond: r.Bond, Kind: k,
				Subflow: uint32(p.ID), Device: p.Device, Reason: reason,
			})
		}
	}
	for _, p := range r.Subflows {
		n.scheduleCallback(epoch.Add(p.Up), func() {
			emit(trace.SubflowUp, p, map[bool]string{false: "direct", true: "helped"}[p.Helped])
			n.addReplaySubflow(p)
		})
		if p.Down > 0 {
			n.scheduleCallback(epoch.Add(p.Down), func() {
				emit(trace.SubflowDown, p, "left in the recording")
				n.dropReplaySubflow(p.ID)
			})
		}
	}
	a := &streamApps{net: n}
	for _, s := range r.Streams {
		n.scheduleCallback(epoch.Add(s.At), func() { a.openSizedStream(s.Size) })
	}
	limit := time.Minute + 20*time.Duration(r.Recorded.Seconds*float64(time.Second))
	for !t.allBytesArrived() {
		if n.err != nil {
			return Result{}, n.err
		}
		if n.events.Len() == 0 || n.events.Next() > limit {
			return Result{}, fmt.Errorf("scheduler %s left %v undelivered after %v", s.Name(), t.bytesLeft,
				n.now.Sub(epoch).Round(time.Second))
		}
		at, do := n.events.Pop()
		n.now = epoch.Add(at)
		do()
		a.serveStreams()
		n.sendReadySegments()
	}
	return t.finishResult(s.Name()), nil
}

// streamApps writes and reads the streams at both ends.
type streamApps struct {
	net       *virtualNet
	bytesLeft map[*bond.Stream]unit.Bytes
	buf       [64 << 10]byte
}

// openSizedStream opens a stream of that size and writes to it.
func (a *streamApps) openSizedStream(size unit.Bytes) {
	s, err := a.net.ends[0].OpenStream("replay:1")
	if err != nil {
		a.net.err = err
		return
	}
	if a.bytesLeft == nil {
		a.bytesLeft = map[*bond.Stream]unit.Bytes{}
	}
	a.bytesLeft[s] = size
	a.writeStreamData(s)
}

// writeStreamData writes what the stream accepts, and closes it at the end.
func (a *streamApps) writeStreamData(s *bond.Stream) {
	left, ok := a.bytesLeft[s]
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
	a.bytesLeft[s] = left
	if left == 0 {
		delete(a.bytesLeft, s)
		s.CloseWrite()
	}
}

// serveStreams reads and writes streams that have changed.
func (a *streamApps) serveStreams() {
	for s := a.net.ends[0].NextChangedStream(); s != nil; s = a.net.ends[0].NextChangedStream() {
		a.writeStreamData(s)
		a.readStreamData(s)
	}
	for s := a.net.ends[1].AcceptStream(); s != nil; s = a.net.ends[1].AcceptStream() {
		s.CloseWrite()
	}
	for s := a.net.ends[1].NextChangedStream(); s != nil; s = a.net.ends[1].NextChangedStream() {
		a.readStreamData(s)
	}
}

// readStreamData reads all available bytes. It sets Stream.User at the end, which Read reports each
// time.
func (a *streamApps) readStreamData(s *bond.Stream) {
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
