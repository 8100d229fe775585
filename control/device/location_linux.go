// SPDX-License-Identifier: Apache-2.0

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

// defaultRoute describes a default route, to identify a location.
type defaultRoute struct {
	link    string
	isIPv6  bool
	gateway string // hardware address, "" if there is no gateway or it is unknown
	subnets []netip.Prefix
}

// Location identifies where this device is by its default routes: by the hardware address of each
// gateway or, without a gateway, by the subnets of the interface. If an interface has IPv4 routes,
// only these count, since IPv6 routes may appear later. The result is a hash that reveals no
// network, "" without a default route.
func Location() (string, error) {
	routes, err := mainRoutes()
	if err != nil {
		return "", err
	}
	var ways []defaultRoute
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST || r.Dst != nil && !isDefaultRoute(r.Dst) {
			continue
		}
		hops := r.MultiPath
		if len(hops) == 0 {
			hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
		}
		for _, h := range hops {
			i, err := net.InterfaceByIndex(h.LinkIndex)
			if err != nil {
				continue // the interface has just disappeared
			}
			w := defaultRoute{link: i.Name, isIPv6: r.Family == unix.AF_INET6, subnets: interfaceSubnets(i)}
			gw := h.Gw
			if via, ok := h.Via.(*netlink.Via); ok { // an IPv4 route with an IPv6 gateway (RFC 8950)
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

// hashLocation returns the location with these default routes.
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
				// A cellular network assigns another /64 each time, from the /32 or larger block
				// that a registry gives to a provider (RIPE-738 section 5.1).
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

// interfaceSubnets returns the sorted subnets of an interface, without link-local ones.
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

// hardwareAddress returns a neighbour's hardware address, "" if the kernel does not know it.
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
		return "", fmt.Errorf("list neighbours: %w", err)
	}
	for _, n := range list {
		if n.IP.Equal(ip) && len(n.HardwareAddr) > 0 {
			return n.HardwareAddr.String(), nil
		}
	}
	return "", nil
}
