// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"mpbond/link/splice"
	"mpbond/link/wire"
)

// maxReplay bounds the data that an app may send before the far end has answered. It is kept until
// then for a direct connection. It suffices for a TLS client hello or an HTTP request with large
// cookies.
const maxReplay = 32 << 10

// fallbackConn is a stream that turns into a direct connection if the far end refuses the
// destination for a reason that may not apply here. Before that nothing was delivered to the app,
// and what the app has sent is replayed.
//
// Reads wait for the answer, and so do writes beyond maxReplay.
type fallbackConn struct {
	net.Conn // the stream, also for deadlines and addresses
	cancel   context.CancelFunc
	answered chan struct{} // closed when final and err are set

	mu         sync.Mutex // orders writes and the replay
	sentEarly  []byte     // data written before the answer
	halfClosed bool       // CloseWrite was called before the answer

	final net.Conn // the stream or the direct connection
	err   error    // the refusal, if both have failed
}

// newFallbackConn returns a fallbackConn of a stream to dest. It waits for the answer, and dials
// directly if that may help.
func newFallbackConn(e *Edge, stream net.Conn, w openWaiter, dest string) *fallbackConn {
	ctx, cancel := context.WithTimeout(e.ctx, openTimeout)
	f := &fallbackConn{Conn: stream, cancel: cancel, answered: make(chan struct{})}
	go func() {
		defer cancel()
		err := w.WaitOpen(ctx)
		if err == nil || !mayWorkDirect(err) {
			f.setOutcome(stream, err)
			return
		}
		direct, derr := e.cfg.Direct(ctx, "tcp", dest)
		if derr != nil {
			// The far end's error comes first: it concerns the requested way.
			f.setOutcome(stream, errors.Join(err, derr))
			return
		}
		splice.ResetOnExit(direct)
		e.log.Info("going direct", "dest", dest, "why", err)
		stop := context.AfterFunc(ctx, func() { direct.Close() })
		defer stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := f.replayEarlyData(direct); err != nil {
			direct.Close()
			f.setOutcomeLocked(stream, err)
			return
		}
		stream.Close()
		f.setOutcomeLocked(direct, nil)
	}()
	return f
}

// setOutcome sets where the connection goes. mu covers both the replay and the outcome, so that no
// write comes between them.
func (f *fallbackConn) setOutcome(c net.Conn, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setOutcomeLocked(c, err)
}

func (f *fallbackConn) setOutcomeLocked(c net.Conn, err error) {
	f.final, f.err, f.sentEarly = c, err, nil
	close(f.answered)
}

// mayWorkDirect reports whether a refusal depends on the far end's place in the network, so that a
// direct connection may work.
func mayWorkDirect(err error) bool {
	switch refusalCode(err) {
	case wire.CodeUnreachable, wire.CodeForbidden, wire.CodeNameNotFound:
		return true
	}
	return false
}

// replayEarlyData sends to c what the app has sent so far.
func (f *fallbackConn) replayEarlyData(c net.Conn) error {
	if _, err := c.Write(f.sentEarly); err != nil {
		return err
	}
	if f.halfClosed {
		return splice.CloseWrite(c)
	}
	return nil
}

// WaitOpen waits until the destination is reached over the stream or directly, or has failed.
func (f *fallbackConn) WaitOpen(ctx context.Context) error {
	select {
	case <-f.answered:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitOutcome waits for the outcome and returns it.
func (f *fallbackConn) awaitOutcome() (net.Conn, error) {
	<-f.answered
	return f.final, f.err
}

// isAnswerPending reports whether the answer is still awaited. mu must be held, which also prevents
// a replay.
func (f *fallbackConn) isAnswerPending() bool {
	select {
	case <-f.answered:
		return false
	default:
		return true
	}
}

// Read implements net.Conn.
func (f *fallbackConn) Read(p []byte) (int, error) {
	c, err := f.awaitOutcome()
	if err != nil {
		return 0, err
	}
	return c.Read(p)
}

// WriteTo implements io.WriterTo.
func (f *fallbackConn) WriteTo(w io.Writer) (int64, error) {
	c, err := f.awaitOutcome()
	if err != nil {
		return 0, err
	}
	if t, ok := c.(io.WriterTo); ok {
		return t.WriteTo(w)
	}
	return io.Copy(w, struct{ io.Reader }{c})
}

// Write implements net.Conn.
func (f *fallbackConn) Write(p []byte) (int, error) {
	f.mu.Lock()
	if f.isAnswerPending() && len(f.sentEarly)+len(p) <= maxReplay {
		f.sentEarly = append(f.sentEarly, p...)
		_, err := f.Conn.Write(p)
		f.mu.Unlock()
		if err == nil {
			return len(p), nil
		}
		// The refusal came first; p is part of the replayed data.
		if _, err := f.awaitOutcome(); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	f.mu.Unlock()
	c, err := f.awaitOutcome()
	if err != nil {
		return 0, err
	}
	return c.Write(p)
}

// CloseWrite ends the direction to the destination.
func (f *fallbackConn) CloseWrite() error {
	f.mu.Lock()
	if f.isAnswerPending() {
		f.halfClosed = true
		splice.CloseWrite(f.Conn) //nolint:errcheck // if it fails, so do reads
		f.mu.Unlock()
		return nil
	}
	f.mu.Unlock()
	c, err := f.awaitOutcome()
	if err != nil {
		return err
	}
	return splice.CloseWrite(c)
}

// Close implements net.Conn.
func (f *fallbackConn) Close() error { return f.closeBothConns(net.Conn.Close) }

// CloseInOrder closes the connection in order; see package splice.
func (f *fallbackConn) CloseInOrder() error { return f.closeBothConns(splice.CloseInOrder) }

// Reset ends both directions at once.
func (f *fallbackConn) Reset() {
	f.closeBothConns(func(c net.Conn) error { splice.Reset(c); return nil }) //nolint:errcheck // always nil
}

// closeBothConns ends the bond's connection, if it is not answered yet, and the one that is in use
// in the end, by calling how.
func (f *fallbackConn) closeBothConns(how func(net.Conn) error) error {
	select {
	case <-f.answered:
	default:
		how(f.Conn) //nolint:errcheck // the second time reports
	}
	f.cancel()
	c, _ := f.awaitOutcome()
	return how(c)
}
