// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// WebListener wraps each connection of l in a WebConn, for http.Server.
func WebListener(l net.Listener) net.Listener { return webListener{l} }

type webListener struct{ net.Listener }

// Accept implements net.Listener.
func (l webListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	ResetOnExit(c)
	return &WebConn{Conn: c}, nil
}

// WebConn is a connection served by http.Server. Close ends it in order if no response is in
// progress, otherwise with a reset. ResetOnExit applies to the connection below.
type WebConn struct {
	net.Conn
	partial atomic.Bool
}

// SetPartial sets whether an unfinished response is in progress.
func (c *WebConn) SetPartial(partial bool) { c.partial.Store(partial) }

// Close implements net.Conn.
func (c *WebConn) Close() error {
	if c.partial.Load() {
		Reset(c.Conn)
		return nil
	}
	return CloseInOrder(c.Conn)
}

// CloseWrite ends the direction towards the client.
func (c *WebConn) CloseWrite() error { return CloseWrite(c.Conn) }

// Writer returns the connection below, for direct writes; see Both.
func (c *WebConn) Writer() io.Writer { return c.Conn }

type webKey struct{}

// WithWebConn stores c in the context of its requests, for WebConnOf. Use it as
// http.Server.ConnContext.
func WithWebConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, webKey{}, c)
}

// WebConnOf returns the connection of request r, or nil if it is not a WebConn.
func WebConnOf(r *http.Request) *WebConn {
	c, _ := r.Context().Value(webKey{}).(*WebConn)
	return c
}

// GuardResponses marks each response of h as partial until h returns. If h aborts a response by a
// panic, from which http.Server recovers, the connection is then reset. Otherwise an HTTP/1.0
// client would take an orderly end for the end of the response.
func GuardResponses(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := WebConnOf(r)
		if c == nil { // without a WebListener, as in tests
			h.ServeHTTP(w, r)
			return
		}
		c.SetPartial(true)
		h.ServeHTTP(w, r)
		c.SetPartial(false)
	})
}
