package transport

import (
	"net"

	"mpbond/base/unit"
)

// For names whom the connection is for, once that is known; Peer tells who counts it.
func (c *Conn) For(peer string) { c.peerName.Store(&peer) }

// Peer is what For was told last, or "".
func (c *Conn) Peer() string {
	if p := c.peerName.Load(); p != nil {
		return *p
	}
	return ""
}

// Carried tells what the network has carried for it, as IP packets, each time that
// one left or arrived; pending is the same of what was written and has not left. The
// packets before the first DATA packet are not counted.
func (c *Conn) Carried() (in, out, pending unit.Bytes, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.engine
	if e.closing.err == nil {
		each := unit.Bytes(e.mtu.size - overhead)
		pending = e.sender.unsentBytes() + (e.sender.unsentBytes()+each-1)/each*(overhead+e.headerSize)
	}
	return unit.Bytes(e.counts.wireIn), unit.Bytes(e.counts.wireOut), pending, nil
}

// LimitWindow bounds what the other end may have on its way to here, from when it
// has used up what it was told it may; a packet is the least. A large limit takes it
// back.
func (c *Conn) LimitWindow(n unit.Bytes) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.receiver.limitWindow(uint64(max(n, 2*minPayload)))
	return nil
}

// localAddrFor is this device's own address on the way to another one, as bind has a socket
// go there, without a packet.
func localAddrFor(to net.Addr, opt Options) (net.Addr, error) {
	d := net.Dialer{Control: opt.Control}
	c, err := d.Dial("udp", to.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.LocalAddr(), nil
}
