package transport

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// maxEndpoints is at how many endpoints packets may arrive: that of now, and those before.
const maxEndpoints = 4

// route is where the packets of a connection go, and where they come from: by which
// endpoint and to which address it sends, at which endpoints the peer's packets may
// arrive, and whether the peer is about to be believed to be elsewhere. It sends nothing
// itself, and is not safe for concurrent use.
type route struct {
	ep            *Endpoint   // that sends
	endpoints     []*Endpoint // all that packets may arrive at; the slice is never changed
	remote        netip.AddrPort
	validation    pathValidation
	arrival       arrival // of the newest packet
	largestNumber uint64  // highest number of the peer's packets
	authenticated bool    // there was one
}

// arrival is by which endpoint, and from which address, a packet comes. (A NAT may have
// forgotten the port.)
type arrival struct {
	ep   *Endpoint
	from netip.Addr
}

func newRoute(ep *Endpoint, remote netip.AddrPort) route {
	return route{ep: ep, endpoints: []*Endpoint{ep}, remote: remote}
}

// onPacket notes a packet of the peer. It reports whether it is the newest so far, and
// whether such packets come another way than before. A packet that asks whether this way
// is one does not count for that: all else goes another still.
func (r *route) onPacket(number uint64, from arrival, isChallenge bool) (newest, moved bool) {
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

// onResponse takes the answer to a question. It reports whether packets go to another
// address from now on, and whether that is of another device or network: else a NAT has
// only forgotten the port.
func (r *route) onResponse(from netip.AddrPort, data []byte) (moved, newHost bool) {
	if !r.validation.acceptResponse(from, data) {
		return false, false
	}
	newHost = from.Addr() != r.remote.Addr()
	r.remote = from
	return true, newHost
}

// moveTo sends by another endpoint from now on, and returns those where packets are no
// longer waited for.
func (r *route) moveTo(to *Endpoint) (dropped []*Endpoint) {
	r.endpoints = append(slices.DeleteFunc(slices.Clone(r.endpoints), func(ep *Endpoint) bool { return ep == to }), to)
	if n := len(r.endpoints) - maxEndpoints; n > 0 {
		dropped, r.endpoints = r.endpoints[:n], r.endpoints[n:]
	}
	r.ep = to
	return dropped
}

// dropOwned waits for packets at no endpoint that was made for this connection but for one,
// and returns those others.
func (r *route) dropOwned(except *Endpoint) (dropped []*Endpoint) {
	r.endpoints = slices.DeleteFunc(slices.Clone(r.endpoints), func(ep *Endpoint) bool {
		if ep != except && ep.closesWithLast {
			dropped = append(dropped, ep)
			return true
		}
		return false
	})
	return dropped
}

// localAddress is the address of an endpoint on the way to another one.
type localAddress struct {
	ep     *Endpoint
	remote netip.AddrPort
	addr   net.Addr
}

// An attempt asks so often, so far apart.
const maxChallenges, challengeInterval = 5, 200 * time.Millisecond

// pathValidation is the question whether the peer is at another address, from where its
// newest packet came: it is believed when it answers from there (RFC 9000 section
// 9.3). Until then nothing else is sent there.
type pathValidation struct {
	addr      netip.AddrPort
	data      connID
	remaining int
	nextTime  time.Duration // of the next question
}

// start starts one, unless one goes on: who can repeat the peer's packets from
// elsewhere must not end the true one.
func (a *pathValidation) start(to netip.AddrPort, now time.Duration) {
	if a.remaining == 0 && now >= a.nextTime {
		*a = pathValidation{addr: to, data: newConnID(), remaining: maxChallenges, nextTime: now}
	}
}

// isDue reports whether it is time to ask; onChallengeSent notes that it was done.
func (a *pathValidation) isDue(now time.Duration) bool { return a.remaining > 0 && now >= a.nextTime }

func (a *pathValidation) onChallengeSent(now time.Duration) {
	a.remaining, a.nextTime = a.remaining-1, now+challengeInterval
}

// acceptResponse takes an answer, and reports whether it is the one waited for.
func (a *pathValidation) acceptResponse(from netip.AddrPort, data []byte) bool {
	if from != a.addr || string(data) != string(a.data[:]) {
		return false
	}
	a.remaining, a.data = 0, newConnID() // holds once
	return true
}
