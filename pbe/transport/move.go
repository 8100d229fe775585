package transport

import (
	"net"
	"net/netip"
)

// Move goes on from the address that this device has now on the way to the peer, over
// a socket of its own in the place of those before, as after the interface got
// another address; see Migrate. Only a connection that Dial made can do so. If it
// fails, as while there is no address, nothing has changed.
func (c *Conn) Move() error {
	old, to := c.path()
	if c.follows || !old.own {
		return errFollows
	}
	ep, err := openTowards(to, old.opt)
	if err != nil {
		return err
	}
	if err := c.Migrate(ep); err != nil {
		ep.Close()
		return err
	}
	c.mu.Lock()
	dropped := c.route.dropOwn(ep)
	c.mu.Unlock()
	for _, before := range dropped {
		before.forget(c) // closes it
	}
	return nil
}

// openTowards opens a socket for one connection, at this device's own address on the
// way there, so that it is known by which interface it goes.
func openTowards(to netip.AddrPort, opt Options) (*Endpoint, error) {
	local, err := leads(net.UDPAddrFromAddrPort(to), opt)
	if err != nil {
		return nil, noRoute(err)
	}
	at := local.(*net.UDPAddr)
	at.Port = 0
	network := "udp6"
	if to.Addr().Is4() {
		network = "udp4"
	}
	ep, err := open(network, at.String(), opt)
	if err != nil {
		return nil, err
	}
	ep.own = true
	return ep, nil
}
