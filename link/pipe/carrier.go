// SPDX-License-Identifier: Apache-2.0

// Package pipe implements the hop between primary and helper, and the framing of a helped subflow's
// ciphertext on both of its hops. Package subflow, above it, runs end-to-end TLS over a Hop as over
// a TCP connection. The carriers are below it: TCP and Bluetooth's RFCOMM.
//
//	primary                        helper                       server
//	Accept   <-- TLS, HELLO ------- Offer
//	Join     --- INIT_MP_JOIN ----> Wait
//	                                DialHS  --- TCP, HELLO ----> AcceptHS
//	Link     <-- INIT_MP_OK ------- Accept
//	Link     <== HOP_DATA =======> Link | HSPath <== HOP_DATA ==> HSPath
//
// The helper connects the pipe, so that it can reconnect by itself. The pipe then waits in silence.
// The primary uses it for a new subflow, or to resume a subflow after its pipe broke
// (docs/adr/0005-pipes-are-sessions.md).
//
//	carrier.go    interface of carriers; TCP
//	rfcomm.go     Bluetooth
//	memory.go     connections in memory, for tests
//	address.go    selection of the carrier by the prefix of an address
//	handshake.go  from a connection to a Link or HSPath, at primary and server
//	offer.go      the same at the helper
//	hop.go        Hop: the interface of Link and HSPath
//	framing.go    reading and writing of frames, for both
//	auth.go       tags of a helper's reports to the server
//	hspath.go     a hop of one connection, whose reports have tags
//	link.go       a hop that outlives its connections
//	session.go    reading and writing over the current connection of a Link
//	resume.go     change of a Link to another connection
//	slot.go       the current connection of a Link
//	replay.go     unconfirmed bytes, and when to confirm received ones
//	ring.go       a bounded buffer that keeps unconfirmed bytes
package pipe

import (
	"context"
	"net"

	"mpbond/link/estimate"
	"mpbond/link/tcp"
)

// Conn is a connection of a carrier: reliable and ordered, with a sending side that can be
// observed. One goroutine at a time may call Write, WaitWritable, Cork and Flush, another one Read,
// any one the rest. *tcp.Conn implements Conn.
type Conn interface {
	net.Conn
	// CloseWrite ends the sending direction: the peer reads what was written and then io.EOF. A
	// carrier without half-close returns errors.ErrUnsupported.
	CloseWrite() error
	// WaitWritable blocks until a segment written now would leave soon. It
	// returns an error after Close.
	WaitWritable() error
	// Probe returns the state of the sending direction.
	Probe() (estimate.Hop, error)
	// Cork makes writes accumulate until Flush.
	Cork()
	Flush() error
}

// Listener accepts connections of a carrier.
type Listener interface {
	// Accept waits for the next connection. After Close it returns net.ErrClosed.
	Accept() (Conn, error)
	Addr() net.Addr
	Close() error
}

// Carrier makes connections of one kind.
type Carrier interface {
	// Name returns the carrier's name in configuration and logs.
	Name() string
	// Dial connects to addr. A fault of kind Exists means that a connection to addr already exists
	// and that the carrier allows only one.
	Dial(ctx context.Context, addr string) (Conn, error)
	Listen(ctx context.Context, addr string) (Listener, error)
}

// TCP carries hops over IP: WiFi, USB or Ethernet. Its fields are the socket options of each
// connection.
type TCP tcp.Options

// Name implements Carrier.
func (TCP) Name() string { return "tcp" }

// Dial implements Carrier.
func (o TCP) Dial(ctx context.Context, addr string) (Conn, error) {
	c, err := tcp.Dial(ctx, addr, tcp.Options(o))
	if err != nil {
		return nil, err // avoids a nil *tcp.Conn in the interface
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
