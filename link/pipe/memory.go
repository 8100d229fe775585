// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/estimate"
)

// Memory is a carrier within the process, for tests. It uses no sockets and so runs in virtual
// time. Any string is an address. The zero value is ready.
type Memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
}

// memoryBufferSize bounds the data in one direction, like a send buffer.
const memoryBufferSize = 64 << 10

// Name implements Carrier.
func (*Memory) Name() string { return "memory" }

// Dial implements Carrier.
func (m *Memory) Dial(ctx context.Context, addr string) (Conn, error) {
	m.mu.Lock()
	l := m.listeners[addr]
	m.mu.Unlock()
	if l == nil {
		return nil, fault.New(fault.Unreachable, fmt.Errorf("connect to %s: connection refused", addr),
			"nothing listens there")
	}
	x, y := newMemoryQueue(), newMemoryQueue()
	a, b := &memoryConn{x, y, "caller", l.addr}, &memoryConn{y, x, l.addr, "caller"}
	select {
	case l.backlog <- b:
		return a, nil
	case <-l.closed:
		return nil, fault.New(fault.Unreachable, fmt.Errorf("connect to %s: connection refused", addr),
			"nothing listens there")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Listen implements Carrier.
func (m *Memory) Listen(_ context.Context, addr string) (Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[addr] != nil {
		return nil, fault.New(fault.AlreadyRunning, fmt.Errorf("listen on %s: address in use", addr),
			"choose another address")
	}
	if m.listeners == nil {
		m.listeners = map[string]*memoryListener{}
	}
	l := &memoryListener{m: m, addr: memoryAddr(addr), backlog: make(chan Conn), closed: make(chan struct{})}
	m.listeners[addr] = l
	return l, nil
}

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

type memoryListener struct {
	m       *Memory
	addr    memoryAddr
	backlog chan Conn
	once    sync.Once
	closed  chan struct{}
}

func (l *memoryListener) Addr() net.Addr { return l.addr }

func (l *memoryListener) Accept() (Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		delete(l.m.listeners, string(l.addr))
		l.m.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// MemoryPipe returns both ends of a connection in memory.
func MemoryPipe() (a, b Conn) {
	ab, ba := newMemoryQueue(), newMemoryQueue()
	return &memoryConn{ba, ab, "memory", "memory"}, &memoryConn{ab, ba, "memory", "memory"}
}

type memoryConn struct {
	in, out       *memoryQueue
	local, remote memoryAddr
}

func (c *memoryConn) Read(p []byte) (int, error)  { return c.in.readFromQueue(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.writeToQueue(p) }
func (c *memoryConn) WaitWritable() error         { return c.out.waitWritable() }
func (c *memoryConn) CloseWrite() error           { c.out.raiseFlags(&c.out.writerEnded); return nil }
func (c *memoryConn) Cork()                       {}
func (c *memoryConn) Flush() error                { return nil }
func (c *memoryConn) LocalAddr() net.Addr         { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr        { return c.remote }

func (c *memoryConn) Close() error {
	c.in.raiseFlags(&c.in.readerClosed)
	c.out.raiseFlags(&c.out.writerClosed, &c.out.writerEnded)
	return nil
}

func (c *memoryConn) Probe() (estimate.Hop, error) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	n := unit.Bytes(len(c.out.buf))
	return estimate.Hop{Queue: n, Unsent: n, Acked: c.out.taken, MSS: 1460, Cwnd: memoryBufferSize}, nil
}

func (c *memoryConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.setQueueDeadline(&c.in.readDeadline, t)
	return nil
}

func (c *memoryConn) SetWriteDeadline(t time.Time) error {
	c.out.setQueueDeadline(&c.out.writeDeadline, t)
	return nil
}

// memoryQueue is one direction of a connection.
type memoryQueue struct {
	mu    sync.Mutex
	cond  sync.Cond
	buf   []byte
	taken uint64

	writerEnded  bool // EOF follows buf
	writerClosed bool // writes fail with net.ErrClosed
	readerClosed bool // reads and writes fail

	readDeadline, writeDeadline deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) hasTimePassed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newMemoryQueue() *memoryQueue {
	q := &memoryQueue{}
	q.cond.L = &q.mu
	return q
}

// raiseFlags sets flags together, so that a waiting goroutine never sees only some of them.
func (q *memoryQueue) raiseFlags(flags ...*bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range flags {
		*f = true
	}
	q.cond.Broadcast()
}

// setQueueDeadline sets a deadline, which wakes all waiting calls when it has passed; zero is none.
func (q *memoryQueue) setQueueDeadline(d *deadline, t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.cond.Broadcast()
		})
	}
	q.cond.Broadcast()
}

// readFromQueue waits for bytes and takes them, as net.Conn's Read does.
func (q *memoryQueue) readFromQueue(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.readerClosed:
			return 0, net.ErrClosed
		case q.readDeadline.hasTimePassed():
			return 0, os.ErrDeadlineExceeded
		case len(q.buf) > 0:
			n := copy(p, q.buf)
			q.buf = q.buf[:copy(q.buf, q.buf[n:])]
			q.taken += uint64(n)
			q.cond.Broadcast()
			return n, nil
		case q.writerEnded:
			return 0, io.EOF
		}
		q.cond.Wait()
	}
}

// waitQueueRoom waits until buf holds at most limit bytes. mu must be held.
func (q *memoryQueue) waitQueueRoom(limit int) error {
	for {
		switch {
		case q.writerClosed:
			return net.ErrClosed
		case q.readerClosed, q.writerEnded:
			return io.ErrClosedPipe
		case q.writeDeadline.hasTimePassed():
			return os.ErrDeadlineExceeded
		case len(q.buf) <= limit:
			return nil
		}
		q.cond.Wait()
	}
}

// writeToQueue waits for room and appends all of p, as net.Conn's Write does.
func (q *memoryQueue) writeToQueue(p []byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(p) {
		if err := q.waitQueueRoom(memoryBufferSize - 1); err != nil {
			return n, err
		}
		m := min(len(p)-n, memoryBufferSize-len(q.buf))
		q.buf = append(q.buf, p[n:n+m]...)
		n += m
		q.cond.Broadcast()
	}
	return n, nil
}

func (q *memoryQueue) waitWritable() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.waitQueueRoom(memoryBufferSize / 4); err != io.ErrClosedPipe {
		return err
	}
	return nil // as with a kernel, the write reports it
}
