package transport

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/pbe/cc"
)

// defaultLowat is the low-water mark of WaitWritable until SetNotSentLowat.
const defaultLowat = 32 * unit.KB

// linger is how long a closed connection goes on sending what was written.
const linger = 10 * time.Second

// Conn is one connection. It is a net.Conn, and a Transport of package subflow:
// Write, WaitWritable, Cork and Flush are for one goroutine, Read for another,
// all others for any.
type Conn struct {
	local connID // by which the peer's packets are told
	// follows says that this end was dialled: it goes where the other one is.
	follows bool
	keys    *keys
	peer    connID
	reset   [tokenSize]byte // of who dialled: the other end's word that it has forgotten the connection
	epoch   time.Time
	wake    chan struct{} // run: there may be something to send
	gone    chan struct{} // closed when run has ended

	confirmed bool // a dialled connection was given to Accept; for the goroutine that reads the endpoint
	running   bool // guarded by the endpoint's mu

	whose  atomic.Pointer[string] // see For
	corked bool                   // for the writing goroutine
	held   []byte
	ahead  []byte // of Peek; for the reading goroutine

	mu       sync.Mutex // guards the rest
	e        *engine
	ep       *Endpoint   // that sends
	eps      []*Endpoint // all that packets may arrive at
	remote   netip.AddrPort
	try      attempt
	own      ownAddr  // see LocalAddr
	high     uint64   // highest number opened
	any      bool     // one was opened
	via      way      // of the newest packet
	runs     bool     // run has begun, and not ended
	feedback Feedback // nil: none
	lowat    unit.Bytes
	rdl      deadline
	wdl      deadline
	closed   bool
	closeBy  time.Duration
	readers  sync.Cond // of mu, as the others
	writers  sync.Cond // there is room in the buffer
	movers   sync.Cond // less than lowat has not left
}

// way is by which endpoint, and from which address, a packet comes. (A NAT may have
// forgotten the port.)
type way struct {
	ep   *Endpoint
	from netip.Addr
}

// deadline is that of a direction; guarded by Conn.mu.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newConn(ep *Endpoint, local connID, remote netip.AddrPort) *Conn {
	c := &Conn{ep: ep, eps: []*Endpoint{ep}, local: local, remote: remote, epoch: time.Now(), lowat: defaultLowat,
		e: newEngine(ep.opt.Controller(), header(remote)), wake: make(chan struct{}, 1), gone: make(chan struct{})}
	c.readers.L, c.writers.L, c.movers.L = &c.mu, &c.mu, &c.mu
	c.e.mtu.fixed = !ep.sock.whole
	c.e.live.lastReceived, c.e.live.lastSent = c.now(), c.now()
	c.e.live.userTimeout = ep.opt.UserTimeout
	return c
}

// now is the engine's time: over 0, as it wants it.
func (c *Conn) now() time.Duration { return time.Since(c.epoch) + time.Second }

func (c *Conn) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Conn) endpoint() *Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ep
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// opened tells whether a packet was found to be the peer's.
func (c *Conn) opened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.any
}

// receive takes DATA packets of one size, until one that is not for this
// connection, and returns how many bytes they had; the first is. b is the caller's
// again afterwards.
func (c *Conn) receive(ep *Endpoint, b []byte, size int, from netip.AddrPort) (taken int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for taken < len(b) {
		p := b[taken:min(taken+size, len(b))]
		if len(p) < overhead || p[0] != typeData || connID(p[1:1+idLen]) != c.local {
			break
		}
		taken += len(p)
		c.packet(p, ep, from)
	}
	if c.e.recv.readable() > 0 || c.e.recv.ended {
		c.readers.Broadcast()
	}
	c.wakeWriters()
	c.nudge()
	return taken
}

// packet takes one of them.
func (c *Conn) packet(p []byte, ep *Endpoint, from netip.AddrPort) {
	frames, number, err := c.keys.open(p, c.high)
	if err != nil {
		return // spoofed or damaged
	}
	newest := !c.any || number > c.high
	if newest {
		c.high, c.any = number, true
		asks := len(frames) > 0 && frames[0] == frameChallenge // whether this way is one; all else goes another still
		if w := (way{ep, from.Addr()}); w != c.via && !asks {
			c.via = w
			c.refeed()
		}
	}
	now := c.now()
	if err := c.e.handle(now, number, frames); err != nil {
		c.e.closing.close(fault.New(fault.Protocol, err, "install the same release of mpbond on all devices"))
	}
	if newest && c.follows && from != c.remote {
		c.try.begin(from, now)
	}
	if len(c.e.response) > 0 {
		if c.try.proved(from, c.e.response) {
			same := from.Addr() == c.remote.Addr() // a NAT has forgotten the port
			c.remote = from
			c.e.header = header(from)
			if !same {
				c.e.reroute(now, c.ep.opt.Controller())
			}
		}
		c.e.response = c.e.response[:0]
	}
}

// refeed has who listens to the cells of the way by which packets come now tell the
// peer of them. Mu is held. It is for run to end it: there is none before.
func (c *Conn) refeed() {
	if c.feedback != nil {
		c.feedback.Close()
		c.feedback = nil
	}
	c.e.radio.resetReceiving(nil)
	if c.runs && c.via.ep != nil && c.via.ep.opt.Feedback != nil {
		c.feedback = c.via.ep.opt.Feedback()
		c.e.radio.resetReceiving(c.feedback.OnPacket)
	}
}

// wakeWriters wakes those that have something to do, and readers at the end.
func (c *Conn) wakeWriters() {
	over := c.e.closing.err != nil
	if over {
		c.readers.Broadcast()
	}
	// Not for each packet that leaves a full buffer.
	if over || c.e.send.unacked() <= maxSendBuffer-defaultLowat {
		c.writers.Broadcast()
	}
	if over || c.e.send.unsent() < c.lowat {
		c.movers.Broadcast()
	}
}

// wakeAll wakes all who wait.
func (c *Conn) wakeAll() {
	c.readers.Broadcast()
	c.writers.Broadcast()
	c.movers.Broadcast()
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.next(p)
}

// Peek returns the next n bytes without taking them, few: they are copied. They are
// valid until the next Read. It is for the goroutine that reads.
func (c *Conn) Peek(n int) ([]byte, error) {
	for len(c.ahead) < n {
		b := make([]byte, n-len(c.ahead))
		k, err := c.next(b)
		if err != nil {
			return nil, err
		}
		c.ahead = append(c.ahead, b[:k]...)
	}
	return c.ahead[:n], nil
}

// next reads what no Peek has seen.
func (c *Conn) next(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, err := c.e.take(c.now(), p)
		switch {
		case n > 0 || err != nil:
		case c.closed:
			err = net.ErrClosed
		case c.rdl.over():
			err = os.ErrDeadlineExceeded
		}
		if n > 0 || err != nil {
			if c.e.acks.ackNow {
				c.nudge() // there is room again
			}
			return n, explain(err)
		}
		c.readers.Wait()
	}
}

// Write implements net.Conn. It blocks while 16 MB wait to be acknowledged.
func (c *Conn) Write(p []byte) (n int, err error) {
	if c.corked {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.write(p)
}

func (c *Conn) write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed || c.e.send.fin:
			err = net.ErrClosed
		case c.e.closing.err != nil:
			err = c.e.closing.err
		case c.wdl.over():
			err = os.ErrDeadlineExceeded
		default:
			n += c.e.send.write(p[n:])
		}
		c.nudge()
		if n == len(p) || err != nil {
			return n, explain(err)
		}
		c.writers.Wait()
	}
}

// Cork gathers writes until Flush.
func (c *Conn) Cork() { c.corked = true }

// Flush writes what was gathered.
func (c *Conn) Flush() error {
	c.corked = false
	_, err := c.write(c.held)
	c.held = c.held[:0]
	return err
}

// WaitWritable blocks until what is written would leave soon: until less than the
// low-water mark of what was written has not left.
func (c *Conn) WaitWritable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.e.closing.err
		if c.closed {
			err = net.ErrClosed
		}
		if err != nil || c.e.send.unsent() < c.lowat {
			return explain(err)
		}
		c.movers.Wait()
	}
}

// SetNotSentLowat sets the low-water mark of WaitWritable.
func (c *Conn) SetNotSentLowat(n unit.Bytes) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lowat = max(n, 2*minPayload)
	c.wakeWriters()
	return nil
}

// SetKeepAlive changes after how much silence a PING is sent, 15 s at first; three
// times that without a word of the peer is the end. Both ends should have the same.
// A NAT that forgets sooner drops what the peer sends, until this end sends
// something.
func (c *Conn) SetKeepAlive(idle time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.live.keepAliveInterval = max(idle, time.Second)
	c.nudge()
	return nil
}

// Pace lets this end send no faster than r from now on; 0 ends that.
func (c *Conn) Pace(r unit.Rate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.pacer.maxRate = r
	c.nudge()
	return nil
}

// Probe tells the state of the sending direction. After the end it returns why.
func (c *Conn) Probe() (estimate.Hop, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.e
	h := estimate.Hop{SRTT: e.loss.rtt.smoothed, MinRTT: e.loss.rtt.min, RTTVar: e.loss.rtt.variation, Rate: e.rate, AppLimited: e.appLimited, Limit: e.pacer.maxRate, Cwnd: e.ctl.Limits(c.now()).Window,
		MSS: unit.Bytes(e.mtu.size - overhead), Queue: e.send.unacked(), Unsent: e.send.unsent(), Acked: e.send.ackedBytes(), Received: e.recv.received(),
		WireIn: e.counts.wireIn, WireOut: e.counts.wireOut, PathMTU: e.packetSize(), Packets: e.counts.packets, Resent: e.send.resent}
	if p, ok := e.ctl.(interface{ Status() cc.PBEStatus }); ok {
		if st := p.Status(); st.Told.Capacity > 0 {
			h.Cells = estimate.Cells{State: st.State.String(), Capacity: st.Told.Capacity, Fair: st.Told.Fair, Fresh: st.Fresh, Doubted: st.Doubted}
		}
	}
	return h, explain(e.closing.err)
}

// Radio is the newest feedback of the peer.
func (c *Conn) Radio() cc.Radio {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.e.radio.incoming
}

// CloseWrite ends this side of the stream: the peer reads what was written, then
// io.EOF.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.send.fin = true
	c.wakeAll()
	c.nudge()
	return nil
}

// Close ends the connection. What was written is still sent, for 10 s at most.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.e.send.fin = true, true
		c.closeBy = c.now() + linger
		c.wakeAll()
		c.nudge()
	}
	return nil
}

// Abort ends the connection at once; what was written may be lost. The peer is
// told, if that packet arrives.
func (c *Conn) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.e.closing.close(net.ErrClosed)
	c.wakeAll()
	c.nudge()
	return nil
}

// hurry has the connection wait for nobody when it has told its end.
func (c *Conn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.closing.closeNow = true
	c.nudge()
}

// forgotten ends the connection as one of which the peer knows nothing.
func (c *Conn) forgotten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.closing.end(errForgotten)
	c.wakeAll()
	c.nudge()
}

// LocalAddr implements net.Conn. Where the endpoint is at all addresses it is the
// one on the way to the peer, as it was when that was last found at its address.
func (c *Conn) LocalAddr() net.Addr {
	ep, to := c.endpoint(), c.peerAddr()
	at, ok := ep.Addr().(*net.UDPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return ep.Addr()
	}
	c.mu.Lock()
	known := c.own
	c.mu.Unlock()
	if known.ep != ep || known.to != to {
		way, err := leads(net.UDPAddrFromAddrPort(to), ep.opt)
		if err != nil {
			return ep.Addr()
		}
		known = ownAddr{ep, to, &net.UDPAddr{IP: way.(*net.UDPAddr).IP, Port: at.Port}}
		c.mu.Lock()
		c.own = known
		c.mu.Unlock()
	}
	return known.addr
}

// ownAddr is the address of an endpoint on the way to another one.
type ownAddr struct {
	ep   *Endpoint
	to   netip.AddrPort
	addr net.Addr
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.peerAddr()) }

func (c *Conn) peerAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remote
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.set(&c.rdl, &c.readers, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.set(&c.wdl, &c.writers, t) }

func (c *Conn) set(d *deadline, w *sync.Cond, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at = t
	w.Broadcast()
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			w.Broadcast()
		})
	}
	return nil
}

// errDead is for a peer that is not heard of any more, errUnanswered for one that
// acknowledges nothing, errPeer for one that closed, errForgotten for one that has, say,
// started again.
var (
	errDead       = errors.New("the other end does not answer any more")
	errFollows    = errors.New("only the end that dialled can migrate")
	errUnanswered = errors.New("the other end acknowledges nothing any more")
	errForgotten  = fmt.Errorf("the other end knows nothing of this connection: %w", syscall.ECONNRESET)
	errPeer       = fmt.Errorf("the other end closed the connection: %w", syscall.ECONNRESET)
)

func explain(err error) error {
	if errors.Is(err, errDead) || errors.Is(err, errUnanswered) {
		return fault.New(fault.Timeout, err, "is its link up?")
	}
	return err
}
