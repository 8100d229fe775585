package device

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// defaultRoute is a default route, as far as it tells where a device is.
type defaultRoute struct {
	link    string
	isIPv6  bool
	gateway string // its hardware address, "" without a gateway or a word from it
	subnets []netip.Prefix
}

// Location names where this device is, as far as its networks tell: by its default
// routes, with the hardware address of each gateway, or, where there is no
// gateway to ask, by the interface's subnets. Of an interface that has IPv4
// routes only these count, since the others may come later. It is a hash, which
// names nobody's network, and "" without a default route.
func Location() (string, error) {
	routes, err := mainRoutes()
	if err != nil {
		return "", err
	}
	var ways []defaultRoute
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST || r.Dst != nil && !isDefault(r.Dst) {
			continue
		}
		hops := r.MultiPath
		if len(hops) == 0 {
			hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
		}
		for _, h := range hops {
			i, err := net.InterfaceByIndex(h.LinkIndex)
			if err != nil {
				continue // gone meanwhile
			}
			w := defaultRoute{link: i.Name, isIPv6: r.Family == unix.AF_INET6, subnets: interfaceSubnets(i)}
			gw := h.Gw
			if via, ok := h.Via.(*netlink.Via); ok { // an IPv4 route by an IPv6 gateway (RFC 8950)
				gw = via.Addr
			}
			if w.gateway, err = hardwareAddress(h.LinkIndex, gw); err != nil {
				return "", err
			}
			ways = append(ways, w)
		}
	}
	return hashLocation(ways), nil
}

// hashLocation is the name of the place with such ways out.
func hashLocation(ways []defaultRoute) string {
	four := map[string]bool{}
	for _, w := range ways {
		four[w.link] = four[w.link] || !w.isIPv6
	}
	var marks []string
	for _, w := range ways {
		if w.isIPv6 && four[w.link] {
			continue
		}
		mark := "gateway " + w.gateway
		if w.gateway == "" {
			mark = w.link
			for _, n := range w.subnets {
				if n.Addr().Is6() != w.isIPv6 {
					continue
				}
				// A cellular network gives out another /64 each time, from the /32
				// or more that a provider has of its registry (RIPE-738 section 5.1).
				short, _ := n.Addr().Prefix(min(n.Bits(), 32))
				mark += " " + short.String()
			}
		}
		marks = append(marks, mark)
	}
	if len(marks) == 0 {
		return ""
	}
	slices.Sort(marks)
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Append([]byte("mpbond place"), slices.Compact(marks))))[:32]
}

// interfaceSubnets are those of an interface that are not link-local, in order.
func interfaceSubnets(i *net.Interface) (list []netip.Prefix) {
	addrs, _ := i.Addrs()
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLinkLocalUnicast() {
			list = append(list, p.Masked())
		}
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return slices.Compact(list)
}

// hardwareAddress is what the kernel knows of a neighbour, "" if nothing.
func hardwareAddress(link int, ip net.IP) (string, error) {
	if ip == nil {
		return "", nil
	}
	family := netlink.FAMILY_V6
	if ip.To4() != nil {
		family = netlink.FAMILY_V4
	}
	list, err := netlink.NeighList(link, family)
	if err != nil {
		return "", fmt.Errorf("neighbours: %w", err)
	}
	for _, n := range list {
		if n.IP.Equal(ip) && len(n.HardwareAddr) > 0 {
			return n.HardwareAddr.String(), nil
		}
	}
	return "", nil
}
