// SPDX-License-Identifier: Apache-2.0

// Package intercept is the app edge of the primary: it accepts connections of unmodified apps,
// finds their destinations, and carries them over streams of the bond. The apps come before it in
// the data path. The bond comes after it, behind the interface Dialer. The Dialer applies the
// policy: it gets the app (AppOf) and may refuse, or return ErrAround.
//
// Apps connect in three ways:
//
//	SOCKS5 and HTTP proxy   Edge.ServeProxy, on one port, told apart by the first
//	                        byte; SOCKS5 also carries datagrams
//	redirected connections  Edge.ServeTransparent, for apps started by `mpbond run`
//	connection attempts     Edge.ServeAttempt, from package tun: all apps of the machine
//
// `mpbond run` itself uses Redirect, which makes the kernel send one app's TCP connections,
// datagrams and DNS queries here.
//
// # Likely success is answered early
//
// A stream of the bond can be used at once: its first bytes travel with the request to open it.
// SOCKS5 and CONNECT therefore answer success immediately, and save one round trip, if success is
// likely: for destinations that were reached recently, and for web ports of numeric addresses
// (docs/adr/0013-the-proxy-waits-for-the-answer.md). In all other cases they wait for the far end,
// so that the app learns of an unknown name or a closed port. The kernel has already accepted a
// redirected connection. If the far end refuses a destination after success was answered, the app's
// connection is reset and never closed in order, so that the app does not take the refusal for an
// empty answer. Plain HTTP requests get a 502 or 504 with a text. With Config.WaitOpen all apps
// wait. Attempts always wait for the far end's answer.
//
// With Config.Direct a destination that the far end cannot reach or does not allow (a printer at
// home, IPv6 if the server has none) is tried from here instead, with the data that the app has
// already sent. So an app is not worse off than without the bond.
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

// Dialer opens one stream of the bond to a destination, "host:port" with unresolved names. It waits
// while no path to the far end works, otherwise it returns at once. ctx bounds only the call. A
// refusal by the far end appears as an error of Read and Write that wraps a wire.Reset. Safe for
// concurrent use.
//
// The conn must have CloseWrite() error. It may have
//
//	WaitOpen(context.Context) error  wait for the far end's answer: nil, the refusal, or the context's error
//	Reset()                          end both directions at once and make the far end reset its connection
//
// Otherwise the answer is awaited by reading, and Close replaces Reset.
type Dialer interface {
	DialStream(ctx context.Context, dest string) (net.Conn, error)
}

// Limits of this implementation.
const (
	// DefaultMaxConns bounds the memory of the edge: each connection holds at most two copy
	// buffers.
	DefaultMaxConns = 4096
	// handshakeTimeout bounds the time until an app has sent its request.
	handshakeTimeout = 30 * time.Second
	// openTimeout bounds the wait for the far end's answer. It exceeds the two minutes after which
	// Linux gives up a connection attempt.
	openTimeout = 150 * time.Second
)

// Config configures an Edge. Only Dialer is required.
type Config struct {
	Dialer Dialer
	// Direct connects without the bond to destinations that the far end cannot reach or does not
	// allow. network is "tcp" or "udp". If it is nil, such connections fail.
	Direct func(ctx context.Context, network, dest string) (net.Conn, error)
	// Around connects without the bond when the Dialer returns ErrAround. If it is nil, such
	// connections fail.
	Around func(ctx context.Context, network, dest string) (net.Conn, error)
	// Names, if not nil, learns the names that apps ask for.
	Names *Names
	// Packets opens datagram flows of the bond. If it is nil, datagrams are not accepted.
	Packets PacketDialer
	// WaitOpen makes SOCKS5 and CONNECT always wait for the far end's answer.
	WaitOpen bool
	// MaxConns bounds the apps' connections. A further one replaces the connection that has waited
	// longest without a request, or else that of the destination that has not answered for longest.
	// If there is neither, the new connection is reset. 0 means DefaultMaxConns.
	MaxConns int
	// Log gets one line for each failed connection. nil discards.
	Log *slog.Logger
}

// Edge serves connections of apps. Safe for concurrent use.
type Edge struct {
	cfg      Config
	log      *slog.Logger
	refusals *loglimit.Limiter // rate-limited log for events that apps can cause without end
	ctx      context.Context   // ends with Close
	cancel   context.CancelFunc
	reached  reachedDests

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]bool
	conns     map[*appConn]bool
	// Connections without data (*appConn), oldest first.
	awaitingRequest list.List      // they have sent no request yet
	awaitingAnswer  list.List      // their destination has not answered yet
	wg              sync.WaitGroup // serving goroutines and handlers; Add requires mu
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

// Close closes the listeners, resets all connections and waits for all goroutines of the Edge.
func (e *Edge) Close() error {
	e.mu.Lock()
	e.closed = true
	e.cancel() // first, so that acceptAppConns knows why its listener fails
	for ln := range e.listeners {
		ln.Close()
	}
	apps := make([]*appConn, 0, len(e.conns))
	for a := range e.conns {
		apps = append(apps, a)
	}
	e.mu.Unlock()
	for _, a := range apps {
		a.Reset() // locks mu itself
	}
	e.wg.Wait()
	return nil
}

// Conns returns the number of open connections of apps.
func (e *Edge) Conns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// beginEdgeWork adds a goroutine or handler to wg; the caller must call wg.Done. It reports false
// after Close.
func (e *Edge) beginEdgeWork() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Add(1)
	return true
}

// acceptAppConns passes each connection of ln to handle, in its own goroutine, until Close (it then
// returns nil) or a lasting error. handle owns the connection.
func (e *Edge) acceptAppConns(ln net.Listener, handle func(*appConn)) error {
	if !e.beginEdgeWork() {
		ln.Close()
		return nil
	}
	defer e.wg.Done()
	e.mu.Lock()
	e.listeners[ln] = true
	enableSYNSaving(ln)
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
			case errors.As(err, &ne) && ne.Timeout(), tcp.IsTemporaryAcceptError(err):
				// File descriptors or memory have run out: wait until some are free.
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
		e.markReplaceable(a)
		go func() {
			defer e.wg.Done()
			handle(a)
		}()
	}
}

// sleepUnlessClosed waits for d. It reports false if the Edge was closed meanwhile.
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

// registerConn registers a connection and adds its handler to wg. If MaxConns is reached it resets
// a connection without data: the one without a request for longest, else the one whose destination
// has not answered for longest.
func (e *Edge) registerConn(a *appConn) error {
	e.mu.Lock()
	var idle *appConn
	err := e.registerLocked(a, &idle)
	e.mu.Unlock()
	if idle != nil {
		idle.Reset()
		e.logRejected(fmt.Errorf("%d connections are open, which is the limit: one that carried nothing made room",
			e.cfg.MaxConns))
	}
	return err
}

// registerLocked is registerConn with mu held. It sets idle to the connection to be reset, if any.
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

// unregisterLocked removes a connection and cancels its dial. mu must be held.
func (e *Edge) unregisterLocked(a *appConn) {
	delete(e.conns, a)
	e.removeFromWaiting(a)
	if a.cancelDial != nil {
		a.cancelDial()
	}
}

// removeFromWaiting removes a from awaitingRequest and awaitingAnswer. mu must be held.
func (e *Edge) removeFromWaiting(a *appConn) {
	if a.waitingElement != nil {
		e.awaitingRequest.Remove(a.waitingElement) // Remove ignores elements of the other list
		e.awaitingAnswer.Remove(a.waitingElement)
		a.waitingElement = nil
	}
}

// markReplaceable makes a replaceable while it has no request, until markConnActive.
func (e *Edge) markReplaceable(a *appConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns[a] && a.waitingElement == nil {
		a.waitingElement = e.awaitingRequest.PushBack(a)
	}
}

// awaitAnswer makes a replaceable while its destination has not answered, until markConnActive.
// giveUp is called when a is unregistered; at once if it already is.
func (e *Edge) awaitAnswer(a *appConn, giveUp func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.conns[a] {
		giveUp()
		return
	}
	e.removeFromWaiting(a)
	a.waitingElement, a.cancelDial = e.awaitingAnswer.PushBack(a), giveUp
}

// markConnActive makes a, which now carries data, no longer replaceable.
func (e *Edge) markConnActive(a *appConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removeFromWaiting(a)
}

func (e *Edge) logRejected(err error) {
	e.refusals.Log(slog.LevelWarn, "full", "app's connection not taken", "err", err, "hint",
		"a program here keeps many connections open: `ss -tnp` shows which")
}

// appConn is a connection of an app. Closing unregisters it from the Edge. It ends with a reset
// unless CloseInOrder closes it. So an app with a stream that was cut off, even by the end of this
// process, never takes a part for the whole.
type appConn struct {
	net.Conn
	edge           *Edge
	readAhead      []byte        // bytes read ahead; belongs to the reader
	waitingElement *list.Element // its element in awaitingRequest or awaitingAnswer, or nil; guarded by Edge.mu
	cancelDial     func()        // cancels its dial, or nil; guarded by Edge.mu

	transportOnce sync.Once // creates transport, for plain HTTP
	transport     *http.Transport
}

func (e *Edge) newAppConn(c net.Conn) *appConn {
	splice.ResetOnExit(c)
	return &appConn{Conn: c, edge: e}
}

// peekByte reads one byte, which the next Read returns again.
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

// WriteTo implements io.WriterTo for package splice, so that a silent app needs no buffer.
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

// Close implements net.Conn. The app sees an error, not an orderly end.
func (a *appConn) Close() error {
	a.unregister()
	splice.Reset(a.Conn)
	return nil
}

// CloseInOrder closes the connection after the written data; see package splice.
func (a *appConn) CloseInOrder() error {
	a.unregister()
	return splice.CloseInOrder(a.Conn)
}

func (a *appConn) unregister() {
	a.edge.mu.Lock()
	a.edge.unregisterLocked(a)
	a.edge.mu.Unlock()
}

// Writer returns the connection below, for direct writes; see splice.Both.
func (a *appConn) Writer() io.Writer { return a.Conn }

// CloseWrite ends the direction towards the app.
func (a *appConn) CloseWrite() error { return splice.CloseWrite(a.Conn) }

// Reset is Close, for package splice.
func (a *appConn) Reset() { a.Close() }

// dialWithFallback opens the stream for dest. If Config.Direct is set, the stream can turn into a
// direct connection. ctx bounds only the call.
func (e *Edge) dialWithFallback(ctx context.Context, dest string) (net.Conn, error) {
	c, err := e.openStreamToDest(ctx, dest)
	if err != nil {
		return nil, err
	}
	_, only := c.(BondOnly)
	if w, ok := c.(openWaiter); ok && e.cfg.Direct != nil && !only {
		return newFallbackConn(e, c, w, dest), nil
	}
	return c, nil
}

// awaitOpenAnswer waits for the far end's answer, if the conn supports this.
func (e *Edge) awaitOpenAnswer(ctx context.Context, c net.Conn) error {
	w, ok := c.(openWaiter)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return w.WaitOpen(ctx)
}

// dialProxied is dialWithFallback for apps that get an answer: unless success is likely, it waits
// for the far end's answer. Until then other connections can replace a, which also ends the dial.
func (e *Edge) dialProxied(a *appConn, dest string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(a.withConnApp(e.ctx))
	e.awaitAnswer(a, cancel)
	c, err := e.dialWithFallback(ctx, dest)
	if err != nil {
		cancel()
		return nil, err
	}
	if !e.cfg.WaitOpen && e.reached.isLikelyReachable(dest, time.Now()) && e.beginEdgeWork() {
		go func() {
			defer e.wg.Done()
			defer cancel()
			if e.awaitOpenAnswer(ctx, c) == nil {
				e.markConnActive(a)
			}
		}()
		return c, nil
	}
	defer cancel()
	if err := e.awaitOpenAnswer(ctx, c); err != nil {
		splice.Reset(c)
		return nil, err
	}
	e.markConnActive(a)
	e.reached.markReached(dest, time.Now())
	return c, nil
}

// relayConn copies between an app's connection and stream c to dest until both directions have
// ended, and closes both.
func (e *Edge) relayConn(kind string, a *appConn, c net.Conn, dest string) {
	up, down, err := splice.Both(a, c)
	if err != nil && down == 0 && refusalCode(err) != wire.CodeInternal {
		e.reached.markUnreached(dest)
	}
	if err != nil && e.ctx.Err() == nil {
		e.log.Info("connection broke", "edge", kind, "dest", dest, "app", a.RemoteAddr(), "up", up, "down",
			down, "err", err)
		return
	}
	e.log.Debug("connection ended", "edge", kind, "dest", dest, "up", up, "down", down)
}
