package pipe

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"mpbond/link/wire"
)

// Tuning.
const (
	// maxDataPayload is the most that one HOP_DATA carries here: with its header it
	// fills four TLS records of 16 KB exactly.
	maxDataPayload = 64<<10 - wire.HeaderLen
	// gatherLimit is how much a corked hop holds before it writes by itself.
	gatherLimit = 128 << 10
)

// hopConn is a connection that carries a hop.
type hopConn struct {
	raw Conn     // the carrier's connection
	rw  net.Conn // TLS over hop on a pipe, hop itself on an HS-path
	r   *wire.Reader
}

// writeFrames writes b in one system call, even where TLS cuts it into records.
func (c *hopConn) writeFrames(b []byte) error {
	c.raw.Cork()
	_, err := c.rw.Write(b)
	if e := c.raw.Flush(); err == nil {
		err = e
	}
	return err
}

// sendRefusal tells the peer why the connection ends, and closes it.
func (c *hopConn) sendRefusal(code wire.Code, text string) error {
	err := c.writeFrames(wire.Append(nil, newRefusal(code, text)))
	return errors.Join(err, c.rw.Close())
}

func newRefusal(code wire.Code, text string) wire.Refuse {
	return wire.Refuse{Code: code, Version: wire.Version, Text: text}
}

// frameReader is the reading side that both kinds of hop share. It has the ciphertext
// that was received and not returned yet, and the functions that are called with the
// helper's reports. It reads no connection itself: its owner hands it frames. One
// goroutine reads; OnState, OnFacts and Received are for any.
type frameReader struct {
	unread   []byte // what Read has not returned yet of the newest HOP_DATA
	readErr  error  // why no more comes
	received atomic.Uint64
	onState  atomic.Pointer[func(wire.HopState)]
	onFacts  atomic.Pointer[func(wire.Facts)]
}

// OnState has f called with each report of the helper, by the goroutine that
// reads, which f must not hold up. Reports that came before are lost. On an HS-path
// those alone count that Authenticate lets through.
func (r *frameReader) OnState(f func(wire.HopState)) { r.onState.Store(&f) }

// OnFacts has f called with what the helper tells of itself, as OnState does.
func (r *frameReader) OnFacts(f func(wire.Facts)) { r.onFacts.Store(&f) }

// Received returns how many bytes of ciphertext Read has returned.
func (r *frameReader) Received() uint64 { return r.received.Load() }

// readData copies ciphertext to p. When there is none it calls next, which returns that of the
// next frame, nil if it has none, or why no more comes.
func (r *frameReader) readData(p []byte, next func() ([]byte, error)) (int, error) {
	for len(r.unread) == 0 && r.readErr == nil {
		r.unread, r.readErr = next()
	}
	if len(r.unread) == 0 {
		return 0, r.readErr
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	r.received.Add(uint64(n))
	return n, nil
}

// handleCommonFrame handles a frame that any hop may carry, and returns its ciphertext if it is
// HOP_DATA. A REFUSE is an error: the wire.Refuse.
func (r *frameReader) handleCommonFrame(t wire.Type, payload []byte) ([]byte, error) {
	switch {
	case t == wire.TypeHopData:
		return payload, nil
	case t == wire.TypeFacts:
		s, err := wire.ParseFacts(payload)
		if f := r.onFacts.Load(); err == nil && f != nil {
			(*f)(s)
		}
		return nil, err
	case t == wire.TypeRefuse:
		f, err := wire.ParseRefuse(payload)
		if err != nil {
			return nil, err
		}
		return nil, f
	case t.Skippable():
		return nil, nil
	}
	return nil, unexpectedFrame(t)
}

func unexpectedFrame(t wire.Type) error {
	return fmt.Errorf("%w: %v has no place here", wire.ErrMalformed, t)
}

// handleState handles a report of the helper.
func (r *frameReader) handleState(payload []byte) error {
	s, err := wire.ParseHopState(payload)
	if f := r.onState.Load(); err == nil && f != nil {
		(*f)(s)
	}
	return err
}

// frameWriter is the writing side that both kinds of hop share. It gathers ciphertext in
// HOP_DATA frames until its owner writes them to a connection, and has the newest reports
// that have not left. Methods want wmu to be held, by the owner while it writes, but for
// Cork, Sent and setReport, which are for any goroutine.
type frameWriter struct {
	// The newest reports that have not left: about the hop beyond, and about the
	// pipe itself.
	reports [2]atomic.Pointer[wire.HopState]
	sent    atomic.Uint64

	wmu           writeLock // guards below
	corked        bool
	buf           []byte // whole frames, except that the last may be open
	openFrame     int    // where the open HOP_DATA begins in buf, or -1
	gatheredBytes uint64 // ciphertext in buf
}

func newFrameWriter() frameWriter { return frameWriter{openFrame: -1, wmu: make(writeLock, 1)} }

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

// Sent returns how many bytes of ciphertext the carrier has taken. It falls when a Link
// goes on over another connection, by what is sent again.
func (w *frameWriter) Sent() uint64 { return w.sent.Load() }

// Cork makes writes gather until Flush, so that they leave in one system call.
func (w *frameWriter) Cork() {
	w.wmu.Lock()
	w.corked = true
	w.wmu.Unlock()
}

// setReport has a report leave with the next write, unless a newer one about the same hop
// replaces it.
func (w *frameWriter) setReport(s wire.HopState) {
	i := 0
	if s.AboutPipe {
		i = 1
	}
	w.reports[i].Store(&s)
}

// takeUnsentReports returns the reports that have not left.
func (w *frameWriter) takeUnsentReports() (list []*wire.HopState) {
	for i := range w.reports {
		if s := w.reports[i].Swap(nil); s != nil {
			list = append(list, s)
		}
	}
	return list
}

// tryFlush calls flush with wmu held, unless a write is under way, or gathering, which will
// flush.
func (w *frameWriter) tryFlush(flush func() error) error {
	if !w.wmu.TryLock() {
		return nil
	}
	defer w.wmu.Unlock()
	if w.corked {
		return nil
	}
	return flush()
}

// uncorkAndFlush ends the gathering and calls flush with wmu held.
func (w *frameWriter) uncorkAndFlush(flush func() error) error {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	w.corked = false
	return flush()
}

// gatherData puts p into frames. It calls flush whenever enough is gathered and, unless
// writes are corked, at the end.
func (w *frameWriter) gatherData(p []byte, flush func() error) (n int, err error) {
	for n < len(p) {
		if w.openFrame < 0 {
			w.openFrame = len(w.buf)
			w.buf = wire.AppendHeader(w.buf, wire.TypeHopData, 0)
		}
		room := maxDataPayload + wire.HeaderLen - (len(w.buf) - w.openFrame)
		m := min(room, len(p)-n)
		w.buf = append(w.buf, p[n:n+m]...)
		w.gatheredBytes += uint64(m)
		n += m
		if m == room {
			w.closeFrame()
		}
		if len(w.buf) >= gatherLimit {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	if w.corked {
		return n, nil
	}
	return n, flush()
}

// closeFrame completes the open HOP_DATA.
func (w *frameWriter) closeFrame() {
	if w.openFrame >= 0 {
		wire.AppendHeader(w.buf[:w.openFrame], wire.TypeHopData, len(w.buf)-w.openFrame-wire.HeaderLen)
		w.openFrame = -1
	}
}

// appendDataFrame puts another frame behind what is gathered.
func (w *frameWriter) appendFrame(f wire.Frame) {
	w.closeFrame()
	w.buf = wire.Append(w.buf, f)
}

// discardGathered forgets what is gathered.
func (w *frameWriter) discardGathered() { w.buf, w.openFrame, w.gatheredBytes = w.buf[:0], -1, 0 }

// writeGathered writes what is gathered, and forgets it.
func (w *frameWriter) writeGathered(c *hopConn) error {
	defer w.discardGathered()
	err := c.writeFrames(w.buf)
	if err == nil {
		w.sent.Add(w.gatheredBytes)
	}
	return err
}
