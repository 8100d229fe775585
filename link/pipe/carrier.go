// Package pipe is the hop between primary and helper, and the framing that a
// helped subflow's ciphertext has on both of its hops. It stands between
// package subflow, which runs end-to-end TLS over a Hop as it would over a TCP
// connection, and the carriers: TCP and Bluetooth's RFCOMM.
//
//	primary                        helper                       server
//	Accept   <-- TLS, HELLO ------- Offer
//	Join     --- INIT_MP_JOIN ----> Wait
//	                                DialHS  --- TCP, HELLO ----> AcceptHS
//	Link     <-- INIT_MP_OK ------- Accept
//	Link     <== HOP_DATA =======> Link | HSPath <== HOP_DATA ==> HSPath
//
// The helper connects the pipe, so that it can come back by itself; the pipe
// then waits, silent, until the primary wants a subflow, or wants a subflow
// whose pipe broke to go on over this one (docs/adr/0005-pipes-are-sessions.md).
//
//	carrier.go    what a hop runs over; TCP
//	rfcomm.go     the same over Bluetooth
//	memory.go     the same in memory, for tests
//	address.go    carriers by the name that an address begins with
//	handshake.go  from a connection to a Link, at each of the three devices
//	hop.go        Hop: what a Link on a pipe and an HSPath have in common
//	framing.go    how both read and write frames
//	hspath.go     a hop of one connection, whose reports have tags
//	link.go       a hop that outlives its connections
//	session.go    how it reads and writes over the connection of the moment
//	resume.go     the change from one connection to another
//	slot.go       the connection of the moment
//	kept.go       what is kept until it is confirmed, and when to confirm
//	ring.go       a bounded buffer that keeps what is not confirmed
package pipe

import (
	"context"
	"net"

	"mpbond/link/estimate"
	"mpbond/link/tcp"
)

// Conn is a connection of a carrier: reliable and ordered, with a sending side
// that can be watched. Write, WaitWritable, Cork and Flush are called by one
// goroutine at a time, Read by another, everything else by any. A tcp.Conn is
// one.
type Conn interface {
	net.Conn
	// CloseWrite ends the sending direction; the peer reads what was written
	// and then io.EOF. A carrier that cannot returns errors.ErrUnsupported.
	CloseWrite() error
	// WaitWritable blocks until a segment written now would leave soon. It
	// returns an error after Close.
	WaitWritable() error
	// Probe tells the state of the sending direction.
	Probe() (estimate.Hop, error)
	// Cork makes writes gather until Flush.
	Cork()
	Flush() error
}

// Listener accepts connections of a carrier.
type Listener interface {
	// Accept waits for the next one; after Close it returns net.ErrClosed.
	Accept() (Conn, error)
	Addr() net.Addr
	Close() error
}

// Carrier makes connections of one kind.
type Carrier interface {
	// Name is what configuration and logs call it.
	Name() string
	// Dial makes a connection. A fault of kind Exists means that there is one
	// from here to addr, and that the carrier can have no second.
	Dial(ctx context.Context, addr string) (Conn, error)
	Listen(ctx context.Context, addr string) (Listener, error)
}

// TCP carries hops over IP: WiFi, USB and Ethernet alike. Its fields are the
// socket options of every connection it makes.
type TCP tcp.Options

// Name implements Carrier.
func (TCP) Name() string { return "tcp" }

// Dial implements Carrier.
func (o TCP) Dial(ctx context.Context, addr string) (Conn, error) {
	c, err := tcp.Dial(ctx, addr, tcp.Options(o))
	if err != nil {
		return nil, err // not a nil *tcp.Conn in an interface
	}
	return c, nil
}

// Listen implements Carrier.
func (o TCP) Listen(ctx context.Context, addr string) (Listener, error) {
	l, err := tcp.Listen(ctx, addr, tcp.Options(o))
	if err != nil {
		return nil, err
	}
	return tcpListener{l}, nil
}

type tcpListener struct{ *tcp.Listener }

func (l tcpListener) Accept() (Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}
