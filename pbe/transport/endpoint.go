// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/tcp"
	"mpbond/pbe/cc"
)

// Options configure an endpoint and all its connections. Their functions must be safe for
// concurrent use.
type Options struct {
	// Controller creates the congestion controller of each connection, and a new one after a change
	// of path. Nil selects CUBIC.
	Controller func() cc.Controller
	// Feedback creates the source of a connection's radio feedback, and a new one when packets
	// arrive at another endpoint or from another address. Nil sends no feedback.
	Feedback func() Feedback
	// UserTimeout ends a connection if nothing that it sends is acknowledged for so long, even
	// though the peer sends packets. With zero, only 45 s of silence end it.
	UserTimeout time.Duration
	// ResetKey is a secret from which reset tokens are derived (RFC 9000 section 10.3.2). If it
	// stays the same after a restart, a new endpoint with the same address can end connections of
	// its predecessor. If it is empty, the endpoint uses a random key.
	ResetKey []byte
	// Control, if set, is called with the socket before it is bound.
	Control func(network, address string, c syscall.RawConn) error
}

// Feedback reports the state of local mobile cells to the sender of one connection. Its methods are
// not called concurrently and must not call the connection.
type Feedback interface {
	// OnPacket is called for each packet that arrives and returns the feedback for the next
	// acknowledgements. now and oneWay use the connection's clocks, of which only differences are
	// meaningful. rtprop is the sender's minimum RTT, 0 while unknown. size counts the packet's bytes with
	// headers. The feedback is repeated for 100 ms at most. OnPacket must return a TransportRate of 0 when
	// its own measurements are too old.
	OnPacket(now, oneWay, rtprop time.Duration, size unit.Bytes) cc.CellFeedback
	// Close is called last.
	Close()
}

// Limits of a listening endpoint.
const (
	maxHalfOpen         = 64   // unconfirmed connections from unvalidated addresses
	maxValidated        = 192  // unconfirmed connections from validated addresses
	maxPerSource        = 16   // unconfirmed connections of one source (tcp.SourceOf), for each kind of address
	maxPerMinute        = 200  // new connections of one source in a minute, for each kind of address
	maxConns            = 4096 // connections of one endpoint
	halfOpenTimeout     = 5 * time.Second
	acceptBacklog       = 64
	socketBuffer        = 4 << 20 // requested bytes; the system may give less
	maxSocketErrors     = 1000    // consecutive receive errors before the endpoint closes
	maxRepliesPerSecond = 10000   // RETRY and BUSY packets
	maxResetsPerSecond  = 2000    // RESET packets
)

// closeGrace bounds how long Endpoint.Close waits for connections that were closed before.
const closeGrace = time.Second

// Endpoint is one UDP socket and its connections. It is safe for concurrent use.
type Endpoint struct {
	opt              Options
	socket           *socket
	closesWithLast   bool                // closes with its last connection
	tokenKey         []byte              // authenticates address tokens
	unvalidatedLimit *tcp.AdmissionLimit // for addresses that may be forged; a refused client gets a RETRY
	validatedLimit   *tcp.AdmissionLimit // for clients that returned a token; forged addresses cannot exhaust it
	accepted         chan *Conn
	closed           chan struct{}

	mu           sync.Mutex
	conns        map[connID]*Conn
	pendingDials map[connID]chan []byte
	halfOpen     map[halfKey]*halfOpen
	// connsByPeerID has the dialed connections, by the peer's ID.
	connsByPeerID map[connID]*Conn
	replyBudget   rateBudget
	resetBudget   rateBudget
	sweptAt       time.Time // last removal of expired half-open connections
	isClosing     bool
	closeErr      error // socket error that closed the endpoint; nil after Close
}

// rateBudget limits events in a second.
type rateBudget struct {
	since time.Time
	used  int
}

// allowNextEvent reports whether another event is within the limit of this second, and counts it.
func (b *rateBudget) allowNextEvent(now time.Time, limit int) bool {
	if now.Sub(b.since).Abs() >= time.Second {
		b.since, b.used = now, 0
	}
	b.used++
	return b.used <= limit
}

// halfKey identifies a HELLO. A HELLO damaged on the way has another key.
type halfKey struct {
	from  netip.AddrPort
	id    connID
	share [shareLen]byte
}

// halfOpen is a connection that its client has not confirmed.
type halfOpen struct {
	conn    *Conn
	welcome []byte
	since   time.Time
	release func()
}

// Listen opens an endpoint at a local address such as ":7443" or "192.0.2.1:7443". The endpoint
// accepts connections and can dial.
func Listen(addr string, opt Options) (*Endpoint, error) {
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fault.New(fault.Config, err, "write an address as HOST:PORT; HOST may be empty, as in :7600")
	}
	network := "udp"
	if a.IP.To4() != nil {
		network = "udp4"
	}
	return openEndpoint(network, a.String(), opt)
}

// openEndpoint opens a socket at a local address and starts its receive loop.
func openEndpoint(network, addr string, opt Options) (*Endpoint, error) {
	if opt.Controller == nil {
		opt.Controller = func() cc.Controller { return cc.NewCUBIC() }
	}
	lc := net.ListenConfig{Control: opt.Control}
	pc, err := lc.ListenPacket(context.Background(), network, addr)
	if err != nil {
		return nil, fault.New(fault.Unreachable, fmt.Errorf("opening a UDP socket: %w", err),
			"check that the address belongs to this device and that its port is free")
	}
	sock, err := newUDPSocket(pc.(*net.UDPConn))
	if err != nil {
		pc.Close()
		return nil, fmt.Errorf("preparing a UDP socket: %w", err)
	}
	ep := &Endpoint{
		opt:              opt,
		socket:           sock,
		tokenKey:         make([]byte, 32),
		unvalidatedLimit: tcp.NewAdmissionLimit(maxHalfOpen, maxPerSource, maxPerMinute),
		validatedLimit:   tcp.NewAdmissionLimit(maxValidated, maxPerSource, maxPerMinute),
		accepted:         make(chan *Conn, acceptBacklog),
		closed:           make(chan struct{}),
		conns:            map[connID]*Conn{},
		connsByPeerID:    map[connID]*Conn{},
		pendingDials:     map[connID]chan []byte{},
		halfOpen:         map[halfKey]*halfOpen{},
	}
	rand.Read(ep.tokenKey)
	if len(opt.ResetKey) == 0 {
		ep.opt.ResetKey = make([]byte, 32)
		rand.Read(ep.opt.ResetKey)
	}
	go ep.runReceiveLoop()
	return ep, nil
}

// Addr returns the local address of the socket.
func (ep *Endpoint) Addr() net.Addr { return ep.socket.LocalAddr() }

// Accept returns the next connection after its client has proved that it has the keys. After Close
// it returns net.ErrClosed, and after a failure of the socket the reason.
func (ep *Endpoint) Accept() (*Conn, error) {
	select {
	case c := <-ep.accepted:
		return c, nil
	case <-ep.closed:
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if ep.closeErr != nil {
			return nil, ep.closeErr
		}
		return nil, net.ErrClosed
	}
}

// Close closes the endpoint and all connections that send over it. Connections that were closed
// before get up to a second to send their bytes. The others are aborted.
func (ep *Endpoint) Close() error {
	ep.mu.Lock()
	if ep.isClosing {
		ep.mu.Unlock()
		return nil
	}
	ep.isClosing = true
	var list []*Conn
	for _, c := range ep.conns {
		if c.running {
			list = append(list, c)
		}
	}
	ep.mu.Unlock()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	for _, c := range list {
		if by, _ := c.currentPath(); by != ep {
			continue
		}
		if c.closeNow() {
			select { // written bytes may still arrive
			case <-c.finished:
			case <-timer.C:
				timer.Reset(0)
			}
		}
		c.Abort()
		<-c.finished
	}
	close(ep.closed)
	return ep.socket.Close()
}

// runReceiveLoop reads the socket until it is closed. After maxSocketErrors consecutive errors it
// closes the endpoint.
func (ep *Endpoint) runReceiveLoop() {
	var err error
	for failed := 0; failed < maxSocketErrors; {
		if err = ep.socket.receiveTrains(ep.handleBatch); err == nil {
			failed = 0
		} else if errors.Is(err, net.ErrClosed) {
			return
		} else {
			failed++ // some systems report ICMP here, which anyone can send
		}
	}
	ep.mu.Lock()
	ep.closeErr = fmt.Errorf("UDP socket failed %d times in a row: %w", maxSocketErrors, err)
	ep.mu.Unlock()
	ep.Close()
}

// handleBatch handles packets of one size that arrived back to back. The last may be shorter.
func (ep *Endpoint) handleBatch(b []byte, size int, from netip.AddrPort) {
	for len(b) > 0 {
		n := min(size, len(b))
		if c := ep.findPacketConn(b[:n]); c != nil {
			var authenticated bool
			if n, authenticated = c.receiveDataPackets(ep, b, size, from); authenticated {
				ep.confirmConn(c)
			}
		} else {
			ep.handleUnmatched(b[:n], from)
		}
		b = b[n:]
	}
}

// findPacketConn returns the connection of a DATA packet, or nil.
func (ep *Endpoint) findPacketConn(p []byte) *Conn {
	if len(p) < overhead || p[0] != typeData {
		return nil
	}
	var id connID
	copy(id[:], p[1:])
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.conns[id]
}

// handleUnmatched handles a packet that belongs to no connection.
func (ep *Endpoint) handleUnmatched(p []byte, from netip.AddrPort) {
	switch {
	case p[0] == typeData && len(p) >= overhead:
		ep.sendResetPacket(connID(p[1:1+connIDLen]), from)
	case p[0] == typeReset && len(p) == resetLen:
		ep.handleResetPacket(p)
	case len(p) < 2 || p[1] != version:
	case p[0] == typeHello && len(p) >= minPayload:
		ep.handleHello(p[:helloLen], from)
	case p[0] == typeRetry && len(p) >= retryLen,
		p[0] == typeWelcome && len(p) >= welcomeLen,
		p[0] == typeBusy && len(p) >= busyLen:
		var id connID
		copy(id[:], p[2:])
		ep.mu.Lock()
		replies := ep.pendingDials[id]
		ep.mu.Unlock()
		if replies != nil {
			select {
			case replies <- append([]byte(nil), p...):
			default: // the client repeats its HELLO
			}
		}
	}
}

// resetTokenFor returns the reset token of a local connection ID.
func (ep *Endpoint) resetTokenFor(id connID) [resetTokenLen]byte {
	return computeResetToken(ep.opt.ResetKey, ep.Addr().String(), id)
}

// sendResetPacket answers a DATA packet with an unknown connection ID.
func (ep *Endpoint) sendResetPacket(id connID, from netip.AddrPort) {
	ep.mu.Lock()
	allowed := !ep.isClosing && ep.resetBudget.allowNextEvent(time.Now(), maxResetsPerSecond)
	ep.mu.Unlock()
	if allowed {
		t := ep.resetTokenFor(id)
		ep.sendStateless(append(append([]byte{typeReset}, id[:]...), t[:]...), from)
	}
}

// handleResetPacket handles a RESET packet. It ends the connection if the token is valid.
func (ep *Endpoint) handleResetPacket(p []byte) {
	ep.mu.Lock()
	c := ep.connsByPeerID[connID(p[1:1+connIDLen])]
	ep.mu.Unlock()
	if c != nil && hmac.Equal(c.peerResetToken[:], p[1+connIDLen:]) {
		c.endByPeerReset()
	}
}

// registerPeerConn registers c to receive packets. mu must be held.
func (ep *Endpoint) registerPeerConn(c *Conn) {
	ep.conns[c.id] = c
	if !c.isServer {
		ep.connsByPeerID[c.peerID] = c
	}
}

// sendStateless sends a packet that belongs to no connection.
func (ep *Endpoint) sendStateless(p []byte, to netip.AddrPort) {
	ep.socket.sendOutboxPackets(&outbox{buf: p, ends: []int{len(p)}}, to)
}

// adoptMigratedConn registers a connection that migrates to this endpoint. It returns false if the
// endpoint is closed.
func (ep *Endpoint) adoptMigratedConn(c *Conn) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.isClosing {
		return false
	}
	ep.registerPeerConn(c)
	return true
}

// unregisterPeerConn removes a connection. It closes the endpoint if this was its last one and the
// endpoint was opened for a single connection.
func (ep *Endpoint) unregisterPeerConn(c *Conn) {
	ep.mu.Lock()
	delete(ep.conns, c.id)
	if ep.connsByPeerID[c.peerID] == c {
		delete(ep.connsByPeerID, c.peerID)
	}
	last := ep.closesWithLast && len(ep.conns) == 0
	ep.mu.Unlock()
	if last {
		_ = ep.Close() // no connection is left to wait for
	}
}

// headerSizeFor returns the size of the IP and UDP headers of a packet to that address.
func headerSizeFor(to netip.AddrPort) unit.Bytes {
	if to.Addr().Is4() {
		return 28
	}
	return 48
}
