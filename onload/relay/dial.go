// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/link/tcp"
)

// addressTimeout bounds the connection to one address of a helper.
const addressTimeout = 3 * time.Second

// idleConnTimeout is how long an unused connection stays open. Others may need its slot at the
// helper.
const idleConnTimeout = 30 * time.Second

// Dialer connects through one helper. Its fields must not change once it is used. Its methods may
// be called by any goroutine.
type Dialer struct {
	Key *identity.Key
	// Helper is the helper, with its pinned key. Addresses are its possible addresses, the
	// likeliest first.
	Helper    identity.Peer
	Addresses []string
	// Options apply to connections to the helper.
	Options tcp.Options

	lastGoodAddress atomic.Int32 // index of the address that worked last
	unmetered       atomic.Bool
}

// DialContext connects to addr, "host:port", from the helper, which also resolves the name. network
// must be a TCP network. Errors are faults. Reads return io.EOF only if the server closed the
// connection; if the helper aborts it, they return another error. If ctx is cancelled, the error
// wraps its cause.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, fault.New(fault.Unsupported, fmt.Errorf("a helper connects only by TCP, not by %q", network), "")
	}
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || !isValidPort(port) ||
		text.Short(addr, maxErrorText) != addr || strings.Contains(addr, " ") {
		return nil, fault.New(fault.Usage, fmt.Errorf("%q is not a valid host:port", addr), "")
	}
	c, err := d.dialHelper(ctx)
	if err == nil {
		var through net.Conn
		if through, err = d.requestTunnel(ctx, c, addr); err == nil {
			return through, nil
		}
	}
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("over %s: %w", d.Helper.Name, err)
}

// Transport returns an http.Transport that connects through the helper and reuses connections. Its
// CloseIdleConnections closes unused ones.
func (d *Dialer) Transport() *http.Transport {
	return &http.Transport{DialContext: d.DialContext, IdleConnTimeout: idleConnTimeout,
		MaxIdleConnsPerHost: maxPerPrimary,
		TLSHandshakeTimeout: 2 * handshakeTimeout, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 1 << 20}
}

// dialHelper connects to the helper, at the first address that works.
func (d *Dialer) dialHelper(ctx context.Context) (c *tls.Conn, err error) {
	if len(d.Addresses) == 0 {
		return nil, fault.New(fault.NotFound, errors.New("no address of the helper is known"),
			"run `mpbond helper --onload` on the helper, in the same network")
	}
	first := int(d.lastGoodAddress.Load())
	for k := range d.Addresses {
		i := (first + k) % len(d.Addresses)
		c, e := d.dialHelperAddress(ctx, d.Addresses[i], addressTimeout)
		if e == nil {
			d.lastGoodAddress.Store(int32(i))
			return c, nil
		}
		if err == nil {
			err = e
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// dialHelperAddress connects to the helper at one address.
func (d *Dialer) dialHelperAddress(ctx context.Context, addr string, within time.Duration) (*tls.Conn, error) {
	c, err := DialTLS(ctx, addr, d.Options, d.Key.ClientConfig(d.Helper.Key, ALPN), within)
	if err != nil {
		return nil, err
	}
	if t, ok := c.NetConn().(*tcp.Conn); ok {
		t.SetPeerName(d.Helper.Key.ID().String())
	}
	return c, nil
}

// DialTLS connects to addr and performs the TLS handshake of cfg, both within a time limit. Errors
// are faults.
func DialTLS(
	ctx context.Context,
	addr string,
	opt tcp.Options,
	cfg *tls.Config,
	within time.Duration,
) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := tcp.Dial(ctx, addr, opt)
	if err != nil {
		return nil, err
	}
	sec := tls.Client(c, cfg)
	if err := sec.HandshakeContext(ctx); err != nil {
		c.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fault.New(fault.Timeout, fmt.Errorf("%s does not answer: %w", addr, err),
				"check that mpbond is running there and that the link is good")
		}
		return nil, identity.ExplainTLS(err)
	}
	return sec, nil
}

// Metered reports whether bytes over the helper may count against a limit of its owner. It returns
// true until the helper has responded.
func (d *Dialer) Metered() bool { return !d.unmetered.Load() }

// requestTunnel asks the helper at c to connect to addr. It closes c on an error.
func (d *Dialer) requestTunnel(ctx context.Context, c *tls.Conn, addr string) (_ net.Conn, err error) {
	stop := context.AfterFunc(ctx, func() { c.NetConn().Close() })
	defer func() {
		if !stop() {
			err = context.Cause(ctx) // c is closed, which causes other errors
		}
		if err != nil {
			c.NetConn().Close()
		}
	}()
	_ = c.SetDeadline(time.Now().Add(dialTimeout + handshakeTimeout)) // longer than the helper waits
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", addr); err != nil {
		return nil, identity.ExplainTLS(err)
	}
	head := &io.LimitedReader{R: c, N: maxHeaderBytes}
	in := bufio.NewReader(head)
	a, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	switch explained := identity.ExplainTLS(err); {
	case fault.KindOf(explained) != "" && fault.KindOf(explained) != fault.Other:
		return nil, explained
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fault.New(fault.Protocol, errors.New("the helper closed the connection"),
			"see the log of the helper")
	case err != nil && head.N == 0:
		return nil, fault.New(fault.Protocol,
			fmt.Errorf("the response of the helper exceeds %d bytes", maxHeaderBytes), "")
	case err != nil:
		return nil, fault.New(fault.Protocol, fmt.Errorf("invalid response of the helper: %w", err),
			"install the same release of mpbond on both devices")
	case a.StatusCode != http.StatusOK:
		return nil, parseRefusal(a)
	}
	head.N = 1<<63 - 1
	d.unmetered.Store(a.Header.Get(unmeteredHeader) == "yes")
	return &tunnelConn{c, in}, c.SetDeadline(time.Time{})
}

// tunnelConn is a connection through a helper.
type tunnelConn struct {
	*tls.Conn
	reader *bufio.Reader // of Conn, including bytes after the response
}

// Read implements net.Conn.
func (c *tunnelConn) Read(p []byte) (int, error) { return c.reader.Read(p) }
