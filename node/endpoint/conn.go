package endpoint

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/wire"
)

// Conn is one stream as a net.Conn. Read and Write may be called from
// different goroutines. After a reset they return an error that wraps a
// wire.Reset.
type Conn struct {
	e    *Endpoint
	s    *bond.Stream
	cond *sync.Cond // on Endpoint.mu: something about the stream changed

	since time.Time // when it was opened
	owner owner

	closed               bool // by Close
	readLimit, writeTime deadline
}

// deadline is one of net.Conn's; guarded by Endpoint.mu.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (e *Endpoint) newConn(s *bond.Stream) *Conn {
	c := &Conn{e: e, s: s, cond: sync.NewCond(&e.mu), since: time.Now()}
	s.User = c
	return c
}

// Dest is the destination that the stream was opened for.
func (c *Conn) Dest() string { return c.s.Dest() }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for {
		if c.closed {
			return 0, net.ErrClosed
		}
		if c.readLimit.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := c.s.Read(p)
		if n > 0 || err != nil || len(p) == 0 {
			c.e.after(time.Now())
			return n, err
		}
		c.cond.Wait()
	}
}

// gather is how much WriteTo hands to one write.
const gather = 256 << 10

// WriteTo implements io.WriterTo: it writes what arrives to w, until the
// stream ends, without copying it in between.
func (c *Conn) WriteTo(w io.Writer) (total int64, err error) {
	var list net.Buffers
	for {
		list = list[:0]
		n := 0
		c.e.mu.Lock()
		for n == 0 {
			if c.closed {
				err = net.ErrClosed
			} else if err = c.s.Err(); err == nil && c.s.EOF() {
				_, err = c.s.Read(nil)
			}
			if err != nil {
				c.e.after(time.Now())
				c.e.mu.Unlock()
				if err == io.EOF {
					err = nil
				}
				return total, err
			}
			c.s.Slices(gather, func(b []byte) { list = append(list, b); n += len(b) })
			if n == 0 {
				c.cond.Wait()
			}
		}
		c.e.mu.Unlock()
		todo := list
		written, werr := todo.WriteTo(w)
		total += written
		c.e.mu.Lock()
		// After a reset there is nothing left to consume.
		c.s.Consume(min(int(written), c.s.Readable()))
		c.e.after(time.Now())
		c.e.mu.Unlock()
		if werr != nil {
			return total, werr
		}
	}
}

// Write implements net.Conn: it blocks while the meta buffer is full.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for {
		if c.closed {
			return n, net.ErrClosed
		}
		if err := c.s.Err(); err != nil {
			return n, err
		}
		if c.s.WriteClosed() {
			return n, io.ErrClosedPipe
		}
		if c.writeTime.passed() {
			return n, os.ErrDeadlineExceeded
		}
		k := c.s.Write(p[n:])
		n += k
		reset := c.s.Err() != nil // for want of memory
		if k > 0 || reset {
			c.e.after(time.Now())
		}
		if n == len(p) {
			return n, nil
		}
		if !reset {
			c.cond.Wait()
		}
	}
}

// Bind lets one subflow alone carry what this end writes from now on: see
// bond.Stream.Bind.
func (c *Conn) Bind(id wire.PathID) bool {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.s.Bind(id)
}

// Await tells the other end that the app waits for n more bytes than it has
// read, and not yet for what may come after them: see bond.Stream.Await.
func (c *Conn) Await(n unit.Bytes) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.s.Await(n)
	c.e.after(time.Now())
}

// Mark tells that what was written so far, and n bytes more, is what the other
// end waits for: see bond.Stream.Mark.
func (c *Conn) Mark(n unit.Bytes) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.s.Mark(n)
}

// Done reports that the stream is over.
func (c *Conn) Done() bool {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.closed || c.s.Done()
}

// CloseWrite ends the sending direction; the other end reads io.EOF after what
// was written.
func (c *Conn) CloseWrite() error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if err := c.s.Err(); err != nil {
		return err
	}
	c.s.CloseWrite()
	c.e.after(time.Now())
	return nil
}

// Close implements net.Conn. As with TCP it resets the stream unless everything
// that the other end sent was read.
func (c *Conn) Close() error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.s.EOF() {
		c.s.CloseWrite()
		c.s.Consume(0)
	} else {
		c.s.Reset(wire.CodeClosed, "closed by the other end")
	}
	c.end()
	return nil
}

// Reset ends both directions at once and makes the other end reset its
// connection.
func (c *Conn) Reset() { c.ResetWith(wire.CodeConnReset, "connection reset") }

// ResetWith is Reset with a reason that the other end is told.
func (c *Conn) ResetWith(code wire.Code, text string) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.closed = true
	c.s.Reset(code, text)
	c.end()
}

// end wakes whoever waits on the conn.
func (c *Conn) end() {
	for _, d := range []*deadline{&c.readLimit, &c.writeTime} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
	c.cond.Broadcast()
	c.e.after(time.Now())
}

// Opened tells the other end that the destination is connected.
func (c *Conn) Opened() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.s.SetOpened()
	c.e.after(time.Now())
}

// WaitOpen waits until the other end has connected the destination or refused
// it: nil, the refusal, or ctx's error.
func (c *Conn) WaitOpen(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		c.e.mu.Lock()
		defer c.e.mu.Unlock()
		c.cond.Broadcast()
	})
	defer stop()
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for {
		switch {
		case c.s.Err() != nil:
			return c.s.Err()
		case c.s.Opened():
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
	c.set(&c.readLimit, t)
	c.set(&c.writeTime, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { c.set(&c.readLimit, t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { c.set(&c.writeTime, t); return nil }

func (c *Conn) set(d *deadline, t time.Time) { c.e.setDeadline(d, t, c.cond, &c.closed) }

// setDeadline sets d and wakes whoever waits on cond then and when it passes.
// Closed, guarded by Endpoint.mu, tells that nobody waits any more.
func (e *Endpoint) setDeadline(d *deadline, t time.Time, cond *sync.Cond, closed *bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at = t
	if !t.IsZero() && !*closed {
		d.timer = time.AfterFunc(max(time.Until(t), 0), func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			cond.Broadcast()
		})
	}
	cond.Broadcast()
}

type addr string

func (a addr) Network() string { return "mpbond" }
func (a addr) String() string  { return string(a) }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return addr("mpbond") }

// RemoteAddr implements net.Conn: the destination.
func (c *Conn) RemoteAddr() net.Addr { return addr(c.s.Dest()) }
