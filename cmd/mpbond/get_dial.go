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

// maxErrorBody bounds what the proxy says of a destination that it cannot reach.
const maxErrorBody = 1 << 10

// proxyDialer is a dialer through the HTTP proxy of the running primary, which waits for the far
// end's answer and keeps its words: a name that does not exist, a port that is closed.
type proxyDialer struct{ proxy string }

// DialContext connects to "host:port"; its name is resolved at the far end. Errors are faults.
func (p proxyDialer) DialContext(ctx context.Context, network, dest string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: headerTimeout}).DialContext(ctx, network, p.proxy)
	if err != nil {
		return nil, fault.New(fault.NotRunning, fmt.Errorf("the running primary's proxy: %w", err), "is `mpbond primary` still running? `mpbond status` says so")
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
		return nil, fault.New(fault.Unreachable, fmt.Errorf("the running primary's proxy hung up: %w", err), "see `mpbond status`")
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
		answer.Body.Close()
		return nil, connectError(answer.StatusCode, strings.TrimSpace(strings.TrimPrefix(string(text), "mpbond: ")))
	}
	if n := r.Buffered(); n > 0 { // a server that speaks first
		buffered, _ := r.Peek(n)
		return &bufferedConn{Conn: c, buffered: buffered}, nil
	}
	return c, nil
}

// connectError is why the proxy did not connect.
func connectError(status int, message string) error {
	if message == "" {
		message = http.StatusText(status)
	}
	err := errors.New(text.Printable(message))
	switch status {
	case http.StatusGatewayTimeout:
		return fault.New(fault.Timeout, err, "is the address right, and is that web server up? `mpbond status` says whether the bond works")
	case http.StatusForbidden:
		return fault.New(fault.Permission, err, "`mpbond policy why HOST:PORT` names the rule; the server refuses private addresses unless --allow")
	}
	return fault.New(fault.Unreachable, err, "is the address right? it was the server at the other end of the bond that tried it")
}

// bufferedConn is a connection of which a part was read already.
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
