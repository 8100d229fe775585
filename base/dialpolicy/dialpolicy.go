// SPDX-License-Identifier: Apache-2.0

// Package dialpolicy decides to which addresses a device connects for others. The server and the
// onloading relay check it before each such connection, so that they do not open their own network
// to others.
package dialpolicy

import (
	"net"
	"net/netip"
	"slices"
)

// nonPublicPrefixes are the destinations that are refused unless the owner allows them: they belong
// to the local network (RFC 6890 and its registries).
var nonPublicPrefixes = mustParsePrefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"172.16.0.0/12",
	"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"::/96", "::ffff:0:0:0/96", "2001::/32", "64:ff9b:1::/48", "100::/64", "fc00::/7", "fe80::/10", "fec0::/10",
	"ff00::/8")

// nat64 and sixToFour addresses embed an IPv4 address, which is then checked (RFC 6052, RFC 3056).
var nat64, sixToFour = netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16")

func mustParsePrefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Allowed reports whether others may be connected to an address: a public one, or one in allow.
func Allowed(a netip.Addr, allow []netip.Prefix) bool {
	a = a.Unmap().WithZone("")
	if containedIn(a, allow) {
		return true
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return Allowed(netip.AddrFrom4([4]byte(b[12:16])), allow)
	case sixToFour.Contains(a):
		return Allowed(netip.AddrFrom4([4]byte(b[2:6])), allow)
	}
	return !containedIn(a, nonPublicPrefixes)
}

func containedIn(a netip.Addr, list []netip.Prefix) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// AllowedNow is Allowed for the current interfaces: it also refuses addresses of this host and its
// neighbours, unless they are in allow.
func AllowedNow(a netip.Addr, allow []netip.Prefix) bool {
	if containedIn(a, allow) {
		return Allowed(a, allow)
	}
	list, err := net.InterfaceAddrs()
	return err == nil && Allowed(a, allow) && !isOnLocalNetwork(a, list)
}

// isOnLocalNetwork reports whether an address is in a network of this host's interfaces. Such an
// address is not public, whatever its value: connections to this host's own addresses use the
// loopback device, which firewalls let pass, and devices of a home have public IPv6 addresses
// behind the same firewall as this host.
func isOnLocalNetwork(a netip.Addr, interfaces []net.Addr) bool {
	ip := net.IP(a.Unmap().WithZone("").AsSlice())
	return slices.ContainsFunc(interfaces, func(i net.Addr) bool {
		n, ok := i.(*net.IPNet)
		return ok && n.Contains(ip)
	})
}
