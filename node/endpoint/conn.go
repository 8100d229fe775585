// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/wire"
)

// Conn is one stream as a net.Conn. Read and Write may be called from different goroutines. After a
// reset they return an error that wraps a wire.Reset.
type Conn struct {
	endpoint *Endpoint
	stream   *bond.Stream
	cond     *sync.Cond // on Endpoint.mu: the stream changed

	openedAt time.Time // when the stream was opened
	app      appHandle
	observer Observer // nil: none

	closed                      bool // by Close
	readDeadline, writeDeadline deadline
}

// Observer learns what an app moves over a stream. It is called with the endpoint's lock held: it may
// only take short-lived locks, and must not call the endpoint.
type Observer interface {
	// RecordMovedBytes records that the app wrote n bytes (up) or read them.
	RecordMovedBytes(now time.Time, up bool, n unit.Bytes)
	// RecordEnd records the end of the stream, once. complete reports that both directions ended
	// without a reset, and that the app has read everything.
	RecordEnd(now time.Time, complete bool)
}

// ObservedStream has the methods that an Observer may use while it is called.
type ObservedStream struct{ c *Conn }

// App returns the app of the stream, "" while it is unknown.
func (s ObservedStream) App() string { return s.c.app.internedAppInfo().App }

// ExpectMessage says what is expected of the present message of a direction. It reports whether that
// was passed on to the sending end.
func (s ObservedStream) ExpectMessage(now time.Time, up bool, e bond.Expectation) bool {
	if up {
		s.c.stream.ExpectSent(e)
		return true
	}
	return s.c.stream.ExpectReceived(now, e)
}

// Candidates returns the subflows that are not silent, with those marked as allowed that the stream
// may use in a direction.
func (s ObservedStream) Candidates(up bool) []NamedCandidate {
	list := s.c.endpoint.candidates()
	some := s.c.stream.UsedSubflows(up)
	for i := range list {
		list[i].Allowed = len(some) == 0 || slices.Contains(some, list[i].ID)
	}
	return list
}

// SetObserver sets the observer of the stream, which newObserver returns.
func (c *Conn) SetObserver(newObserver func(ObservedStream) Observer) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.observer = newObserver(ObservedStream{c})
}

// reportMoved reports n bytes to the observer. Endpoint.mu must be held.
func (c *Conn) reportMoved(up bool, n int) {
	if c.observer != nil && n > 0 {
		c.observer.RecordMovedBytes(time.Now(), up, unit.Bytes(n))
	}
}

// deadline is a deadline of a net.Conn. Endpoint.mu must be held.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) hasPassed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (e *Endpoint) newStreamConn(s *bond.Stream) *Conn {
	c := &Conn{endpoint: e, stream: s, cond: sync.NewCond(&e.mu), openedAt: time.Now()}
	s.User = c
	return c
}

// Dest returns the destination of the stream.
func (c *Conn) Dest() string { return c.stream.Dest() }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	for {
		if c.closed {
			return 0, net.ErrClosed
		}
		if c.readDeadline.hasPassed() {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := c.stream.Read(p)
		if n > 0 || err != nil || len(p) == 0 {
			c.reportMoved(false, n)
			c.endpoint.handleBondEvents(time.Now())
			return n, err
		}
		c.cond.Wait()
	}
}

// maxGather is the most bytes that WriteTo passes to one write.
const maxGather = 256 << 10

// WriteTo implements io.WriterTo: it writes received bytes to w, without copying them, until the
// stream ends or the deadline of reading has passed.
func (c *Conn) WriteTo(w io.Writer) (total int64, err error) {
	var list net.Buffers
	for {
		list = list[:0]
		n := 0
		c.endpoint.mu.Lock()
		for n == 0 {
			switch err = c.stream.Err(); {
			case c.closed:
				err = net.ErrClosed
			case c.readDeadline.hasPassed():
				err = os.ErrDeadlineExceeded
			case err == nil && c.stream.EOF():
				_, err = c.stream.Read(nil)
			}
			if err != nil {
				c.endpoint.handleBondEvents(time.Now())
				c.endpoint.mu.Unlock()
				if err == io.EOF {
					err = nil
				}
				return total, err
			}
			c.stream.ReadableSlices(maxGather, func(b []byte) { list = append(list, b); n += len(b) })
			if n == 0 {
				c.cond.Wait()
			}
		}
		c.reportMoved(false, n) // before the app can answer
		c.endpoint.mu.Unlock()
		todo := list
		written, werr := todo.WriteTo(w)
		total += written
		c.endpoint.mu.Lock()
		// After a reset there is nothing left to consume.
		c.stream.Consume(min(int(written), c.stream.Readable()))
		c.endpoint.handleBondEvents(time.Now())
		c.endpoint.mu.Unlock()
		if werr != nil {
			return total, werr
		}
	}
}

// Write implements net.Conn: it blocks while the meta buffer is full.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	var retry *time.Timer // nil until there was no memory
	defer func() {
		if retry != nil {
			retry.Stop()
		}
	}()
	for {
		if c.closed {
			return n, net.ErrClosed
		}
		if err := c.stream.Err(); err != nil {
			return n, err
		}
		if c.stream.WriteClosed() {
			return n, io.ErrClosedPipe
		}
		if c.writeDeadline.hasPassed() {
			return n, os.ErrDeadlineExceeded
		}
		k := c.stream.Write(p[n:])
		c.reportMoved(true, k)
		n += k
		if k > 0 {
			c.endpoint.handleBondEvents(time.Now())
		}
		if n == len(p) {
			return n, nil
		}
		switch noMemory := c.stream.Room() > 0; { // which other bonds may release
		case noMemory && retry == nil:
			retry = c.endpoint.wakeAfter(memoryRetry, c.cond)
		case noMemory:
			retry.Reset(memoryRetry)
		}
		c.cond.Wait()
	}
}

// memoryRetry is how soon a writer that found no memory tries again.
const memoryRetry = 20 * time.Millisecond

// wakeAfter wakes the waiters of cond, which uses mu, after d.
func (e *Endpoint) wakeAfter(d time.Duration, cond *sync.Cond) *time.Timer {
	return time.AfterFunc(d, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		cond.Broadcast()
	})
}

// Bind binds what this end writes from now on to one subflow. See bond.Stream.BindToSubflow.
func (c *Conn) Bind(id wire.SubflowID) bool {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	return c.stream.BindToSubflow(id)
}

// RequestChunk announces to the other end that the app waits for n more bytes than it has read. See
// bond.Stream.RequestChunk.
func (c *Conn) RequestChunk(n unit.Bytes) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.stream.RequestChunk(n)
	c.endpoint.handleBondEvents(time.Now())
}

// MarkChunkEnd marks the end of a chunk after n more bytes than were written so far: the other end
// waits for these. See bond.Stream.MarkChunkEnd.
func (c *Conn) MarkChunkEnd(n unit.Bytes) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.stream.MarkChunkEnd(n)
}

// IsDone reports whether the stream has ended.
func (c *Conn) IsDone() bool {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	return c.closed || c.stream.Done()
}

// CloseWrite ends the sending direction; the other end reads io.EOF after all written bytes.
func (c *Conn) CloseWrite() error {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	if err := c.stream.Err(); err != nil {
		return err
	}
	c.stream.CloseWrite()
	c.endpoint.handleBondEvents(time.Now())
	return nil
}

// Close implements net.Conn. As with TCP it resets the stream unless all bytes from the other end
// were read.
func (c *Conn) Close() error {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.stream.EOF() {
		c.stream.CloseWrite()
		c.stream.Consume(0)
	} else {
		c.stream.Reset(wire.CodeClosed, "closed by the other end")
	}
	c.finishClose()
	return nil
}

// Reset ends both directions at once and makes the other end reset its connection.
func (c *Conn) Reset() { c.ResetWith(wire.CodeConnReset, "connection reset") }

// ResetWith is Reset with a reason for the other end.
func (c *Conn) ResetWith(code wire.Code, text string) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.closed = true
	c.stream.Reset(code, text)
	c.finishClose()
}

// finishClose stops the deadlines and wakes all waiters. Endpoint.mu must be held.
func (c *Conn) finishClose() {
	if c.observer != nil {
		c.observer.RecordEnd(time.Now(), c.stream.EOF() && c.stream.Err() == nil)
		c.observer = nil
	}
	for _, d := range []*deadline{&c.readDeadline, &c.writeDeadline} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
	c.cond.Broadcast()
	c.endpoint.handleBondEvents(time.Now())
}

// Opened reports to the other end that the destination is connected.
func (c *Conn) Opened() {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.stream.SetOpened()
	c.endpoint.handleBondEvents(time.Now())
}

// WaitOpen waits until the other end has connected or refused the destination. It returns nil, the
// refusal, or ctx's error.
func (c *Conn) WaitOpen(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		c.endpoint.mu.Lock()
		defer c.endpoint.mu.Unlock()
		c.cond.Broadcast()
	})
	defer stop()
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	for {
		switch {
		case c.stream.Err() != nil:
			return c.stream.Err()
		case c.stream.Opened():
			return nil
		case c.closed:
			return net.ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		}
		c.cond.Wait()
	}
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.setOwnDeadline(&c.readDeadline, t)
	c.setOwnDeadline(&c.writeDeadline, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { c.setOwnDeadline(&c.readDeadline, t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { c.setOwnDeadline(&c.writeDeadline, t); return nil }

func (c *Conn) setOwnDeadline(d *deadline, t time.Time) {
	c.endpoint.setConnDeadline(d, t, c.cond, &c.closed)
}

// setConnDeadline sets d and wakes the waiters of cond now and when d passes. closed, guarded by
// Endpoint.mu, means that there are no more waiters.
func (e *Endpoint) setConnDeadline(d *deadline, t time.Time, cond *sync.Cond, closed *bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at = t
	if !t.IsZero() && !*closed {
		d.timer = e.wakeAfter(max(time.Until(t), 0), cond)
	}
	cond.Broadcast()
}

type addr string

func (a addr) Network() string { return "mpbond" }
func (a addr) String() string  { return string(a) }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return addr("mpbond") }

// RemoteAddr implements net.Conn: the destination.
func (c *Conn) RemoteAddr() net.Addr { return addr(c.stream.Dest()) }
