// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"

	"mpbond/base/unit"
)

// SetPeerName sets the name of the peer for which traffic is counted.
func (c *Conn) SetPeerName(peer string) { c.peerName.Store(&peer) }

// Peer returns the name that SetPeerName set, or "".
func (c *Conn) Peer() string {
	if p := c.peerName.Load(); p != nil {
		return *p
	}
	return ""
}

// Carried returns the bytes of IP packets that the network has received and sent for this
// connection. pending estimates the same for written bytes that are unsent. Packets before the
// first DATA packet are not counted.
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

// LimitWindow limits the peer's flow control window. The limit takes effect when the peer has used
// the credit it already has. The minimum is two packets. A large n removes the limit.
func (c *Conn) LimitWindow(n unit.Bytes) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.receiver.limitWindow(uint64(max(n, 2*minPayload)))
	return nil
}

// localAddrFor returns the local address of the route to another address. It sends nothing.
func localAddrFor(to net.Addr, opt Options) (net.Addr, error) {
	d := net.Dialer{Control: opt.Control}
	c, err := d.Dial("udp", to.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.LocalAddr(), nil
}
