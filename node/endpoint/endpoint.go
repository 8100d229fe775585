// SPDX-License-Identifier: Apache-2.0

// Package endpoint runs one end of a bond: it adds the lock, the clock and the goroutines to the
// sans-I/O core of package bond. It stands between the streams that a role hands to apps or
// destinations and the subflows that a role attaches. Primary and server use it alike.
//
// Each subflow has two goroutines. The reader passes frames to the core. The writer waits until its
// socket has room, marks the subflow as idle in the core, and writes the one segment that it gets.
// All decisions are taken under one lock at the moment of an event. No segment is assigned to a
// subflow before that has room for it.
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

// Config configures an endpoint.
type Config struct {
	Bond bond.Config
	// Guide decides which subflows a stream may use; nil: all, so that the scheduler alone decides.
	Guide Guide
	// Share is the memory budget of the bond; nil: not counted.
	Share *Share
	// Accept is called in its own goroutine for each stream that the other end opens. It owns the
	// conn. nil: such streams are reset.
	Accept func(*Conn)
	// AcceptPackets is the same for datagram flows.
	AcceptPackets func(*PacketConn)
	// Down is called, from any goroutine and without locks held, when a subflow has ended for the
	// given reason.
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
	spareBuffer []byte // a segment buffer that no subflow uses
	timer       *time.Timer
	closed      bool
	// isClosing is set by Close: new streams are refused.
	isClosing bool
	// noSubflowSince is since when there is no subflow.
	noSubflowSince time.Time
	// counted is how many subflows the share counts: at least one until the bond is closed, so that a bond can have
	// its first one.
	counted int
	wg      sync.WaitGroup
}

// attachedSubflow is a subflow and the state of its goroutines. Endpoint.mu must be held.
type attachedSubflow struct {
	sf         *subflow.Subflow
	device     string // current name of the device that carries it
	segment    []byte // to be written
	hasSegment bool
	cond       *sync.Cond
	closed     bool
	probedAt   time.Time
	rates      rateHistory
}

// probeAge is the greatest age of a hop sample at a decision.
const probeAge = time.Millisecond

// ErrClosed is the reason for everything that Close ended.
var ErrClosed = fmt.Errorf("the bond is closed: %w", net.ErrClosed)

// New returns an endpoint without subflows.
func New(cfg Config) *Endpoint {
	if cfg.Share != nil {
		cfg.Bond.Memory = cfg.Share
	}
	e := &Endpoint{
		cfg:            cfg,
		log:            cfg.Log,
		bond:           bond.New(cfg.Bond),
		subflows:       map[wire.SubflowID]*attachedSubflow{},
		noSubflowSince: time.Now(),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.timer = time.AfterFunc(time.Hour, e.handleTimer)
	e.timer.Stop()
	e.countSubflows()
	return e
}

// countSubflows updates what the share counts. mu must be held, except in New.
func (e *Endpoint) countSubflows() {
	n := max(len(e.subflows), 1)
	if e.closed {
		n = 0
	}
	e.cfg.Share.countSubflows(e.counted, n)
	e.counted = n
}

// Attach adds a joined subflow and owns it from now on. It replaces one with the same ID.
func (e *Endpoint) Attach(sf *subflow.Subflow) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		sf.Close()
		return ErrClosed
	}
	if old := e.subflows[sf.ID]; old != nil {
		e.dropSubflow(old, "replaced by a subflow with the same ID")
	}
	now := time.Now()
	l := &attachedSubflow{sf: sf, device: sf.Device, cond: sync.NewCond(&e.mu)}
	e.subflows[sf.ID] = l
	e.countSubflows()
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

// Detach ends a subflow; other subflows take over its bytes. It reports whether the subflow
// existed.
func (e *Endpoint) Detach(id wire.SubflowID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.subflows[id]
	if l != nil {
		e.dropSubflow(l, "ended here")
		e.handleBondEvents(time.Now())
	}
	return l != nil
}

// DeviceOf returns the name of the device that carries a subflow, "" if there is none.
func (e *Endpoint) DeviceOf(id wire.SubflowID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.subflows[id]; l != nil {
		return l.device
	}
	return ""
}

// RenameHelper changes the name of a helper.
func (e *Endpoint) RenameHelper(from, to string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.subflows {
		if l.sf.Helped && l.device == from {
			l.device = to
		}
	}
}

// dropSubflow removes a subflow for a reason. Its goroutines end by themselves. mu must be held.
func (e *Endpoint) dropSubflow(l *attachedSubflow, why string) {
	if l.closed {
		return
	}
	l.closed = true
	if l.sf.Helped {
		// TLS on the pipe says goodbye, and waits seconds if the pipe is blocked. mu must not be
		// held that long.
		e.wg.Go(func() { l.sf.Close() })
	} else {
		l.sf.Close()
	}
	l.cond.Broadcast()
	if e.subflows[l.sf.ID] == l {
		delete(e.subflows, l.sf.ID)
		e.countSubflows()
		e.bond.RemoveSubflow(l.sf.ID, time.Now())
		e.updateGuide()
	}
	if len(e.subflows) == 0 {
		e.noSubflowSince = time.Now()
	}
	e.traceEvent(trace.Event{Kind: trace.SubflowDown, Subflow: uint32(l.sf.ID), Device: l.device, Reason: why})
}

// failSubflow ends a subflow for a reason, once, and calls Down.
func (e *Endpoint) failSubflow(l *attachedSubflow, err error) {
	e.mu.Lock()
	first := !l.closed
	e.dropSubflow(l, fmt.Sprint(err))
	e.handleBondEvents(time.Now())
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

// runReadLoop passes the frames of one subflow to the core.
func (e *Endpoint) runReadLoop(l *attachedSubflow) {
	for {
		t, payload, err := l.sf.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("closed by the other end")
			}
			e.failSubflow(l, err)
			return
		}
		e.mu.Lock()
		now := time.Now() // under the lock, so that times given to the bond never go back
		err = e.bond.ReceiveFrame(l.sf.ID, t, payload, now)
		for err == nil && !l.closed && l.sf.Buffered() {
			if t, payload, err = l.sf.Next(); err == nil {
				err = e.bond.ReceiveFrame(l.sf.ID, t, payload, now)
			}
		}
		closed := l.closed
		e.handleBondEvents(now)
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

// runWriteLoop writes the segments of one subflow.
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
			e.handleBondEvents(now)
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
		// The buffer stays ours: a subflow gets no other segment before it is idle.
		if err := l.sf.Write(segment); err != nil {
			e.failSubflow(l, err)
			return
		}
	}
}

// probeSubflow samples the hop of a subflow unless its last sample is younger than age. mu must be
// held.
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
	l.rates.addRateSample(now, rx, tx)
}

// handleBondEvents handles what may follow from an event: it starts new streams, wakes the users of
// changed ones, hands out segments and sets the timer. mu must be held.
func (e *Endpoint) handleBondEvents(now time.Time) {
	for s := e.bond.AcceptStream(); s != nil; s = e.bond.AcceptStream() {
		c := e.newStreamConn(s)
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
	e.fillIdleSubflows(now)
	e.wakeUsers()
	if at := e.bond.NextTick(); !at.IsZero() && !e.closed {
		e.timer.Reset(max(at.Sub(now), 0))
	}
}

// wakeUsers wakes the users of changed streams and flows. mu must be held.
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

// fillIdleSubflows gives idle subflows the segments that the core chooses. mu must be held.
func (e *Endpoint) fillIdleSubflows(now time.Time) {
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

// handleTimer samples all hops, runs the bond's tick and handles what follows.
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
	e.handleBondEvents(now)
}

// ApplyRemoteHop applies a helper's report about the far hop of a subflow.
func (e *Endpoint) ApplyRemoteHop(id wire.SubflowID, s wire.HopState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.ObserveFarHop(id, time.Now(), s)
}

// SetHazard sets how likely the link of a subflow changes its mobile cell soon, at both ends.
func (e *Endpoint) SetHazard(id wire.SubflowID, h bond.Hazard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.bond.SetHazard(id, h, now)
	e.handleBondEvents(now)
}

// ForwardPipeState forwards a helper's report about the pipe to the other end, which schedules with
// it. The report leaves with the next control segment, if that is soon enough.
func (e *Endpoint) ForwardPipeState(s wire.PipeState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.RelayReport(s, time.Now())
}

// ClassesInUse returns the traffic classes of open streams and flows.
func (e *Endpoint) ClassesInUse() map[wire.GroupID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.UsedGroups()
}

// SetClasses sets the class table at both ends. It must include all of ClassesInUse; missing
// classes are retired for good.
func (e *Endpoint) SetClasses(groups []wire.Group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.SetClassTable(groups)
	e.handleBondEvents(time.Now())
}

// FailClass resets the streams of a class that are at least that old.
func (e *Endpoint) FailClass(id wire.GroupID, age time.Duration, why wire.Reset) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.bond.ResetGroup(id, why, func(s *bond.Stream) bool {
		c, ok := s.User.(*Conn)
		return !ok || now.Sub(c.openedAt) >= age
	})
	e.handleBondEvents(now)
}

// Dial opens a stream to a destination, "host:port", with a mode and class. It returns at once,
// also without a subflow: bytes wait in the meta buffer.
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
	c := e.newStreamConn(s)
	// OPEN leaves at once: the destination may speak first.
	e.handleBondEvents(time.Now())
	return c, nil
}

// NoSubflowFor returns how long there has been no subflow, 0 if there is one.
func (e *Endpoint) NoSubflowFor() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.subflows) > 0 {
		return 0
	}
	return max(time.Since(e.noSubflowSince), 1)
}

// Streams returns the number of streams.
func (e *Endpoint) Streams() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.StreamCount()
}

// IsActive reports whether the bond carries something, or lately did.
func (e *Endpoint) IsActive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.IsActive(time.Now())
}

// SubflowCount returns the number of attached subflows.
func (e *Endpoint) SubflowCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.subflows)
}

// ResetStreams resets all streams but keeps the endpoint.
func (e *Endpoint) ResetStreams(code wire.Code, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.ResetAll(code, text, time.Now())
	e.handleBondEvents(time.Now())
}

// ResetUnopened resets the streams whose destination the other end has not connected yet.
func (e *Endpoint) ResetUnopened(code wire.Code, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.ResetUnopened(code, text)
	e.handleBondEvents(time.Now())
}

// ResetStranded resets all streams if there has been no subflow for longer than a limit.
func (e *Endpoint) ResetStranded(limit time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if gone := now.Sub(e.noSubflowSince); len(e.subflows) == 0 && gone > limit {
		// Not CodeUnreachable: apps would then connect directly.
		e.bond.ResetAll(wire.CodeTimeout, fmt.Sprintf("no way to the server for %v", gone.Round(time.Second)), now)
		e.handleBondEvents(now)
	}
}

// PeerClosed reports whether the other end has closed the bond.
func (e *Endpoint) PeerClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.ByeReceived()
}

// Close says goodbye to the other end, resets all streams and ends all subflows. It returns when no
// goroutine is left. ctx bounds the farewell.
func (e *Endpoint) Close(ctx context.Context) {
	e.mu.Lock()
	e.isClosing = true
	e.bond.ResetAll(wire.CodeClosed, "mpbond is shutting down", time.Now())
	e.bond.SendBye()
	e.handleBondEvents(time.Now())
	e.mu.Unlock()
	e.awaitFarewell(ctx)
	e.mu.Lock()
	e.closed = true
	e.timer.Stop()
	// The other end may have opened streams during the farewell.
	e.bond.ResetAll(wire.CodeClosed, "mpbond is shutting down", time.Now())
	for _, l := range e.subflows {
		e.dropSubflow(l, "the bond is closed")
	}
	e.countSubflows()
	e.wakeUsers()
	e.mu.Unlock()
	e.wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bond.ReleaseMemory()
}

// awaitFarewell waits until the other end has acknowledged all resets and the BYE, while there is a
// subflow. Closing earlier would lose them: unread received bytes make the kernel reset the
// connection and drop what is unsent.
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
