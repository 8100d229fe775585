package pipe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// Tuning.
const (
	// maxData is the most that one HOP_DATA carries here: with its header it
	// fills four TLS records of 16 KB exactly.
	maxData = 64<<10 - wire.HeaderLen
	// gather is how much a corked Link holds before it writes by itself.
	gather = 128 << 10
)

// Link is one hop that carries one subflow's ciphertext. It is a net.Conn for
// that ciphertext, so that end-to-end TLS runs over it. One goroutine may read
// and another write; SendState, Probe and Close may be called by any.
//
// On an HS-path a Link is one connection. On a pipe it is a session, which
// outlives the connections that carry it: see session.go.
type Link struct {
	s *session // nil on an HS-path

	rest    []byte // what Read has not returned yet of the newest HOP_DATA
	readErr error
	onState atomic.Pointer[func(wire.HopState)]
	// The newest reports that have not left: about the hop beyond, and about the
	// pipe itself.
	reports  [2]atomic.Pointer[wire.HopState]
	onFacts  atomic.Pointer[func(wire.Facts)]
	onReport func(wire.Report)          // or nil
	facts    atomic.Pointer[wire.Facts] // the newest that have not left
	limit    atomic.Int64               // the pace that the far end shall keep to, bit/s
	auth     *verifier                  // at the server's end of an HS-path, else nil
	radio    wire.Radio                 // of the helper's link to the server, at the primary
	key      wire.HopKey                // of the subflow, at the primary

	received, sent atomic.Uint64

	wmu    writeLock // guards below; held while writing, taken before mu
	corked bool
	buf    []byte  // whole frames, except that the last may be open
	frame  int     // where the open HOP_DATA begins in buf, or -1
	held   uint64  // ciphertext in buf
	told   int64   // the limit that the far end knows
	signer *signer // at the helper's end of an HS-path, else nil

	mu   sync.Mutex // guards below and what the session says; never held for long
	cond sync.Cond  // signalled when at or err change
	at   *carried
	err  error // why a session has ended
}

// carried is one connection that carries a Link.
type carried struct {
	hop    Conn     // the carrier's connection
	rw     net.Conn // TLS over hop on a pipe, hop itself on an HS-path
	r      *wire.Reader
	skip   uint64 // ciphertext to come that was received over another one already
	broken error  // why it carries nothing any more, of a session only
}

func newLink(c *carried) *Link {
	l := &Link{frame: -1, at: c, wmu: make(writeLock, 1)}
	l.cond.L = &l.mu
	return l
}

func (l *Link) carrier() *carried {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// writeLock is a mutex that may be held for as long as a hop takes nothing. It
// is a channel, so that time passes in a test of package synctest while
// somebody waits for it.
type writeLock chan struct{}

// Lock and the others do what those of a sync.Mutex do.
func (w writeLock) Lock() { w <- struct{}{} }

// Unlock releases the lock.
func (w writeLock) Unlock() { <-w }

// TryLock takes the lock if it is free.
func (w writeLock) TryLock() bool {
	select {
	case w <- struct{}{}:
		return true
	default:
		return false
	}
}

// Radio is that of the helper's link to the server, at the primary's end of a
// pipe.
func (l *Link) Radio() wire.Radio { return l.radio }

// HopKey is the key by which the server recognises what the helper of this subflow says, at
// the primary's end of a pipe.
func (l *Link) HopKey() wire.HopKey { return l.key }

// OnState has f called with each report of the helper, by the goroutine that
// reads, which f must not hold up. Reports that came before are lost. On an HS-path
// those alone count that Authenticate lets through.
func (l *Link) OnState(f func(wire.HopState)) { l.onState.Store(&f) }

// OnReport has f called with reports that a helper leaves on an HS-path. It is set before
// the first Read.
func (l *Link) OnReport(f func(wire.Report)) { l.onReport = f }

// OnFacts has f called with what the helper tells of itself, as OnState does.
func (l *Link) OnFacts(f func(wire.Facts)) { l.onFacts.Store(&f) }

// Received and Sent count bytes of ciphertext: those that Read has returned,
// and those that the carrier has taken.
func (l *Link) Received() uint64 { return l.received.Load() }

// Sent is the counterpart of Received. It falls when a session goes on over
// another connection, by what is sent again.
func (l *Link) Sent() uint64 { return l.sent.Load() }

// Read implements net.Conn. It returns io.EOF when the peer ended its
// direction in order, and a wire.Refuse when it gave the reason for its end.
func (l *Link) Read(p []byte) (int, error) {
	for len(l.rest) == 0 && l.readErr == nil {
		if l.s != nil {
			l.rest, l.readErr = l.nextOfSession()
		} else if t, payload, err := l.at.r.Next(); err != nil {
			l.readErr = err
		} else {
			l.rest, l.readErr = l.take(t, payload)
		}
	}
	if len(l.rest) == 0 {
		return 0, l.readErr
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	l.received.Add(uint64(n))
	return n, nil
}

// take handles one frame and returns its ciphertext, if it is HOP_DATA.
func (l *Link) take(t wire.Type, payload []byte) ([]byte, error) {
	switch {
	case t == wire.TypeHopData:
		return payload, nil
	case t == wire.TypeHopState && l.s != nil:
		return nil, l.takeState(payload)
	case t == wire.TypeHopAuth && l.auth != nil:
		return nil, l.takeAuth(payload)
	case t == wire.TypeFacts:
		s, err := wire.ParseFacts(payload)
		if f := l.onFacts.Load(); err == nil && f != nil {
			(*f)(s)
		}
		return nil, err
	case t == wire.TypeReport && l.onReport != nil:
		if len(payload) > wire.MaxReport {
			return nil, wire.ErrTooLarge
		}
		s, err := wire.ParseReport(payload)
		if err == nil {
			l.onReport(s)
			err = io.EOF // the connection was for this alone
		}
		return nil, err
	case t == wire.TypeRefuse:
		r, err := wire.ParseRefuse(payload)
		if err != nil {
			return nil, err
		}
		return nil, r
	case t.Skippable():
		return nil, nil
	}
	return nil, unexpected(t)
}

func unexpected(t wire.Type) error {
	return fmt.Errorf("%w: %v has no place here", wire.ErrMalformed, t)
}

// Write implements net.Conn. A session takes what it may have to send again
// even while nothing carries it; it blocks when it can keep no more.
func (l *Link) Write(p []byte) (n int, err error) {
	if l.s == nil || !l.s.own {
		return l.write(p)
	}
	for n < len(p) {
		m := l.s.store(p[n:])
		if m == 0 {
			return n, l.fatal()
		}
		if _, err := l.write(p[n : n+m]); err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func (l *Link) write(p []byte) (n int, err error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.s != nil {
		l.s.pos.Add(uint64(len(p)))
	}
	for n < len(p) {
		if l.frame < 0 {
			l.frame = len(l.buf)
			l.buf = wire.AppendHeader(l.buf, wire.TypeHopData, 0)
		}
		room := maxData + wire.HeaderLen - (len(l.buf) - l.frame)
		m := min(room, len(p)-n)
		l.buf = append(l.buf, p[n:n+m]...)
		l.held += uint64(m)
		n += m
		if m == room {
			l.endFrame()
		}
		if len(l.buf) >= gather {
			if err := l.flush(); err != nil {
				return 0, err
			}
		}
	}
	if l.corked {
		return n, nil
	}
	return n, l.flush()
}

// endFrame completes the open HOP_DATA.
func (l *Link) endFrame() {
	if l.frame >= 0 {
		wire.AppendHeader(l.buf[:l.frame], wire.TypeHopData, len(l.buf)-l.frame-wire.HeaderLen)
		l.frame = -1
	}
}

// flush writes what is gathered, in one system call even where TLS cuts it
// into records. A session that nothing carries has it already.
func (l *Link) flush() error {
	l.endFrame()
	for i := range l.reports {
		if s := l.reports[i].Swap(nil); s != nil {
			l.buf = l.appendSigned(l.buf, s)
		}
	}
	if f := l.facts.Swap(nil); f != nil {
		l.buf = wire.Append(l.buf, f)
	}
	if r := l.limit.Load(); r != l.told {
		l.buf = l.appendSigned(l.buf, wire.HopLimit{Rate: unit.Rate(r)})
		l.told = r
	}
	if l.s != nil {
		l.confirm()
	}
	if len(l.buf) == 0 {
		return nil
	}
	defer func() { l.buf, l.held = l.buf[:0], 0 }()
	c := l.at
	if l.s != nil {
		if c = l.usable(); c == nil {
			return l.fatal()
		}
	}
	c.hop.Cork()
	_, err := c.rw.Write(l.buf)
	if e := c.hop.Flush(); err == nil {
		err = e
	}
	if err == nil {
		l.sent.Add(l.held)
	}
	if l.s != nil {
		return l.written(c, err)
	}
	return err
}

// appendSigned appends a report or limit to b: in a HOP_AUTH on an HS-path, as it is on a
// pipe, where TLS protects it.
func (l *Link) appendSigned(b []byte, f wire.Frame) []byte {
	if l.signer == nil {
		return wire.Append(b, f)
	}
	return l.signer.append(b, f)
}

// Cork makes writes gather until Flush, so that they leave in one system call.
func (l *Link) Cork() {
	l.wmu.Lock()
	l.corked = true
	l.wmu.Unlock()
}

// Flush writes what was gathered and ends the gathering.
func (l *Link) Flush() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.corked = false
	return l.flush()
}

// SendState sends a report. If a write is under way it does not wait: the
// report leaves with the next write, unless a newer one about the same hop has
// replaced it.
func (l *Link) SendState(s wire.HopState) error {
	i := 0
	if s.OfPipe {
		i = 1
	}
	l.reports[i].Store(&s)
	return l.tryFlush()
}

// SendFacts tells the primary what is known of this device. As SendState it does
// not wait.
func (l *Link) SendFacts(f wire.Facts) error {
	l.facts.Store(&f)
	return l.tryFlush()
}

// SendLimit asks the server, at the far end of an HS-path, to send no faster
// than r; 0 ends that. As SendState it does not wait: to be sure that a limit
// has left, say it again; only what the far end does not know is sent.
func (l *Link) SendLimit(r unit.Rate) error {
	if r > 0 {
		r = max(r, wire.LeastLimit)
	}
	l.limit.Store(int64(r))
	return l.tryFlush()
}

// tryFlush writes what is due, unless a write is under way that will.
func (l *Link) tryFlush() error {
	if !l.wmu.TryLock() {
		return nil
	}
	defer l.wmu.Unlock()
	if l.corked {
		return nil
	}
	return l.flush()
}

// Pace limits how fast this end sends; 0 is no limit. It does nothing on a
// carrier that has no pace.
func (l *Link) Pace(r unit.Rate) error {
	if p, ok := l.carrier().hop.(interface{ Pace(unit.Rate) error }); ok {
		return p.Pace(r)
	}
	return nil
}

// Refuse tells the peer why the subflow ends, and closes.
func (l *Link) Refuse(code wire.Code, text string) error {
	l.wmu.Lock()
	l.endFrame()
	l.buf = wire.Append(l.buf, wire.Refuse{Code: code, Version: wire.Version, Text: text})
	if l.s != nil {
		l.s.ended = true // REFUSE says it all
	}
	err := l.flush()
	l.wmu.Unlock()
	return errors.Join(err, l.Close())
}

// WaitWritable blocks until a segment written now would soon leave this device.
func (l *Link) WaitWritable() error {
	if l.s != nil {
		return l.waitSession()
	}
	return l.at.hop.WaitWritable()
}

// Probe tells the state of this hop's sending direction; its byte counts
// include framing and, on a pipe, TLS. While nothing carries a session it is an
// error.
func (l *Link) Probe() (estimate.Hop, error) {
	if l.s != nil {
		return l.probeSession()
	}
	return l.at.hop.Probe()
}

// CloseWrite ends the sending direction: the peer reads what was written and
// then io.EOF.
func (l *Link) CloseWrite() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.s != nil {
		return l.endSession()
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.at.hop.CloseWrite()
}

// Close implements net.Conn. It ends a session for good.
func (l *Link) Close() error {
	if l.s != nil {
		return l.closeSession()
	}
	return l.at.rw.Close()
}

// Abort closes an HS-path with a reset, so that nothing more of it is carried; a
// session it ends as Close does.
func (l *Link) Abort() error {
	if c, ok := l.carrier().hop.(interface{ Abort() error }); ok && l.s == nil {
		return c.Abort()
	}
	return l.Close()
}

// Conn is the carrier's connection in use.
func (l *Link) Conn() Conn { return l.carrier().hop }

// LocalAddr implements net.Conn.
func (l *Link) LocalAddr() net.Addr { return l.carrier().hop.LocalAddr() }

// RemoteAddr implements net.Conn: of the connection in use.
func (l *Link) RemoteAddr() net.Addr { return l.carrier().hop.RemoteAddr() }

// Via names the local link that the connection in use goes over.
func (l *Link) Via() string { return via(l.carrier().hop) }

// via names a local link by both its ends' addresses, without ports: two
// connections between the same addresses go the same way.
func via(c net.Conn) string {
	host := func(a net.Addr) string {
		if h, _, err := net.SplitHostPort(a.String()); err == nil {
			return h
		}
		return a.String()
	}
	return host(c.LocalAddr()) + "-" + host(c.RemoteAddr())
}

// SetDeadline implements net.Conn. A read that fails by its deadline is the
// last.
func (l *Link) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (l *Link) SetReadDeadline(t time.Time) error {
	if l.s != nil {
		l.s.timed.Store(!t.IsZero())
	}
	return l.carrier().rw.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (l *Link) SetWriteDeadline(t time.Time) error { return l.carrier().rw.SetWriteDeadline(t) }
