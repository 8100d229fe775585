// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
)

// maxErrorBody bounds the error text read from the proxy.
const maxErrorBody = 1 << 10

// proxyDialer dials through the HTTP proxy of the running primary. The proxy waits for the far
// end's answer and returns its error text, for a name that does not exist or a closed port.
type proxyDialer struct{ proxy string }

// DialContext connects to "host:port". The far end resolves the name. Errors are faults.
func (p proxyDialer) DialContext(ctx context.Context, network, dest string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: headerTimeout}).DialContext(ctx, network, p.proxy)
	if err != nil {
		return nil, fault.New(fault.NotRunning, fmt.Errorf("connect to the proxy of the primary: %w", err),
			"check with `mpbond status` that `mpbond primary` is still running")
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	conn, err := sendConnect(c, dest)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return conn, nil
}

// sendConnect asks the proxy at the other end of c to connect to dest.
func sendConnect(c net.Conn, dest string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: dest}, Host: dest, Header: http.Header{}}
	if err := req.Write(c); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fault.New(fault.Unreachable, fmt.Errorf("the proxy of the primary closed the connection: %w",
			err), "see `mpbond status`")
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
		answer.Body.Close()
		return nil, connectError(answer.StatusCode, strings.TrimSpace(strings.TrimPrefix(string(text), "mpbond: ")))
	}
	if n := r.Buffered(); n > 0 { // the server speaks first
		buffered, _ := r.Peek(n)
		return &bufferedConn{Conn: c, buffered: buffered}, nil
	}
	return c, nil
}

// connectError returns the error for a proxy that did not connect.
func connectError(status int, message string) error {
	if message == "" {
		message = http.StatusText(status)
	}
	err := errors.New(text.Printable(message))
	switch status {
	case http.StatusGatewayTimeout:
		return fault.New(fault.Timeout, err,
			"check the address and that the web server is up; `mpbond status` shows whether the bond works")
	case http.StatusForbidden:
		return fault.New(fault.Permission, err,
			"`mpbond policy why HOST:PORT` names the rule; the server refuses private addresses unless started "+
				"with --allow")
	}
	return fault.New(fault.Unreachable, err, "check the address; the bonding server tried to reach it")
}

// bufferedConn is a connection. Its first bytes were already read into buffered.
type bufferedConn struct {
	net.Conn
	buffered []byte
}

// Read implements net.Conn.
func (c *bufferedConn) Read(p []byte) (int, error) {
	if len(c.buffered) > 0 {
		n := copy(p, c.buffered)
		c.buffered = c.buffered[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
