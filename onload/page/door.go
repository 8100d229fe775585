package page

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"

	"mpbond/link/tcp"
)

// Limits of connections. A browser has six.
const (
	maxOpen, maxFromOne, maxPerMinute = 64, 16, 600
)

// gatedListener lets connections of the local network in, so many at once.
type gatedListener struct {
	listener *tcp.Listener
	limit    *tcp.AdmissionLimit
	uplink   string // an interface
}

func (d *gatedListener) Accept() (net.Conn, error) {
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

func (d *gatedListener) Addr() net.Addr { return d.listener.Addr() }
func (d *gatedListener) Close() error   { return d.listener.Close() }

// maxAddresses bounds the addresses that are shown.
const maxAddresses = 4

// LocalAddresses are those of this device by which browsers of the local network are let in:
// none of its own line, which has a private one in many mobile networks. IPv4 comes first,
// since it is typed.
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

// admittedConn gives its place back when it is closed.
type admittedConn struct {
	*tcp.Conn
	release func()
}

func (g *admittedConn) Close() error {
	defer g.release()
	return g.Conn.Close()
}

// addrIP is the address of an end.
func addrIP(a net.Addr) netip.Addr {
	t, _ := a.(*net.TCPAddr)
	if t == nil {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// isLocalAddr tells whether an address can be one of a local network.
func isLocalAddr(a net.Addr) bool { return isLocalIP(addrIP(a)) }

func isLocalIP(a netip.Addr) bool { return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() }

// isInterfaceAddr tells whether an address is one of an interface, but for loopback, which nobody
// from outside comes by.
func isInterfaceAddr(name string, at net.Addr) bool {
	ip := addrIP(at)
	if ip.IsLoopback() {
		return false
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return false // it is not there, and so has no address
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
