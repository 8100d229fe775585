// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"

	"mpbond/link/tcp"
)

// Limits of connections. A browser opens up to six.
const (
	maxOpen, maxFromOne, maxPerMinute = 64, 16, 600
)

// localListener accepts connections from the local network, within limits.
type localListener struct {
	listener *tcp.Listener
	limit    *tcp.AdmissionLimit
	uplink   string // interface that accepts no connections; "" is none
}

// Accept implements net.Listener.
func (d *localListener) Accept() (net.Conn, error) {
	for {
		c, err := d.listener.Accept()
		if err != nil {
			return nil, err
		}
		if isLocalAddr(c.RemoteAddr()) && !(d.uplink != "" && isInterfaceAddr(d.uplink, c.LocalAddr())) {
			if leave := d.limit.Admit(c.RemoteAddr()); leave != nil {
				return &admittedConn{Conn: c, release: sync.OnceFunc(leave)}, nil
			}
		}
		_ = c.Abort()
	}
}

// Addr implements net.Listener.
func (d *localListener) Addr() net.Addr { return d.listener.Addr() }

// Close implements net.Listener.
func (d *localListener) Close() error { return d.listener.Close() }

// maxAddresses bounds the number of addresses that are shown.
const maxAddresses = 4

// LocalAddresses returns the addresses of this device at which browsers of the local network can
// reach the page, IPv4 first. It omits the uplink, which has a private address in many mobile
// networks.
func (p *Page) LocalAddresses() (list []netip.Addr) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil || i.Name == p.cfg.Uplink {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap().IsPrivate() {
					list = append(list, ip.Unmap())
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return list[:min(len(list), maxAddresses)]
}

// admittedConn releases its slot when it is closed.
type admittedConn struct {
	*tcp.Conn
	release func()
}

// Close implements net.Conn.
func (g *admittedConn) Close() error {
	defer g.release()
	return g.Conn.Close()
}

// ipFromTCPAddr returns the IP address of a TCP address.
func ipFromTCPAddr(a net.Addr) netip.Addr {
	t, _ := a.(*net.TCPAddr)
	if t == nil {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// isLocalAddr reports whether a TCP address may belong to a local network.
func isLocalAddr(a net.Addr) bool { return isLocalNetworkIP(ipFromTCPAddr(a)) }

// isLocalNetworkIP reports whether an IP address may belong to a local network.
func isLocalNetworkIP(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast()
}

// isInterfaceAddr reports whether addr is an address of the named interface. Loopback addresses
// never are: connections from outside cannot use them.
func isInterfaceAddr(name string, at net.Addr) bool {
	ip := ipFromTCPAddr(at)
	if ip.IsLoopback() {
		return false
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return false // a missing interface has no address
	}
	addrs, err := i.Addrs()
	if err != nil {
		return true
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == ip {
				return true
			}
		}
	}
	return false
}
