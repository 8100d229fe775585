package discovery

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/mdns"
)

// maxFound bounds what one Find returns, and with it what a hostile network can
// make us try.
const maxFound = 32

// Found is a service that somebody says is there.
type Found struct {
	ID   string // of the device that it claims to be of, "" if it tells none
	Addr netip.AddrPort
}

// Find asks once on each interface, and takes what is answered within d. Nobody
// there is no error; err tells that no interface could be asked on.
func Find(ctx context.Context, s Service, d time.Duration) (list []Found, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	asked := 0
	for _, l := range links() {
		asking.Go(func() {
			found, e := findAt(ctx, l.iface, s, d)
			mu.Lock()
			defer mu.Unlock()
			if e == nil {
				asked++
			} else if err == nil {
				err = e
			}
			for _, f := range found {
				if len(list) < maxFound && !slices.Contains(list, f) {
					list = append(list, f)
				}
			}
		})
	}
	asking.Wait()
	if asked > 0 {
		err = nil
	}
	return list, err
}

// findAt asks on one interface.
func findAt(ctx context.Context, iface net.Interface, s Service, d time.Duration) (list []Found, err error) {
	entries := make(chan *mdns.ServiceEntry, maxFound)
	q := &mdns.QueryParam{Service: string(s), Domain: "local", Timeout: d, Interface: &iface, Entries: entries, Logger: quiet}
	q.DisableIPv4, q.DisableIPv6 = lacks(iface)
	if err := mdns.QueryContext(ctx, q); err != nil {
		return nil, err
	}
	// Only now: the library goes on with an entry that it has given out.
	for len(entries) > 0 {
		list = appendEntry(list, <-entries)
	}
	return list, nil
}

// appendEntry takes one address of an answer: a second one of the same interface
// is no further way.
func appendEntry(list []Found, e *mdns.ServiceEntry) []Found {
	ips := []net.IP{e.AddrV4}
	if e.AddrV6IPAddr != nil {
		ips = append(ips, e.AddrV6IPAddr.IP)
	}
	for _, ip := range ips {
		if a, ok := addrPort(ip, e.Port); ok {
			return append(list, Found{idOf(e.InfoFields), a})
		}
	}
	return list
}

// addrPort is an address that anybody may be called at.
func addrPort(ip net.IP, port int) (netip.AddrPort, bool) {
	a, ok := netip.AddrFromSlice(ip)
	a = a.Unmap()
	if !ok || !a.IsGlobalUnicast() || port < 1 || port > 65535 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(port)), true
}

// lacks tells which kinds of addresses an interface has not, not even for this
// link: what cannot be sent there is not tried.
func lacks(iface net.Interface) (v4, v6 bool) {
	v4, v6 = true, true
	addrs, err := iface.Addrs()
	if err != nil {
		return false, false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if n.IP.To4() != nil {
				v4 = false
			} else {
				v6 = false
			}
		}
	}
	return v4, v6
}
