// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
)

// listenPair listens on 127.0.0.1 and, if the machine has IPv6, on [::1], with the same port.
// Packets that the kernel redirects or diverts arrive there. network is "tcp" or "udp"; port 0
// chooses a port.
func listenPair[L io.Closer](network string, port uint16, listen func(network string, at netip.AddrPort) (L,
	error)) ([]L, error) {
	// A port free on one address may be in use on the other, so try several.
	var last error
	for range 16 {
		l4, err := listen(network+"4", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
		if err != nil {
			return nil, err
		}
		l6, err := listen(network+"6", netip.AddrPortFrom(netip.IPv6Loopback(), portOfListener(l4)))
		switch {
		case err == nil:
			return []L{l4, l6}, nil
		case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
			return []L{l4}, nil
		}
		l4.Close() //nolint:errcheck // nothing came over it
		last = err
		if port != 0 {
			break
		}
	}
	return nil, last
}

// portOfListener returns the port of a net.Listener or net.PacketConn.
func portOfListener(l any) uint16 {
	var a net.Addr
	switch l := l.(type) {
	case net.Listener:
		a = l.Addr()
	case net.PacketConn:
		a = l.LocalAddr()
	default:
		return 0
	}
	at, _ := netip.ParseAddrPort(a.String())
	return at.Port()
}

// listenUDPAddrPort is net.ListenUDP with a netip.AddrPort.
func listenUDPAddrPort(network string, at netip.AddrPort) (*net.UDPConn, error) {
	return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
}
