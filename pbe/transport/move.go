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
	old, to := c.currentPath()
	if c.isServer || !old.closesWithLast {
		return errNotClient
	}
	ep, err := openEndpointTo(to, old.opt)
	if err != nil {
		return err
	}
	if err := c.Migrate(ep); err != nil {
		ep.Close()
		return err
	}
	c.mu.Lock()
	dropped := c.route.dropOwned(ep)
	c.mu.Unlock()
	for _, before := range dropped {
		before.removeConn(c) // closes it
	}
	return nil
}

// openEndpointTo opens a socket for one connection, at this device's own address on the
// way there, so that it is known by which interface it goes.
func openEndpointTo(to netip.AddrPort, opt Options) (*Endpoint, error) {
	local, err := localAddrFor(net.UDPAddrFromAddrPort(to), opt)
	if err != nil {
		return nil, noRouteError(err)
	}
	at := local.(*net.UDPAddr)
	at.Port = 0
	network := "udp6"
	if to.Addr().Is4() {
		network = "udp4"
	}
	ep, err := openEndpoint(network, at.String(), opt)
	if err != nil {
		return nil, err
	}
	ep.closesWithLast = true
	return ep, nil
}
