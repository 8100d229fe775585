// SPDX-License-Identifier: Apache-2.0

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

// Self is this device.
type Self struct {
	Key   *identity.Key
	Trust *identity.Trust
	// About returns this device's identity. It is called for each pairing. Its Servers are filled
	// in from Trust.
	About func() wire.PairIdentity
	// CheckFleet returns why JoinFleet would fail, as far as that is known before. Set it with JoinFleet.
	CheckFleet func(fleet identity.PublicKey, offer []byte) error
	// JoinFleet stores a fleet, as Fleet.Offer offers it, and returns the entry of its server that was called. It
	// is nil on devices that cannot join one.
	JoinFleet func(fleet identity.PublicKey, offer []byte, server identity.PublicKey) (identity.Peer, error)
}

var roleBits = []struct {
	bit  wire.PairRoles
	role identity.Role
}{
	{wire.PairServer, identity.RoleServer},
	{wire.PairHelper, identity.RoleHelper},
	{wire.PairPrimary, identity.RolePrimary},
}

// rolesOfUse returns the roles that a peer of a device with roles own can have.
func rolesOfUse(own wire.PairRoles) (useful wire.PairRoles) {
	if own&(wire.PairServer|wire.PairHelper) != 0 {
		useful |= wire.PairPrimary
	}
	if own&wire.PairPrimary != 0 {
		useful |= wire.PairServer | wire.PairHelper
	}
	return useful
}

// identityFor returns our identity for a device with roles theirs. It contains servers only if that
// device will carry subflows to them.
func (s Self) identityFor(theirs wire.PairRoles) wire.PairIdentity {
	about := s.About()
	about.Servers = nil
	if theirs&wire.PairHelper == 0 || about.Roles&wire.PairPrimary == 0 {
		return about
	}
	about.Servers = s.Trust.ServerAddresses()
	return about
}

// peerInfo is a device that has proved that it knows the code.
type peerInfo struct {
	key        identity.PublicKey
	identity   wire.PairIdentity
	dialedAddr string   // address that we dialled; "" if the peer called
	remoteAddr net.Addr // the peer's end of the connection
}

// usableRoles returns the peer's roles that a device with roles own can use.
func (m peerInfo) usableRoles(own wire.PairRoles) (wire.PairRoles, error) {
	if m.identity.Roles&wire.PairServer != 0 && m.identity.Roles != wire.PairServer {
		return 0, fault.New(fault.Protocol,
			errors.New("the other device claims to be a server and something else"),
			"mpbond never does this: do not pair with it")
	}
	take := m.identity.Roles & rolesOfUse(own)
	if take == 0 {
		return 0, fault.New(fault.Usage, errors.New("the roles of these two devices do not match"),
			"pair a primary with a server or a helper")
	}
	return take, nil
}

// storePairedPeer stores the peer in the trust file: its usable roles, the address at which it was
// reached, and, on a helper, the servers to which self carries the peer's subflows.
func (s Self) storePairedPeer(m peerInfo) (identity.Peer, error) {
	own := s.About().Roles
	take, err := m.usableRoles(own)
	if err != nil {
		return identity.Peer{}, err
	}
	p := identity.Peer{Name: m.identity.Name, Key: m.key}
	for _, r := range roleBits {
		if take&r.bit != 0 {
			p.Roles = append(p.Roles, r.role)
		}
	}
	helps := own&wire.PairHelper != 0 && take&wire.PairPrimary != 0
	switch host := hostOfNetAddr(m.remoteAddr); {
	case take&wire.PairServer != 0 && m.dialedAddr != "":
		p.Addresses = []string{m.dialedAddr}
	case take&wire.PairHelper != 0 && take&wire.PairPrimary == 0 &&
		m.dialedAddr != "": // for onloading in networks without multicast
		p.Addresses = []string{m.dialedAddr}
	case helps && m.identity.Port != 0 && host != "":
		p.Addresses = []string{net.JoinHostPort(host, strconv.Itoa(int(m.identity.Port)))}
	}
	if helps {
		p.Servers = identity.CarriableServers(m.identity.Servers, parseHostIP(hostOfNetAddr(m.remoteAddr)).IsLoopback())
	}
	return s.Trust.AddPaired(p)
}

// parseHostIP returns the address that host spells, or the zero address if host is a name.
func parseHostIP(host string) netip.Addr {
	a, _ := netip.ParseAddr(host)
	return a.Unmap()
}
