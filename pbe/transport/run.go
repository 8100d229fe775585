package transport

import (
	"net"
	"time"
)

// Bounds of what is made before it is sent together: packets and bytes.
const atOnce, bytesAtOnce = 64, 128 << 10

// outbox is a batch of packets, one after the other, for one address.
type outbox struct {
	buf   []byte
	ends  []int // of the packets in buf
	alone int   // index + 1 of the one that is no part of a train; 0: none
	messages
}

func (o *outbox) empty() { o.buf, o.ends, o.alone = o.buf[:0], o.ends[:0], 0 }

// add takes buf, which another packet was appended to. One that is longer than size
// is an MTU probe, which the link of this device may not take: it goes alone, so that
// no other is lost with it.
func (o *outbox) add(buf []byte, size int) {
	if len(buf)-len(o.buf) > size {
		o.alone = len(o.ends) + 1
	}
	o.buf = buf
	o.ends = append(o.ends, len(buf))
}

// run sends until the connection is over.
func (c *Conn) run() {
	defer close(c.gone)
	c.setReporting(true)
	defer c.setReporting(false)
	defer func() {
		c.mu.Lock()
		all := c.route.endpoints
		c.mu.Unlock()
		for _, ep := range all {
			ep.forget(c)
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var o, side outbox
	for {
		over, wait := c.fill(&o, &side)
		if over && len(o.ends) == 0 {
			return
		}
		if len(o.ends) > 0 || len(side.ends) > 0 || wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// setReporting has the cells here reported on while run goes on.
func (c *Conn) setReporting(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reporter.enabled = on
	c.resetFeedback()
}

// fill makes and sends a batch, in o, and the packet of an attempt, in side. It
// returns whether the connection is over, else how long there is nothing to do.
func (c *Conn) fill(o, side *outbox) (over bool, wait time.Duration) {
	o.empty()
	side.empty()
	c.mu.Lock()
	now := c.now()
	if c.closed && (c.e.send.isFlushed() || now >= c.closeBy) {
		c.e.closing.close(net.ErrClosed)
	}
	c.e.tick(now)
	for len(o.ends) < atOnce && len(o.buf) < bytesAtOnce {
		start := len(o.buf)
		b, number, ok := c.e.poll(now, head(o.buf, c.peer))
		if !ok {
			o.buf = b[:start]
			break
		}
		o.add(c.keys.finish(b, start, number), c.e.mtu.size)
	}
	if c.route.attempt.isDue(now) && c.e.closing.err == nil {
		b, number := c.e.appendChallenge(now, head(side.buf, c.peer), c.route.attempt.data[:])
		side.add(c.keys.finish(b, 0, number), c.e.mtu.size)
		c.route.attempt.onAsked(now)
	}
	over = c.e.closing.isOver(now)
	c.wakeWaiters(false)
	at := c.e.wait(now)
	if c.route.attempt.left > 0 {
		at = min(at, c.route.attempt.at)
	}
	ep, to, aside := c.route.ep, c.route.remote, c.route.attempt.to
	c.mu.Unlock()
	if len(o.ends) > 0 {
		if packets, bytes := ep.sock.send(o, to); packets > 0 {
			c.mu.Lock()
			c.e.refused(packets, bytes)
			c.mu.Unlock()
		}
	}
	if len(side.ends) > 0 {
		ep.sock.send(side, aside)
	}
	return over, at - c.now()
}

// Migrate goes on over another endpoint, such as one of another interface, which
// the caller closes some time after the connection. The peer follows when this end
// has answered it from there; what it sends until then still arrives at the old
// endpoint. Only the end that dialled can do so.
func (c *Conn) Migrate(to *Endpoint) error {
	old, err := c.migrate(to)
	for _, ep := range old {
		ep.forget(c)
	}
	return err
}

// migrate returns the endpoints where packets are no longer waited for.
func (c *Conn) migrate(to *Endpoint) (old []*Endpoint, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follows {
		return nil, errFollows
	}
	if c.e.closing.err != nil || c.closed || !to.adopt(c) {
		return nil, net.ErrClosed
	}
	old = c.route.moveTo(to)
	c.e.mtu.fixed = !to.sock.whole
	c.e.reroute(c.now(), to.opt.Controller())
	c.wake.raise()
	return old, nil
}
