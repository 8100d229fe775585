package helper

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"mpbond/identity"
)

// allowed reports whether subflows of a primary may be carried to server: it is
// trusted, and has told that address when it was paired, or the owner trusts a
// server there. The helper is no open proxy.
func (h *Helper) allowed(primary identity.PublicKey, server string) bool {
	p, ok := h.trust.Lookup(primary)
	return ok && p.Is(identity.RolePrimary) && (has(p.Servers, server) || h.ownServer(server))
}

// ownServer reports whether server is an address of one that the owner trusts.
func (h *Helper) ownServer(server string) bool {
	return slices.ContainsFunc(h.trust.ByRole(identity.RoleServer), func(p identity.Peer) bool { return has(p.Addresses, server) })
}

// astray reports whether a connection, between these ends, to what a primary
// calls a server leads to this device itself, or stays on a link. Loopback that
// is called so was judged by package pairing.
func astray(server string, here, there net.Addr) bool {
	if host, _, err := net.SplitHostPort(server); err == nil {
		if a, err := netip.ParseAddr(host); err == nil && a.Unmap().IsLoopback() || strings.EqualFold(host, "localhost") {
			return false
		}
	}
	to := ipOf(there)
	return to.IsValid() && (to == ipOf(here) || to.IsLoopback() || to.IsLinkLocalUnicast())
}

// ipOf is the address of an end; the zero one if it has none.
func ipOf(a net.Addr) netip.Addr {
	ap, _ := netip.ParseAddrPort(a.String())
	return ap.Addr().Unmap().WithZone("")
}

// has compares addresses by meaning: case of names, spelling of IPv6.
func has(list []string, addr string) bool {
	return slices.ContainsFunc(list, func(a string) bool { return canonical(a) == canonical(addr) })
}

func canonical(addr string) string {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
	}
	return strings.ToLower(addr)
}
