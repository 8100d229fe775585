// SPDX-License-Identifier: Apache-2.0

// Package splice joins two connections byte for byte, with half-close, and never makes a broken
// stream look complete. It stands at both ends of the data path: between an app and its stream at
// the primary, and between a stream and its destination at the server.
package splice

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// copyBufferSize is the size of one copy. Up to this size fewer system calls outweigh cache misses;
// larger buffers gain nothing.
const copyBufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

// Both copies a→b and b→a until both directions have ended or one has failed, then closes both. The
// end of one direction is passed on and leaves the other direction open. An error in one direction
// resets both connections, so that no peer takes a truncated stream for a complete one. After
// ResetOnExit the end of the process does the same. Both conns need CloseWrite. Both uses a Reset
// method or SetLinger for resets if there is one, WriteTo for reading, and Writer() io.Writer for
// writing to a conn that wraps another one. It returns the bytes written in each direction and the
// first error.
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

// copyDirection copies until src ends, then ends the direction towards dst.
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

// Copy copies until src ends. While it waits for a *net.TCPConn it holds no buffer, except on
// Windows.
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

// isPlainTCP reports whether c is a plain TCP connection. Its WriteTo would only choose a smaller
// buffer.
func isPlainTCP(c net.Conn) bool { _, ok := c.(*net.TCPConn); return ok }

// CloseWrite ends the direction towards c.
func CloseWrite(c net.Conn) error {
	h, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.New("a connection of this kind cannot close one direction")
	}
	err := h.CloseWrite()
	if errors.Is(err, syscall.ENOTCONN) {
		// The peer has reset the connection. It received what it needed, or the other direction
		// reports the error.
		return nil
	}
	return err
}

// ResetOnExit makes the kernel reset c when it closes for any reason, above all when the process is
// killed, runs out of memory or panics. From then on only CloseInOrder ends c in order. Call it
// first on every socket towards an app or a destination. A direction ended by CloseWrite ends in
// order; if the other direction has not ended, a later reset still reaches the peer.
func ResetOnExit(c net.Conn) {
	if s, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = s.SetLinger(0) // fails only on a closed connection
	}
}

// CloseInOrder closes c in order: the kernel still sends the data that it holds. Both directions
// must have ended, or all requests must be answered. It reverses ResetOnExit.
func CloseInOrder(c net.Conn) error {
	switch c := c.(type) {
	case interface{ CloseInOrder() error }:
		return c.CloseInOrder()
	case interface{ SetLinger(int) error }:
		_ = c.SetLinger(-1) // fails only on a closed connection
	}
	return c.Close()
}

// Reset closes c so that its far end sees an error.
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
