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

	mu     sync.Mutex
	b      *bond.Bond
	lanes  map[wire.PathID]*lane
	spare  []byte // a segment's buffer that no lane uses
	timer  *time.Timer
	closed bool
	// leaving: Close has begun, and new streams would be in vain.
	leaving bool
	// noLane is since when there is no subflow.
	noLane time.Time
	wg     sync.WaitGroup
}

// lane is a subflow with its goroutines' state, guarded by Endpoint.mu.
type lane struct {
	sf     *subflow.Subflow
	device string // that carries it, as it is called now
	out    []byte // the segment to be written
	full   bool
	cond   *sync.Cond
	closed bool
	probed time.Time
	rates  rates
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
	e := &Endpoint{cfg: cfg, log: cfg.Log, b: bond.New(cfg.Bond), lanes: map[wire.PathID]*lane{}, noLane: time.Now()}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.timer = time.AfterFunc(time.Hour, e.tick)
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
	if old := e.lanes[sf.Path]; old != nil {
		e.drop(old, "replaced by another of its number")
	}
	now := time.Now()
	l := &lane{sf: sf, device: sf.Device, cond: sync.NewCond(&e.mu)}
	e.lanes[sf.Path] = l
	e.cfg.Share.hold(subflowCost)
	e.b.AddPath(sf.Path, sf.Helped, now)
	e.b.JoinRTT(sf.Path, sf.RTT)
	e.reguide()
	kind := "direct"
	if sf.Helped {
		kind = "helped"
	}
	e.trace(trace.Event{Kind: trace.PathUp, Path: uint32(sf.Path), Device: sf.Device, Reason: kind})
	e.wg.Go(func() { e.read(l) })
	e.wg.Go(func() { e.write(l) })
	return nil
}

// Detach ends a subflow. What it carried goes over others. It reports whether
// there was one of that number.
func (e *Endpoint) Detach(id wire.PathID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lanes[id]
	if l != nil {
		e.drop(l, "ended here")
		e.after(time.Now())
	}
	return l != nil
}

// DeviceOf names the device that carries a subflow, "" if there is none.
func (e *Endpoint) DeviceOf(id wire.PathID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.lanes[id]; l != nil {
		return l.device
	}
	return ""
}

// RenameHelper makes known that a helper is called otherwise from now on.
func (e *Endpoint) RenameHelper(from, to string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lanes {
		if l.sf.Helped && l.device == from {
			l.device = to
		}
	}
}

// drop takes a lane out, for a reason. Its goroutines end by themselves.
func (e *Endpoint) drop(l *lane, why string) {
	if l.closed {
		return
	}
	l.closed = true
	e.cfg.Share.hold(-subflowCost)
	if l.sf.Helped {
		// TLS on the pipe says goodbye, for which it waits seconds when the pipe
		// takes nothing: the bond's lock must not.
		e.wg.Go(func() { l.sf.Close() })
	} else {
		l.sf.Close()
	}
	l.cond.Broadcast()
	if e.lanes[l.sf.Path] == l {
		delete(e.lanes, l.sf.Path)
		e.b.RemovePath(l.sf.Path, time.Now())
		e.reguide()
	}
	if len(e.lanes) == 0 {
		e.noLane = time.Now()
	}
	e.trace(trace.Event{Kind: trace.PathDown, Path: uint32(l.sf.Path), Device: l.device, Reason: why})
}

// down ends a lane for a reason, once.
func (e *Endpoint) down(l *lane, err error) {
	e.mu.Lock()
	first := !l.closed
	e.drop(l, fmt.Sprint(err))
	e.after(time.Now())
	e.mu.Unlock()
	if first && e.cfg.Down != nil {
		e.cfg.Down(l.sf, err)
	}
}

func (e *Endpoint) trace(ev trace.Event) {
	if f := e.cfg.Bond.Trace; f != nil {
		f(ev)
	}
}

// read feeds the frames of one subflow to the core.
func (e *Endpoint) read(l *lane) {
	for {
		t, payload, err := l.sf.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the other end closed it")
			}
			e.down(l, err)
			return
		}
		now := time.Now()
		e.mu.Lock()
		err = e.b.Receive(l.sf.Path, t, payload, now)
		for err == nil && !l.closed && l.sf.Buffered() {
			if t, payload, err = l.sf.Next(); err == nil {
				err = e.b.Receive(l.sf.Path, t, payload, now)
			}
		}
		closed := l.closed
		e.after(now)
		e.mu.Unlock()
		if err != nil {
			e.down(l, fault.New(fault.Protocol, err, "install the same release of mpbond on all devices"))
			return
		}
		if closed {
			return
		}
	}
}

// write gives one subflow its segments.
func (e *Endpoint) write(l *lane) {
	for {
		err := l.sf.WaitWritable()
		if err != nil {
			e.down(l, err)
			return
		}
		e.mu.Lock()
		now := time.Now()
		e.probe(l, now, 0)
		if !l.closed {
			e.b.Idle(l.sf.Path)
			e.after(now)
		}
		for !l.full && !l.closed {
			l.cond.Wait()
		}
		if l.closed {
			e.mu.Unlock()
			return
		}
		l.full = false
		segment, wanted := l.out, e.b.Begun(l.sf.Path)
		e.mu.Unlock()
		if !wanted {
			continue
		}
		// The buffer stays ours: a lane gets no other segment before it is idle.
		if err := l.sf.Write(segment); err != nil {
			e.down(l, err)
			return
		}
	}
}

// probe takes a sample of a lane's hop unless it has one young enough.
func (e *Endpoint) probe(l *lane, now time.Time, age time.Duration) {
	if l.closed || now.Sub(l.probed) < age {
		return
	}
	l.probed = now
	if h, err := l.sf.Probe(); err == nil {
		e.b.Local(l.sf.Path, now, h)
	} else {
		e.b.Unknown(l.sf.Path, now)
	}
	rx, tx := e.b.Carried(l.sf.Path)
	l.rates.note(now, rx, tx)
}

// after does what may follow from an event: it starts new streams, wakes the
// users of changed ones, hands out segments and sets the timer.
func (e *Endpoint) after(now time.Time) {
	for s := e.b.Accept(); s != nil; s = e.b.Accept() {
		c := e.newConn(s)
		if e.cfg.Accept == nil || e.leaving {
			s.Reset(wire.CodeClosed, "no streams are accepted here")
			continue
		}
		e.wg.Go(func() { e.cfg.Accept(c) })
	}
	for f := e.b.AcceptFlow(); f != nil; f = e.b.AcceptFlow() {
		c := e.newPacketConn(f)
		if e.cfg.AcceptPackets == nil || e.leaving {
			f.End(wire.CodeClosed, "no datagrams are accepted here", now)
			continue
		}
		e.wg.Go(func() { e.cfg.AcceptPackets(c) })
	}
	e.dispatch(now)
	e.wakeUsers()
	if at := e.b.NextTick(); !at.IsZero() && !e.closed {
		e.timer.Reset(max(at.Sub(now), 0))
	}
}

// wakeUsers wakes the users of streams and flows that changed.
func (e *Endpoint) wakeUsers() {
	for s := e.b.Changed(); s != nil; s = e.b.Changed() {
		if c, ok := s.User.(*Conn); ok {
			c.cond.Broadcast()
		}
	}
	for f := e.b.ChangedFlow(); f != nil; f = e.b.ChangedFlow() {
		if c, ok := f.User.(*PacketConn); ok {
			c.cond.Broadcast()
		}
	}
}

// dispatch gives idle subflows the segments that the core decides on.
func (e *Endpoint) dispatch(now time.Time) {
	for _, l := range e.lanes {
		e.probe(l, now, probeAge)
	}
	for {
		id, segment := e.b.Next(now, e.spare[:0])
		if id == 0 {
			e.spare = segment
			return
		}
		l := e.lanes[id]
		e.spare, l.out, l.full = l.out, segment, true
		l.cond.Signal()
	}
}

func (e *Endpoint) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	now := time.Now()
	for _, l := range e.lanes {
		e.probe(l, now, 0)
	}
	e.b.Tick(now)
	e.after(now)
}

// Remote takes a helper's report about the far hop of a subflow.
func (e *Endpoint) Remote(id wire.PathID, s wire.HopState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.b.Remote(id, time.Now(), s)
}

// Relay lets a helper's report about the pipe go on to the other end, which
// needs it to schedule towards us, with the next control segment, if that leaves
// soon enough.
func (e *Endpoint) Relay(s wire.PipeState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.b.Relay(s, time.Now())
}

// Groups are those that streams and flows are of.
func (e *Endpoint) Groups() map[wire.GroupID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.b.Groups()
}

// SetPlan has groups of streams and flows treated so from now on, at both ends.
// Those that are left out must be none of Groups, and are gone for ever.
func (e *Endpoint) SetPlan(groups []wire.Group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.b.SetPlan(groups)
	e.after(time.Now())
}

// FailGroup resets the streams of a group that are of that age at least.
func (e *Endpoint) FailGroup(id wire.GroupID, age time.Duration, why wire.Reset) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.b.FailGroup(id, why, func(s *bond.Stream) bool {
		c, ok := s.User.(*Conn)
		return !ok || now.Sub(c.since) >= age
	})
	e.after(now)
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
	s, err := e.b.Open(dest)
	if err != nil {
		return nil, err
	}
	s.SetMode(mode)
	s.SetGroup(group)
	c := e.newConn(s)
	// OPEN leaves at once: the destination may be one that speaks first.
	e.after(time.Now())
	return c, nil
}

// WithoutSubflow is how long there has been no subflow, 0 if there is one.
func (e *Endpoint) WithoutSubflow() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.lanes) > 0 {
		return 0
	}
	return max(time.Since(e.noLane), 1)
}

// Streams is how many streams exist.
func (e *Endpoint) Streams() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.b.Streams()
}

// Subflows is how many subflows are attached.
func (e *Endpoint) Subflows() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.lanes)
}

// Fail resets all streams but keeps the endpoint.
func (e *Endpoint) Fail(code wire.Code, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.b.Fail(code, text, time.Now())
	e.after(time.Now())
}

// ByeSeen reports that the other end has given the bond up.
func (e *Endpoint) ByeSeen() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.b.ByeSeen()
}

// Close tells the other end, resets all streams and ends all subflows. It
// waits until no goroutine is left; ctx bounds how long the farewell may take.
func (e *Endpoint) Close(ctx context.Context) {
	e.mu.Lock()
	e.leaving = true
	e.b.Fail(wire.CodeClosed, "mpbond is shutting down", time.Now())
	e.b.Bye()
	e.after(time.Now())
	e.mu.Unlock()
	e.awaitFarewell(ctx)
	e.mu.Lock()
	e.closed = true
	e.timer.Stop()
	// Streams that the other end opened during the farewell.
	e.b.Fail(wire.CodeClosed, "mpbond is shutting down", time.Now())
	for _, l := range e.lanes {
		e.drop(l, "the bond is closed")
	}
	e.wakeUsers()
	e.mu.Unlock()
	e.wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.b.ReleaseMemory()
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
		done := len(e.lanes) == 0 || e.b.Told()
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
