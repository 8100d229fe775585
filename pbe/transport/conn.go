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

// lingerTimeout is how long a closed connection goes on sending what was written.
const lingerTimeout = 10 * time.Second

// Conn is one connection. It is a net.Conn, and a Transport of package subflow:
// Write, WaitWritable, Cork and Flush are for one goroutine, Read for another,
// all others for any.
type Conn struct {
	id connID // by which the peer's packets are told
	// isServer says that this end was dialled: it goes where the other one is.
	isServer       bool
	keys           *keys
	peerID         connID
	peerResetToken [resetTokenLen]byte // of who dialled: the other end's word that it has forgotten the connection
	epoch          time.Time
	wake           signal        // run: there may be something to send
	finished       chan struct{} // closed when run has ended

	confirmed bool // a dialled connection was given to Accept; for the goroutine that reads the endpoint
	running   bool // guarded by the endpoint's mu

	peerName atomic.Pointer[string] // see For
	cork     writeCork              // for the writing goroutine
	peeked   []byte                 // of Peek; for the reading goroutine

	mu            sync.Mutex // guards the rest
	engine        *engine
	route         route
	localAddr     localAddress // see LocalAddr
	reporter      feedbackReporter
	notSentLowat  unit.Bytes
	closed        bool
	closeDeadline time.Duration
	readWaiters   waiters
	writeWaiters  waiters // for room in the buffer
	lowatWaiters  waiters // until less than lowat has not left
}

func newConn(ep *Endpoint, id connID, remote netip.AddrPort) *Conn {
	c := &Conn{id: id, route: newRoute(ep, remote), epoch: time.Now(), notSentLowat: defaultLowat,
		engine: newEngine(ep.opt.Controller(), headerSizeFor(remote)), wake: make(signal, 1), finished: make(chan struct{})}
	for _, w := range []*waiters{&c.readWaiters, &c.writeWaiters, &c.lowatWaiters} {
		w.L = &c.mu
	}
	c.engine.mtu.fixed = !ep.socket.dontFragment
	now := c.now()
	c.engine.liveness.lastReceived, c.engine.liveness.lastSent = now, now
	c.engine.liveness.userTimeout = ep.opt.UserTimeout
	return c
}

// now is the engine's time: over 0, as it wants it.
func (c *Conn) now() time.Duration { return time.Since(c.epoch) + time.Second }

// currentPath returns by which endpoint and to which address packets go.
func (c *Conn) currentPath() (*Endpoint, netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.route.ep, c.route.remote
}

// receiveTrain takes DATA packets of one size, until one that is not for this
// connection, and returns how many bytes they had; the first is. Opened: a packet was
// found to be the peer's, now or before. b is the caller's again afterwards.
func (c *Conn) receiveTrain(ep *Endpoint, b []byte, size int, from netip.AddrPort) (consumed int, authenticated bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for consumed < len(b) {
		p := b[consumed:min(consumed+size, len(b))]
		if len(p) < overhead || p[0] != typeData || connID(p[1:1+connIDLen]) != c.id {
			break
		}
		consumed += len(p)
		c.handlePacket(p, ep, from)
	}
	if c.engine.receiver.readableBytes() > 0 || c.engine.receiver.finReceived {
		c.readWaiters.Broadcast()
	}
	c.wakeWaiters(false)
	c.wake.raise()
	return consumed, c.route.authenticated
}

// handlePacket takes one of them.
func (c *Conn) handlePacket(p []byte, ep *Endpoint, from netip.AddrPort) {
	frames, number, err := c.keys.openPacket(p, c.route.largestNumber)
	if err != nil {
		return // spoofed or damaged
	}
	newest, moved := c.route.onPacket(number, arrival{ep, from.Addr()}, len(frames) > 0 && frames[0] == frameChallenge)
	if moved {
		c.resetFeedback()
	}
	now := c.now()
	if err := c.engine.handlePacket(now, number, frames); err != nil {
		c.engine.closing.closeLocally(fault.New(fault.Protocol, err, "install the same release of mpbond on all devices"))
	}
	if newest && c.isServer && from != c.route.remote {
		c.route.validation.start(from, now)
	}
	if len(c.engine.pathResponse) > 0 {
		if moved, newHost := c.route.onResponse(from, c.engine.pathResponse); moved {
			c.engine.headerSize = headerSizeFor(from)
			if newHost {
				c.engine.switchPath(now, c.route.ep.opt.Controller())
			}
		}
		c.engine.pathResponse = c.engine.pathResponse[:0]
	}
}

// resetFeedback switches radio feedback to the listener of the endpoint by which packets
// come now. mu must be held.
func (c *Conn) resetFeedback() {
	var listen func() Feedback
	if ep := c.route.arrival.ep; ep != nil {
		listen = ep.opt.Feedback
	}
	c.engine.radio.resetReceiving(c.reporter.switchTo(listen))
}

// wakeWaiters wakes those that have something to do, and all at the end, or if all is set.
// mu must be held.
func (c *Conn) wakeWaiters(all bool) {
	all = all || c.engine.closing.err != nil
	if all {
		c.readWaiters.Broadcast()
	}
	// Not for each packet that leaves a full buffer.
	if all || c.engine.sender.unackedBytes() <= maxSendBuffer-defaultLowat {
		c.writeWaiters.Broadcast()
	}
	if all || c.engine.sender.unsentBytes() < c.notSentLowat {
		c.lowatWaiters.Broadcast()
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.peeked) > 0 {
		n := copy(p, c.peeked)
		c.peeked = c.peeked[n:]
		return n, nil
	}
	return c.readStream(p)
}

// Peek returns the next n bytes without taking them, few: they are copied. They are
// valid until the next Read. It is for the goroutine that reads.
func (c *Conn) Peek(n int) ([]byte, error) {
	for len(c.peeked) < n {
		b := make([]byte, n-len(c.peeked))
		k, err := c.readStream(b)
		if err != nil {
			return nil, err
		}
		c.peeked = append(c.peeked, b[:k]...)
	}
	return c.peeked[:n], nil
}

// readStream reads what no Peek has seen.
func (c *Conn) readStream(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, err := c.engine.readStream(c.now(), p)
		switch {
		case n > 0 || err != nil:
		case c.closed:
			err = net.ErrClosed
		case c.readWaiters.deadlinePassed():
			err = os.ErrDeadlineExceeded
		}
		if n > 0 || err != nil {
			if c.engine.acks.ackNow {
				c.wake.raise() // there is room again
			}
			return n, explainError(err)
		}
		c.readWaiters.Wait()
	}
}

// Write implements net.Conn. It blocks while 16 MB wait to be acknowledged.
func (c *Conn) Write(p []byte) (n int, err error) {
	if c.cork.holdBack(p) {
		return len(p), nil
	}
	return c.writeStream(p)
}

func (c *Conn) writeStream(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed || c.engine.sender.fin:
			err = net.ErrClosed
		case c.engine.closing.err != nil:
			err = c.engine.closing.err
		case c.writeWaiters.deadlinePassed():
			err = os.ErrDeadlineExceeded
		default:
			n += c.engine.sender.write(p[n:])
		}
		c.wake.raise()
		if n == len(p) || err != nil {
			return n, explainError(err)
		}
		c.writeWaiters.Wait()
	}
}

// Cork gathers writes until Flush.
func (c *Conn) Cork() { c.cork.corked = true }

// Flush writes what was gathered.
func (c *Conn) Flush() error {
	_, err := c.writeStream(c.cork.takeHeld())
	return err
}

// WaitWritable blocks until what is written would leave soon: until less than the
// low-water mark of what was written has not left.
func (c *Conn) WaitWritable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.engine.closing.err
		if c.closed {
			err = net.ErrClosed
		}
		if err != nil || c.engine.sender.unsentBytes() < c.notSentLowat {
			return explainError(err)
		}
		c.lowatWaiters.Wait()
	}
}

// SetNotSentLowat sets the low-water mark of WaitWritable.
func (c *Conn) SetNotSentLowat(n unit.Bytes) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notSentLowat = max(n, 2*minPayload)
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
	c.engine.liveness.keepAliveInterval = max(idle, time.Second)
	c.wake.raise()
	return nil
}

// Pace lets this end send no faster than r from now on; 0 ends that.
func (c *Conn) Pace(r unit.Rate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.pacer.maxRate = r
	c.wake.raise()
	return nil
}

// Probe tells the state of the sending direction. After the end it returns why.
func (c *Conn) Probe() (estimate.Hop, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.engine
	h := estimate.Hop{SRTT: e.loss.rtt.smoothed, MinRTT: e.loss.rtt.min, RTTVar: e.loss.rtt.rttVar, Rate: e.rate, AppLimited: e.appLimited, PacingLimit: e.pacer.maxRate, Cwnd: e.controller.Limits(c.now()).Window,
		MSS: unit.Bytes(e.mtu.size - overhead), Queue: e.sender.unackedBytes(), Unsent: e.sender.unsentBytes(), Acked: e.sender.ackedBytes(), Received: e.receiver.receivedBytes(),
		WireIn: e.counts.wireIn, WireOut: e.counts.wireOut, PathMTU: e.packetSize(), Packets: e.counts.packets, Retransmitted: e.sender.resentSegments}
	if p, ok := e.controller.(interface{ Status() cc.PBEStatus }); ok {
		if st := p.Status(); st.Feedback.Capacity > 0 {
			h.Cells = estimate.Cells{State: st.State.String(), Capacity: st.Feedback.Capacity, Fair: st.Feedback.Fair, Followed: st.Fresh, Doubted: st.Doubted}
		}
	}
	return h, explainError(e.closing.err)
}

// Radio is the newest feedback of the peer.
func (c *Conn) Radio() cc.Radio {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.radio.incoming
}

// CloseWrite ends this side of the stream: the peer reads what was written, then
// io.EOF.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.sender.fin = true
	c.wakeWaiters(true)
	c.wake.raise()
	return nil
}

// Close ends the connection. What was written is still sent, for 10 s at most.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.engine.sender.fin = true, true
		c.closeDeadline = c.now() + lingerTimeout
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
	c.engine.closing.closeLocally(net.ErrClosed)
	c.wakeWaiters(true)
	c.wake.raise()
	return nil
}

// closeNow has the connection wait for nobody when it has told its end. It reports whether
// it was closed before.
func (c *Conn) closeNow() (closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.closing.closeNow = true
	c.wake.raise()
	return c.closed
}

// handleReset ends the connection as one of which the peer knows nothing.
func (c *Conn) handleReset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.closing.closeByPeer(errStatelessReset)
	c.wakeWaiters(true)
	c.wake.raise()
}

// LocalAddr implements net.Conn. Where the endpoint is at all addresses it is the
// one on the way to the peer, as it was when that was last found at its address.
func (c *Conn) LocalAddr() net.Addr {
	ep, to := c.currentPath()
	at, ok := ep.Addr().(*net.UDPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return ep.Addr()
	}
	c.mu.Lock()
	known := c.localAddr
	c.mu.Unlock()
	if known.ep != ep || known.remote != to {
		local, err := localAddrFor(net.UDPAddrFromAddrPort(to), ep.opt)
		if err != nil {
			return ep.Addr()
		}
		known = localAddress{ep, to, &net.UDPAddr{IP: local.(*net.UDPAddr).IP, Port: at.Port}}
		c.mu.Lock()
		c.localAddr = known
		c.mu.Unlock()
	}
	return known.addr
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr {
	_, to := c.currentPath()
	return net.UDPAddrFromAddrPort(to)
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readWaiters, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeWaiters, t) }

func (c *Conn) setDeadline(w *waiters, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	w.setDeadline(t)
	return nil
}

// errIdleTimeout is for a peer that is not heard of any more, errUserTimeout for one that
// acknowledges nothing, errClosedByPeer for one that closed, errStatelessReset for one that has, say,
// started again.
var (
	errIdleTimeout    = errors.New("the other end does not answer any more")
	errNotClient      = errors.New("only the end that dialled can migrate")
	errUserTimeout    = errors.New("the other end acknowledges nothing any more")
	errStatelessReset = fmt.Errorf("the other end knows nothing of this connection: %w", syscall.ECONNRESET)
	errClosedByPeer   = fmt.Errorf("the other end closed the connection: %w", syscall.ECONNRESET)
)

func explainError(err error) error {
	if errors.Is(err, errIdleTimeout) || errors.Is(err, errUserTimeout) {
		return fault.New(fault.Timeout, err, "is its link up?")
	}
	return err
}
