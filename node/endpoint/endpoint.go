// Package endpoint is one end of a bond, live: the lock, the clock and the
// goroutines around the sans-I/O core of package bond. It stands between the
// streams that a role hands to apps or destinations and the subflows that a
// role attaches; primary and server use it alike.
//
// Each subflow has a reader, which feeds frames to the core, and a writer,
// which waits until its socket has room, tells the core, and writes the one
// segment it is given then. All decisions are taken under one lock at the
// moment of an event; no segment is bound to a subflow before that one has
// room for it.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/core/bond"
	"mpbond/core/trace"
	"mpbond/link/subflow"
	"mpbond/link/wire"
)

// Config is what an endpoint is made with.
type Config struct {
	Bond bond.Config
	// Chooser decides which subflows a stream may use; nil: the scheduler alone does.
	Chooser Chooser
	// Share is what the bond takes memory from; nil: it is not counted.
	Share *Share
	// Accept is called in a goroutine of its own for each stream that the other
	// end opens. It owns the conn. Nil where none are opened.
	Accept func(*Conn)
	// AcceptPackets is the same for datagram flows.
	AcceptPackets func(*PacketConn)
	// Down is called, in no particular goroutine and without locks held, when a
	// subflow has ended for the given reason.
	Down func(*subflow.Subflow, error)
	Log  *slog.Logger
}

// Endpoint is one end of a bond. Safe for concurrent use.
type Endpoint struct {
	cfg Config
	log *slog.Logger

	mu          sync.Mutex
	bond        *bond.Bond
	subflows    map[wire.SubflowID]*attachedSubflow
	spareBuffer []byte // a segment's buffer that no lane uses
	timer       *time.Timer
	closed      bool
	// isClosing: Close has begun, and new streams would be in vain.
	isClosing bool
	// noSubflowSince is since when there is no subflow.
	noSubflowSince time.Time
	wg             sync.WaitGroup
}

// attachedSubflow is a subflow with its goroutines' state, guarded by Endpoint.mu.
type attachedSubflow struct {
	sf         *subflow.Subflow
	device     string // that carries it, as it is called now
	segment    []byte // the segment to be written
	hasSegment bool
	cond       *sync.Cond
	closed     bool
	probedAt   time.Time
	rates      rateHistory
}

// probeAge is how old a sample of a hop may be when a decision is taken.
const probeAge = time.Millisecond

// ErrClosed is the reason of everything that Close ended.
var ErrClosed = fmt.Errorf("the bond is closed: %w", net.ErrClosed)

// New makes an endpoint without subflows.
func New(cfg Config) *Endpoint {
	if cfg.Share != nil {
		cfg.Bond.Memory = cfg.Share
	}
	e := &Endpoint{cfg: cfg, log: cfg.Log, bond: bond.New(cfg.Bond), subflows: map[wire.SubflowID]*attachedSubflow{}, noSubflowSince: time.Now()}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.timer = time.AfterFunc(time.Hour, e.handleTimer)
	e.timer.Stop()
	return e
}

// Attach puts a joined subflow to use, in place of one with the same number,
// and owns it from now on.
func (e *Endpoint) Attach(sf *subflow.Subflow) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		sf.Close()
		return ErrClosed
	}
	if old := e.subflows[sf.ID]; old != nil {
		e.removeSubflow(old, "replaced by another of its number")
	}
	now := time.Now()
	l := &attachedSubflow{sf: sf, device: sf.Device, cond: sync.NewCond(&e.mu)}
	e.subflows[sf.ID] = l
	e.cfg.Share.forceTake(subflowCost)
	e.bond.AddSubflow(sf.ID, sf.Helped, now)
	e.bond.SetJoinRTT(sf.ID, sf.RTT)
	e.updateGuide()
	kind := "direct"
	if sf.Helped {
		kind = "helped"
	}
	e.traceEvent(trace.Event{Kind: trace.SubflowUp, Subflow: uint32(sf.ID), Device: sf.Device, Reason: kind})
	e.wg.Go(func() { e.runReadLoop(l) })
	e.wg.Go(func() { e.runWriteLoop(l) })
	return nil
}

// Detach ends a subflow. What it carried goes over others. It reports whether
// there was one of that number.
func (e *Endpoint) Detach(id wire.SubflowID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.subflows[id]
	if l != nil {
		e.removeSubflow(l, "ended here")
		e.processEvents(time.Now())
	}
	return l != nil
}

// DeviceOf names the device that carries a subflow, "" if there is none.
func (e *Endpoint) DeviceOf(id wire.SubflowID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.subflows[id]; l != nil {
		return l.device
	}
	return ""
}

// RenameHelper makes known that a helper is called otherwise from now on.
func (e *Endpoint) RenameHelper(from, to string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.subflows {
		if l.sf.Helped && l.device == from {
			l.device = to
		}
	}
}

// removeSubflow takes a lane out, for a reason. Its goroutines end by themselves.
func (e *Endpoint) removeSubflow(l *attachedSubflow, why string) {
	if l.closed {
		return
	}
	l.closed = true
	e.cfg.Share.forceTake(-subflowCost)
	if l.sf.Helped {
		// TLS on the pipe says goodbye, for which it waits seconds when the pipe
		// takes nothing: the bond's lock must not.
		e.wg.Go(func() { l.sf.Close() })
	} else {
		l.sf.Close()
	}
	l.cond.Broadcast()
	if e.subflows[l.sf.ID] == l {
		delete(e.subflows, l.sf.ID)
		e.bond.RemoveSubflow(l.sf.ID, time.Now())
		e.updateGuide()
	}
	if len(e.subflows) == 0 {
		e.noSubflowSince = time.Now()
	}
	e.traceEvent(trace.Event{Kind: trace.SubflowDown, Subflow: uint32(l.sf.ID), Device: l.device, Reason: why})
}

// failSubflow ends a lane for a reason, once.
func (e *Endpoint) failSubflow(l *attachedSubflow, err error) {
	e.mu.Lock()
	first := !l.closed
	e.removeSubflow(l, fmt.Sprint(err))
	e.processEvents(time.Now())
	e.mu.Unlock()
	if first && e.cfg.Down != nil {
		e.cfg.Down(l.sf, err)
	}
}

func (e *Endpoint) traceEvent(ev trace.Event) {
	if f := e.cfg.Bond.Trace; f != nil {
		f(ev)
	}
}

// runReadLoop feeds the frames of one subflow to the core.
func (e *Endpoint) runReadLoop(l *attachedSubflow) {
	for {
		t, payload, err := l.sf.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the other end closed it")
			}
			e.failSubflow(l, err)
			return
		}
		now := time.Now()
		e.mu.Lock()
		err = e.bond.ReceiveFrame(l.sf.ID, t, payload, now)
		for err == nil && !l.closed && l.sf.Buffered() {
			if t, payload, err = l.sf.Next(); err == nil {
				err = e.bond.ReceiveFrame(l.sf.ID, t, payload, now)
			}
		}
		closed := l.closed
		e.processEvents(now)
		e.mu.Unlock()
		if err != nil {
			e.failSubflow(l, fault.New(fault.Protocol, err, "install the same release of mpbond on all devices"))
			return
		}
		if closed {
			return
		}
	}
}

// runWriteLoop gives one subflow its segments.
func (e *Endpoint) runWriteLoop(l *attachedSubflow) {
	for {
		err := l.sf.WaitWritable()
		if err != nil {
			e.failSubflow(l, err)
			return
		}
		e.mu.Lock()
		now := time.Now()
		e.probeSubflow(l, now, 0)
		if !l.closed {
			e.bond.MarkIdle(l.sf.ID)
			e.processEvents(now)
		}
		for !l.hasSegment && !l.closed {
			l.cond.Wait()
		}
		if l.closed {
			e.mu.Unlock()
			return
		}
		l.hasSegment = false
		segment, wanted := l.segment, e.bond.BeginSegment(l.sf.ID)
		e.mu.Unlock()
		if !wanted {
			continue
		}
		// The buffer stays ours: a lane gets no other segment before it is idle.
		if err := l.sf.Write(segment); err != nil {
			e.failSubflow(l, err)
			return
		}
	}
}

// probeSubflow takes a sample of a lane's hop unless it has one young enough.
func (e *Endpoint) probeSubflow(l *attachedSubflow, now time.Time, age time.Duration) {
	if l.closed || now.Sub(l.probedAt) < age {
		return
	}
	l.probedAt = now
	if h, err := l.sf.Probe(); err == nil {
		e.bond.ObserveLocalHop(l.sf.ID, now, h)
	} else {
		e.bond.ObserveUnknownHop(l.sf.ID, now)
	}
	rx, tx := e.bond.CarriedBytes(l.sf.ID)
	l.rates.addSample(now, rx, tx)
}

// processEvents does what may follow from an event: it starts new streams, wakes the
// users of changed ones, hands out segments and sets the timer.
func (e *Endpoint) processEvents(now time.Time) {
	for s := e.bond.AcceptStream(); s != nil; s = e.bond.AcceptStream() {
		c := e.newConn(s)
		if e.cfg.Accept == nil || e.isClosing {
			s.Reset(wire.CodeClosed, "no streams are accepted here")
			continue
		}
		e.wg.Go(func() { e.cfg.Accept(c) })
	}
	for f := e.bond.AcceptFlow(); f != nil; f = e.bond.AcceptFlow() {
		c := e.newPacketConn(f)
		if e.cfg.AcceptPackets == nil || e.isClosing {
			f.End(wire.CodeClosed, "no datagrams are accepted here", now)
			continue
		}
		e.wg.Go(func() { e.cfg.AcceptPackets(c) })
	}
	e.dispatchSegments(now)
	e.wakeUsers()
	if at := e.bond.NextTick(); !at.IsZero() && !e.closed {
		e.timer.Reset(max(at.Sub(now), 0))
	}
}

// wakeUsers wakes the users of streams and flows that changed.
func (e *Endpoint) wakeUsers() {
	for s := e.bond.NextChangedStream(); s != nil; s = e.bond.NextChangedStream() {
		if c, ok := s.User.(*Conn); ok {
			c.cond.Broadcast()
		}
	}
	for f := e.bond.NextChangedFlow(); f != nil; f = e.bond.NextChangedFlow() {
		if c, ok := f.User.(*PacketConn); ok {
			c.cond.Broadcast()
		}
	}
}

// dispatchSegments gives idle subflows the segments that the core decides on.
func (e *Endpoint) dispatchSegments(now time.Time) {
	for _, l := range e.subflows {
		e.probeSubflow(l, now, probeAge)
	}
	for {
		id, segment := e.bond.NextSegment(now, e.spareBuffer[:0])
		if id == 0 {
			e.spareBuffer = segment
			return
		}
		l := e.subflows[id]
		e.spareBuffer, l.segment, l.hasSegment = l.segment, segment, true
		l.cond.Signal()
	}
}

func (e *Endpoint) handleTimer() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	now := time.Now()
	for _, l := range e.subflows {
		e.probeSubflow(l, now, 0)
	}
	e.bond.Tick(now)
	e.processEvents(now)
}

// ApplyRemoteHop takes a helper's report about the far hop of a subflow.
func (e *Endpoint) ApplyRemoteHop(id wire.SubflowID, s wire.HopState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.ObserveFarHop(id, time.Now(), s)
}

// ForwardPipeState lets a helper's report about the pipe go on to the other end, which
// needs it to schedule towards us, with the next control segment, if that leaves
// soon enough.
func (e *Endpoint) ForwardPipeState(s wire.PipeState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.RelayReport(s, time.Now())
}

// ClassesInUse are those that streams and flows are of.
func (e *Endpoint) ClassesInUse() map[wire.GroupID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.UsedGroups()
}

// SetClasses has groups of streams and flows treated so from now on, at both ends.
// Those that are left out must be none of Groups, and are gone for ever.
func (e *Endpoint) SetClasses(groups []wire.Group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.SetClassTable(groups)
	e.processEvents(time.Now())
}

// FailClass resets the streams of a group that are of that age at least.
func (e *Endpoint) FailClass(id wire.GroupID, age time.Duration, why wire.Reset) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.bond.ResetGroup(id, why, func(s *bond.Stream) bool {
		c, ok := s.User.(*Conn)
		return !ok || now.Sub(c.openedAt) >= age
	})
	e.processEvents(now)
}

// Dial opens a stream to a destination, "host:port", whose bytes both ends treat
// by its mode and group. It returns at once, also while there is no subflow: bytes wait in
// the meta buffer.
func (e *Endpoint) Dial(dest string, mode wire.Mode, group wire.GroupID) (*Conn, error) {
	if _, _, err := net.SplitHostPort(dest); err != nil {
		return nil, fault.New(fault.Usage, fmt.Errorf("destination %q: %w", dest, err), "write it like example.org:443")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	s, err := e.bond.OpenStream(dest)
	if err != nil {
		return nil, err
	}
	s.SetMode(mode)
	s.SetGroup(group)
	c := e.newConn(s)
	// OPEN leaves at once: the destination may be one that speaks first.
	e.processEvents(time.Now())
	return c, nil
}

// NoSubflowFor is how long there has been no subflow, 0 if there is one.
func (e *Endpoint) NoSubflowFor() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.subflows) > 0 {
		return 0
	}
	return max(time.Since(e.noSubflowSince), 1)
}

// Streams is how many streams exist.
func (e *Endpoint) Streams() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.StreamCount()
}

// Subflows is how many subflows are attached.
func (e *Endpoint) Subflows() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.subflows)
}

// ResetStreams resets all streams but keeps the endpoint.
func (e *Endpoint) ResetStreams(code wire.Code, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.ResetAll(code, text, time.Now())
	e.processEvents(time.Now())
}

// PeerClosed reports that the other end has given the bond up.
func (e *Endpoint) PeerClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.ByeReceived()
}

// Close tells the other end, resets all streams and ends all subflows. It
// waits until no goroutine is left; ctx bounds how long the farewell may take.
func (e *Endpoint) Close(ctx context.Context) {
	e.mu.Lock()
	e.isClosing = true
	e.bond.ResetAll(wire.CodeClosed, "mpbond is shutting down", time.Now())
	e.bond.SendBye()
	e.processEvents(time.Now())
	e.mu.Unlock()
	e.awaitFarewell(ctx)
	e.mu.Lock()
	e.closed = true
	e.timer.Stop()
	// Streams that the other end opened during the farewell.
	e.bond.ResetAll(wire.CodeClosed, "mpbond is shutting down", time.Now())
	for _, l := range e.subflows {
		e.removeSubflow(l, "the bond is closed")
	}
	e.wakeUsers()
	e.mu.Unlock()
	e.wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.ReleaseMemory()
}

// awaitFarewell waits until the other end has acknowledged all resets and the
// BYE, as long as there is a subflow. To close before would not do: bytes
// received and not read yet make the kernel reset the connection, and drop what
// the other end has not got.
func (e *Endpoint) awaitFarewell(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		e.mu.Lock()
		done := len(e.subflows) == 0 || e.bond.ControlAcknowledged()
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
