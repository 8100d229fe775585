// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"time"
)

// Limits of packets that are built before they are sent together.
const maxBatchPackets, maxBatchBytes = 64, 128 << 10

// outbox is a batch of packets for one address, stored back to back.
type outbox struct {
	buf       []byte
	ends      []int // end of each packet in buf
	soloIndex int   // index + 1 of a packet that must not be part of a train; 0: none
	messageBatch
}

// clearPackets removes all packets.
func (o *outbox) clearPackets() { o.buf, o.ends, o.soloIndex = o.buf[:0], o.ends[:0], 0 }

// addSealedPacket adds the packet that was appended to buf. A packet longer than size is an MTU
// probe, which the local link may refuse. It is sent alone, so that no other packet is lost with
// it.
func (o *outbox) addSealedPacket(buf []byte, size int) {
	if len(buf)-len(o.buf) > size {
		o.soloIndex = len(o.ends) + 1
	}
	o.buf = buf
	o.ends = append(o.ends, len(buf))
}

// runSendLoop sends packets until the connection is over.
func (c *Conn) runSendLoop() {
	defer close(c.finished)
	c.setFeedbackEnabled(true)
	defer c.setFeedbackEnabled(false)
	defer func() {
		c.mu.Lock()
		all := c.route.endpoints
		c.mu.Unlock()
		for _, ep := range all {
			ep.unregisterPeerConn(c)
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var o, challengeBox outbox
	for {
		over, wait := c.buildAndSendBatch(&o, &challengeBox)
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

// setFeedbackEnabled opens or closes the source of radio feedback. It is open while runSendLoop
// runs.
func (c *Conn) setFeedbackEnabled(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reporter.enabled = on
	c.resetFeedback()
}

// buildAndSendBatch builds and sends a batch of packets in o, and the CHALLENGE of a path
// validation in challengeBox. It returns whether the connection is over, and how long there is
// nothing to do.
func (c *Conn) buildAndSendBatch(o, challengeBox *outbox) (over bool, wait time.Duration) {
	o.clearPackets()
	challengeBox.clearPackets()
	c.mu.Lock()
	now := c.engineTime()
	if c.closed && (c.engine.sender.isStreamFlushed() || now >= c.closeDeadline) {
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
		o.addSealedPacket(c.keys.sealPacket(b, start, number), c.engine.mtu.size)
	}
	if c.route.validation.isChallengeDue(now) && c.engine.closing.err == nil {
		b, number := c.engine.appendChallenge(now, appendDataHeader(challengeBox.buf, c.peerID), c.route.validation.data[:])
		challengeBox.addSealedPacket(c.keys.sealPacket(b, 0, number), c.engine.mtu.size)
		c.route.validation.onChallengeSent(now)
	}
	over = c.engine.closing.isFullyClosed(now)
	c.wakeWriters(false)
	at := c.engine.nextWakeTime(now)
	if c.route.validation.remaining > 0 {
		at = min(at, c.route.validation.nextTime)
	}
	ep, to, challengeAddr := c.route.ep, c.route.remote, c.route.validation.addr
	c.mu.Unlock()
	if len(o.ends) > 0 {
		if packets, bytes := ep.socket.sendOutboxPackets(o, to); packets > 0 {
			c.mu.Lock()
			c.engine.onPacketsRefused(packets, bytes)
			c.mu.Unlock()
		}
	}
	if len(challengeBox.ends) > 0 {
		ep.socket.sendOutboxPackets(challengeBox, challengeAddr)
	}
	return over, at - c.engineTime()
}

// Migrate continues the connection over another endpoint, for example one of another interface. The
// caller closes that endpoint some time after the connection. The peer follows when path validation
// succeeds. Packets that it sends before still arrive at the old endpoint. Only connections of Dial
// can migrate.
func (c *Conn) Migrate(to *Endpoint) error {
	old, err := c.switchEndpoint(to)
	for _, ep := range old {
		ep.unregisterPeerConn(c)
	}
	return err
}

// switchEndpoint moves the connection to another endpoint. It returns the endpoints that no longer
// receive packets of this connection.
func (c *Conn) switchEndpoint(to *Endpoint) (old []*Endpoint, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isServer {
		return nil, errNotClient
	}
	if c.engine.closing.err != nil || c.closed || !to.adoptMigratedConn(c) {
		return nil, net.ErrClosed
	}
	old = c.route.moveToEndpoint(to)
	c.engine.mtu.fixed = !to.socket.dontFragment
	c.engine.switchPath(c.engineTime(), to.opt.Controller())
	c.wake.raiseSignal()
	return old, nil
}
