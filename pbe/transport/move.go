// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"net/netip"
)

// Move continues the connection over a new socket on the current route to the peer, for example
// after the interface got another address. It closes the old sockets. Only connections of Dial can
// move. After an error nothing has changed. See Migrate.
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
	dropped := c.route.dropOwnedEndpoints(ep)
	c.mu.Unlock()
	for _, before := range dropped {
		before.unregisterPeerConn(c) // closes it
	}
	return nil
}

// openEndpointTo opens a socket for one connection at the local address of the route to its peer.
// That address identifies the interface.
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
