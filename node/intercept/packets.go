// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"net/netip"
	"time"

	"mpbond/link/wire"
)

// PacketDialer opens datagram flows of the bond. A flow stands for one UDP socket of an app. It
// reaches any number of destinations from the same socket of the server (endpoint-independent
// mapping, RFC 4787 section 4.1). Opening takes no round trip; ctx bounds only the call. Safe for
// concurrent use.
type PacketDialer interface {
	DialPackets(ctx context.Context) (PacketConn, error)
}

// PacketConn carries the datagrams of one flow. Datagrams may be lost, and reordered when the flow
// moves to another subflow, but they are never duplicated. Different goroutines may call Send,
// Receive and Close. It may also have
//
//	Take() ([]byte, netip.AddrPort, error)  Receive without a copy: the caller owns the bytes
type PacketConn interface {
	// Send sends b, at most 65,527 bytes, to dest, "host:port". The far end resolves names. It
	// never blocks and does not keep b: a datagram that cannot leave soon is dropped. An error
	// means that the flow has ended or that this datagram can never be sent.
	Send(b []byte, dest string) error
	// Receive waits for a datagram and copies it into b, truncated if b is too short. An error is
	//
	//	*PacketRefusal         about one destination; the flow continues
	//	net.ErrClosed          after Close
	//	os.ErrDeadlineExceeded after the read deadline
	//	wire.Reset             the far end ended the flow (CodeClosed: it was
	//	                       unused for long): open another one
	Receive(b []byte) (n int, from netip.AddrPort, err error)
	// SetReadDeadline bounds Receive, as in net.Conn. Zero means no deadline.
	SetReadDeadline(time.Time) error
	// Close ends the flow. It may be called more than once.
	Close() error
}

// PacketRefusal reports that datagrams do not reach a destination: the far end may not send there
// (wire.CodeForbidden), the name is unknown, the port is closed, the destination is unreachable, or
// datagrams are too long. It may be repeated or lost.
type PacketRefusal struct {
	Dest string // as given to Send; IPv4-mapped addresses as IPv4
	Code wire.Code
	MTU  int // of the path, with CodeTooBig
	Text string
}

// Error implements error.
func (r *PacketRefusal) Error() string { return r.Text }
