// Package intercept is the app edge of the primary: it takes connections of
// unmodified apps, learns where they want to go, and carries them over streams
// of the bond. Before it in the data path stands the app; after it the bond,
// seen here as a Dialer. What policy says of a connection is the Dialer's part: it
// is told of the app (AppOf), and may refuse, or answer ErrAround.
//
// Apps come in three ways:
//
//	SOCKS5 and HTTP proxy   Edge.ServeProxy, one port, told apart by the first
//	                        byte; SOCKS5 takes datagrams too
//	redirected connections  Edge.ServeTransparent, for apps started by `mpbond run`
//	connection attempts     Edge.ServeAttempt, from package tun: all apps of the machine
//
// and `mpbond run` itself uses Redirect, which makes the kernel send one app's
// TCP connections, datagrams and DNS queries here.
//
// # Success that is likely is answered before it is known
//
// A stream of the bond is usable at once: its first bytes travel together with
// the request to open it. To destinations that were reached lately, and to web
// ports of addresses given as numbers, SOCKS5 and CONNECT therefore answer
// success at once and save one round trip through the bond (docs/adr/0013). For
// all others they wait for the far end, so that a name that does not exist, or a
// closed port, reaches the app as that. A redirected connection was accepted by the
// kernel anyway. If the far end refuses a destination after success was answered,
// the app's connection is reset, never closed in order, so that it cannot take
// the refusal for an empty answer. Plain HTTP requests get a 502 or 504 with a
// text. With Config.WaitOpen all wait. Attempts, whose app waits for the answer,
// always get the true one.
//
// With Config.Direct a destination which the far end cannot or may not reach
// (a printer at home, IPv6 where the server has none) is tried from here
// instead, with what the app has already sent, so that an app is not worse off
// than without the bond.
package intercept

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"mpbond/base/loglimit"
	"mpbond/link/splice"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// Dialer opens one stream of the bond to a destination, "host:port" with names
// unresolved. It waits while there is no way to the far end at all, otherwise it
// returns at once; its context bounds only the call. A refusal
// by the far end shows as an error of Read and Write which wraps a wire.Reset.
// Safe for concurrent use.
//
// The conn must have CloseWrite() error. It may have
//
//	WaitOpen(context.Context) error  wait for the far end's answer: nil, the refusal, or the context's error
//	Reset()                          end both directions at once and make the far end reset its connection
//
// without which the answer is awaited by reading, and Reset is Close.
type Dialer interface {
	DialStream(ctx context.Context, dest string) (net.Conn, error)
}

// Limits of this implementation.
const (
	// DefaultMaxConns bounds the memory of the edge: each connection holds at
	// most two copy buffers.
	DefaultMaxConns = 4096
	// handshakeTimeout is how long an app may take to say what it wants.
	handshakeTimeout = 30 * time.Second
	// openTimeout is how long the far end may take to answer where the answer
	// is waited for. It exceeds the two minutes after which Linux gives up on
	// a connection attempt.
	openTimeout = 150 * time.Second
)

// Config is what an Edge needs. Only Dialer is required.
type Config struct {
	Dialer Dialer
	// Direct connects without the bond where the far end cannot reach or does
	// not allow a destination; network is "tcp" or "udp". nil: such connections
	// fail.
	Direct func(ctx context.Context, network, dest string) (net.Conn, error)
	// Around connects without the bond where the Dialer answers ErrAround. nil:
	// such connections fail.
	Around func(ctx context.Context, network, dest string) (net.Conn, error)
	// Names, if not nil, learns which names apps ask for.
	Names *Names
	// Packets opens datagram flows of the bond. nil: datagrams are not taken.
	Packets PacketDialer
	// WaitOpen makes SOCKS5 and CONNECT always answer only when the far end did.
	WaitOpen bool
	// MaxConns bounds the connections of apps: one more takes the place of the one
	// that has waited for longest without a request, else of the one whose destination
	// has not answered for longest, or is reset. 0 means DefaultMaxConns.
	MaxConns int
	// Log gets one line for each connection that failed. nil discards.
	Log *slog.Logger
}

// Edge serves connections of apps. Safe for concurrent use.
type Edge struct {
	cfg      Config
	log      *slog.Logger
	refusals *loglimit.Limiter // the log, for what apps can cause without end
	ctx      context.Context   // ends with Close
	cancel   context.CancelFunc
	reached  reachedDests

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]bool
	conns     map[*appConn]bool
	// Connections that carry nothing, *appConn, each for longest first.
	awaitingRequest list.List      // a request is awaited
	awaitingAnswer  list.List      // the far end's answer is awaited
	wg              sync.WaitGroup // serving goroutines and handlers; Add under mu
}

// New returns an Edge that serves nothing yet.
func New(cfg Config) *Edge {
	if cfg.MaxConns == 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	e := &Edge{cfg: cfg, log: cfg.Log, listeners: map[net.Listener]bool{}, conns: map[*appConn]bool{}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.refusals = loglimit.New(e.log)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Close closes the listeners, resets all connections and waits until nothing
// of the Edge runs any more.
func (e *Edge) Close() error {
	e.mu.Lock()
	e.closed = true
	e.cancel() // first: it tells accept why its listener fails
	for ln := range e.listeners {
		ln.Close()
	}
	apps := make([]*appConn, 0, len(e.conns))
	for a := range e.conns {
		apps = append(apps, a)
	}
	e.mu.Unlock()
	for _, a := range apps {
		a.Reset() // outside mu, which it takes
	}
	e.wg.Wait()
	return nil
}

// Conns is how many connections of apps are open.
func (e *Edge) Conns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// beginWork counts one more goroutine or handler, to be ended by wg.Done. It
// reports false after Close.
func (e *Edge) beginWork() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Add(1)
	return true
}

// acceptLoop gives each connection of ln to handle, in its own goroutine, until
// Close (it then returns nil) or a lasting error. handle owns the connection.
func (e *Edge) acceptLoop(ln net.Listener, handle func(*appConn)) error {
	if !e.beginWork() {
		ln.Close()
		return nil
	}
	defer e.wg.Done()
	e.mu.Lock()
	e.listeners[ln] = true
	saveSYN(ln)
	e.mu.Unlock()
	defer func() {
		ln.Close()
		e.mu.Lock()
		delete(e.listeners, ln)
		e.mu.Unlock()
	}()
	for {
		c, err := ln.Accept()
		if err != nil {
			var ne net.Error
			switch {
			case e.ctx.Err() != nil:
				return nil
			case errors.As(err, &ne) && ne.Timeout(), tcp.IsResourceExhausted(err):
				// Out of file descriptors or memory: others may free some.
				e.refusals.Log(slog.LevelWarn, "accept", "cannot accept an app's connection", "err", err)
				if !e.sleepUnlessClosed(50 * time.Millisecond) {
					return nil
				}
				continue
			}
			return fmt.Errorf("accepting on %v: %w", ln.Addr(), err)
		}
		a := e.newAppConn(c)
		if err := e.registerConn(a); err != nil {
			e.logRejected(err)
			a.Reset()
			continue
		}
		e.awaitRequest(a)
		go func() {
			defer e.wg.Done()
			handle(a)
		}()
	}
}

// sleepUnlessClosed waits for d, and reports false if the Edge was closed meanwhile.
func (e *Edge) sleepUnlessClosed(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-e.ctx.Done():
		return false
	}
}

// registerConn enters a connection in the books and counts its handler. If there is no
// place it resets one that carries nothing: the one that has been silent for longest, else
// the one whose destination has not answered for longest.
func (e *Edge) registerConn(a *appConn) error {
	e.mu.Lock()
	var idle *appConn
	err := e.registerLocked(a, &idle)
	e.mu.Unlock()
	if idle != nil {
		idle.Reset()
		e.logRejected(fmt.Errorf("%d connections are open, which is the limit: one that carried nothing made room", e.cfg.MaxConns))
	}
	return err
}

// registerLocked is remember; mu must be held. It sets idle to the connection to be reset, if any.
func (e *Edge) registerLocked(a *appConn, idle **appConn) error {
	if e.closed {
		return net.ErrClosed
	}
	if n := len(e.conns); n >= e.cfg.MaxConns {
		front := e.awaitingRequest.Front()
		if front == nil {
			front = e.awaitingAnswer.Front()
		}
		if front == nil {
			return fmt.Errorf("%d connections are open, which is the limit", n)
		}
		*idle = front.Value.(*appConn)
		e.unregisterLocked(*idle)
	}
	e.conns[a] = true
	e.wg.Add(1)
	return nil
}

// unregisterLocked takes a connection out of the books, and ends the dial for it. mu must be held.
func (e *Edge) unregisterLocked(a *appConn) {
	delete(e.conns, a)
	e.removeFromIdle(a)
	if a.cancelDial != nil {
		a.cancelDial()
	}
}

// removeFromIdle takes a out of silent and dialing. mu must be held.
func (e *Edge) removeFromIdle(a *appConn) {
	if a.idleElement != nil {
		e.awaitingRequest.Remove(a.idleElement) // each removes only its own
		e.awaitingAnswer.Remove(a.idleElement)
		a.idleElement = nil
	}
}

// awaitRequest makes a, which carries nothing, give way where places are short, until
// markActive.
func (e *Edge) awaitRequest(a *appConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns[a] && a.idleElement == nil {
		a.idleElement = e.awaitingRequest.PushBack(a)
	}
}

// awaitAnswer makes a, whose destination has not answered, give way where places are
// short, until markActive. cancelDial is called when a leaves the books; at once if it has
// left them.
func (e *Edge) awaitAnswer(a *appConn, giveUp func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.conns[a] {
		giveUp()
		return
	}
	e.removeFromIdle(a)
	a.idleElement, a.cancelDial = e.awaitingAnswer.PushBack(a), giveUp
}

// markActive makes a, which carries something, keep its place.
func (e *Edge) markActive(a *appConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removeFromIdle(a)
}

func (e *Edge) logRejected(err error) {
	e.refusals.Log(slog.LevelWarn, "full", "app's connection not taken", "err", err, "hint", "a program here keeps many connections open: `ss -tnp` shows which")
}

// appConn is a connection of an app. It leaves the Edge's books when closed. It
// ends with a reset unless CloseInOrder closes it, so that an app whose stream was
// cut off, be it by the end of this process, never takes a part for the whole.
type appConn struct {
	net.Conn
	edge        *Edge
	readAhead   []byte        // bytes read ahead; belongs to the reader
	idleElement *list.Element // in Edge.silent or Edge.dialing, or nil; guarded by Edge.mu
	cancelDial  func()        // ends the dial for it, or nil; guarded by Edge.mu

	transportOnce sync.Once // makes transport, for plain HTTP
	transport     *http.Transport
}

func (e *Edge) newAppConn(c net.Conn) *appConn {
	splice.ResetOnExit(c)
	return &appConn{Conn: c, edge: e}
}

// peekByte reads one byte which the next Read returns again.
func (a *appConn) peekByte() (byte, error) {
	b := make([]byte, 1)
	if _, err := a.Conn.Read(b); err != nil {
		return 0, err
	}
	a.readAhead = b
	return b[0], nil
}

// Read implements net.Conn.
func (a *appConn) Read(p []byte) (int, error) {
	if len(a.readAhead) > 0 && len(p) > 0 {
		n := copy(p, a.readAhead)
		a.readAhead = a.readAhead[n:]
		return n, nil
	}
	return a.Conn.Read(p)
}

// WriteTo implements io.WriterTo, for package splice: an app that says nothing
// costs no buffer.
func (a *appConn) WriteTo(w io.Writer) (n int64, err error) {
	if len(a.readAhead) > 0 {
		k, err := w.Write(a.readAhead)
		a.readAhead = a.readAhead[k:]
		if n = int64(k); err != nil {
			return n, err
		}
	}
	rest, err := splice.Copy(w, a.Conn)
	return n + rest, err
}

// Close implements net.Conn. The app sees an error, not an end.
func (a *appConn) Close() error {
	a.unregister()
	splice.Reset(a.Conn)
	return nil
}

// CloseInOrder closes the connection after what was written; see package splice.
func (a *appConn) CloseInOrder() error {
	a.unregister()
	return splice.CloseInOrder(a.Conn)
}

func (a *appConn) unregister() {
	a.edge.mu.Lock()
	a.edge.unregisterLocked(a)
	a.edge.mu.Unlock()
}

// Writer is where writes go without a detour; see splice.Both.
func (a *appConn) Writer() io.Writer { return a.Conn }

// CloseWrite ends the direction towards the app.
func (a *appConn) CloseWrite() error { return splice.CloseWrite(a.Conn) }

// Reset is Close, for package splice.
func (a *appConn) Reset() { a.Close() }

// dialWithFallback opens the stream for dest, with a way back to a direct connection if
// that is allowed. Its context bounds only the call.
func (e *Edge) dialWithFallback(ctx context.Context, dest string) (net.Conn, error) {
	c, err := e.openStream(ctx, dest)
	if err != nil {
		return nil, err
	}
	_, only := c.(BondOnly)
	if w, ok := c.(openWaiter); ok && e.cfg.Direct != nil && !only {
		return newFallbackConn(e, c, w, dest), nil
	}
	return c, nil
}

// awaitOpen waits for the far end's answer where it can be had.
func (e *Edge) awaitOpen(ctx context.Context, c net.Conn) error {
	w, ok := c.(openWaiter)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return w.WaitOpen(ctx)
}

// dialProxied is dial for an app that is told of success or failure: it waits for the far
// end's answer where success is not likely. Until that answer a gives way where places
// are short, and the dial ends with it.
func (e *Edge) dialProxied(a *appConn, dest string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(a.withApp(e.ctx))
	e.awaitAnswer(a, cancel)
	c, err := e.dialWithFallback(ctx, dest)
	if err != nil {
		cancel()
		return nil, err
	}
	if !e.cfg.WaitOpen && e.reached.isLikely(dest, time.Now()) && e.beginWork() {
		go func() {
			defer e.wg.Done()
			defer cancel()
			if e.awaitOpen(ctx, c) == nil {
				e.markActive(a)
			}
		}()
		return c, nil
	}
	defer cancel()
	if err := e.awaitOpen(ctx, c); err != nil {
		splice.Reset(c)
		return nil, err
	}
	e.markActive(a)
	e.reached.markReached(dest, time.Now())
	return c, nil
}

// relayConn carries an app's connection over stream c to dest until both
// directions ended, and closes both.
func (e *Edge) relayConn(kind string, a *appConn, c net.Conn, dest string) {
	up, down, err := splice.Both(a, c)
	if err != nil && down == 0 && refusalCode(err) != wire.CodeInternal {
		e.reached.markUnreached(dest)
	}
	if err != nil && e.ctx.Err() == nil {
		e.log.Info("connection broke", "edge", kind, "dest", dest, "app", a.RemoteAddr(), "up", up, "down", down, "err", err)
		return
	}
	e.log.Debug("connection ended", "edge", kind, "dest", dest, "up", up, "down", down)
}
