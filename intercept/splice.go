package intercept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"mpbond/wire"
)

// copyBuffer is the size of one copy, and what a connection holds in each
// direction. From 32 to 128 KB the throughput on one machine differs by less
// than it varies.
const copyBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

type openWaiter interface {
	WaitOpen(context.Context) error
}

// splice copies app→stream and stream→app until both ended or one broke, then
// closes both. The end of one direction is passed on as such and leaves the
// other direction open. An error in one direction resets both connections, so
// that nobody takes a truncated stream for a whole one. It returns the bytes
// written each way and the first error.
func splice(app, stream net.Conn) (up, down int64, err error) {
	var once sync.Once
	fail := func(direction string, e error) {
		if e == nil {
			return
		}
		once.Do(func() {
			err = fmt.Errorf("%s: %w", direction, e)
			reset(app)
			reset(stream)
		})
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var e error
		up, e = copyDirection(stream, app)
		fail("app to stream", e)
	})
	down, e := copyDirection(app, stream)
	fail("stream to app", e)
	wg.Wait()
	if err == nil {
		app.Close()
		stream.Close()
	}
	return up, down, err
}

// copyDirection copies until src ends, and then ends dst's direction.
func copyDirection(dst, src net.Conn) (n int64, err error) {
	b := buffers.Get().(*[copyBuffer]byte)
	defer buffers.Put(b)
	for {
		r, rerr := src.Read(b[:])
		if r > 0 {
			w, werr := dst.Write(b[:r])
			n += int64(w)
			if werr != nil {
				return n, werr
			}
		}
		if rerr == io.EOF {
			return n, closeWrite(dst)
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

// closeWrite ends the direction towards c.
func closeWrite(c net.Conn) error {
	h, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("a %T cannot close one direction", c)
	}
	err := h.CloseWrite()
	if errors.Is(err, syscall.ENOTCONN) {
		// The peer has reset the connection. What mattered to it was
		// delivered or the other direction reports the error.
		return nil
	}
	return err
}

// reset closes c such that its far end sees an error.
func reset(c net.Conn) {
	switch c := c.(type) {
	case interface{ Reset() }:
		c.Reset()
		return
	case interface{ SetLinger(int) error }:
		c.SetLinger(0) //nolint:errcheck // fails only on a closed connection
	}
	c.Close()
}

// isExhausted tells errors of accept which pass when resources are freed.
func isExhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

// refusal is why a stream failed, in the words of the wire. Errors which do
// not come from the far end count as CodeInternal.
func refusal(err error) wire.Code {
	var r wire.Reset
	switch {
	case errors.As(err, &r):
		return r.Code
	case errors.Is(err, syscall.ECONNREFUSED):
		return wire.CodeConnRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return wire.CodeUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return wire.CodeTimeout
	}
	return wire.CodeInternal
}
