// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

const (
	closingTimeouts  = 3                // length of the closing period in probe timeouts (RFC 9000 section 10.2)
	defaultKeepAlive = 15 * time.Second // many NATs drop a mapping after 30 s (RFC 4787 asks for 2 minutes)
	idleKeepAlives   = 3                // keep-alive intervals without a packet before the connection ends
)

// closing is the end of a connection: the reason, and the CLOSE packets still to be sent (RFC 9000
// section 10.2). The zero value is an open connection. Times are those of the connection. It is not
// safe for concurrent use.
type closing struct {
	err          error         // reason of the end, set once; nil while open
	sendClose    bool          // a CLOSE must be sent
	drainUntil   time.Duration // end of the closing period; 0 before the first CLOSE
	lateRequests int           // packets received in the closing period
	closeNow     bool          // skip the closing period
}

// closeLocally ends the connection at this end. The peer is sent a CLOSE.
func (c *closing) closeLocally(err error) {
	if c.err == nil {
		c.err, c.sendClose = err, true
	}
}

// closeByPeer ends the connection after the peer has ended it. No CLOSE is sent.
func (c *closing) closeByPeer(err error) {
	if c.err == nil {
		c.err = err
	}
}

// isFullyClosed reports whether the connection has ended and no CLOSE needs to be sent any more.
func (c *closing) isFullyClosed(now time.Duration) bool {
	return c.err != nil && !c.sendClose && (c.closeNow || now >= c.drainUntil)
}

// takeDueClose reports whether to send a CLOSE now. The first call begins the closing period.
func (c *closing) takeDueClose(now, probeTimeout time.Duration) bool {
	if !c.sendClose {
		return false
	}
	c.sendClose = false
	if c.drainUntil == 0 {
		c.drainUntil = now + closingTimeouts*probeTimeout
	}
	return true
}

// onLatePacket handles a packet that arrives after the end. The CLOSE may have been lost, so it is
// sent again for the first, second, fourth, eighth packet and so on (RFC 9000 section 10.2.1). If
// the peer has ended the connection too, the closing period ends.
func (c *closing) onLatePacket(now time.Duration, endedToo bool) {
	switch {
	case endedToo:
		c.drainUntil = now
	case now < c.drainUntil:
		c.lateRequests++
		c.sendClose = c.sendClose || c.lateRequests&(c.lateRequests-1) == 0
	}
}

// liveness watches for silence. It decides when to send a PING, which also keeps NAT mappings
// alive, and when to give up the peer. Times are those of the connection. It is not safe for
// concurrent use.
type liveness struct {
	lastReceived      time.Duration
	lastSent          time.Duration
	keepAliveInterval time.Duration // silence before a PING
	userTimeout       time.Duration // time without acknowledgement before the end; 0: no limit
}

// idleTimeout returns how long the peer may be silent.
func (l *liveness) idleTimeout() time.Duration { return idleKeepAlives * l.keepAliveInterval }

// checkTimeouts returns why the peer must be given up, or nil. unacked is the time since which sent
// packets wait for an acknowledgement without progress, 0 if none do.
func (l *liveness) checkTimeouts(now, unacked time.Duration) error {
	switch {
	case now >= l.lastReceived+l.idleTimeout():
		return errIdleTimeout
	case l.userTimeout > 0 && unacked > 0 && now >= unacked+l.userTimeout:
		return errUserTimeout
	}
	return nil
}

// needsKeepAlivePing reports whether to send a PING because nothing was sent for keepAliveInterval.
func (l *liveness) needsKeepAlivePing(now time.Duration) bool {
	return now >= l.lastSent+l.keepAliveInterval
}

// nextLivenessCheck returns when the result of checkTimeouts or needsKeepAlivePing may change.
func (l *liveness) nextLivenessCheck(unacked time.Duration) time.Duration {
	at := min(l.lastReceived+l.idleTimeout(), l.lastSent+l.keepAliveInterval)
	if l.userTimeout > 0 && unacked > 0 {
		at = min(at, unacked+l.userTimeout)
	}
	return at
}
