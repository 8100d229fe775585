// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"mpbond/base/dialpolicy"
	"mpbond/link/splice"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

const dialTimeout = 30 * time.Second

var errForbidden = errors.New("this server does not connect to private addresses (see its `allow` setting)")

// destinations decides where devices may connect: anywhere but to private addresses, except the
// allowed ones. It does not change. Safe for concurrent use.
type destinations struct {
	allowedPrivate []netip.Prefix // private addresses that are allowed
}

// permitsAddr reports whether devices may connect to ip.
func (d destinations) permitsAddr(ip netip.Addr) bool {
	return dialpolicy.AllowedNow(ip, d.allowedPrivate)
}

// dialDestination connects to a destination for a device. It checks the address actually connected
// to, so that no name can bypass the check. The connection ends with a reset until
// splice.CloseInOrder. An error is a wire.Reset.
func (d destinations) dialDestination(ctx context.Context, dest string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(dest)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return nil, wire.Reset{
			Code: wire.CodeUnreachable,
			Text: fmt.Sprintf("%s: not a host:port with a numeric port", dest),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !d.permitsAddr(ap.Addr()) {
			return errForbidden
		}
		return nil
	}}
	c, err := dialer.DialContext(ctx, "tcp", dest)
	if err == nil {
		splice.ResetOnExit(c)
		return c, nil
	}
	return nil, explainDialError(dest, err)
}

// explainDialError returns why the connection to a destination failed.
func explainDialError(dest string, err error) wire.Reset {
	r := wire.Reset{Code: wire.CodeUnreachable, Text: fmt.Sprintf("%s: %v", dest, err)}
	var dns *net.DNSError
	switch {
	case tcp.IsOutOfSockets(err): // not CodeUnreachable: apps would then connect directly
		r.Code = wire.CodeLimit
		r.Text = "the server has no free socket"
	case errors.Is(err, errForbidden):
		r.Code = wire.CodeForbidden
		r.Text = fmt.Sprintf("%s: %v", dest, errForbidden)
	case errors.As(err, &dns) && dns.IsNotFound:
		r.Code = wire.CodeNameNotFound
		r.Text = fmt.Sprintf("%s: the server cannot resolve the name", dest)
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Code = wire.CodeConnRefused
		r.Text = fmt.Sprintf("%s: connection refused", dest)
	case errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, syscall.ETIMEDOUT):
		r.Code = wire.CodeTimeout
		r.Text = fmt.Sprintf("%s: no answer", dest)
	}
	return r
}

// dialForConn dials the destination of c until its device closes the stream.
func (d destinations) dialForConn(ctx context.Context, c *endpoint.Conn) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if c.WaitOpen(ctx) != nil {
			cancel()
		}
	})
	defer watch.Wait()
	defer cancel()
	return d.dialDestination(ctx, c.Dest())
}
