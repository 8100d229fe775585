package pipe

import (
	"net"

	"mpbond/link/wire"
)

// Hop carries one subflow's ciphertext between two devices: a Link between primary and
// helper, an HSPath between helper and server. End-to-end TLS runs over it, as it is a
// Transport of package subflow. One goroutine may read and another write; SendState, Probe
// and Close may be called by any.
type Hop interface {
	// Conn is of ciphertext here. Probe's byte counts include framing and, on a pipe, TLS.
	Conn
	// Refuse tells the peer why the subflow ends, and closes.
	Refuse(code wire.Code, text string) error
	// SendState sends a report. If a write is under way it does not wait: the
	// report leaves with the next write, unless a newer one about the same hop has
	// replaced it.
	SendState(s wire.HopState) error
	// Received and Sent count bytes of ciphertext: those that Read has returned,
	// and those that the carrier has taken.
	Received() uint64
	Sent() uint64
}

var (
	_ Hop = (*Link)(nil)
	_ Hop = (*HSPath)(nil)
)

// localLinkName names a local link by both its ends' addresses, without ports: two
// connections between the same addresses go the same way.
func localLinkName(c net.Conn) string {
	host := func(a net.Addr) string {
		if h, _, err := net.SplitHostPort(a.String()); err == nil {
			return h
		}
		return a.String()
	}
	return host(c.LocalAddr()) + "-" + host(c.RemoteAddr())
}
