package pipe

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/estimate"
	"mpbond/wire"
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
type Link struct {
	hop Conn     // the carrier's connection
	rw  net.Conn // TLS over hop on a pipe, hop itself on an HS-path
	r   *wire.Reader

	rest    []byte // what Read has not returned yet of the newest HOP_DATA
	readErr error
	onState atomic.Pointer[func(wire.HopState)]
	report  atomic.Pointer[wire.HopState] // the newest that has not left

	received, sent atomic.Uint64

	mu     sync.Mutex // guards below; held while writing
	corked bool
	buf    []byte // whole frames, except that the last may be open
	frame  int    // where the open HOP_DATA begins in buf, or -1
	held   uint64 // ciphertext in buf
}

func newLink(hop Conn, rw net.Conn, r *wire.Reader) *Link {
	return &Link{hop: hop, rw: rw, r: r, frame: -1}
}

// OnState has f called with each report of the helper, by the goroutine that
// reads, which f must not hold up. Reports that came before are lost.
func (l *Link) OnState(f func(wire.HopState)) { l.onState.Store(&f) }

// Received and Sent count bytes of ciphertext: those that Read has returned,
// and those that the carrier has taken.
func (l *Link) Received() uint64 { return l.received.Load() }

// Sent is the counterpart of Received.
func (l *Link) Sent() uint64 { return l.sent.Load() }

// Read implements net.Conn. It returns io.EOF when the peer ended its
// direction in order, and a wire.Refuse when it gave the reason for its end.
func (l *Link) Read(p []byte) (int, error) {
	for len(l.rest) == 0 && l.readErr == nil {
		l.rest, l.readErr = l.next()
	}
	if len(l.rest) == 0 {
		return 0, l.readErr
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	l.received.Add(uint64(n))
	return n, nil
}

// next handles one frame and returns its ciphertext, if it is HOP_DATA.
func (l *Link) next() ([]byte, error) {
	t, payload, err := l.r.Next()
	if err != nil {
		return nil, err
	}
	switch {
	case t == wire.TypeHopData:
		return payload, nil
	case t == wire.TypeHopState:
		s, err := wire.ParseHopState(payload)
		if f := l.onState.Load(); err == nil && f != nil {
			(*f)(s)
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

// Write implements net.Conn.
func (l *Link) Write(p []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
// into records.
func (l *Link) flush() error {
	l.endFrame()
	if s := l.report.Swap(nil); s != nil {
		l.buf = wire.Append(l.buf, s)
	}
	if len(l.buf) == 0 {
		return nil
	}
	l.hop.Cork()
	_, err := l.rw.Write(l.buf)
	if e := l.hop.Flush(); err == nil {
		err = e
	}
	if err == nil {
		l.sent.Add(l.held)
	}
	l.buf, l.held = l.buf[:0], 0
	return err
}

// Cork makes writes gather until Flush, so that they leave in one system call.
func (l *Link) Cork() {
	l.mu.Lock()
	l.corked = true
	l.mu.Unlock()
}

// Flush writes what was gathered and ends the gathering.
func (l *Link) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.corked = false
	return l.flush()
}

// SendState sends a report. If a write is under way it does not wait: the
// report leaves with the next write, unless a newer one has replaced it.
func (l *Link) SendState(s wire.HopState) error {
	l.report.Store(&s)
	if !l.mu.TryLock() {
		return nil
	}
	defer l.mu.Unlock()
	if l.corked {
		return nil
	}
	return l.flush()
}

// Refuse tells the peer why the subflow ends, and closes.
func (l *Link) Refuse(code wire.Code, text string) error {
	l.mu.Lock()
	l.endFrame()
	l.buf = wire.Append(l.buf, wire.Refuse{Code: code, Version: wire.Version, Text: text})
	err := l.flush()
	l.mu.Unlock()
	return errors.Join(err, l.Close())
}

// WaitWritable blocks until a segment written now would soon leave this device.
func (l *Link) WaitWritable() error { return l.hop.WaitWritable() }

// Probe tells the state of this hop's sending direction; its byte counts
// include framing and, on a pipe, TLS.
func (l *Link) Probe() (estimate.Hop, error) { return l.hop.Probe() }

// CloseWrite ends the sending direction: the peer reads what was written and
// then io.EOF.
func (l *Link) CloseWrite() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.flush()
	if t, ok := l.rw.(*tls.Conn); ok && err == nil {
		err = t.CloseWrite()
	}
	if err != nil {
		return err
	}
	return l.hop.CloseWrite()
}

// Close implements net.Conn.
func (l *Link) Close() error { return l.rw.Close() }

// LocalAddr implements net.Conn.
func (l *Link) LocalAddr() net.Addr { return l.hop.LocalAddr() }

// RemoteAddr implements net.Conn.
func (l *Link) RemoteAddr() net.Addr { return l.hop.RemoteAddr() }

// SetDeadline implements net.Conn.
func (l *Link) SetDeadline(t time.Time) error { return l.rw.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (l *Link) SetReadDeadline(t time.Time) error { return l.rw.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (l *Link) SetWriteDeadline(t time.Time) error { return l.rw.SetWriteDeadline(t) }
