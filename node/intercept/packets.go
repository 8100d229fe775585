package intercept

import (
	"context"
	"net/netip"
	"time"

	"mpbond/link/wire"
)

// PacketDialer opens datagram flows of the bond. A flow is one UDP socket of an
// app: any number of destinations, and to all of them the same socket of the
// server (endpoint-independent mapping, RFC 4787 section 4.1). Opening takes no
// round trip; its context bounds only the call. Safe for concurrent use.
type PacketDialer interface {
	DialPackets(ctx context.Context) (PacketConn, error)
}

// PacketConn carries the datagrams of one flow. Datagrams may be lost, and
// arrive in another order when the flow moves to another path; never twice.
// Send, Receive and Close may be called from different goroutines.
// It may also have
//
//	Take() ([]byte, netip.AddrPort, error)  Receive without a copy: the bytes are the caller's
type PacketConn interface {
	// Send sends b, of at most 65,527 bytes, to dest, "host:port"; the far end
	// resolves names. It never blocks and does not keep b: a datagram that
	// cannot leave soon is dropped, as a network would. An error means that the
	// flow is over or that this datagram can never be sent.
	Send(b []byte, dest string) error
	// Receive waits for a datagram and copies it into b, cut if it is longer.
	// An error is
	//
	//	*PacketRefusal         about one destination; the flow goes on
	//	net.ErrClosed          after Close
	//	os.ErrDeadlineExceeded after the read deadline
	//	wire.Reset             the far end ended the flow (CodeClosed: it was
	//	                       unused for long): open another one
	Receive(b []byte) (n int, from netip.AddrPort, err error)
	// SetReadDeadline bounds Receive, as a net.Conn's; zero is none.
	SetReadDeadline(time.Time) error
	// Close ends the flow; it may be called more than once.
	Close() error
}

// PacketRefusal tells that datagrams do not reach a destination: the far end may
// not send there (wire.CodeForbidden), finds no such name, or the network says
// that nobody listens there, that there is no way, or that datagrams are too
// long. It may come more than once, or get lost.
type PacketRefusal struct {
	Dest string // as it was given to Send; an IPv4-mapped address as IPv4
	Code wire.Code
	MTU  int // of the way there, of CodeTooBig
	Text string
}

// Error implements error.
func (r *PacketRefusal) Error() string { return r.Text }
