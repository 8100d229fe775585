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

// Options are those of an endpoint and all its connections. Their functions are
// called by several goroutines.
type Options struct {
	// Controller makes the congestion controller of each connection, and a new one
	// when it goes on over another path; CUBIC if nil.
	Controller func() cc.Controller
	// Feedback makes, for each connection, who says what goes back with the
	// acknowledgements, and another one when the peer's packets come another way.
	// Nil: nothing goes back.
	Feedback func() Feedback
	// UserTimeout ends a connection when nothing of what it sends is acknowledged for so
	// long, though it hears of the other end; 0: only silence does, after 45 s.
	UserTimeout time.Duration
	// ResetKey, if set, is one that nobody else knows, and the same when the program runs
	// again: then a new endpoint of the same address tells the other ends of connections that its
	// predecessor had that they are over, and else only those of its own.
	ResetKey []byte
	// Control, if set, is called for the socket before it is bound.
	Control func(network, address string, c syscall.RawConn) error
}

// Feedback is what one connection tells its sender of the cells here. Its methods
// are called by one goroutine at a time, and must not call the connection.
type Feedback interface {
	// OnPacket is told the one-way delay of each packet that arrives (now and oneWayDelay by
	// clocks of the connection, of which only differences mean something) with the
	// least round trip that the sender knows, 0 if it knows none yet. What it says goes back
	// for 100 ms at most, so that it is for OnPacket alone to know how old its
	// news are: of cells that it has heard nothing of for long it says a Capacity of 0.
	OnPacket(now, oneWay, rtprop time.Duration) cc.Radio
	// Close is called last.
	Close()
}

// Limits of an endpoint that listens.
const (
	maxHalfOpen         = 64   // connections that are not confirmed, of addresses that have not shown that they receive
	maxValidated        = 192  // of those that have
	maxPerSource        = 16   // of either, of one tcp.SourceOf
	maxPerMinute        = 200  // of either, of one tcp.SourceOf in a minute
	maxConns            = 4096 // of one endpoint
	halfOpenTimeout     = 5 * time.Second
	acceptBacklog       = 64
	socketBuffer        = 4 << 20 // asked of the system, which may give less
	maxSocketErrors     = 1000    // of the socket in turn, until it is given up
	maxRepliesPerSecond = 10000   // in a second that ask for a token, or say that there is no room
	maxResetsPerSecond  = 2000    // in a second
)

// closeGrace is how long Close waits for connections that were closed before.
const closeGrace = time.Second

// Endpoint is one UDP socket and its connections. Its methods are for any
// goroutine.
type Endpoint struct {
	opt              Options
	socket           *socket
	closesWithLast   bool                // closed with its last connection
	tokenKey         []byte              // of tokens of addresses
	unvalidatedLimit *tcp.AdmissionLimit // of addresses that may be false: what is refused there may ask again with a token
	validatedLimit   *tcp.AdmissionLimit // of addresses that returned one, so that false ones take nobody's place
	accepted         chan *Conn
	closed           chan struct{}

	mu           sync.Mutex
	conns        map[connID]*Conn
	pendingDials map[connID]chan []byte
	halfOpen     map[halfKey]*halfOpen
	// connsByPeerID are those of conns that were dialled, by the other end's id.
	connsByPeerID map[connID]*Conn
	replyBudget   rateBudget
	resetBudget   rateBudget
	sweptAt       time.Time // when half was last looked through
	isClosing     bool
	closeErr      error // it was closed for; nil: Close was called
}

// rateBudget is how much may still be done in this second.
type rateBudget struct {
	since time.Time
	used  int
}

func (b *rateBudget) allow(now time.Time, limit int) bool {
	if now.Sub(b.since).Abs() >= time.Second {
		b.since, b.used = now, 0
	}
	b.used++
	return b.used <= limit
}

// halfKey names a HELLO: one that was damaged on the way is another one.
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

// Listen opens an endpoint at a local address such as ":7443" or "192.0.2.1:7443",
// which accepts connections, and can dial too.
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

func openEndpoint(network, addr string, opt Options) (*Endpoint, error) {
	if opt.Controller == nil {
		opt.Controller = func() cc.Controller { return cc.NewCUBIC() }
	}
	lc := net.ListenConfig{Control: opt.Control}
	pc, err := lc.ListenPacket(context.Background(), network, addr)
	if err != nil {
		return nil, fault.New(fault.Unreachable, fmt.Errorf("opening a UDP socket: %w", err), "is the address one of this device, and its port free?")
	}
	sock, err := newSocket(pc.(*net.UDPConn))
	if err != nil {
		pc.Close()
		return nil, fmt.Errorf("preparing a UDP socket: %w", err)
	}
	ep := &Endpoint{opt: opt, socket: sock, tokenKey: make([]byte, 32), unvalidatedLimit: tcp.NewAdmissionLimit(maxHalfOpen, maxPerSource, maxPerMinute), validatedLimit: tcp.NewAdmissionLimit(maxValidated, maxPerSource, maxPerMinute),
		accepted: make(chan *Conn, acceptBacklog), closed: make(chan struct{}),
		conns: map[connID]*Conn{}, connsByPeerID: map[connID]*Conn{}, pendingDials: map[connID]chan []byte{}, halfOpen: map[halfKey]*halfOpen{}}
	rand.Read(ep.tokenKey)
	if len(opt.ResetKey) == 0 {
		ep.opt.ResetKey = make([]byte, 32)
		rand.Read(ep.opt.ResetKey)
	}
	go ep.runReceiveLoop()
	return ep, nil
}

// Addr is the socket's own address.
func (ep *Endpoint) Addr() net.Addr { return ep.socket.LocalAddr() }

// Accept returns the next connection whose client has shown that it has the keys.
// After Close it returns net.ErrClosed, and when the socket has failed for good why.
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

// Close ends the endpoint with all connections that use it: those that were closed
// before within a second, others at once.
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
			select { // what was written before may still arrive
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

// runReceiveLoop reads the socket until it is closed, or has failed so often in turn that it
// is closed here.
func (ep *Endpoint) runReceiveLoop() {
	var err error
	for failed := 0; failed < maxSocketErrors; {
		if err = ep.socket.receiveBatch(ep.handleTrain); err == nil {
			failed = 0
		} else if errors.Is(err, net.ErrClosed) {
			return
		} else {
			failed++ // some systems tell here of ICMP, which anybody can send
		}
	}
	ep.mu.Lock()
	ep.closeErr = fmt.Errorf("a UDP socket that failed %d times in turn: %w", maxSocketErrors, err)
	ep.mu.Unlock()
	ep.Close()
}

// handleTrain takes packets of one size that came together.
func (ep *Endpoint) handleTrain(b []byte, size int, from netip.AddrPort) {
	for len(b) > 0 {
		n := min(size, len(b))
		if c := ep.findConn(b[:n]); c != nil {
			var authenticated bool
			if n, authenticated = c.receiveTrain(ep, b, size, from); authenticated {
				ep.confirmConn(c)
			}
		} else {
			ep.handleUnmatched(b[:n], from)
		}
		b = b[n:]
	}
}

// findConn is the connection that a DATA packet is for, nil if there is none.
func (ep *Endpoint) findConn(p []byte) *Conn {
	if len(p) < overhead || p[0] != typeData {
		return nil
	}
	var id connID
	copy(id[:], p[1:])
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.conns[id]
}

// handleUnmatched takes a packet of no connection.
func (ep *Endpoint) handleUnmatched(p []byte, from netip.AddrPort) {
	switch {
	case p[0] == typeData && len(p) >= overhead:
		ep.sendReset(connID(p[1:1+connIDLen]), from)
	case p[0] == typeReset && len(p) == resetLen:
		ep.handleReset(p)
	case len(p) < 2 || p[1] != version:
	case p[0] == typeHello && len(p) >= minPayload:
		ep.handleHello(p[:helloLen], from)
	case p[0] == typeRetry && len(p) >= retryLen, p[0] == typeWelcome && len(p) >= welcomeLen, p[0] == typeBusy && len(p) >= busyLen:
		var id connID
		copy(id[:], p[2:])
		ep.mu.Lock()
		replies := ep.pendingDials[id]
		ep.mu.Unlock()
		if replies != nil {
			select {
			case replies <- append([]byte(nil), p...):
			default: // the client asks again
			}
		}
	}
}

// resetTokenFor is the token that says that the connection of an id here is over.
func (ep *Endpoint) resetTokenFor(id connID) [resetTokenLen]byte {
	return computeResetToken(ep.opt.ResetKey, ep.Addr().String(), id)
}

// sendReset tells whoever still sends to an id that there is no connection of it.
func (ep *Endpoint) sendReset(id connID, from netip.AddrPort) {
	ep.mu.Lock()
	allowed := !ep.isClosing && ep.resetBudget.allow(time.Now(), maxResetsPerSecond)
	ep.mu.Unlock()
	if allowed {
		t := ep.resetTokenFor(id)
		ep.sendStateless(append(append([]byte{typeReset}, id[:]...), t[:]...), from)
	}
}

// handleReset takes a RESET.
func (ep *Endpoint) handleReset(p []byte) {
	ep.mu.Lock()
	c := ep.connsByPeerID[connID(p[1:1+connIDLen])]
	ep.mu.Unlock()
	if c != nil && hmac.Equal(c.peerResetToken[:], p[1+connIDLen:]) {
		c.handleReset()
	}
}

// addConn has packets of c, of whose endpoint mu is held, arrive.
func (ep *Endpoint) addConn(c *Conn) {
	ep.conns[c.id] = c
	if !c.isServer {
		ep.connsByPeerID[c.peerID] = c
	}
}

// sendStateless sends a packet outside any connection.
func (ep *Endpoint) sendStateless(p []byte, to netip.AddrPort) {
	ep.socket.sendBatch(&outbox{buf: p, ends: []int{len(p)}}, to)
}

// adoptConn lets packets for c arrive at this endpoint. False: it is closed.
func (ep *Endpoint) adoptConn(c *Conn) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.isClosing {
		return false
	}
	ep.addConn(c)
	return true
}

// removeConn ends what is known of a connection.
func (ep *Endpoint) removeConn(c *Conn) {
	ep.mu.Lock()
	delete(ep.conns, c.id)
	if ep.connsByPeerID[c.peerID] == c {
		delete(ep.connsByPeerID, c.peerID)
	}
	last := ep.closesWithLast && len(ep.conns) == 0
	ep.mu.Unlock()
	if last {
		_ = ep.Close() // it has no connection to wait for
	}
}

// headerSizeFor is what IP and UDP add to a payload for that address.
func headerSizeFor(to netip.AddrPort) unit.Bytes {
	if to.Addr().Is4() {
		return 28
	}
	return 48
}
