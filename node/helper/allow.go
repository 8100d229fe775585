package helper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// allowed reports whether subflows of a primary may be carried to server: it is
// trusted, and has told that address, or the owner trusts a
// server there. The helper is no open proxy.
func (h *Helper) allowed(primary identity.PublicKey, server string) bool {
	p, ok := h.trust.Lookup(primary)
	return ok && p.Is(identity.RolePrimary) && (has(p.Servers, server) || h.ownServer(server))
}

// unwanted is why nothing is carried to a server for a primary, nil if it may be.
func (h *Helper) unwanted(primary identity.PublicKey, server string) error {
	switch {
	case !h.allowed(primary, server):
		return errDistrusted
	case h.trust.Paused(primary):
		return errPaused
	}
	return nil
}

var errDistrusted = errors.New("a device of it is trusted no longer")

// TrustChanged acts on the trust file after it was read again: new primaries
// are offered pipes; what is there for devices that are not in it any more ends
// at once.
func (h *Helper) TrustChanged() {
	h.mu.Lock()
	h.endWaits()
	h.mu.Unlock()
	h.retargetSoon()
}

// retargetSoon has Run make the targets anew.
func (h *Helper) retargetSoon() {
	select {
	case h.changed <- struct{}{}:
	default: // Run is about to look
	}
}

// retarget makes the targets what the trust file says now.
func (h *Helper) retarget(ctx context.Context, all *sync.WaitGroup) {
	list, err := h.resolve()
	if err != nil {
		h.log.Warn("a primary cannot be helped", "err", err, "hint", "see `mpbond trust list`")
	}
	h.setTargets(ctx, all, list)
	h.endRelays(func(err error) bool { return err == errDistrusted })
	// Before what is paused ends: who knows why does not ask at once for another
	// subflow. It may wait for a primary that does not read.
	h.tellPauses()
	h.endRelays(func(error) bool { return true })
}

// setTargets makes the targets those of list.
func (h *Helper) setTargets(ctx context.Context, all *sync.WaitGroup, list []*target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.targets {
		if !slices.ContainsFunc(list, t.same) {
			t.stop()
		}
	}
	for i, t := range list {
		if at := slices.IndexFunc(h.targets, t.same); at >= 0 {
			list[i] = h.targets[at]
		} else {
			h.keep(ctx, t, all)
		}
	}
	h.targets = list
}

// endRelays ends what is carried but not wanted any more, for reasons of that kind.
func (h *Helper) endRelays(kind func(error) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, f := range h.relays {
		if err := h.unwanted(f.primary.Key, f.server); err != nil && kind(err) {
			go r.close(err)
		}
	}
}

// ownServer reports whether server is an address of one that the owner trusts.
func (h *Helper) ownServer(server string) bool {
	return slices.ContainsFunc(h.trust.ByRole(identity.RoleServer), func(p identity.Peer) bool { return has(p.Addresses, server) })
}

// astray reports whether a connection, between these ends, to what a primary
// calls a server leads to this device itself, or stays on a link. Loopback that
// is called so was judged when it was told.
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

// A primary may say so many times within that time that it has other servers, so
// that it has not the helper try out one address after another.
const (
	mostNews = 8
	newsTime = time.Hour
)

// news counts what a primary said that was new.
type news struct {
	since time.Time // of the first
	count int
}

// told takes what a primary says over a pipe, whose other end is at there, of its
// servers: with them it may do what it could when the two were paired. Its errors
// end the pipe.
func (h *Helper) told(primary identity.Peer, there net.Addr, servers []string) error {
	list := identity.Carried(servers, ipOf(there).IsLoopback())
	if p, ok := h.trust.Lookup(primary.Key); ok && slices.Equal(p.Servers, list) {
		return nil
	}
	if !h.mayTell(primary.Key, time.Now()) {
		return fault.New(fault.Limit, fmt.Errorf("the primary says more than %d times within %v that it has other servers", mostNews, newsTime), "revoke it if nobody has done that there")
	}
	if err := h.trust.Told(primary.Key, list); err != nil {
		return err
	}
	h.log.Info("a primary has other servers", "primary", primary.Name, "servers", strings.Join(list, " "))
	return nil
}

// mayTell counts one more of a primary's news, unless they are too many.
func (h *Helper) mayTell(primary identity.PublicKey, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.news[primary]
	if now.Sub(n.since) >= newsTime {
		n = news{since: now}
	}
	n.count++
	h.news[primary] = n
	return n.count <= mostNews
}
