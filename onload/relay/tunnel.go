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

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// tunnel is one connection that is carried, or about to be.
type tunnel struct {
	peer   identity.Peer
	server string
	since  time.Time
	near   near
	drop   context.CancelCauseFunc // gives the connecting up

	up, down atomic.Uint64 // bytes carried
	last     atomic.Int64  // time since `since` when one was

	mu    sync.Mutex // guards below
	far   *far       // nil before the server is connected to
	ended error      // why it was ended
}

// established answers a request that was granted. unmeteredHeader is there if the owner
// sets no bound on what is carried; older helpers do not send it.
const (
	established     = "HTTP/1.1 200 Connection established\r\n"
	unmeteredHeader = "Mpbond-Unmetered"
)

// run carries to the end over c. An error is that it was not begun.
func (t *tunnel) run(c *tcp.Conn, unmetered bool) error {
	t.mu.Lock()
	if err := t.ended; err != nil {
		t.mu.Unlock()
		return err
	}
	t.far = &far{c, t}
	t.mu.Unlock()
	t.touch()
	head := established
	if unmetered {
		head += unmeteredHeader + ": yes\r\n"
	}
	if _, err := io.WriteString(t.near.Conn, head+"\r\n"); err != nil {
		return err
	}
	_, _, _ = splice.Both(&t.near, t.far) // either end has seen how it ended
	return nil
}

// end ends it, so that both ends see that it was cut off; a primary that waits for its
// server is told why.
func (t *tunnel) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = err
	}
	t.drop(err)
	if t.far != nil {
		t.near.Reset()
		t.far.Reset()
	}
}

func (t *tunnel) touch() { t.last.Store(int64(time.Since(t.since))) }

func (t *tunnel) idle(now time.Time) time.Duration {
	return now.Sub(t.since) - time.Duration(t.last.Load())
}

// near is the primary's end of a tunnel.
type near struct {
	*tls.Conn
	tcp *tcp.Conn
	in  *bufio.Reader // of Conn, with what came behind the request
	t   *tunnel
}

// Read implements net.Conn.
func (n *near) Read(p []byte) (int, error) {
	k, err := n.in.Read(p)
	n.t.touch()
	return k, err
}

// Write implements net.Conn.
func (n *near) Write(p []byte) (int, error) {
	k, err := writeCounted(n.Conn, &n.t.down, p)
	n.t.touch()
	return k, err
}

// Reset has the primary see that it was cut off.
func (n *near) Reset() { _ = n.tcp.Abort() }

// far is the server's end.
type far struct {
	*tcp.Conn
	t *tunnel
}

// Write implements net.Conn.
func (f *far) Write(p []byte) (int, error) {
	return writeCounted(f.Conn, &f.t.up, p)
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
func (f *far) Reset() { _ = f.Abort() }
