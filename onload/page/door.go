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

// door lets connections of the local network in, so many at once.
type door struct {
	l    *tcp.Listener
	gate *tcp.Gate
	away string // an interface
}

func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.l.Accept()
		if err != nil {
			return nil, err
		}
		if near(c.RemoteAddr()) && !(d.away != "" && of(d.away, c.LocalAddr())) {
			if leave := d.gate.Admit(c.RemoteAddr()); leave != nil {
				return &guest{Conn: c, leave: sync.OnceFunc(leave)}, nil
			}
		}
		_ = c.Abort()
	}
}

func (d *door) Addr() net.Addr { return d.l.Addr() }
func (d *door) Close() error   { return d.l.Close() }

// mostShown bounds the addresses that are shown.
const mostShown = 4

// Addresses are those of this device by which browsers of the local network are let in:
// none of its own line, which has a private one in many mobile networks. IPv4 comes first,
// since it is typed.
func (p *Page) Addresses() (list []netip.Addr) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil || i.Name == p.cfg.Away {
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
	return list[:min(len(list), mostShown)]
}

// guest gives its place back when it is closed.
type guest struct {
	*tcp.Conn
	leave func()
}

func (g *guest) Close() error {
	defer g.leave()
	return g.Conn.Close()
}

// ipOf is the address of an end.
func ipOf(a net.Addr) netip.Addr {
	t, _ := a.(*net.TCPAddr)
	if t == nil {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// near tells whether an address can be one of a local network.
func near(a net.Addr) bool { return local(ipOf(a)) }

func local(a netip.Addr) bool { return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() }

// of tells whether an address is one of an interface, but for loopback, which nobody
// from outside comes by.
func of(name string, at net.Addr) bool {
	ip := ipOf(at)
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
