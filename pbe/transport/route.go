// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// maxEndpoints bounds the endpoints at which packets may arrive: the current and previous ones.
const maxEndpoints = 4

// route knows where packets of a connection are sent and where they may arrive: the endpoint and
// remote address for sending, the endpoints for receiving, and the validation of a new address of
// the peer. It sends nothing itself. It is not safe for concurrent use.
type route struct {
	ep            *Endpoint   // endpoint for sending
	endpoints     []*Endpoint // endpoints for receiving; the slice is never modified
	remote        netip.AddrPort
	validation    pathValidation
	arrival       arrival // of the newest packet
	largestNumber uint64  // largest packet number of the peer
	authenticated bool    // a packet of the peer has arrived
}

// arrival is the endpoint at which a packet arrived and the address from which it came. It has no
// port, because a NAT may change the port.
type arrival struct {
	ep   *Endpoint
	from netip.Addr
}

// newConnRoute returns the route of a new connection.
func newConnRoute(ep *Endpoint, remote netip.AddrPort) route {
	return route{ep: ep, endpoints: []*Endpoint{ep}, remote: remote}
}

// onAuthenticPacket records an authenticated packet. newest reports whether its number is the
// largest so far; moved, whether such packets now arrive at another endpoint or from another
// address. A CHALLENGE does not change the arrival, because other packets still take the previous
// path.
func (r *route) onAuthenticPacket(number uint64, from arrival, isChallenge bool) (newest, moved bool) {
	if r.authenticated && number <= r.largestNumber {
		return false, false
	}
	r.largestNumber, r.authenticated = number, true
	if from == r.arrival || isChallenge {
		return true, false
	}
	r.arrival = from
	return true, true
}

// onResponse handles a RESPONSE. moved reports whether packets go to another address from now on;
// newHost, whether its IP address differs. If only the port differs, a NAT has changed its mapping.
func (r *route) onResponse(from netip.AddrPort, data []byte) (moved, newHost bool) {
	if !r.validation.acceptPathResponse(from, data) {
		return false, false
	}
	newHost = from.Addr() != r.remote.Addr()
	r.remote = from
	return true, newHost
}

// moveToEndpoint sends over another endpoint from now on. It returns the endpoints that no longer
// receive packets of this connection.
func (r *route) moveToEndpoint(to *Endpoint) (dropped []*Endpoint) {
	r.endpoints = append(slices.DeleteFunc(slices.Clone(r.endpoints), func(ep *Endpoint) bool { return ep == to }), to)
	if n := len(r.endpoints) - maxEndpoints; n > 0 {
		dropped, r.endpoints = r.endpoints[:n], r.endpoints[n:]
	}
	r.ep = to
	return dropped
}

// dropOwnedEndpoints stops receiving at all endpoints opened for this connection, except for one.
// It returns the dropped endpoints.
func (r *route) dropOwnedEndpoints(except *Endpoint) (dropped []*Endpoint) {
	r.endpoints = slices.DeleteFunc(slices.Clone(r.endpoints), func(ep *Endpoint) bool {
		if ep != except && ep.closesWithLast {
			dropped = append(dropped, ep)
			return true
		}
		return false
	})
	return dropped
}

// localAddress is the local address of the route from an endpoint to a remote address.
type localAddress struct {
	ep     *Endpoint
	remote netip.AddrPort
	addr   net.Addr
}

// A path validation sends up to maxChallenges, challengeInterval apart.
const maxChallenges, challengeInterval = 5, 200 * time.Millisecond

// pathValidation checks whether the peer receives at the address from which its newest packet came
// (RFC 9000 sections 8.2 and 9.3). Until it answers from there, only CHALLENGE frames are sent
// there.
type pathValidation struct {
	addr      netip.AddrPort
	data      connID
	remaining int
	nextTime  time.Duration // when to send the next CHALLENGE
}

// startValidation begins a validation unless one is running. A running one is kept, because an
// attacker can replay packets of the peer from other addresses.
func (a *pathValidation) startValidation(to netip.AddrPort, now time.Duration) {
	if a.remaining == 0 && now >= a.nextTime {
		*a = pathValidation{addr: to, data: randomConnID(), remaining: maxChallenges, nextTime: now}
	}
}

// isChallengeDue reports whether to send a CHALLENGE now.
func (a *pathValidation) isChallengeDue(now time.Duration) bool {
	return a.remaining > 0 && now >= a.nextTime
}

// onChallengeSent records that a CHALLENGE was sent.
func (a *pathValidation) onChallengeSent(now time.Duration) {
	a.remaining, a.nextTime = a.remaining-1, now+challengeInterval
}

// acceptPathResponse reports whether a RESPONSE proves that the peer receives at the new address.
func (a *pathValidation) acceptPathResponse(from netip.AddrPort, data []byte) bool {
	if from != a.addr || string(data) != string(a.data[:]) {
		return false
	}
	a.remaining, a.data = 0, randomConnID() // a response is accepted once
	return true
}
