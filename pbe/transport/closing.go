package transport

import "time"

const (
	closingTimeouts  = 3                // probe timeouts in which a CLOSE goes again (RFC 9000 section 10.2)
	defaultKeepAlive = 15 * time.Second // under the 30 s after which many NATs forget (RFC 4787 asks for 2 minutes)
	idleKeepAlives   = 3                // keep-alive intervals of silence are the end
)

// closing is the end of a connection: why it is over, and what of it the peer must still
// be sent (RFC 9000 section 10.2). The zero value is that of a connection that goes on.
// Times are those of the connection. It is not safe for concurrent use.
type closing struct {
	err          error         // the connection is over; the first reason stays
	sendClose    bool          // a CLOSE is to be sent
	drainUntil   time.Duration // who still sends gets another CLOSE until then; 0: none was sent
	lateRequests int           // packets that came meanwhile
	closeNow     bool          // nobody is waited for
}

// closeLocally ends the connection at this end: the peer is sent a CLOSE.
func (c *closing) closeLocally(err error) {
	if c.err == nil {
		c.err, c.sendClose = err, true
	}
}

// closeByPeer ends the connection as the other end already did.
func (c *closing) closeByPeer(err error) {
	if c.err == nil {
		c.err = err
	}
}

// isOver reports whether the connection has ended and the peer need not be told any more.
func (c *closing) isOver(now time.Duration) bool {
	return c.err != nil && !c.sendClose && (c.closeNow || now >= c.drainUntil)
}

// takeClose reports whether a CLOSE is to be sent now, for the first time or again.
func (c *closing) takeClose(now, probeTimeout time.Duration) bool {
	if !c.sendClose {
		return false
	}
	c.sendClose = false
	if c.drainUntil == 0 {
		c.drainUntil = now + closingTimeouts*probeTimeout
	}
	return true
}

// onLatePacket takes a packet that came after the end. The CLOSE may have been lost: it
// goes again, for the first, second, fourth, eighth packet and so on (RFC 9000 section
// 10.2.1), unless the packet says that the connection has ended there too.
func (c *closing) onLatePacket(now time.Duration, endedToo bool) {
	switch {
	case endedToo:
		c.drainUntil = now
	case now < c.drainUntil:
		c.lateRequests++
		c.sendClose = c.sendClose || c.lateRequests&(c.lateRequests-1) == 0
	}
}

// liveness watches over silence: when a PING keeps a NAT's memory alive, and when the
// peer is given up. Times are those of the connection. It is not safe for concurrent use.
type liveness struct {
	lastReceived      time.Duration
	lastSent          time.Duration
	keepAliveInterval time.Duration // silence until a PING
	userTimeout       time.Duration // that something is acknowledged; 0: any
}

// idleTimeout returns how long the peer may be silent.
func (l *liveness) idleTimeout() time.Duration { return idleKeepAlives * l.keepAliveInterval }

// checkTimeouts returns why the peer is given up, nil while it is not. Unacked is since when
// something waits to be acknowledged without progress, 0 if nothing does.
func (l *liveness) checkTimeouts(now, unacked time.Duration) error {
	switch {
	case now >= l.lastReceived+l.idleTimeout():
		return errIdleTimeout
	case l.userTimeout > 0 && unacked > 0 && now >= unacked+l.userTimeout:
		return errUserTimeout
	}
	return nil
}

// needsPing reports whether nothing was sent for so long that a PING must be.
func (l *liveness) needsPing(now time.Duration) bool { return now >= l.lastSent+l.keepAliveInterval }

// nextTime returns when check or needsPing may have another answer.
func (l *liveness) nextTime(unacked time.Duration) time.Duration {
	at := min(l.lastReceived+l.idleTimeout(), l.lastSent+l.keepAliveInterval)
	if l.userTimeout > 0 && unacked > 0 {
		at = min(at, unacked+l.userTimeout)
	}
	return at
}
