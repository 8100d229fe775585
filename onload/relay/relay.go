// SPDX-License-Identifier: Apache-2.0

// Package relay carries connections of a primary over the Internet connection of a
// helper. The helper listens; the primary asks it by HTTP CONNECT to connect to a
// server. For onload/fetch each helper is a further device. No bond is involved, and
// data that the primary encrypts end to end stays
// encrypted.
//
//	primary ── TLS 1.3, pinned keys: CONNECT host:port ── helper ── TCP ── any server
//
//	relay.go   the helper: accepts, checks and ends tunnels
//	tunnel.go  one tunnel
//	refusal.go how refusals are reported
//	dial.go    the primary: a net dialer and http.Transport through one helper
//	find.go    the primary: finds helpers
package relay

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/dialpolicy"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/link/splice"
	"mpbond/link/tcp"
)

// ALPN is the TLS application protocol. Those of subflows, pipes and pairing are in package wire.
const ALPN = "mpbond-onload"

// Port is the default TCP port of helpers.
const Port = 7604

// Limits. A primary that fetches items has a few connections; more are a mistake or an attempt to
// exhaust the memory of the helper.
const (
	maxTunnels, maxPerPrimary                  = 64, 32
	maxHandshakes, maxPerAddress, maxPerMinute = 64, 32, 1200
	maxHeaderBytes                             = 8 << 10 // of a request or response
	handshakeTimeout                           = 5 * time.Second
	dialTimeout                                = 20 * time.Second
	idleTimeout                                = 5 * time.Minute
	reviewInterval                             = time.Second
	userTimeout                                = time.Minute
)

// Config configures a Relay.
type Config struct {
	Key   *identity.Key
	Trust *identity.Trust
	// Uplink applies to connections to servers: interface, mark and ledger.
	Uplink tcp.Options
	// AllowedPrefixes are addresses that may be connected to although they are not public.
	AllowedPrefixes []netip.Prefix
	// Unmetered reports to primaries that the owner sets no limit, so that they need not save
	// bytes.
	Unmetered bool
	// CheckAllowed returns why nothing may be carried for a primary to server, "host:port", or nil.
	// It is called before each connection, and with an empty server periodically while the
	// connection lasts. Its errors are faults, which are reported to the primary.
	CheckAllowed func(ctx context.Context, p identity.Peer, server string) error
	Log          *slog.Logger
}

// Relay is the helper's side. Its methods may be called by any goroutine.
type Relay struct {
	cfg              Config
	handshakeLimit   *tcp.AdmissionLimit
	refusalLog       *loglimit.Limiter // limits log lines that unknown devices cause
	handshakeTimeout time.Duration     // shorter in tests
	idleTimeout      time.Duration     // shorter in tests
	reviewInterval   time.Duration     // differs in tests

	mu         sync.Mutex
	tunnels    map[*tunnel]bool
	endedBytes atomic.Uint64 // carried by tunnels that have ended
}

// New returns a relay. Call Serve to run it.
func New(cfg Config) *Relay {
	return &Relay{cfg: cfg, handshakeLimit: tcp.NewAdmissionLimit(maxHandshakes, maxPerAddress, maxPerMinute),
		refusalLog: loglimit.New(cfg.Log), handshakeTimeout: handshakeTimeout, idleTimeout: idleTimeout,
		reviewInterval: reviewInterval, tunnels: map[*tunnel]bool{}}
}

// Serve accepts connections at l until ctx ends or l fails. Then it closes all connections and
// returns the cause.
func (r *Relay) Serve(ctx context.Context, l *tcp.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	all.Go(func() { r.runReviewLoop(ctx) })
	for {
		c, err := l.Accept()
		if err != nil {
			cancel(err)
			l.Close()
			return context.Cause(ctx)
		}
		v := r.handshakeLimit.AdmitEvicting(c.RemoteAddr(), func() { _ = c.Abort() })
		if v == nil {
			_ = c.Abort()
			continue
		}
		all.Go(func() { r.serveRelayConn(ctx, c, v) })
	}
}

// serveRelayConn serves one connection. It releases the slot when the peer is authenticated.
func (r *Relay) serveRelayConn(ctx context.Context, c *tcp.Conn, v *tcp.Slot) {
	stop := context.AfterFunc(ctx, func() { _ = c.Abort() })
	defer stop()
	defer c.Close()
	t, err := r.acceptTunnel(ctx, c, v)
	v.Release()
	if t == nil || errors.Is(err, io.EOF) {
		if v.IsEvicted() || errors.Is(err, errTooManyHandshakes) {
			r.cfg.Log.Debug("onload connection dropped: too many handshakes", "from", c.RemoteAddr())
		} else if errors.Is(err, io.EOF) { // a device looking for helpers
			r.cfg.Log.Debug("onload connection closed without a request", "from", c.RemoteAddr())
		} else if ctx.Err() == nil {
			r.refusalLog.Log(slog.LevelInfo, string(fault.KindOf(err)), "onload connection refused", "from",
				c.RemoteAddr(), "err", err, "hint", fault.HintOf(err))
		}
		return
	}
	if err == nil {
		err = r.connectAndRelay(ctx, t)
	}
	if err != nil && ctx.Err() == nil {
		r.cfg.Log.Info("onload request refused", "device", t.peer.Name, "err", err)
	}
}

// acceptTunnel performs the handshake and reads the request, both within handshakeTimeout. With a
// known peer it returns the tunnel even on an error, which it has then reported to the peer.
func (r *Relay) acceptTunnel(ctx context.Context, c *tcp.Conn, v *tcp.Slot) (*tunnel, error) {
	_ = c.SetDeadline(time.Now().Add(r.handshakeTimeout))
	sec := tls.Server(c,
		identity.OnHello(r.cfg.Key.ServerConfig(ALPN, r.cfg.Trust.Allowed(identity.RolePrimary)), func() error {
			if !v.AwaitTurn() {
				return errTooManyHandshakes
			}
			return nil
		}))
	if err := sec.HandshakeContext(ctx); err != nil {
		return nil, identity.ExplainTLS(err)
	}
	key, err := identity.PeerKey(sec.ConnectionState())
	if err != nil {
		return nil, err
	}
	peer, ok := r.cfg.Trust.Lookup(key)
	if !ok {
		return nil, errDistrusted
	}
	c.SetPeerName(peer.Key.ID().String())
	head := &io.LimitedReader{R: sec, N: maxHeaderBytes}
	in := bufio.NewReader(head)
	t := &tunnel{peer: peer, primary: primaryConn{Conn: sec, tcp: c, reader: in}, since: time.Now()}
	t.primary.tunnel = t
	t.server, err = readConnectRequest(in)
	if err != nil {
		if head.N == 0 {
			err = fault.New(fault.Protocol, fmt.Errorf("the request exceeds %d bytes", maxHeaderBytes), "")
		}
		t.primary.writeRefusal(err)
		return t, err
	}
	if !v.MarkProved() {
		return nil, errTooManyHandshakes
	}
	head.N = 1<<63 - 1
	return t, c.SetDeadline(time.Time{})
}

// readConnectRequest reads a CONNECT request and returns its host:port.
func readConnectRequest(in *bufio.Reader) (string, error) {
	q, err := http.ReadRequest(in)
	if err == nil {
		switch host, port, e := net.SplitHostPort(q.RequestURI); {
		case q.Method != http.MethodConnect:
			err = fmt.Errorf("method %.16q instead of CONNECT", q.Method)
		case e != nil || host == "" || !isValidPort(port):
			err = fmt.Errorf("%.100q is not a valid host:port", q.RequestURI)
		case q.ContentLength != 0 || len(q.TransferEncoding) > 0:
			err = errors.New("CONNECT with a body")
		default:
			return q.RequestURI, nil
		}
	}
	return "", fault.New(fault.Protocol, fmt.Errorf("invalid request: %w", err),
		"only primaries of mpbond may connect to this port")
}

// connectAndRelay connects a tunnel to its server and relays data until it ends. An error means
// that no data was relayed; it has been reported to the primary.
func (r *Relay) connectAndRelay(ctx context.Context, t *tunnel) (err error) {
	defer func() {
		if err != nil {
			t.primary.writeRefusal(err)
		}
	}()
	serving := ctx
	ctx, t.cancelDial = context.WithCancelCause(ctx)
	defer t.cancelDial(nil)
	// Without this, a server that sends nothing would keep Serve from ending.
	defer context.AfterFunc(serving, func() { t.abortWithReset(context.Cause(serving)) })()
	if err := r.registerTunnel(t); err != nil {
		return err
	}
	defer r.removeTunnel(t)
	if err := r.checkAllowed(ctx, t, t.server); err != nil {
		return err
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	opt := r.cfg.Uplink
	opt.UserTimeout, opt.CheckAddress = cmp.Or(opt.UserTimeout, userTimeout), r.checkDialAddress
	c, err := tcp.Dial(dial, t.server, opt)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	splice.ResetOnExit(c)
	defer c.Close() // resets the connection unless it has ended cleanly
	c.SetPeerName(t.peer.Key.ID().String())
	return t.relayTunnelData(c, r.cfg.Unmetered)
}

// checkDialAddress refuses addresses that primaries must not reach.
func (r *Relay) checkDialAddress(to netip.AddrPort) error {
	if !dialpolicy.AllowedNow(to.Addr(), r.cfg.AllowedPrefixes) {
		return errForbidden
	}
	return nil
}

var (
	errForbidden = fault.New(fault.Permission,
		errors.New("the helper does not connect to private addresses (its owner may allow some)"), "")
	errDistrusted = fault.New(fault.UnknownDevice, errors.New("the helper no longer trusts this device"), "")
	errPaused     = fault.New(fault.Limit, errors.New("this device is paused there"),
		"on the helper run `mpbond resume NAME`")
	errTooManyHandshakes = fault.New(fault.Limit,
		errors.New("too many connections are waiting for their handshake"), "")
	errIdle = errors.New("idle timeout")
)

// registerTunnel registers a tunnel, within the limits.
func (r *Relay) registerTunnel(t *tunnel) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ofDevice := 0
	for o := range r.tunnels {
		if o.peer.Key == t.peer.Key {
			ofDevice++
		}
	}
	if len(r.tunnels) >= maxTunnels || ofDevice >= maxPerPrimary {
		return fault.New(fault.Limit,
			fmt.Errorf("the helper is at its limit: it carries %d connections, %d of them for this device",
				len(r.tunnels), ofDevice), "")
	}
	t.recordActivity()
	r.tunnels[t] = true
	return nil
}

// removeTunnel removes a tunnel that has ended.
func (r *Relay) removeTunnel(t *tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tunnels, t)
	r.endedBytes.Add(t.up.Load() + t.down.Load())
}

// checkAllowed returns why a tunnel is not allowed, or not any more.
func (r *Relay) checkAllowed(ctx context.Context, t *tunnel, server string) error {
	switch p, ok := r.cfg.Trust.Lookup(t.peer.Key); {
	case !ok || !p.HasRole(identity.RolePrimary):
		return errDistrusted
	case p.Paused:
		return errPaused
	}
	return r.cfg.CheckAllowed(ctx, t.peer, server)
}

// TrustChanged ends the tunnels of devices that are no longer trusted, or are paused. Call it after
// the trust file was read again.
func (r *Relay) TrustChanged() { r.reviewTunnels(context.Background(), time.Now()) }

// runReviewLoop reviews the tunnels periodically until ctx ends.
func (r *Relay) runReviewLoop(ctx context.Context) {
	tick := time.NewTicker(r.reviewInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.reviewTunnels(ctx, now)
		}
	}
}

// reviewTunnels ends tunnels that are not allowed any more or are idle.
func (r *Relay) reviewTunnels(ctx context.Context, now time.Time) {
	for _, t := range r.listTunnels() {
		err := r.checkAllowed(ctx, t, "")
		if err == nil && t.timeSinceActivity(now) > r.idleTimeout {
			err = errIdle
		}
		if err != nil {
			t.abortWithReset(err)
		}
	}
}

// listTunnels returns the tunnels, oldest first.
func (r *Relay) listTunnels() (list []*tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.tunnels {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *tunnel) int { return a.since.Compare(b.since) })
	return list
}

// Status lists the current tunnels, oldest first, and all bytes carried so far.
type Status struct {
	Tunnels []Tunnel
	Bytes   uint64
}

// Tunnel is the state of one tunnel. Up is from the primary to the server.
type Tunnel struct {
	Primary, Server string
	Since           time.Time
	Up, Down        uint64
}

// Status returns the current state. It may be called at any time.
func (r *Relay) Status() (s Status) {
	s.Bytes = r.endedBytes.Load()
	for _, t := range r.listTunnels() {
		one := Tunnel{t.peer.Name, t.server, t.since, t.up.Load(), t.down.Load()}
		s.Tunnels = append(s.Tunnels, one)
		s.Bytes += one.Up + one.Down
	}
	return s
}
