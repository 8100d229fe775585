package transport

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// maxWays is at how many endpoints packets may arrive: that of now, and those before.
const maxWays = 4

// route is where the packets of a connection go, and where they come from: by which
// endpoint and to which address it sends, at which endpoints the peer's packets may
// arrive, and whether the peer is about to be believed to be elsewhere. It sends nothing
// itself, and is not safe for concurrent use.
type route struct {
	ep        *Endpoint   // that sends
	endpoints []*Endpoint // all that packets may arrive at; the slice is never changed
	remote    netip.AddrPort
	attempt   attempt
	arrival   arrival // of the newest packet
	largest   uint64  // highest number of the peer's packets
	opened    bool    // there was one
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
func (r *route) onPacket(number uint64, by arrival, asks bool) (newest, moved bool) {
	if r.opened && number <= r.largest {
		return false, false
	}
	r.largest, r.opened = number, true
	if by == r.arrival || asks {
		return true, false
	}
	r.arrival = by
	return true, true
}

// onResponse takes the answer to a question. It reports whether packets go to another
// address from now on, and whether that is of another device or network: else a NAT has
// only forgotten the port.
func (r *route) onResponse(from netip.AddrPort, data []byte) (moved, elsewhere bool) {
	if !r.attempt.answered(from, data) {
		return false, false
	}
	elsewhere = from.Addr() != r.remote.Addr()
	r.remote = from
	return true, elsewhere
}

// moveTo sends by another endpoint from now on, and returns those where packets are no
// longer waited for.
func (r *route) moveTo(to *Endpoint) (dropped []*Endpoint) {
	r.endpoints = append(slices.DeleteFunc(slices.Clone(r.endpoints), func(ep *Endpoint) bool { return ep == to }), to)
	if n := len(r.endpoints) - maxWays; n > 0 {
		dropped, r.endpoints = r.endpoints[:n], r.endpoints[n:]
	}
	r.ep = to
	return dropped
}

// dropOwn waits for packets at no endpoint that was made for this connection but for one,
// and returns those others.
func (r *route) dropOwn(but *Endpoint) (dropped []*Endpoint) {
	r.endpoints = slices.DeleteFunc(slices.Clone(r.endpoints), func(ep *Endpoint) bool {
		if ep != but && ep.own {
			dropped = append(dropped, ep)
			return true
		}
		return false
	})
	return dropped
}

// ownAddr is the address of an endpoint on the way to another one.
type ownAddr struct {
	ep   *Endpoint
	to   netip.AddrPort
	addr net.Addr
}

// An attempt asks so often, so far apart.
const challenges, challengeEvery = 5, 200 * time.Millisecond

// attempt is the question whether the peer is at another address, from where its
// newest packet came: it is believed when it answers from there (RFC 9000 section
// 9.3). Until then nothing else is sent there.
type attempt struct {
	to   netip.AddrPort
	data connID
	left int
	at   time.Duration // of the next question
}

// begin starts one, unless one goes on: who can repeat the peer's packets from
// elsewhere must not end the true one.
func (a *attempt) begin(to netip.AddrPort, now time.Duration) {
	if a.left == 0 && now >= a.at {
		*a = attempt{to: to, data: newID(), left: challenges, at: now}
	}
}

// isDue reports whether it is time to ask; onAsked notes that it was done.
func (a *attempt) isDue(now time.Duration) bool { return a.left > 0 && now >= a.at }

func (a *attempt) onAsked(now time.Duration) { a.left, a.at = a.left-1, now+challengeEvery }

// answered takes an answer, and reports whether it is the one waited for.
func (a *attempt) answered(from netip.AddrPort, data []byte) bool {
	if from != a.to || string(data) != string(a.data[:]) {
		return false
	}
	a.left, a.data = 0, newID() // holds once
	return true
}
