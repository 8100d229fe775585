// SPDX-License-Identifier: Apache-2.0

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

// isValidPort reports whether s is a decimal port number other than 0.
func isValidPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// tunnel is one carried connection, or one that is being set up.
type tunnel struct {
	peer       identity.Peer
	server     string
	since      time.Time
	primary    primaryConn
	cancelDial context.CancelCauseFunc // cancels the connection to the server

	up, down     atomic.Uint64 // bytes carried
	lastActivity atomic.Int64  // since the start, in ns

	mu       sync.Mutex  // guards below
	upstream *serverConn // nil before the server is connected
	endErr   error       // why it was ended
}

// established is the status line of a granted request. unmeteredHeader is sent if the owner sets no
// limit; older helpers do not send it.
const (
	established     = "HTTP/1.1 200 Connection established\r\n"
	unmeteredHeader = "Mpbond-Unmetered"
)

// relayTunnelData relays data between primary and c until both directions have ended. An error
// means that no data was relayed.
func (t *tunnel) relayTunnelData(c *tcp.Conn, unmetered bool) error {
	t.mu.Lock()
	if err := t.endErr; err != nil {
		t.mu.Unlock()
		return err
	}
	t.upstream = &serverConn{c, t}
	t.mu.Unlock()
	t.recordActivity()
	head := established
	if unmetered {
		head += unmeteredHeader + ": yes\r\n"
	}
	if _, err := io.WriteString(t.primary.Conn, head+"\r\n"); err != nil {
		return err
	}
	_, _, _ = splice.Both(&t.primary, t.upstream) // both ends have seen the end
	return nil
}

// abortWithReset ends the tunnel with a reset at both ends. A primary that still waits for the
// server gets err.
func (t *tunnel) abortWithReset(err error) {
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

// recordActivity records activity now.
func (t *tunnel) recordActivity() { t.lastActivity.Store(int64(time.Since(t.since))) }

// timeSinceActivity returns the time since the last activity.
func (t *tunnel) timeSinceActivity(now time.Time) time.Duration {
	return now.Sub(t.since) - time.Duration(t.lastActivity.Load())
}

// primaryConn is the primary's end of a tunnel.
type primaryConn struct {
	*tls.Conn
	tcp    *tcp.Conn
	reader *bufio.Reader // of Conn, including bytes after the request
	tunnel *tunnel
}

// Read implements net.Conn.
func (n *primaryConn) Read(p []byte) (int, error) {
	k, err := n.reader.Read(p)
	n.tunnel.recordActivity()
	return k, err
}

// Write implements net.Conn.
func (n *primaryConn) Write(p []byte) (int, error) {
	k, err := writeAndCount(n.Conn, &n.tunnel.down, p)
	n.tunnel.recordActivity()
	return k, err
}

// Reset resets the connection to the primary.
func (n *primaryConn) Reset() { _ = n.tcp.Abort() }

// serverConn is the server's end of a tunnel.
type serverConn struct {
	*tcp.Conn
	tunnel *tunnel
}

// Write implements net.Conn.
func (f *serverConn) Write(p []byte) (int, error) {
	return writeAndCount(f.Conn, &f.tunnel.up, p)
}

// writeAndCount writes p to w and adds the written bytes to carried. It counts them before w can
// pass them on, so that a reader that has received them finds them in Status.
func writeAndCount(w io.Writer, carried *atomic.Uint64, p []byte) (int, error) {
	carried.Add(uint64(len(p)))
	n, err := w.Write(p)
	carried.Add(-uint64(len(p) - n))
	return n, err
}

// Reset resets the connection to the server.
func (f *serverConn) Reset() { _ = f.Abort() }
