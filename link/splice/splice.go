// Package splice joins two connections, byte for byte, with half-close and
// without ever making a broken stream look like a whole one. It stands at both
// ends of the data path: between an app and its stream at the primary, and
// between a stream and its destination at the server.
package splice

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// copyBufferSize is the size of one copy. Fewer system calls weigh more than cache
// misses up to here; above it nothing was gained.
const copyBufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

// Both copies a→b and b→a until both ended or one broke, then closes both. The
// end of one direction is passed on as such and leaves the other direction
// open. An error in one direction resets both connections, so that nobody
// takes a truncated stream for a whole one; so does the end of the process, if
// ResetOnExit was called. Both conns need CloseWrite; a
// Reset method or SetLinger is used for resets where there is one, WriteTo for
// reading, and Writer() io.Writer, of a conn that wraps another, for writing.
// It returns the bytes written each way and the first error.
func Both(a, b net.Conn) (toB, toA int64, err error) {
	var once sync.Once
	fail := func(e error) {
		if e == nil {
			return
		}
		once.Do(func() {
			err = e
			Reset(a)
			Reset(b)
		})
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var e error
		toB, e = copyDirection(b, a)
		fail(e)
	})
	toA, e := copyDirection(a, b)
	fail(e)
	wg.Wait()
	if err == nil {
		_ = CloseInOrder(a)
		_ = CloseInOrder(b)
	}
	return toB, toA, err
}

// copyDirection copies until src ends, and then ends dst's direction.
func copyDirection(dst, src net.Conn) (n int64, err error) {
	var out io.Writer = dst
	if o, ok := dst.(interface{ Writer() io.Writer }); ok {
		out = o.Writer()
	}
	if w, ok := src.(io.WriterTo); ok && !isPlainTCP(src) {
		n, err = w.WriteTo(out)
	} else {
		n, err = Copy(out, src)
	}
	if err != nil {
		return n, fmt.Errorf("%v to %v: %w", src.RemoteAddr(), dst.RemoteAddr(), err)
	}
	return n, CloseWrite(dst)
}

// Copy copies until src ends. From a *net.TCPConn it holds no buffer while it
// waits, except on Windows.
func Copy(out io.Writer, src net.Conn) (total int64, err error) {
	var raw syscall.RawConn
	if t, ok := src.(*net.TCPConn); ok {
		if raw, err = readyReader(t); err != nil {
			return 0, err
		}
	}
	for err == nil {
		var b *[copyBufferSize]byte
		var n int
		if raw != nil {
			b, n, err = readWhenReady(raw)
		} else {
			b = buffers.Get().(*[copyBufferSize]byte)
			n, err = src.Read(b[:])
		}
		if n > 0 {
			w, e := out.Write(b[:n])
			total += int64(w)
			if e != nil {
				err = e
			}
		}
		if b != nil {
			buffers.Put(b)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}

// isPlainTCP tells a plain TCP connection, whose WriteTo does nothing for us but
// to choose a smaller buffer.
func isPlainTCP(c net.Conn) bool { _, ok := c.(*net.TCPConn); return ok }

// CloseWrite ends the direction towards c.
func CloseWrite(c net.Conn) error {
	h, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.New("a connection of this kind cannot close one direction")
	}
	err := h.CloseWrite()
	if errors.Is(err, syscall.ENOTCONN) {
		// The peer has reset the connection. What mattered to it was
		// delivered or the other direction reports the error.
		return nil
	}
	return err
}

// ResetOnExit makes the kernel reset c when it closes, whoever closes it: above
// all when the process is killed, runs out of memory or panics. Only CloseInOrder
// ends c in order from then on. It belongs on every socket towards an app or a
// destination, from the start. A direction that CloseWrite has ended is ended in
// order; a reset before the other one has ended still reaches the peer.
func ResetOnExit(c net.Conn) {
	if s, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = s.SetLinger(0) // fails only on a closed connection
	}
}

// CloseInOrder closes c, whose directions have both ended or which has answered
// all that it was asked: the kernel goes on sending what it holds. It reverses
// ResetOnExit.
func CloseInOrder(c net.Conn) error {
	switch c := c.(type) {
	case interface{ CloseInOrder() error }:
		return c.CloseInOrder()
	case interface{ SetLinger(int) error }:
		_ = c.SetLinger(-1) // fails only on a closed connection
	}
	return c.Close()
}

// Reset closes c such that its far end sees an error.
func Reset(c net.Conn) {
	switch c := c.(type) {
	case interface{ Reset() }:
		c.Reset()
		return
	case interface{ SetLinger(int) error }:
		_ = c.SetLinger(0) // fails only on a closed connection
	}
	c.Close()
}
