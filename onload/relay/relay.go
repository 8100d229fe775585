// Package relay carries whole connections of a primary over a helper's own line: the
// helper listens, the primary asks it by HTTP CONNECT to connect somewhere. It stands
// between the transports of onload/fetch, for which each helper is one more device with
// a line, and the servers of the Internet; nothing of a bond is in between, and what the
// primary encrypts end to end stays so.
//
//	primary ── TLS 1.3, pinned keys: CONNECT host:port ── helper ── TCP ── any server
//
//	relay.go   the helper: who is let in, and for how long
//	tunnel.go  one connection that is carried
//	answer.go  what is said when it is not
//	dial.go    the primary: a net dialer and http.Transport through one helper
//	find.go    the primary: which helpers are there
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

// ALPN is the TLS application protocol, as package wire has those of subflows, pipes
// and pairing.
const ALPN = "mpbond-onload"

// Port is where helpers listen if nothing else is said.
const Port = 7604

// Limits. A primary that fetches items has a few connections; what is more is a
// mistake, or wants the helper's memory.
const (
	maxTunnels, maxPerPrimary                  = 64, 32
	maxHandshakes, maxPerAddress, maxPerMinute = 64, 32, 1200
	maxHeaderBytes                             = 8 << 10 // of a request, and of an answer
	handshakeTimeout                           = 5 * time.Second
	dialTimeout                                = 20 * time.Second
	idleTimeout                                = 5 * time.Minute
	reviewInterval                             = time.Second
	userTimeout                                = time.Minute
)

// Config is what a Relay needs.
type Config struct {
	Key   *identity.Key
	Trust *identity.Trust
	// Uplink is how servers are connected to: by which interface, with which mark, and
	// who counts it.
	Uplink tcp.Options
	// AllowedPrefixes lists addresses that are connected to although they are not public.
	AllowedPrefixes []netip.Prefix
	// Unmetered reports to primaries that the owner sets no bound on what is carried, so that
	// they need not spare it.
	Unmetered bool
	// CheckAllowed tells why nothing is carried for a primary to a server, "host:port", nil if it
	// is. It is asked before each connection, and again now and then, with no server,
	// for as long as it lasts. Its errors are faults, which the primary is told.
	CheckAllowed func(ctx context.Context, p identity.Peer, server string) error
	Log          *slog.Logger
}

// Relay is a helper's end. Its methods may be called by any goroutine.
type Relay struct {
	cfg              Config
	handshakeLimit   *tcp.AdmissionLimit
	refusalLog       *loglimit.Limiter // the log, for what strangers cause
	handshakeTimeout time.Duration     // handshakeTimeout; less in tests
	idleTimeout      time.Duration     // idleTimeout; less in tests
	reviewInterval   time.Duration     // reviewInterval; other in tests

	mu         sync.Mutex
	tunnels    map[*tunnel]bool
	endedBytes atomic.Uint64 // by those that have ended
}

// New makes one; Serve has it listen.
func New(cfg Config) *Relay {
	return &Relay{cfg: cfg, handshakeLimit: tcp.NewAdmissionLimit(maxHandshakes, maxPerAddress, maxPerMinute), refusalLog: loglimit.New(cfg.Log), handshakeTimeout: handshakeTimeout, idleTimeout: idleTimeout, reviewInterval: reviewInterval, tunnels: map[*tunnel]bool{}}
}

// Serve takes connections at l until ctx ends, closes all that it has, and returns
// ctx's error, or that of l.
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
		all.Go(func() { r.serveConn(ctx, c, v) })
	}
}

// serveConn serves one connection to its end. The visit leaves when the peer is authenticated.
func (r *Relay) serveConn(ctx context.Context, c *tcp.Conn, v *tcp.Slot) {
	stop := context.AfterFunc(ctx, func() { _ = c.Abort() })
	defer stop()
	defer c.Close()
	t, err := r.acceptTunnel(ctx, c, v)
	v.Release()
	if t == nil || errors.Is(err, io.EOF) {
		if v.IsEvicted() || errors.Is(err, errTooManyHandshakes) {
			r.cfg.Log.Debug("connection for onloading dropped: too many handshakes", "from", c.RemoteAddr())
		} else if errors.Is(err, io.EOF) { // somebody looked who is here
			r.cfg.Log.Debug("connection for onloading without a word", "from", c.RemoteAddr())
		} else if ctx.Err() == nil {
			r.refusalLog.Log(slog.LevelInfo, string(fault.KindOf(err)), "connection for onloading refused", "from", c.RemoteAddr(), "err", err, "hint", fault.HintOf(err))
		}
		return
	}
	if err == nil {
		err = r.runTunnel(ctx, t)
	}
	if err != nil && ctx.Err() == nil {
		r.cfg.Log.Info("not carried for onloading", "device", t.peer.Name, "err", err)
	}
}

// acceptTunnel does the handshake and reads the request, within r.greet together. A tunnel
// without its server comes with an error where the caller is known, and was told.
func (r *Relay) acceptTunnel(ctx context.Context, c *tcp.Conn, v *tcp.Slot) (*tunnel, error) {
	_ = c.SetDeadline(time.Now().Add(r.handshakeTimeout))
	sec := tls.Server(c, identity.OnHello(r.cfg.Key.ServerConfig(ALPN, r.cfg.Trust.Allowed(identity.RolePrimary)), func() error {
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
	c.For(peer.Key.ID().String())
	head := &io.LimitedReader{R: sec, N: maxHeaderBytes}
	in := bufio.NewReader(head)
	t := &tunnel{peer: peer, primary: primaryConn{Conn: sec, tcp: c, reader: in}, since: time.Now()}
	t.primary.tunnel = t
	t.server, err = readConnectRequest(in)
	if err != nil {
		if head.N == 0 {
			err = fault.New(fault.Protocol, fmt.Errorf("a request of over %d bytes", maxHeaderBytes), "")
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

// readConnectRequest reads a CONNECT and returns its host:port.
func readConnectRequest(in *bufio.Reader) (string, error) {
	q, err := http.ReadRequest(in)
	if err == nil {
		switch host, port, e := net.SplitHostPort(q.RequestURI); {
		case q.Method != http.MethodConnect:
			err = fmt.Errorf("%.16q instead of a CONNECT", q.Method)
		case e != nil || host == "" || !isValidPort(port):
			err = fmt.Errorf("%.100q is no host:port", q.RequestURI)
		case q.ContentLength != 0 || len(q.TransferEncoding) > 0:
			err = errors.New("a CONNECT with a body")
		default:
			return q.RequestURI, nil
		}
	}
	return "", fault.New(fault.Protocol, fmt.Errorf("no request for a connection: %w", err), "only mpbond's own primaries should connect here")
}

// runTunnel connects a tunnel to its server and carries it to its end. An error is that it
// was not begun, of which the primary was told.
func (r *Relay) runTunnel(ctx context.Context, t *tunnel) (err error) {
	defer func() {
		if err != nil {
			t.primary.writeRefusal(err)
		}
	}()
	ctx, t.cancelDial = context.WithCancelCause(ctx)
	defer t.cancelDial(nil)
	if err := r.addTunnel(t); err != nil {
		return err
	}
	defer r.removeTunnel(t)
	if err := r.checkAllowed(ctx, t, t.server); err != nil {
		return err
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	opt := r.cfg.Uplink
	opt.UserTimeout, opt.CheckAddress = cmp.Or(opt.UserTimeout, userTimeout), r.checkAddress
	c, err := tcp.Dial(dial, t.server, opt)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	splice.ResetOnExit(c)
	defer c.Close() // a reset, unless it has ended in order
	c.For(t.peer.Key.ID().String())
	return t.relayData(c, r.cfg.Unmetered)
}

// checkAddress refuses addresses that are not for others.
func (r *Relay) checkAddress(to netip.AddrPort) error {
	if !dialpolicy.AllowedNow(to.Addr(), r.cfg.AllowedPrefixes) {
		return errForbidden
	}
	return nil
}

var (
	errForbidden         = fault.New(fault.Permission, errors.New("the helper does not connect to private addresses (its owner may allow some)"), "")
	errDistrusted        = fault.New(fault.UnknownDevice, errors.New("this device is trusted no longer there"), "")
	errPaused            = fault.New(fault.Limit, errors.New("this device is paused there"), "on the helper run `mpbond resume NAME`")
	errTooManyHandshakes = fault.New(fault.Limit, errors.New("too many connections wait for their handshake"), "")
	errIdle              = errors.New("nothing was carried for a long time")
)

// addTunnel gives a tunnel its place.
func (r *Relay) addTunnel(t *tunnel) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := 0
	for o := range r.tunnels {
		if o.peer.Key == t.peer.Key {
			own++
		}
	}
	if len(r.tunnels) >= maxTunnels || own >= maxPerPrimary {
		return fault.New(fault.Limit, fmt.Errorf("the helper carries %d connections already, %d of them for this device", len(r.tunnels), own), "")
	}
	t.markActive()
	r.tunnels[t] = true
	return nil
}

func (r *Relay) removeTunnel(t *tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tunnels, t)
	r.endedBytes.Add(t.up.Load() + t.down.Load())
}

// checkAllowed is why a tunnel is not to be, or to be any more.
func (r *Relay) checkAllowed(ctx context.Context, t *tunnel, server string) error {
	switch p, ok := r.cfg.Trust.Lookup(t.peer.Key); {
	case !ok || !p.HasRole(identity.RolePrimary):
		return errDistrusted
	case p.Paused:
		return errPaused
	}
	return r.cfg.CheckAllowed(ctx, t.peer, server)
}

// TrustChanged ends, after the trust file was read again, what is carried for those who
// are not in it any more, or are paused.
func (r *Relay) TrustChanged() { r.reviewTunnels(context.Background(), time.Now()) }

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

// reviewTunnels ends what may not be carried any more, or carries nothing.
func (r *Relay) reviewTunnels(ctx context.Context, now time.Time) {
	for _, t := range r.listTunnels() {
		err := r.checkAllowed(ctx, t, "")
		if err == nil && t.idleTime(now) > r.idleTimeout {
			err = errIdle
		}
		if err != nil {
			t.abort(err)
		}
	}
}

func (r *Relay) listTunnels() (list []*tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.tunnels {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *tunnel) int { return a.since.Compare(b.since) })
	return list
}

// Status is what is carried now, oldest first, and what was in all.
type Status struct {
	Tunnels []Tunnel
	Bytes   uint64
}

// Tunnel is one connection that is carried. Up is from the primary.
type Tunnel struct {
	Primary, Server string
	Since           time.Time
	Up, Down        uint64
}

// Status may be called at any time.
func (r *Relay) Status() (s Status) {
	s.Bytes = r.endedBytes.Load()
	for _, t := range r.listTunnels() {
		one := Tunnel{t.peer.Name, t.server, t.since, t.up.Load(), t.down.Load()}
		s.Tunnels = append(s.Tunnels, one)
		s.Bytes += one.Up + one.Down
	}
	return s
}
