// SPDX-License-Identifier: Apache-2.0

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
	// maxDataPayload bounds one HOP_DATA frame: with its header it fills exactly four TLS records
	// of 16 KB.
	maxDataPayload = 64<<10 - wire.HeaderLen
	// gatherLimit is how many bytes a corked hop accumulates before it writes by itself.
	gatherLimit = 128 << 10
)

// hopConn is a connection that carries a hop.
type hopConn struct {
	raw Conn     // the carrier's connection
	rw  net.Conn // TLS over raw on a pipe, raw itself on an HS-path
	r   *wire.Reader
}

// writeFrames writes b in one system call, even if TLS splits it into records.
func (c *hopConn) writeFrames(b []byte) error {
	c.raw.Cork()
	_, err := c.rw.Write(b)
	if e := c.raw.Flush(); err == nil {
		err = e
	}
	return err
}

// refuseAndClose sends the peer the reason why the connection ends, and closes it.
func (c *hopConn) refuseAndClose(code wire.Code, text string) error {
	err := c.writeFrames(wire.Append(nil, newRefuseFrame(code, text)))
	return errors.Join(err, c.rw.Close())
}

func newRefuseFrame(code wire.Code, text string) wire.Refuse {
	return wire.Refuse{Code: code, Version: wire.Version, Text: text}
}

// frameReader is the reading side of both kinds of hop. It holds the ciphertext received but not
// yet read, and the callbacks for the helper's reports. It does not read the connection itself: its
// owner passes it frames. One goroutine reads; any goroutine may call OnState, OnFacts and
// Received.
type frameReader struct {
	unread   []byte // rest of the newest HOP_DATA
	readErr  error  // why reading has ended
	received atomic.Uint64
	onState  atomic.Pointer[func(wire.HopState)]
	onFacts  atomic.Pointer[func(wire.Facts)]
}

// OnState sets the function that is called with each report of the helper. It is called by the
// goroutine that reads and must not block. Earlier reports are lost. On an HS-path only
// authenticated reports are passed on.
func (r *frameReader) OnState(f func(wire.HopState)) { r.onState.Store(&f) }

// OnFacts sets the function that is called with the facts that the helper sends about itself, under
// the same rules as OnState.
func (r *frameReader) OnFacts(f func(wire.Facts)) { r.onFacts.Store(&f) }

// Received returns how many bytes of ciphertext Read has returned.
func (r *frameReader) Received() uint64 { return r.received.Load() }

// readCiphertext copies ciphertext to p. When none is left it calls next, which returns the
// ciphertext of the next frame, nil if that frame has none, or the error that ends reading.
func (r *frameReader) readCiphertext(p []byte, next func() ([]byte, error)) (int, error) {
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

// handleCommonFrame handles a frame that is valid on any hop. It returns the ciphertext of
// HOP_DATA. A REFUSE is returned as error, a wire.Refuse.
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
	return fmt.Errorf("%w: unexpected %v frame", wire.ErrMalformed, t)
}

// handleState handles a HOP_STATE report of the helper.
func (r *frameReader) handleState(payload []byte) error {
	s, err := wire.ParseHopState(payload)
	if f := r.onState.Load(); err == nil && f != nil {
		(*f)(s)
	}
	return err
}

// frameWriter is the writing side of both kinds of hop. It gathers ciphertext in HOP_DATA frames
// until its owner writes them to a connection, and holds the newest unsent reports. wmu must be
// held for its methods and is held by the owner while it writes. Any goroutine may call Cork, Sent
// and queueHopReport without it.
type frameWriter struct {
	// The newest unsent reports: about the hop beyond the helper, and about the pipe itself.
	reports [2]atomic.Pointer[wire.HopState]
	sent    atomic.Uint64

	wmu           writeLock // guards the fields below
	corked        bool
	buf           []byte // whole frames; only the last may be open
	openFrame     int    // start of the open HOP_DATA in buf, or -1
	gatheredBytes uint64 // bytes of ciphertext in buf
}

func newFrameWriter() frameWriter { return frameWriter{openFrame: -1, wmu: make(writeLock, 1)} }

// writeLock is a mutex that may be held as long as a hop accepts no data. It is a channel, so that
// virtual time advances in tests of package synctest while a goroutine waits for it.
type writeLock chan struct{}

// Lock acquires the lock.
func (w writeLock) Lock() { w <- struct{}{} }

// Unlock releases the lock.
func (w writeLock) Unlock() { <-w }

// TryLock acquires the lock if it is free, and reports whether it did.
func (w writeLock) TryLock() bool {
	select {
	case w <- struct{}{}:
		return true
	default:
		return false
	}
}

// Sent returns how many bytes of ciphertext the carrier has accepted. When a Link changes to
// another connection it falls by the bytes to be sent again.
func (w *frameWriter) Sent() uint64 { return w.sent.Load() }

// Cork makes writes accumulate until Flush, so that they leave in one system call.
func (w *frameWriter) Cork() {
	w.wmu.Lock()
	w.corked = true
	w.wmu.Unlock()
}

// queueHopReport queues a report for the next write. A newer report about the same hop replaces it.
func (w *frameWriter) queueHopReport(s wire.HopState) {
	i := 0
	if s.AboutPipe {
		i = 1
	}
	w.reports[i].Store(&s)
}

// takeUnsentReports removes and returns the unsent reports.
func (w *frameWriter) takeUnsentReports() (list []*wire.HopState) {
	for i := range w.reports {
		if s := w.reports[i].Swap(nil); s != nil {
			list = append(list, s)
		}
	}
	return list
}

// flushUnlessBusy calls flush with wmu held. If a write is in progress or corked, it does nothing:
// that write flushes.
func (w *frameWriter) flushUnlessBusy(flush func() error) error {
	if !w.wmu.TryLock() {
		return nil
	}
	defer w.wmu.Unlock()
	if w.corked {
		return nil
	}
	return flush()
}

// uncorkAndFlush ends corking and calls flush with wmu held.
func (w *frameWriter) uncorkAndFlush(flush func() error) error {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	w.corked = false
	return flush()
}

// gatherData puts p into frames. It calls flush whenever gatherLimit is reached and, unless corked,
// at the end.
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

// closeFrame completes the open HOP_DATA frame.
func (w *frameWriter) closeFrame() {
	if w.openFrame >= 0 {
		wire.AppendHeader(w.buf[:w.openFrame], wire.TypeHopData, len(w.buf)-w.openFrame-wire.HeaderLen)
		w.openFrame = -1
	}
}

// appendFrame appends f to the gathered frames.
func (w *frameWriter) appendFrame(f wire.Frame) {
	w.closeFrame()
	w.buf = wire.Append(w.buf, f)
}

// discardGathered drops the gathered frames.
func (w *frameWriter) discardGathered() { w.buf, w.openFrame, w.gatheredBytes = w.buf[:0], -1, 0 }

// writeGathered writes the gathered frames and drops them.
func (w *frameWriter) writeGathered(c *hopConn) error {
	defer w.discardGathered()
	err := c.writeFrames(w.buf)
	if err == nil {
		w.sent.Add(w.gatheredBytes)
	}
	return err
}
