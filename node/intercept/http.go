// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"time"

	"mpbond/link/splice"
	"mpbond/link/wire"
)

// HTTP proxy: CONNECT (RFC 9110, section 9.3.6) and requests in absolute form (RFC 9112, section
// 3.2.2). net/http parses and writes. The code here keeps the proxy invisible to origins: it adds
// and removes no headers except those of the connection.

// ServeProxy serves SOCKS5 and HTTP proxy requests on ln until Close, and then returns nil. ln
// should listen on a loopback address, because any client may use the bond.
func (e *Edge) ServeProxy(ln net.Listener) error {
	web := &connQueue{addr: ln.Addr(), conns: make(chan net.Conn), done: make(chan struct{})}
	srv := e.newHTTPServer()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		srv.Serve(web) //nolint:errcheck // always http.ErrServerClosed
	}()
	defer func() {
		srv.Close()
		<-ended
	}()
	return e.acceptAppConns(ln, func(a *appConn) {
		a.SetReadDeadline(time.Now().Add(handshakeTimeout)) //nolint:errcheck // reading reports it
		b, err := a.peekByte()
		if err != nil {
			a.CloseInOrder() //nolint:errcheck // it has asked for nothing
			return
		}
		a.SetReadDeadline(time.Time{}) //nolint:errcheck // reading reports it
		if b == socksVersion {
			e.serveSOCKS(a)
			return
		}
		web.push(&splice.WebConn{Conn: a})
	})
}

// connQueue is a net.Listener for connections that were accepted elsewhere.
type connQueue struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (h *connQueue) push(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		c.Close()
	}
}

// Accept implements net.Listener.
func (h *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *connQueue) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *connQueue) Addr() net.Addr { return h.addr }

// appConnOfRequest returns the app's connection of a request.
func appConnOfRequest(r *http.Request) *appConn { return splice.WebConnOf(r).Conn.(*appConn) }

// newHTTPServer returns the HTTP proxy: CONNECT becomes a stream, plain requests are forwarded.
func (e *Edge) newHTTPServer() *http.Server {
	proxy := &httputil.ReverseProxy{
		Transport:      originTransport{e},
		FlushInterval:  -1, // pass data on at once
		Rewrite:        restoreHeaders,
		ModifyResponse: guardUpgrade,
		ErrorHandler:   e.writeHTTPError,
		ErrorLog:       slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !e.beginEdgeWork() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer e.wg.Done()
		switch {
		case r.Method == http.MethodConnect:
			e.serveConnect(w, r)
		case r.URL.Host == "":
			http.Error(w, "mpbond: this is a proxy, not a web server; set it as the HTTP proxy of an app",
				http.StatusBadRequest)
		case r.URL.Scheme != "http":
			http.Error(w, fmt.Sprintf("mpbond: the proxy speaks http, and CONNECT for everything else, but not %q",
				r.URL.Scheme), http.StatusNotImplemented)
		default:
			// A response may begin before the request has ended.
			http.NewResponseController(w).EnableFullDuplex() //nolint:errcheck // HTTP/1 can
			// Headers that net/http would otherwise add.
			w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
			proxy.ServeHTTP(w, r)
		}
	})
	srv := &http.Server{
		Handler:           splice.GuardResponses(handler),
		ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout:       10 * time.Minute, // longer than apps keep idle connections
		ErrorLog:          slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return e.ctx },
		ConnContext:       splice.WithWebConn,
		ConnState:         e.trackConnState,
		// OPTIONS * is passed to the origin like any other request.
		DisableGeneralOptionsHandler: true,
	}
	return srv
}

// originTransport forwards the requests of apps. Each connection of an app has its own connections
// to origins, because policy decisions about one app must not apply to another one.
type originTransport struct{ e *Edge }

// RoundTrip implements http.RoundTripper.
func (o originTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	a := appConnOfRequest(r)
	a.transportOnce.Do(func() {
		a.transport = &http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return o.e.dialOrigin(a.withConnApp(ctx), addr)
			},
			// The app decides which encodings it accepts.
			DisableCompression:    true,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: time.Second,
		}
	})
	return a.transport.RoundTrip(r)
}

// trackConnState is called on each state change of an app's connection. When the connection ends,
// it closes the idle connections to origins.
func (e *Edge) trackConnState(c net.Conn, s http.ConnState) {
	a := c.(*splice.WebConn).Conn.(*appConn)
	switch {
	case s == http.StateActive:
		e.markConnActive(a)
	case s == http.StateIdle:
		e.markReplaceable(a)
	case s == http.StateClosed && a.transport != nil:
		a.transport.CloseIdleConnections()
	}
}

// originConn is a connection to an origin. Close ends it in order, because http.Transport closes
// idle connections only.
type originConn struct{ net.Conn }

// Close implements net.Conn.
func (o originConn) Close() error { return splice.CloseInOrder(o.Conn) }

// CloseWrite ends the direction to the origin, for upgraded connections.
func (o originConn) CloseWrite() error { return splice.CloseWrite(o.Conn) }

func (e *Edge) dialOrigin(ctx context.Context, dest string) (net.Conn, error) {
	c, err := e.dialWithFallback(ctx, dest)
	if err != nil {
		return nil, err
	}
	return originConn{c}, nil
}

// restoreHeaders restores what ReverseProxy removes from a request.
func restoreHeaders(r *httputil.ProxyRequest) {
	for _, k := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[k]; ok {
			r.Out.Header[k] = v
		}
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery
}

// serveConnect serves a CONNECT request.
func (e *Edge) serveConnect(w http.ResponseWriter, r *http.Request) {
	dest, err := connectTarget(r.Host)
	if err != nil {
		http.Error(w, "mpbond: "+err.Error(), http.StatusBadRequest)
		return
	}
	// The tunnel outlives the request, so the request's context is not used.
	a := appConnOfRequest(r)
	c, err := e.dialProxied(a, dest)
	if err != nil {
		e.writeHTTPError(w, r, err)
		return
	}
	hijacked, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		splice.Reset(c)
		e.writeHTTPError(w, r, err)
		return
	}
	a.SetDeadline(time.Time{}) //nolint:errcheck // reading reports it
	// Data that the app sent right after its request was read with it. The buffer's reader would
	// read on from a, so it must not be used any more.
	ahead, _ := buf.Reader.Peek(buf.Reader.Buffered())
	a.readAhead = append(bytes.Clone(ahead), a.readAhead...)
	if _, err := io.WriteString(hijacked, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		a.Close()
		splice.Reset(c)
		return
	}
	e.relayConn("connect", a, c, dest)
}

// connectTarget checks the target of a CONNECT request, "host:port".
func connectTarget(hostport string) (string, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", fmt.Errorf("CONNECT needs host:port, not %q", hostport)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("%q is not a port", port)
	}
	return parseDestination(host, uint16(n))
}

// writeHTTPError answers a request for a destination that could not be reached.
func (e *Edge) writeHTTPError(w http.ResponseWriter, r *http.Request, err error) {
	a := appConnOfRequest(r)
	e.log.Info("HTTP request failed", "dest", r.Host, "app", a.RemoteAddr(), "err", err)
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		a.Reset() // the app has closed
		return
	}
	// Use the far end's words without those that net/http adds.
	if r := (wire.Reset{}); errors.As(err, &r) {
		err = r
	}
	status := http.StatusBadGateway
	switch refusalCode(err) {
	case wire.CodeTimeout:
		status = http.StatusGatewayTimeout
	case wire.CodeForbidden:
		status = http.StatusForbidden
	}
	w.Header().Set("Connection", "close") // the request's body may be half read
	http.Error(w, fmt.Sprintf("mpbond: %s cannot be reached: %v", r.Host, err), status)
}

// guardUpgrade makes a broken upgraded connection also break the app's connection. For other
// responses GuardResponses does this, because ReverseProxy panics.
func guardUpgrade(r *http.Response) error {
	if up, ok := r.Body.(io.ReadWriteCloser); ok && r.StatusCode == http.StatusSwitchingProtocols {
		app := splice.WebConnOf(r.Request)
		app.SetPartial(false) // ReverseProxy closes it after both directions have ended
		r.Body = &guardedUpgrade{up, app}
	}
	return nil
}

type guardedUpgrade struct {
	io.ReadWriteCloser
	app *splice.WebConn
}

// Read implements io.Reader.
func (g *guardedUpgrade) Read(p []byte) (int, error) {
	n, err := g.ReadWriteCloser.Read(p)
	if err != nil && err != io.EOF {
		g.app.SetPartial(true)
	}
	return n, err
}

// CloseWrite ends the direction to the origin, for ReverseProxy.
func (g *guardedUpgrade) CloseWrite() error {
	if h, ok := g.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}
