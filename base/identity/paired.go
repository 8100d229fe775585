// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"mpbond/base/fault"
)

// AddPaired saves a paired device and returns its entry. A known key keeps its name; it gains the
// roles and addresses, the new addresses first, and its servers are replaced. The name of a new
// device is p.Name, with invalid characters replaced, and a number appended if it is taken.
func (t *Trust) AddPaired(p Peer) (Peer, error) {
	err := t.updateFile(func(now *trustState) ([]Peer, error) {
		list := slices.Clone(now.list)
		if i, ok := now.byKey[p.Key]; ok {
			p = mergeKnownPeer(list[i], p)
			list[i] = p
			return list, nil
		}
		p.Name = deriveUnusedName(p.Name, now)
		return append(list, p), nil
	})
	return p, err
}

// ServerAddresses returns the addresses of the trusted servers, which a primary sends to its
// helpers: the best of each server first, since there is a limit.
func (t *Trust) ServerAddresses() []string {
	var list []string
	servers := t.ByRole(RoleServer)
	for rank := range maxAddresses {
		for _, p := range servers {
			if rank < len(p.Addresses) {
				list = append(list, p.Addresses[rank])
			}
		}
	}
	return list[:min(len(list), maxServers)]
}

// SetServers saves the servers of a primary, in place of earlier ones. A device that is not a
// primary is a fault of kind UnknownDevice; invalid addresses are one of kind Protocol.
func (t *Trust) SetServers(primary PublicKey, servers []string) error {
	for _, a := range servers {
		if err := checkPeerAddress(a); err != nil {
			return fault.New(fault.Protocol, err, "")
		}
	}
	return t.updateFile(func(now *trustState) ([]Peer, error) {
		i, ok := now.byKey[primary]
		if !ok || !now.list[i].HasRole(RolePrimary) {
			return nil, fault.New(fault.UnknownDevice, errors.New("no such primary is trusted"), "")
		}
		list := slices.Clone(now.list)
		list[i].Servers = slices.Clone(servers)
		return list, nil
	})
}

// CarriableServers returns those of a primary's servers to which a helper may carry its subflows:
// not this device itself, nor link-local addresses, as far as the address shows it. Loopback is
// allowed if both devices are one machine.
func CarriableServers(servers []string, oneMachine bool) []string {
	return slices.DeleteFunc(slices.Clone(servers), func(server string) bool {
		host, _, err := net.SplitHostPort(server)
		a, _ := netip.ParseAddr(host)
		a = a.Unmap()
		if a.IsLoopback() || strings.EqualFold(host, "localhost") {
			return !oneMachine
		}
		return err != nil || a.IsUnspecified() || a.IsLinkLocalUnicast()
	})
}

// mergeKnownPeer returns known with the new parts of p. It shares no slice with known.
func mergeKnownPeer(known, p Peer) Peer {
	appendNew := func(list, more []string) []string {
		for _, m := range more {
			if !slices.Contains(list, m) {
				list = append(list, m)
			}
		}
		return list[:min(len(list), maxAddresses)]
	}
	known.Addresses = appendNew(slices.Clone(p.Addresses), known.Addresses)
	known.Roles = slices.Clone(known.Roles)
	for _, r := range p.Roles {
		if !known.HasRole(r) {
			known.Roles = append(known.Roles, r)
		}
	}
	if len(p.Servers) > 0 {
		known.Servers = p.Servers
	}
	return known
}

// DeriveName derives a valid name from what a device calls itself, short enough for a number after it.
func DeriveName(preferred string) string {
	const room = 8 // for the number
	name := strings.Map(func(r rune) rune {
		if CheckName(string(r)) != nil {
			return '-'
		}
		return r
	}, preferred)
	if name = strings.Trim(name[:min(len(name), maxName-room)], "-."); name == "" {
		return "device"
	}
	return name
}

// deriveUnusedName derives an unused name from the preferred one.
func deriveUnusedName(preferred string, now *trustState) string {
	name := DeriveName(preferred)
	free := name
	for n := 2; ; n++ {
		if _, taken := now.byName[free]; !taken {
			return free
		}
		free = fmt.Sprintf("%s-%d", name, n)
	}
}

// SetFleet replaces the servers of a fleet by those of its list. A server that this device trusts already
// keeps its name, one with a taken name gets another one. An empty list removes the fleet.
func (t *Trust) SetFleet(fleet string, servers []Peer) error {
	return t.updateFile(func(now *trustState) ([]Peer, error) {
		list := slices.DeleteFunc(slices.Clone(now.list), func(p Peer) bool {
			return p.Fleet == fleet || slices.ContainsFunc(servers, func(s Peer) bool { return s.Key == p.Key })
		})
		for _, s := range servers {
			others, err := newTrustState(list)
			if err != nil {
				return nil, err
			}
			s.Fleet = fleet
			if i, ok := now.byKey[s.Key]; ok {
				s.Name = now.list[i].Name
			}
			s.Name = deriveUnusedName(s.Name, others)
			list = append(list, s)
		}
		return list, nil
	})
}

// Rename changes the name of a device. Faults are of kind NotFound, Exists or Usage.
func (t *Trust) Rename(from, to string) error {
	if err := CheckName(to); err != nil {
		return fault.New(fault.Usage, err, "")
	}
	return t.updateFile(func(p *trustState) ([]Peer, error) {
		i, ok := p.byName[from]
		if !ok {
			return nil, unknownNameError(from)
		}
		if j, taken := p.byName[to]; taken && j != i {
			return nil, fault.New(fault.Exists, fmt.Errorf("a device called %q is already trusted", to),
				"choose another name")
		}
		list := slices.Clone(p.list)
		list[i].Name = to
		return list, nil
	})
}

// SetPaused pauses or resumes a helper or primary. A paused device is not used but stays trusted,
// also after restarts. Faults are of kind NotFound, or Usage for a server.
func (t *Trust) SetPaused(name string, paused bool) error {
	return t.updateFile(func(p *trustState) ([]Peer, error) {
		i, ok := p.byName[name]
		if !ok {
			return nil, unknownNameError(name)
		}
		list := slices.Clone(p.list)
		if !list[i].HasRole(RoleHelper) && !list[i].HasRole(RolePrimary) {
			return nil, fault.New(fault.Usage, fmt.Errorf("%s is a server: only helpers and primaries can be paused",
				name), "use another server with `mpbond primary --server NAME`")
		}
		list[i].Paused = paused
		return list, nil
	})
}

// Paused reports whether a device is trusted but paused.
func (t *Trust) Paused(key PublicKey) bool {
	p, ok := t.Lookup(key)
	return ok && p.Paused
}

func unknownNameError(name string) error {
	return fault.New(fault.NotFound, fmt.Errorf("no device called %q is trusted", name), "see `mpbond devices`")
}
