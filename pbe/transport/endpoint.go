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
	// Secret, if set, is one that nobody else knows, and the same when the program runs
	// again: then a new endpoint of the same address tells the other ends of connections that its
	// predecessor had that they are over, and else only those of its own.
	Secret []byte
	// Control, if set, is called for the socket before it is bound.
	Control func(network, address string, c syscall.RawConn) error
}

// Feedback is what one connection tells its sender of the cells here. Its methods
// are called by one goroutine at a time, and must not call the connection.
type Feedback interface {
	// OnPacket is told the one-way delay of each packet that arrives (now and oneWay by
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
	maxHalfOpen  = 64   // connections that are not confirmed, of addresses that have not shown that they receive
	maxProved    = 192  // of those that have
	maxOfOne     = 16   // of either, of one tcp.Source
	maxPerMinute = 200  // of either, of one tcp.Source in a minute
	maxConns     = 4096 // of one endpoint
	halfOpenFor  = 5 * time.Second
	backlog      = 64
	socketBuffer = 4 << 20 // asked of the system, which may give less
	maxErrors    = 1000    // of the socket in turn, until it is given up
	maxAnswers   = 10000   // in a second that ask for a token, or say that there is no room
	maxResets    = 2000    // in a second
)

// farewell is how long Close waits for connections that were closed before.
const farewell = time.Second

// Endpoint is one UDP socket and its connections. Its methods are for any
// goroutine.
type Endpoint struct {
	opt      Options
	sock     *socket
	own      bool      // closed with its last connection
	secret   []byte    // of tokens of addresses
	unproved *tcp.Gate // of addresses that may be false: what is refused there may ask again with a token
	proved   *tcp.Gate // of addresses that returned one, so that false ones take nobody's place
	accepted chan *Conn
	closed   chan struct{}

	mu      sync.Mutex
	conns   map[connID]*Conn
	dialing map[connID]chan []byte
	half    map[halfKey]*halfOpen
	// dialled are those of conns that were dialled, by the other end's id.
	dialled map[connID]*Conn
	answers budget
	resets  budget
	swept   time.Time // when half was last looked through
	over    bool
	why     error // it was closed for; nil: Close was called
}

// budget is how much may still be done in this second.
type budget struct {
	since time.Time
	used  int
}

func (b *budget) take(now time.Time, most int) bool {
	if now.Sub(b.since).Abs() >= time.Second {
		b.since, b.used = now, 0
	}
	b.used++
	return b.used <= most
}

// halfKey names a HELLO: one that was damaged on the way is another one.
type halfKey struct {
	from  netip.AddrPort
	id    connID
	share [shareLen]byte
}

// halfOpen is a connection that its client has not confirmed.
type halfOpen struct {
	c       *Conn
	welcome []byte
	since   time.Time
	leave   func()
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
	return open(network, a.String(), opt)
}

func open(network, addr string, opt Options) (*Endpoint, error) {
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
	ep := &Endpoint{opt: opt, sock: sock, secret: make([]byte, 32), unproved: tcp.NewGate(maxHalfOpen, maxOfOne, maxPerMinute), proved: tcp.NewGate(maxProved, maxOfOne, maxPerMinute),
		accepted: make(chan *Conn, backlog), closed: make(chan struct{}),
		conns: map[connID]*Conn{}, dialled: map[connID]*Conn{}, dialing: map[connID]chan []byte{}, half: map[halfKey]*halfOpen{}}
	rand.Read(ep.secret)
	if len(opt.Secret) == 0 {
		ep.opt.Secret = make([]byte, 32)
		rand.Read(ep.opt.Secret)
	}
	go ep.receive()
	return ep, nil
}

// Addr is the socket's own address.
func (ep *Endpoint) Addr() net.Addr { return ep.sock.LocalAddr() }

// Accept returns the next connection whose client has shown that it has the keys.
// After Close it returns net.ErrClosed, and when the socket has failed for good why.
func (ep *Endpoint) Accept() (*Conn, error) {
	select {
	case c := <-ep.accepted:
		return c, nil
	case <-ep.closed:
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if ep.why != nil {
			return nil, ep.why
		}
		return nil, net.ErrClosed
	}
}

// Close ends the endpoint with all connections that use it: those that were closed
// before within a second, others at once.
func (ep *Endpoint) Close() error {
	ep.mu.Lock()
	if ep.over {
		ep.mu.Unlock()
		return nil
	}
	ep.over = true
	var list []*Conn
	for _, c := range ep.conns {
		if c.running {
			list = append(list, c)
		}
	}
	ep.mu.Unlock()
	patience := time.NewTimer(farewell)
	defer patience.Stop()
	for _, c := range list {
		if by, _ := c.path(); by != ep {
			continue
		}
		if c.closeNow() {
			select { // what was written before may still arrive
			case <-c.gone:
			case <-patience.C:
				patience.Reset(0)
			}
		}
		c.Abort()
		<-c.gone
	}
	close(ep.closed)
	return ep.sock.Close()
}

// receive reads the socket until it is closed, or has failed so often in turn that it
// is closed here.
func (ep *Endpoint) receive() {
	var err error
	for failed := 0; failed < maxErrors; {
		if err = ep.sock.receive(ep.train); err == nil {
			failed = 0
		} else if errors.Is(err, net.ErrClosed) {
			return
		} else {
			failed++ // some systems tell here of ICMP, which anybody can send
		}
	}
	ep.mu.Lock()
	ep.why = fmt.Errorf("a UDP socket that failed %d times in turn: %w", maxErrors, err)
	ep.mu.Unlock()
	ep.Close()
}

// train takes packets of one size that came together.
func (ep *Endpoint) train(b []byte, size int, from netip.AddrPort) {
	for len(b) > 0 {
		n := min(size, len(b))
		if c := ep.find(b[:n]); c != nil {
			var opened bool
			if n, opened = c.receive(ep, b, size, from); opened {
				ep.confirm(c)
			}
		} else {
			ep.stranger(b[:n], from)
		}
		b = b[n:]
	}
}

// find is the connection that a DATA packet is for, nil if there is none.
func (ep *Endpoint) find(p []byte) *Conn {
	if len(p) < overhead || p[0] != typeData {
		return nil
	}
	var id connID
	copy(id[:], p[1:])
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.conns[id]
}

// stranger takes a packet of no connection.
func (ep *Endpoint) stranger(p []byte, from netip.AddrPort) {
	switch {
	case p[0] == typeData && len(p) >= overhead:
		ep.unknown(connID(p[1:1+idLen]), from)
	case p[0] == typeReset && len(p) == resetLen:
		ep.reset(p)
	case len(p) < 2 || p[1] != version:
	case p[0] == typeHello && len(p) >= minPayload:
		ep.hello(p[:helloLen], from)
	case p[0] == typeRetry && len(p) >= retryLen, p[0] == typeWelcome && len(p) >= welcomeLen, p[0] == typeBusy && len(p) >= busyLen:
		var id connID
		copy(id[:], p[2:])
		ep.mu.Lock()
		answers := ep.dialing[id]
		ep.mu.Unlock()
		if answers != nil {
			select {
			case answers <- append([]byte(nil), p...):
			default: // the client asks again
			}
		}
	}
}

// resetOf is the token that says that the connection of an id here is over.
func (ep *Endpoint) resetOf(id connID) [tokenSize]byte {
	return resetToken(ep.opt.Secret, ep.Addr().String(), id)
}

// unknown tells whoever still sends to an id that there is no connection of it.
func (ep *Endpoint) unknown(id connID, from netip.AddrPort) {
	ep.mu.Lock()
	may := !ep.over && ep.resets.take(time.Now(), maxResets)
	ep.mu.Unlock()
	if may {
		t := ep.resetOf(id)
		ep.reply(append(append([]byte{typeReset}, id[:]...), t[:]...), from)
	}
}

// reset takes a RESET.
func (ep *Endpoint) reset(p []byte) {
	ep.mu.Lock()
	c := ep.dialled[connID(p[1:1+idLen])]
	ep.mu.Unlock()
	if c != nil && hmac.Equal(c.reset[:], p[1+idLen:]) {
		c.forgotten()
	}
}

// take has packets of c, of whose endpoint mu is held, arrive.
func (ep *Endpoint) take(c *Conn) {
	ep.conns[c.id] = c
	if !c.follows {
		ep.dialled[c.peer] = c
	}
}

// reply sends a packet outside any connection.
func (ep *Endpoint) reply(p []byte, to netip.AddrPort) {
	ep.sock.send(&outbox{buf: p, ends: []int{len(p)}}, to)
}

// adopt lets packets for c arrive at this endpoint. False: it is closed.
func (ep *Endpoint) adopt(c *Conn) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.over {
		return false
	}
	ep.take(c)
	return true
}

// forget ends what is known of a connection.
func (ep *Endpoint) forget(c *Conn) {
	ep.mu.Lock()
	delete(ep.conns, c.id)
	if ep.dialled[c.peer] == c {
		delete(ep.dialled, c.peer)
	}
	last := ep.own && len(ep.conns) == 0
	ep.mu.Unlock()
	if last {
		_ = ep.Close() // it has no connection to wait for
	}
}

// header is what IP and UDP add to a payload for that address.
func header(to netip.AddrPort) unit.Bytes {
	if to.Addr().Is4() {
		return 28
	}
	return 48
}
