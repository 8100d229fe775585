package pipe

import (
	"net"

	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// Hop carries one subflow's ciphertext between two devices: a Link between primary and
// helper, an HSPath between helper and server. It is a net.Conn for that ciphertext, so
// that end-to-end TLS runs over it, and a Transport of package subflow. One goroutine may
// read and another write; SendState, Probe and Close may be called by any.
type Hop interface {
	net.Conn
	// WaitWritable blocks until a segment written now would soon leave this device.
	WaitWritable() error
	// Probe returns the state of this hop's sending direction.
	Probe() (estimate.Hop, error)
	// Cork makes writes gather until Flush, so that they leave in one system call.
	Cork()
	Flush() error
	// CloseWrite ends the sending direction: the peer reads what was written and then
	// io.EOF.
	CloseWrite() error
	// Refuse tells the peer why the subflow ends, and closes.
	Refuse(code wire.Code, text string) error
	// SendState sends a report. If a write is under way it does not wait: the
	// report leaves with the next write, unless a newer one about the same hop has
	// replaced it.
	SendState(s wire.HopState) error
	// OnState has f called with each report of the other end, by the goroutine that reads,
	// which f must not hold up.
	OnState(f func(wire.HopState))
	// Received and Sent count bytes of ciphertext: those that Read has returned,
	// and those that the carrier has taken.
	Received() uint64
	Sent() uint64
}

var (
	_ Hop = (*Link)(nil)
	_ Hop = (*HSPath)(nil)
)

// via names a local link by both its ends' addresses, without ports: two
// connections between the same addresses go the same way.
func via(c net.Conn) string {
	host := func(a net.Addr) string {
		if h, _, err := net.SplitHostPort(a.String()); err == nil {
			return h
		}
		return a.String()
	}
	return host(c.LocalAddr()) + "-" + host(c.RemoteAddr())
}
