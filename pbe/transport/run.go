package transport

import (
	"net"
	"time"
)

// Bounds of what is made before it is sent together: packets and bytes.
const maxBatchPackets, maxBatchBytes = 64, 128 << 10

// outbox is a batch of packets, one after the other, for one address.
type outbox struct {
	buf       []byte
	ends      []int // of the packets in buf
	soloIndex int   // index + 1 of the one that is no part of a train; 0: none
	messageBatch
}

func (o *outbox) reset() { o.buf, o.ends, o.soloIndex = o.buf[:0], o.ends[:0], 0 }

// addPacket takes buf, which another packet was appended to. One that is longer than size
// is an MTU probe, which the link of this device may not take: it goes alone, so that
// no other is lost with it.
func (o *outbox) addPacket(buf []byte, size int) {
	if len(buf)-len(o.buf) > size {
		o.soloIndex = len(o.ends) + 1
	}
	o.buf = buf
	o.ends = append(o.ends, len(buf))
}

// runSendLoop sends until the connection is over.
func (c *Conn) runSendLoop() {
	defer close(c.finished)
	c.setFeedbackEnabled(true)
	defer c.setFeedbackEnabled(false)
	defer func() {
		c.mu.Lock()
		all := c.route.endpoints
		c.mu.Unlock()
		for _, ep := range all {
			ep.removeConn(c)
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var o, challengeBox outbox
	for {
		over, wait := c.sendBatch(&o, &challengeBox)
		if over && len(o.ends) == 0 {
			return
		}
		if len(o.ends) > 0 || len(challengeBox.ends) > 0 || wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// setFeedbackEnabled has the cells here reported on while run goes on.
func (c *Conn) setFeedbackEnabled(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reporter.enabled = on
	c.resetFeedback()
}

// sendBatch makes and sends a batch, in o, and the packet of an attempt, in side. It
// returns whether the connection is over, else how long there is nothing to do.
func (c *Conn) sendBatch(o, challengeBox *outbox) (over bool, wait time.Duration) {
	o.reset()
	challengeBox.reset()
	c.mu.Lock()
	now := c.now()
	if c.closed && (c.engine.sender.isFlushed() || now >= c.closeDeadline) {
		c.engine.closing.closeLocally(net.ErrClosed)
	}
	c.engine.handleTimers(now)
	for len(o.ends) < maxBatchPackets && len(o.buf) < maxBatchBytes {
		start := len(o.buf)
		b, number, ok := c.engine.appendPacket(now, appendDataHeader(o.buf, c.peerID))
		if !ok {
			o.buf = b[:start]
			break
		}
		o.addPacket(c.keys.sealPacket(b, start, number), c.engine.mtu.size)
	}
	if c.route.validation.isDue(now) && c.engine.closing.err == nil {
		b, number := c.engine.appendChallenge(now, appendDataHeader(challengeBox.buf, c.peerID), c.route.validation.data[:])
		challengeBox.addPacket(c.keys.sealPacket(b, 0, number), c.engine.mtu.size)
		c.route.validation.onChallengeSent(now)
	}
	over = c.engine.closing.isOver(now)
	c.wakeWaiters(false)
	at := c.engine.nextWakeTime(now)
	if c.route.validation.remaining > 0 {
		at = min(at, c.route.validation.nextTime)
	}
	ep, to, challengeAddr := c.route.ep, c.route.remote, c.route.validation.addr
	c.mu.Unlock()
	if len(o.ends) > 0 {
		if packets, bytes := ep.socket.sendBatch(o, to); packets > 0 {
			c.mu.Lock()
			c.engine.onSendRefused(packets, bytes)
			c.mu.Unlock()
		}
	}
	if len(challengeBox.ends) > 0 {
		ep.socket.sendBatch(challengeBox, challengeAddr)
	}
	return over, at - c.now()
}

// Migrate goes on over another endpoint, such as one of another interface, which
// the caller closes some time after the connection. The peer follows when this end
// has answered it from there; what it sends until then still arrives at the old
// endpoint. Only the end that dialled can do so.
func (c *Conn) Migrate(to *Endpoint) error {
	old, err := c.switchEndpoint(to)
	for _, ep := range old {
		ep.removeConn(c)
	}
	return err
}

// switchEndpoint returns the endpoints where packets are no longer waited for.
func (c *Conn) switchEndpoint(to *Endpoint) (old []*Endpoint, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isServer {
		return nil, errNotClient
	}
	if c.engine.closing.err != nil || c.closed || !to.adoptConn(c) {
		return nil, net.ErrClosed
	}
	old = c.route.moveTo(to)
	c.engine.mtu.fixed = !to.socket.dontFragment
	c.engine.switchPath(c.now(), to.opt.Controller())
	c.wake.raise()
	return old, nil
}
