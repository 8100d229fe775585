// SPDX-License-Identifier: Apache-2.0

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

// defaultLowat is the low-water mark of WaitWritable before SetNotSentLowat.
const defaultLowat = 32 * unit.KB

// lingerTimeout bounds how long a closed connection goes on sending written bytes.
const lingerTimeout = 10 * time.Second

// Conn is one connection. It implements net.Conn and the Transport of package subflow. One
// goroutine may call Write, WaitWritable, Cork and Flush, another one Read and Peek. All other
// methods are safe for concurrent use.
type Conn struct {
	id connID // in the header of the peer's packets
	// isServer reports that the peer dialed. A server follows its client to new addresses.
	isServer       bool
	keys           *keys
	peerID         connID
	peerResetToken [resetTokenLen]byte // at a client: proves that a RESET is from the server
	epoch          time.Time
	wake           signal        // wakes runSendLoop when there may be something to send
	finished       chan struct{} // closed when runSendLoop has ended

	confirmed bool // accepted by the application, or dialed; only for the endpoint's receive loop
	running   bool // guarded by Endpoint.mu

	peerName atomic.Pointer[string] // set by SetPeerName
	cork     writeCork              // for the writing goroutine
	peeked   []byte                 // read by Peek but not by Read; for the reading goroutine

	mu            sync.Mutex // guards the fields below
	engine        *engine
	route         route
	localAddr     localAddress // cached result of LocalAddr
	reporter      feedbackSource
	notSentLowat  unit.Bytes
	closed        bool
	closeDeadline time.Duration
	readWaiters   waiters
	writeWaiters  waiters // wait for room in the send buffer
	lowatWaiters  waiters // wait until less than notSentLowat is unsent
}

// newUnstartedConn returns a connection that is not running yet.
func newUnstartedConn(ep *Endpoint, id connID, remote netip.AddrPort) *Conn {
	c := &Conn{id: id, route: newConnRoute(ep, remote), epoch: time.Now(), notSentLowat: defaultLowat,
		engine: newConnEngine(ep.opt.Controller(), headerSizeFor(remote)), wake: make(signal, 1),
		finished: make(chan struct{})}
	for _, w := range []*waiters{&c.readWaiters, &c.writeWaiters, &c.lowatWaiters} {
		w.L = &c.mu
	}
	c.engine.mtu.fixed = !ep.socket.dontFragment
	now := c.engineTime()
	c.engine.liveness.lastReceived, c.engine.liveness.lastSent = now, now
	c.engine.liveness.userTimeout = ep.opt.UserTimeout
	return c
}

// engineTime returns the engine's time. It is never zero.
func (c *Conn) engineTime() time.Duration { return time.Since(c.epoch) + time.Second }

// currentPath returns the endpoint and the remote address to which packets are sent.
func (c *Conn) currentPath() (*Endpoint, netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.route.ep, c.route.remote
}

// receiveDataPackets handles DATA packets of one size that one read returned back to back in b. It
// stops at the first packet of another connection and returns the number of bytes handled. The
// first packet must be for this connection. authenticated reports whether any packet so far had a
// valid tag. b may be reused after the call.
func (c *Conn) receiveDataPackets(ep *Endpoint, b []byte, size int, from netip.AddrPort) (consumed int,
	authenticated bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for consumed < len(b) {
		p := b[consumed:min(consumed+size, len(b))]
		if len(p) < overhead || p[0] != typeData || connID(p[1:1+connIDLen]) != c.id {
			break
		}
		consumed += len(p)
		c.handleDataPacket(p, ep, from)
	}
	if c.engine.receiver.unreadBytes() > 0 || c.engine.receiver.finReceived {
		c.readWaiters.Broadcast()
	}
	c.wakeWriters(false)
	c.wake.raiseSignal()
	return consumed, c.route.authenticated
}

// handleDataPacket handles one DATA packet. mu must be held.
func (c *Conn) handleDataPacket(p []byte, ep *Endpoint, from netip.AddrPort) {
	frames, number, err := c.keys.openPacket(p, c.route.largestNumber)
	if err != nil {
		return // spoofed or damaged
	}
	newest, moved := c.route.onAuthenticPacket(number, arrival{ep, from.Addr()}, len(frames) > 0 &&
		frames[0] == frameChallenge)
	if moved {
		c.resetFeedback()
	}
	now := c.engineTime()
	if err := c.engine.handlePacketFrames(now, number, frames); err != nil {
		c.engine.closing.closeLocally(fault.New(fault.Protocol, err, "install the same release of mpbond on all devices"))
	}
	if newest && c.isServer && from != c.route.remote {
		c.route.validation.startValidation(from, now)
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

// resetFeedback switches radio feedback to the listener of the endpoint at which packets arrive
// now. mu must be held.
func (c *Conn) resetFeedback() {
	var listen func() Feedback
	if ep := c.route.arrival.ep; ep != nil {
		listen = ep.opt.Feedback
	}
	c.engine.radio.resetReceiving(c.reporter.switchFeedbackTo(listen))
}

// wakeWriters wakes the goroutines that wait to write and now can. If all is set or the connection
// has ended, it wakes all goroutines that wait, readers too. mu must be held.
func (c *Conn) wakeWriters(all bool) {
	all = all || c.engine.closing.err != nil
	if all {
		c.readWaiters.Broadcast()
	}
	// Writers wait for a block of free space, not for each packet.
	if all || c.engine.sender.unackedStreamBytes() <= maxSendBuffer-defaultLowat {
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
	return c.readAfterPeek(p)
}

// Peek returns the next n bytes and keeps them for Read. n should be small, because the bytes are
// copied. They are valid until the next Read. Only the reading goroutine may call it.
func (c *Conn) Peek(n int) ([]byte, error) {
	for len(c.peeked) < n {
		b := make([]byte, n-len(c.peeked))
		k, err := c.readAfterPeek(b)
		if err != nil {
			return nil, err
		}
		c.peeked = append(c.peeked, b[:k]...)
	}
	return c.peeked[:n], nil
}

// readAfterPeek reads bytes that Peek has not read.
func (c *Conn) readAfterPeek(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, err := c.engine.readAvailable(c.engineTime(), p)
		switch {
		case n > 0 || err != nil:
		case c.closed:
			err = net.ErrClosed
		case c.readWaiters.deadlinePassed():
			err = os.ErrDeadlineExceeded
		}
		if n > 0 || err != nil {
			if c.engine.acks.ackNow {
				c.wake.raiseSignal() // advertise the free space
			}
			return n, addTimeoutHint(err)
		}
		c.readWaiters.Wait()
	}
}

// Write implements net.Conn. It blocks while 16 MB are unacknowledged.
func (c *Conn) Write(p []byte) (n int, err error) {
	if c.cork.holdWriteBack(p) {
		return len(p), nil
	}
	return c.writeBlocking(p)
}

// writeBlocking writes p to the stream. It blocks while the send buffer is full.
func (c *Conn) writeBlocking(p []byte) (n int, err error) {
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
			n += c.engine.sender.writeToBuffer(p[n:])
		}
		c.wake.raiseSignal()
		if n == len(p) || err != nil {
			return n, addTimeoutHint(err)
		}
		c.writeWaiters.Wait()
	}
}

// Cork holds writes back until Flush.
func (c *Conn) Cork() { c.cork.corked = true }

// Flush writes the bytes held back since Cork.
func (c *Conn) Flush() error {
	_, err := c.writeBlocking(c.cork.takeHeldWrites())
	return err
}

// WaitWritable blocks until fewer unsent bytes than the low-water mark are buffered.
func (c *Conn) WaitWritable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.engine.closing.err
		if c.closed {
			err = net.ErrClosed
		}
		if err != nil || c.engine.sender.unsentBytes() < c.notSentLowat {
			return addTimeoutHint(err)
		}
		c.lowatWaiters.Wait()
	}
}

// SetNotSentLowat sets the low-water mark of WaitWritable, two packets at least.
func (c *Conn) SetNotSentLowat(n unit.Bytes) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notSentLowat = max(n, 2*minPayload)
	c.wakeWriters(false)
	return nil
}

// SetKeepAlive sets the silence after which a PING is sent, initially 15 s. The connection ends
// after three such intervals without a packet from the peer. Both ends should use the same
// interval. A NAT that forgets its mapping sooner drops the peer's packets until this end sends
// again.
func (c *Conn) SetKeepAlive(idle time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.liveness.keepAliveInterval = max(idle, time.Second)
	c.wake.raiseSignal()
	return nil
}

// Pace limits the sending rate to r. Zero removes the limit.
func (c *Conn) Pace(r unit.Rate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.pacer.maxRate = r
	c.wake.raiseSignal()
	return nil
}

// Probe returns the state of the sending direction and, after the end, why it ended.
func (c *Conn) Probe() (estimate.Hop, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.engine
	h := estimate.Hop{
		SRTT:          e.loss.rtt.smoothed,
		MinRTT:        e.loss.rtt.min,
		RTTVar:        e.loss.rtt.rttVar,
		Rate:          e.rate,
		AppLimited:    e.appLimited,
		PacingLimit:   e.pacer.maxRate,
		Cwnd:          e.controller.Limits(c.engineTime()).Window,
		MSS:           unit.Bytes(e.mtu.size - overhead),
		Queue:         e.sender.unackedStreamBytes(),
		Unsent:        e.sender.unsentBytes(),
		Acked:         e.sender.ackedBytes(),
		Received:      e.receiver.inOrderBytes(),
		WireIn:        e.counts.wireIn,
		WireOut:       e.counts.wireOut,
		PathMTU:       e.fullPacketSize(),
		Packets:       e.counts.packets,
		Retransmitted: e.sender.retransmittedSegments,
	}
	if p, ok := e.controller.(interface{ Status() cc.PBEStatus }); ok {
		if st := p.Status(); st.Feedback.TransportRate > 0 {
			h.Cells = estimate.Cells{
				State: st.State.String(), Capacity: st.Feedback.TransportRate, Fair: st.Feedback.FairRate,
				Followed: st.Fresh, Doubted: st.Doubted,
			}
		}
	}
	return h, addTimeoutHint(e.closing.err)
}

// Radio returns the newest feedback from the peer.
func (c *Conn) Radio() cc.CellFeedback {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.radio.incoming
}

// CloseWrite ends this side of the stream. The peer reads what was written, then io.EOF.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.sender.fin = true
	c.wakeWriters(true)
	c.wake.raiseSignal()
	return nil
}

// Close ends the connection. Written bytes are still sent, for 10 s at most.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.engine.sender.fin = true, true
		c.closeDeadline = c.engineTime() + lingerTimeout
		c.wakeWriters(true)
		c.wake.raiseSignal()
	}
	return nil
}

// Abort ends the connection at once and sends the peer one CLOSE. Written bytes may be lost.
func (c *Conn) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.engine.closing.closeLocally(net.ErrClosed)
	c.wakeWriters(true)
	c.wake.raiseSignal()
	return nil
}

// closeNow makes the connection end as soon as its CLOSE is sent, without the closing period. It
// reports whether Close was called before.
func (c *Conn) closeNow() (closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.closing.closeNow = true
	c.wake.raiseSignal()
	return c.closed
}

// endByPeerReset ends the connection because the peer has no state of it.
func (c *Conn) endByPeerReset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.closing.closeByPeer(errStatelessReset)
	c.wakeWriters(true)
	c.wake.raiseSignal()
}

// LocalAddr implements net.Conn. If the endpoint is bound to the unspecified address, it returns
// the local address of the route to the peer. The address is looked up again only when the endpoint
// or the peer's address has changed.
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
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setIODeadline(&c.readWaiters, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setIODeadline(&c.writeWaiters, t) }

// setIODeadline sets the deadline of waiting readers or writers.
func (c *Conn) setIODeadline(w *waiters, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	w.setWaitDeadline(t)
	return nil
}

// Reasons for which a connection ends, and errNotClient for a call that only a client may make.
var (
	errIdleTimeout    = errors.New("peer stopped responding")
	errNotClient      = errors.New("only the end that dialed can migrate")
	errUserTimeout    = errors.New("peer stopped acknowledging")
	errStatelessReset = fmt.Errorf("peer has no state of this connection: %w", syscall.ECONNRESET)
	errClosedByPeer   = fmt.Errorf("peer closed the connection: %w", syscall.ECONNRESET)
)

// addTimeoutHint adds a hint to errors of timeouts.
func addTimeoutHint(err error) error {
	if errors.Is(err, errIdleTimeout) || errors.Is(err, errUserTimeout) {
		return fault.New(fault.Timeout, err, "check that its link is up")
	}
	return err
}
