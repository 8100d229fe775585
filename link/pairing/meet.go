package pairing

import (
	"errors"
	"net"
	"net/netip"
	"strconv"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
)

// Self is the device that pairs.
type Self struct {
	Key   *identity.Key
	Trust *identity.Trust
	// About tells who it is. It is called for each pairing, and Servers are
	// filled in from Trust: the addresses of its own.
	About func() wire.PairIdentity
}

var roleBits = []struct {
	bit  wire.PairRoles
	role identity.Role
}{
	{wire.PairServer, identity.RoleServer},
	{wire.PairHelper, identity.RoleHelper},
	{wire.PairPrimary, identity.RolePrimary},
}

// rolesOfUse are the roles that others can have towards a device of roles own.
func rolesOfUse(own wire.PairRoles) (useful wire.PairRoles) {
	if own&(wire.PairServer|wire.PairHelper) != 0 {
		useful |= wire.PairPrimary
	}
	if own&wire.PairPrimary != 0 {
		useful |= wire.PairServer | wire.PairHelper
	}
	return useful
}

// aboutFor is what self tells a device of roles theirs: servers only to who
// will carry subflows to them.
func (s Self) aboutFor(theirs wire.PairRoles) wire.PairIdentity {
	about := s.About()
	about.Servers = nil
	if theirs&wire.PairHelper == 0 || about.Roles&wire.PairPrimary == 0 {
		return about
	}
	about.Servers = s.Trust.ServerAddresses()
	return about
}

// peerInfo is a device that has proved to know the code.
type peerInfo struct {
	key        identity.PublicKey
	about      wire.PairIdentity
	dialedAddr string   // where it was called; "" if it called
	remoteAddr net.Addr // its end of the connection
}

// usableRoles tells whether the two can be of use to each other.
func (m peerInfo) usableRoles(own wire.PairRoles) (wire.PairRoles, error) {
	if m.about.Roles&wire.PairServer != 0 && m.about.Roles != wire.PairServer {
		return 0, fault.New(fault.Protocol, errors.New("the other device says that it is a server and something else"), "no mpbond does: do not pair with it")
	}
	take := m.about.Roles & rolesOfUse(own)
	if take == 0 {
		return 0, fault.New(fault.Usage, errors.New("these two devices have no roles in which they meet"),
			"a primary is paired with a server or with a helper")
	}
	return take, nil
}

// storePeer writes down who was met: in the roles that are of use, with the address
// where it was reached, and with the servers that self shall carry its subflows
// to.
func (s Self) storePeer(m peerInfo) (identity.Peer, error) {
	own := s.About().Roles
	take, err := m.usableRoles(own)
	if err != nil {
		return identity.Peer{}, err
	}
	p := identity.Peer{Name: m.about.Name, Key: m.key}
	for _, r := range roleBits {
		if take&r.bit != 0 {
			p.Roles = append(p.Roles, r.role)
		}
	}
	helps := own&wire.PairHelper != 0 && take&wire.PairPrimary != 0
	switch host := hostOf(m.remoteAddr); {
	case take&wire.PairServer != 0 && m.dialedAddr != "":
		p.Addresses = []string{m.dialedAddr}
	case take&wire.PairHelper != 0 && take&wire.PairPrimary == 0 && m.dialedAddr != "": // for onloading, where multicast does not pass
		p.Addresses = []string{m.dialedAddr}
	case helps && m.about.Port != 0 && host != "":
		p.Addresses = []string{net.JoinHostPort(host, strconv.Itoa(int(m.about.Port)))}
	}
	if helps {
		p.Servers = identity.CarriableServers(m.about.Servers, parseIP(hostOf(m.remoteAddr)).IsLoopback())
	}
	return s.Trust.AddPaired(p)
}

// parseIP is the address that a host is written as; the zero one if that is a name.
func parseIP(host string) netip.Addr {
	a, _ := netip.ParseAddr(host)
	return a.Unmap()
}
