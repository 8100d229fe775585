package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/identity"
	"mpbond/link/splice"
	"mpbond/link/tcp"
)

func isValidPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// tunnel is one connection that is carried, or about to be.
type tunnel struct {
	peer       identity.Peer
	server     string
	since      time.Time
	primary    primaryConn
	cancelDial context.CancelCauseFunc // gives the connecting up

	up, down     atomic.Uint64 // bytes carried
	lastActivity atomic.Int64  // time since `since` when one was

	mu       sync.Mutex  // guards below
	upstream *serverConn // nil before the server is connected to
	endErr   error       // why it was ended
}

// established answers a request that was granted. unmeteredHeader is there if the owner
// sets no bound on what is carried; older helpers do not send it.
const (
	established     = "HTTP/1.1 200 Connection established\r\n"
	unmeteredHeader = "Mpbond-Unmetered"
)

// relayData carries to the end over c. An error is that it was not begun.
func (t *tunnel) relayData(c *tcp.Conn, unmetered bool) error {
	t.mu.Lock()
	if err := t.endErr; err != nil {
		t.mu.Unlock()
		return err
	}
	t.upstream = &serverConn{c, t}
	t.mu.Unlock()
	t.markActive()
	head := established
	if unmetered {
		head += unmeteredHeader + ": yes\r\n"
	}
	if _, err := io.WriteString(t.primary.Conn, head+"\r\n"); err != nil {
		return err
	}
	_, _, _ = splice.Both(&t.primary, t.upstream) // either end has seen how it ended
	return nil
}

// abort ends it, so that both ends see that it was cut off; a primary that waits for its
// server is told why.
func (t *tunnel) abort(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endErr == nil {
		t.endErr = err
	}
	t.cancelDial(err)
	if t.upstream != nil {
		t.primary.Reset()
		t.upstream.Reset()
	}
}

func (t *tunnel) markActive() { t.lastActivity.Store(int64(time.Since(t.since))) }

func (t *tunnel) idleTime(now time.Time) time.Duration {
	return now.Sub(t.since) - time.Duration(t.lastActivity.Load())
}

// primaryConn is the primary's end of a tunnel.
type primaryConn struct {
	*tls.Conn
	tcp    *tcp.Conn
	reader *bufio.Reader // of Conn, with what came behind the request
	tunnel *tunnel
}

// Read implements net.Conn.
func (n *primaryConn) Read(p []byte) (int, error) {
	k, err := n.reader.Read(p)
	n.tunnel.markActive()
	return k, err
}

// Write implements net.Conn.
func (n *primaryConn) Write(p []byte) (int, error) {
	k, err := writeCounted(n.Conn, &n.tunnel.down, p)
	n.tunnel.markActive()
	return k, err
}

// Reset has the primary see that it was cut off.
func (n *primaryConn) Reset() { _ = n.tcp.Abort() }

// serverConn is the server's end.
type serverConn struct {
	*tcp.Conn
	tunnel *tunnel
}

// Write implements net.Conn.
func (f *serverConn) Write(p []byte) (int, error) {
	return writeCounted(f.Conn, &f.tunnel.up, p)
}

// writeCounted writes p to w and adds to carried what w took. The bytes are counted before
// w can pass them on, so that a reader that has them finds them in Status.
func writeCounted(w io.Writer, carried *atomic.Uint64, p []byte) (int, error) {
	carried.Add(uint64(len(p)))
	n, err := w.Write(p)
	carried.Add(-uint64(len(p) - n))
	return n, err
}

// Reset has the server see it too.
func (f *serverConn) Reset() { _ = f.Abort() }
