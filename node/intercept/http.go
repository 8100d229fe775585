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

// HTTP proxy: CONNECT (RFC 9110, section 9.3.6) and requests in absolute form
// (RFC 9112, section 3.2.2). net/http parses and writes; what is here keeps a
// proxy for one's own apps out of sight: it adds and removes no header besides
// those of the connection itself.

// ServeProxy serves SOCKS5 and HTTP proxy requests on ln until Close, after
// which it returns nil. ln should listen on a loopback address: whoever can
// connect can use the bond.
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
	return e.acceptLoop(ln, func(a *appConn) {
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

// connQueue is a net.Listener of connections accepted elsewhere.
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

// appConnOf returns the app's connection on which a request came.
func appConnOf(r *http.Request) *appConn { return splice.WebConnOf(r).Conn.(*appConn) }

func (e *Edge) newHTTPServer() *http.Server {
	proxy := &httputil.ReverseProxy{
		Transport:      originTransport{e},
		FlushInterval:  -1, // the app, not we, decides when it has read enough
		Rewrite:        restoreHeaders,
		ModifyResponse: guardUpgrade,
		ErrorHandler:   e.writeHTTPError,
		ErrorLog:       slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !e.beginWork() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer e.wg.Done()
		switch {
		case r.Method == http.MethodConnect:
			e.serveConnect(w, r)
		case r.URL.Host == "":
			http.Error(w, "mpbond: this is a proxy, not a web server; set it as the HTTP proxy of an app", http.StatusBadRequest)
		case r.URL.Scheme != "http":
			http.Error(w, fmt.Sprintf("mpbond: the proxy speaks http, and CONNECT for everything else, but not %q", r.URL.Scheme), http.StatusNotImplemented)
		default:
			// An answer may begin before the request has ended.
			http.NewResponseController(w).EnableFullDuplex() //nolint:errcheck // HTTP/1 can
			// Headers which net/http would otherwise make up.
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
		// OPTIONS * is for the origin like any other request.
		DisableGeneralOptionsHandler: true,
	}
	return srv
}

// originTransport passes requests of apps on. Each connection of an app has connections of
// its own to origins: what is decided about one app, as to how and whether it is
// carried, must not come to another.
type originTransport struct{ e *Edge }

// RoundTrip implements http.RoundTripper.
func (o originTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	a := appConnOf(r)
	a.transportOnce.Do(func() {
		a.transport = &http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return o.e.dialOrigin(a.withApp(ctx), addr)
			},
			// The app says which encodings it takes.
			DisableCompression:    true,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: time.Second,
		}
	})
	return a.transport.RoundTrip(r)
}

// trackConnState is called on each change of an app's connection. When that ends, it closes
// the idle connections to origins.
func (e *Edge) trackConnState(c net.Conn, s http.ConnState) {
	a := c.(*splice.WebConn).Conn.(*appConn)
	switch {
	case s == http.StateActive:
		e.markActive(a)
	case s == http.StateIdle:
		e.awaitRequest(a)
	case s == http.StateClosed && a.transport != nil:
		a.transport.CloseIdleConnections()
	}
}

// originConn is a connection to an origin. Close is in order: http.Transport calls it
// when the connection is idle.
type originConn struct{ net.Conn }

// Close implements net.Conn.
func (o originConn) Close() error { return splice.CloseInOrder(o.Conn) }

// CloseWrite ends the direction to the origin, of an upgraded connection.
func (o originConn) CloseWrite() error { return splice.CloseWrite(o.Conn) }

func (e *Edge) dialOrigin(ctx context.Context, dest string) (net.Conn, error) {
	c, err := e.dialWithFallback(ctx, dest)
	if err != nil {
		return nil, err
	}
	return originConn{c}, nil
}

// restoreHeaders gives back what ReverseProxy takes away from a request.
func restoreHeaders(r *httputil.ProxyRequest) {
	for _, k := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[k]; ok {
			r.Out.Header[k] = v
		}
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery
}

// serveConnect carries a tunnel.
func (e *Edge) serveConnect(w http.ResponseWriter, r *http.Request) {
	dest, err := connectTarget(r.Host)
	if err != nil {
		http.Error(w, "mpbond: "+err.Error(), http.StatusBadRequest)
		return
	}
	// Not the request's context: the tunnel outlives the handler's view of it.
	a := appConnOf(r)
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
	// What the app sent right behind its request was read with it. The
	// buffer's reader reads on from a itself, so it must not be used further.
	ahead, _ := buf.Reader.Peek(buf.Reader.Buffered())
	a.readAhead = append(bytes.Clone(ahead), a.readAhead...)
	if _, err := io.WriteString(hijacked, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		a.Close()
		splice.Reset(c)
		return
	}
	e.relayConn("connect", a, c, dest)
}

// connectTarget checks the target of a CONNECT, "host:port".
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

// writeHTTPError answers a request whose destination could not be reached.
func (e *Edge) writeHTTPError(w http.ResponseWriter, r *http.Request, err error) {
	a := appConnOf(r)
	e.log.Info("HTTP request failed", "dest", r.Host, "app", a.RemoteAddr(), "err", err)
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		a.Reset() // the app has gone
		return
	}
	// The far end's own words, without those of net/http about where they came.
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
	w.Header().Set("Connection", "close") // a request's body may be half read
	http.Error(w, fmt.Sprintf("mpbond: %s cannot be reached: %v", r.Host, err), status)
}

// guardUpgrade makes an upgraded connection that breaks off break the app's
// connection too. For other answers GuardAnswers does: ReverseProxy panics.
func guardUpgrade(r *http.Response) error {
	if up, ok := r.Body.(io.ReadWriteCloser); ok && r.StatusCode == http.StatusSwitchingProtocols {
		app := splice.WebConnOf(r.Request)
		app.SetPartial(false) // ReverseProxy closes it when both directions have ended
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
