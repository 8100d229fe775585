package splice

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// WebListener makes each connection of l a WebConn, for http.Server.
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

// WebConn is a connection that http.Server serves. Close is in order while no
// answer is under way, and else a reset. ResetOnExit holds for the connection below.
type WebConn struct {
	net.Conn
	partial atomic.Bool
}

// SetPartial marks whether an answer is under way that must not look whole.
func (c *WebConn) SetPartial(is bool) { c.partial.Store(is) }

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

// Writer is where writes go without a detour; see Both.
func (c *WebConn) Writer() io.Writer { return c.Conn }

type webKey struct{}

// WithWebConn is for http.Server.ConnContext: WebConnOf returns c for its requests.
func WithWebConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, webKey{}, c)
}

// WebConnOf returns the connection on which r came, nil if it is no WebConn.
func WebConnOf(r *http.Request) *WebConn {
	c, _ := r.Context().Value(webKey{}).(*WebConn)
	return c
}

// GuardResponses marks each answer of h as partial until h returns. So an answer that h
// breaks off by a panic, from which http.Server recovers, resets the connection: a
// client of HTTP/1.0 would take an end in order for the end of the answer.
func GuardResponses(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := WebConnOf(r)
		if c == nil { // a test without a WebListener
			h.ServeHTTP(w, r)
			return
		}
		c.SetPartial(true)
		h.ServeHTTP(w, r)
		c.SetPartial(false)
	})
}
