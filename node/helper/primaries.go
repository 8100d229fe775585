// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"mpbond/base/identity"
)

// primaryList lists the primaries to call: the entries of the configuration, or all with an address
// in the trust file. It has no state and reads the trust file at each call. Safe for concurrent
// use.
type primaryList struct {
	entries []string // see Config.Primaries
	trust   *identity.Trust
}

// resolveTargets returns a target for each address of the primaries in the entries and the trust
// file, and for those that found returns. It skips entries that match no primary; err is of the
// first one.
func (l primaryList) resolveTargets(found func(identity.PublicKey) []string) (list []*target, err error) {
	add := func(p identity.Peer, addrs []string) {
		for _, a := range addrs {
			t := &target{primary: p, addr: a, state: stateStarting}
			if !slices.ContainsFunc(list, t.isSameTarget) {
				list = append(list, t)
			}
		}
	}
	if len(l.entries) == 0 {
		for _, p := range l.trust.ByRole(identity.RolePrimary) {
			add(p, p.Addresses)
		}
	}
	for _, entry := range l.entries {
		p, addrs, e := l.resolveEntry(entry)
		if e != nil && err == nil {
			err = e
		}
		add(p, addrs)
	}
	for _, p := range l.roamingPrimaries() {
		add(p, found(p.Key))
	}
	return list, err
}

// resolveEntry resolves one entry to a device and its addresses.
func (l primaryList) resolveEntry(entry string) (p identity.Peer, addrs []string, err error) {
	name, addr, at := strings.Cut(entry, "@")
	_, _, noPort := net.SplitHostPort(entry)
	if at || noPort != nil {
		p, ok := l.trust.LookupName(name)
		switch {
		case !ok || !p.HasRole(identity.RolePrimary):
			return p, nil, fmt.Errorf("primary %q: no primary of that name is trusted", entry)
		case !at && len(p.Addresses) == 0:
			return p, nil, fmt.Errorf("primary %q: the trust file has no address for it", entry)
		case !at:
			return p, p.Addresses, nil
		}
		if _, _, err := net.SplitHostPort(strings.TrimPrefix(addr, "tcp://")); err != nil &&
			!strings.HasPrefix(addr, "rfcomm://") {
			return p, nil, fmt.Errorf("primary %q: %q is no host:port", entry, addr)
		}
		return p, []string{addr}, nil
	}
	known := l.trust.ByRole(identity.RolePrimary)
	listed := slices.DeleteFunc(
		slices.Clone(known),
		func(p identity.Peer) bool { return !containsAddress(p.Addresses, entry) },
	)
	if len(listed) > 0 {
		known = listed
	}
	if len(known) != 1 {
		return p, nil, fmt.Errorf("primary %q: %d trusted primaries match", entry, len(known))
	}
	return known[0], []string{entry}, nil
}

// primariesToFind returns the primaries that are helped wherever they are. It omits primaries
// known to be on this machine.
func (l primaryList) roamingPrimaries() []identity.Peer {
	return slices.DeleteFunc(l.trust.ByRole(identity.RolePrimary), func(p identity.Peer) bool {
		return len(l.entries) > 0 && !slices.Contains(l.entries, p.Name) ||
			len(p.Addresses) > 0 && !slices.ContainsFunc(p.Addresses, func(a string) bool { return !isLoopback(a) })
	})
}

func isLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().IsLoopback()
}
