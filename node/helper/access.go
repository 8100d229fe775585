// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// serverAccess decides which servers each primary may reach through this device: those that the
// primary announced when it was paired or over a pipe, and those that the owner of this device
// trusts. So the helper is no open proxy. It stores announced servers in the trust file and bounds
// how often a primary may change them. The lock of the trust file is never taken under mu. Safe for
// concurrent use.
type serverAccess struct {
	trust *identity.Trust
	log   *slog.Logger

	mu      sync.Mutex
	changes map[identity.PublicKey]serverChanges
}

// A primary may change its servers maxServerChanges times per serverChangePeriod, so that it cannot
// make the helper try one address after another.
const (
	maxServerChanges   = 8
	serverChangePeriod = time.Hour
)

// serverChanges counts the changes of one primary's servers.
type serverChanges struct {
	since time.Time // of the first change
	count int
}

func newServerAccess(trust *identity.Trust, log *slog.Logger) *serverAccess {
	return &serverAccess{trust: trust, log: log, changes: map[identity.PublicKey]serverChanges{}}
}

// allowsServer reports whether subflows of a primary may go to server.
func (a *serverAccess) allowsServer(primary identity.PublicKey, server string) bool {
	p, ok := a.trust.Lookup(primary)
	return ok && p.HasRole(identity.RolePrimary) && (containsAddress(p.Servers, server) || a.ownsServer(server))
}

// checkAccess returns why a primary must not use a server now, or nil.
func (a *serverAccess) checkAccess(primary identity.PublicKey, server string) error {
	switch {
	case !a.allowsServer(primary, server):
		return errNotTrusted
	case a.trust.Paused(primary):
		return errPaused
	}
	return nil
}

// ownsServer reports whether server is an address of a server that the owner trusts.
func (a *serverAccess) ownsServer(server string) bool {
	return slices.ContainsFunc(
		a.trust.ByRole(identity.RoleServer),
		func(p identity.Peer) bool { return containsAddress(p.Addresses, server) },
	)
}

// storeServers stores the servers that a primary announces over a pipe to remote. Its errors end
// the pipe.
func (a *serverAccess) storeServers(primary identity.Peer, remote net.Addr, servers []string, now time.Time) error {
	list := identity.CarriableServers(servers, ipOfNetAddr(remote).IsLoopback())
	if p, ok := a.trust.Lookup(primary.Key); ok && slices.Equal(p.Servers, list) {
		return nil
	}
	if !a.countChange(primary.Key, now) {
		return fault.New(
			fault.Limit,
			fmt.Errorf(
				"the primary changed its servers more than %d times within %v",
				maxServerChanges,
				serverChangePeriod,
			),
			"if its owner did not change them, revoke the primary",
		)
	}
	if err := a.trust.SetServers(primary.Key, list); err != nil {
		return err
	}
	a.log.Info("primary announced other servers", "primary", primary.Name, "servers", strings.Join(list, " "))
	return nil
}

// countChange counts a change of a primary's servers and reports whether it is within the limit.
func (a *serverAccess) countChange(primary identity.PublicKey, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.changes[primary]
	if now.Sub(n.since) >= serverChangePeriod {
		n = serverChanges{since: now}
	}
	n.count++
	a.changes[primary] = n
	return n.count <= maxServerChanges
}

var errNotTrusted = errors.New("the primary or its server is no longer trusted")

// leadsToSelf reports whether a connection to a primary's server, with these ends, leads to this
// device itself or stays on a link. Addresses written as loopback were checked when they were
// announced.
func leadsToSelf(server string, here, there net.Addr) bool {
	if host, _, err := net.SplitHostPort(server); err == nil {
		if a, err := netip.ParseAddr(host); err == nil && a.Unmap().IsLoopback() ||
			strings.EqualFold(host, "localhost") {
			return false
		}
	}
	to := ipOfNetAddr(there)
	return to.IsValid() && (to == ipOfNetAddr(here) || to.IsLoopback() || to.IsLinkLocalUnicast())
}

// ipOfNetAddr returns the IP address of a, or the zero Addr.
func ipOfNetAddr(a net.Addr) netip.Addr {
	ap, _ := netip.ParseAddrPort(a.String())
	return ap.Addr().Unmap().WithZone("")
}

// containsAddress reports whether list contains addr. It ignores the case of names and the spelling
// of IPv6.
func containsAddress(list []string, addr string) bool {
	return slices.ContainsFunc(list, func(a string) bool { return canonicalAddress(a) == canonicalAddress(addr) })
}

func canonicalAddress(addr string) string {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
	}
	return strings.ToLower(addr)
}
