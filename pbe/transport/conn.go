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
	id connID // by which the peer's packets are told
	// follows says that this end was dialled: it goes where the other one is.
	follows bool
	keys    *keys
	peer    connID
	reset   [tokenSize]byte // of who dialled: the other end's word that it has forgotten the connection
	epoch   time.Time
	wake    signal        // run: there may be something to send
	gone    chan struct{} // closed when run has ended

	confirmed bool // a dialled connection was given to Accept; for the goroutine that reads the endpoint
	running   bool // guarded by the endpoint's mu

	whose atomic.Pointer[string] // see For
	cork  cork                   // for the writing goroutine
	ahead []byte                 // of Peek; for the reading goroutine

	mu       sync.Mutex // guards the rest
	e        *engine
	route    route
	local    ownAddr // see LocalAddr
	reporter reporter
	lowat    unit.Bytes
	closed   bool
	closeBy  time.Duration
	readers  waiters
	writers  waiters // for room in the buffer
	movers   waiters // until less than lowat has not left
}

func newConn(ep *Endpoint, id connID, remote netip.AddrPort) *Conn {
	c := &Conn{id: id, route: newRoute(ep, remote), epoch: time.Now(), lowat: defaultLowat,
		e: newEngine(ep.opt.Controller(), header(remote)), wake: make(signal, 1), gone: make(chan struct{})}
	for _, w := range []*waiters{&c.readers, &c.writers, &c.movers} {
		w.L = &c.mu
	}
	c.e.mtu.fixed = !ep.sock.whole
	now := c.now()
	c.e.live.lastReceived, c.e.live.lastSent = now, now
	c.e.live.userTimeout = ep.opt.UserTimeout
	return c
}

// now is the engine's time: over 0, as it wants it.
func (c *Conn) now() time.Duration { return time.Since(c.epoch) + time.Second }

// path returns by which endpoint and to which address packets go.
func (c *Conn) path() (*Endpoint, netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.route.ep, c.route.remote
}

// receive takes DATA packets of one size, until one that is not for this
// connection, and returns how many bytes they had; the first is. Opened: a packet was
// found to be the peer's, now or before. b is the caller's again afterwards.
func (c *Conn) receive(ep *Endpoint, b []byte, size int, from netip.AddrPort) (taken int, opened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for taken < len(b) {
		p := b[taken:min(taken+size, len(b))]
		if len(p) < overhead || p[0] != typeData || connID(p[1:1+idLen]) != c.id {
			break
		}
		taken += len(p)
		c.packet(p, ep, from)
	}
	if c.e.recv.readable() > 0 || c.e.recv.ended {
		c.readers.Broadcast()
	}
	c.wakeWaiters(false)
	c.wake.raise()
	return taken, c.route.opened
}

// packet takes one of them.
func (c *Conn) packet(p []byte, ep *Endpoint, from netip.AddrPort) {
	frames, number, err := c.keys.open(p, c.route.largest)
	if err != nil {
		return // spoofed or damaged
	}
	newest, moved := c.route.onPacket(number, arrival{ep, from.Addr()}, len(frames) > 0 && frames[0] == frameChallenge)
	if moved {
		c.resetFeedback()
	}
	now := c.now()
	if err := c.e.handle(now, number, frames); err != nil {
		c.e.closing.close(fault.New(fault.Protocol, err, "install the same release of mpbond on all devices"))
	}
	if newest && c.follows && from != c.route.remote {
		c.route.attempt.begin(from, now)
	}
	if len(c.e.response) > 0 {
		if moved, elsewhere := c.route.onResponse(from, c.e.response); moved {
			c.e.header = header(from)
			if elsewhere {
				c.e.reroute(now, c.route.ep.opt.Controller())
			}
		}
		c.e.response = c.e.response[:0]
	}
}

// resetFeedback switches radio feedback to the listener of the endpoint by which packets
// come now. mu must be held.
func (c *Conn) resetFeedback() {
	var listen func() Feedback
	if ep := c.route.arrival.ep; ep != nil {
		listen = ep.opt.Feedback
	}
	c.e.radio.resetReceiving(c.reporter.switchTo(listen))
}

// wakeWaiters wakes those that have something to do, and all at the end, or if all is set.
// mu must be held.
func (c *Conn) wakeWaiters(all bool) {
	all = all || c.e.closing.err != nil
	if all {
		c.readers.Broadcast()
	}
	// Not for each packet that leaves a full buffer.
	if all || c.e.send.unacked() <= maxSendBuffer-defaultLowat {
		c.writers.Broadcast()
	}
	if all || c.e.send.unsent() < c.lowat {
		c.movers.Broadcast()
	}
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
		case c.readers.isLate():
			err = os.ErrDeadlineExceeded
		}
		if n > 0 || err != nil {
			if c.e.acks.ackNow {
				c.wake.raise() // there is room again
			}
			return n, explain(err)
		}
		c.readers.Wait()
	}
}

// Write implements net.Conn. It blocks while 16 MB wait to be acknowledged.
func (c *Conn) Write(p []byte) (n int, err error) {
	if c.cork.hold(p) {
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
		case c.writers.isLate():
			err = os.ErrDeadlineExceeded
		default:
			n += c.e.send.write(p[n:])
		}
		c.wake.raise()
		if n == len(p) || err != nil {
			return n, explain(err)
		}
		c.writers.Wait()
	}
}

// Cork gathers writes until Flush.
func (c *Conn) Cork() { c.cork.closed = true }

// Flush writes what was gathered.
func (c *Conn) Flush() error {
	_, err := c.write(c.cork.release())
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
	c.wakeWaiters(false)
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
	c.wake.raise()
	return nil
}

// Pace lets this end send no faster than r from now on; 0 ends that.
func (c *Conn) Pace(r unit.Rate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.pacer.maxRate = r
	c.wake.raise()
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
	c.wakeWaiters(true)
	c.wake.raise()
	return nil
}

// Close ends the connection. What was written is still sent, for 10 s at most.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.e.send.fin = true, true
		c.closeBy = c.now() + linger
		c.wakeWaiters(true)
		c.wake.raise()
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
	c.wakeWaiters(true)
	c.wake.raise()
	return nil
}

// closeNow has the connection wait for nobody when it has told its end. It reports whether
// it was closed before.
func (c *Conn) closeNow() (closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.closing.closeNow = true
	c.wake.raise()
	return c.closed
}

// forgotten ends the connection as one of which the peer knows nothing.
func (c *Conn) forgotten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.closing.end(errForgotten)
	c.wakeWaiters(true)
	c.wake.raise()
}

// LocalAddr implements net.Conn. Where the endpoint is at all addresses it is the
// one on the way to the peer, as it was when that was last found at its address.
func (c *Conn) LocalAddr() net.Addr {
	ep, to := c.path()
	at, ok := ep.Addr().(*net.UDPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return ep.Addr()
	}
	c.mu.Lock()
	known := c.local
	c.mu.Unlock()
	if known.ep != ep || known.to != to {
		way, err := leads(net.UDPAddrFromAddrPort(to), ep.opt)
		if err != nil {
			return ep.Addr()
		}
		known = ownAddr{ep, to, &net.UDPAddr{IP: way.(*net.UDPAddr).IP, Port: at.Port}}
		c.mu.Lock()
		c.local = known
		c.mu.Unlock()
	}
	return known.addr
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr {
	_, to := c.path()
	return net.UDPAddrFromAddrPort(to)
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readers, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writers, t) }

func (c *Conn) setDeadline(w *waiters, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	w.setDeadline(t)
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
