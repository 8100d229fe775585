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

// AddPaired writes down a device that was paired, and returns how it is listed. A
// key that is there already keeps its name and gets the roles and addresses in
// addition, the new addresses first; servers replace those that it told before. Of a new one the name is the device's own
// wish: what a name cannot have is replaced, and one that is taken gets a
// number.
func (t *Trust) AddPaired(p Peer) (Peer, error) {
	err := t.updateFile(func(now *trustState) ([]Peer, error) {
		list := slices.Clone(now.list)
		if i, ok := now.byKey[p.Key]; ok {
			p = mergePeer(list[i], p)
			list[i] = p
			return list, nil
		}
		p.Name = freeName(p.Name, now)
		return append(list, p), nil
	})
	return p, err
}

// ServerAddresses are those of the servers that are trusted, as a primary tells
// its helpers.
func (t *Trust) ServerAddresses() []string {
	var list []string
	for _, p := range t.ByRole(RoleServer) {
		list = append(list, p.Addresses...)
	}
	return list[:min(len(list), maxServers)]
}

// SetServers writes down which servers a primary says are its own, in the place of
// those before. A device that is no primary is a fault of kind UnknownDevice;
// addresses that break the rules are one of kind Protocol.
func (t *Trust) SetServers(primary PublicKey, servers []string) error {
	for _, a := range servers {
		if err := checkAddress(a); err != nil {
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

// CarriableServers are those of a primary's servers to which its subflows may be carried:
// not this device itself, nor what its link alone can reach, in as far as the
// address shows it. Between two on one machine loopback is a network like any.
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

// mergePeer is known with what is new in p. It shares no slice with known.
func mergePeer(known, p Peer) Peer {
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

// freeName makes a name of a wish that no device has.
func freeName(wish string, now *trustState) string {
	const room = 8 // for the number
	name := strings.Map(func(r rune) rune {
		if checkName(string(r)) != nil {
			return '-'
		}
		return r
	}, wish)
	name = strings.Trim(name[:min(len(name), maxName-room)], "-.")
	if name == "" {
		name = "device"
	}
	free := name
	for n := 2; ; n++ {
		if _, taken := now.byName[free]; !taken {
			return free
		}
		free = fmt.Sprintf("%s-%d", name, n)
	}
}

// Rename gives a device another name. Kinds of its faults: NotFound, Exists,
// Usage.
func (t *Trust) Rename(from, to string) error {
	if err := checkName(to); err != nil {
		return fault.New(fault.Usage, err, "")
	}
	return t.updateFile(func(p *trustState) ([]Peer, error) {
		i, ok := p.byName[from]
		if !ok {
			return nil, unknownNameError(from)
		}
		if j, taken := p.byName[to]; taken && j != i {
			return nil, fault.New(fault.Exists, fmt.Errorf("a device called %q is already trusted", to), "choose another name")
		}
		list := slices.Clone(p.list)
		list[i].Name = to
		return list, nil
	})
}

// SetPaused has a device not used, as helper or as primary, until it is resumed; it
// stays trusted, also across restarts. Kinds of its faults: NotFound; Usage for one
// that is a server only.
func (t *Trust) SetPaused(name string, paused bool) error {
	return t.updateFile(func(p *trustState) ([]Peer, error) {
		i, ok := p.byName[name]
		if !ok {
			return nil, unknownNameError(name)
		}
		list := slices.Clone(p.list)
		if !list[i].HasRole(RoleHelper) && !list[i].HasRole(RolePrimary) {
			return nil, fault.New(fault.Usage, fmt.Errorf("%s is a server: helpers and primaries can be paused", name), "`mpbond primary --server NAME` uses another server")
		}
		list[i].Paused = paused
		return list, nil
	})
}

// Paused reports whether a device is trusted, but paused.
func (t *Trust) Paused(key PublicKey) bool {
	p, ok := t.Lookup(key)
	return ok && p.Paused
}

func unknownNameError(name string) error {
	return fault.New(fault.NotFound, fmt.Errorf("no device called %q is trusted", name), "see `mpbond devices`")
}
