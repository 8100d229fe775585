// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"net"

	"mpbond/base/identity"
	mydevice "mpbond/control/device"
	"mpbond/link/tcp"
	"mpbond/node/dial"
	"mpbond/node/server"
	"mpbond/pbe/cc"
	"mpbond/pbe/transport"
)

// controllerFactory returns a function that makes the named congestion controller. An unknown name
// means CUBIC. Without a name it is CUBIC until the peer sends cell feedback, and PBE-CC from then
// on.
func controllerFactory(name string) func() cc.Controller {
	switch name {
	case "": // receivers that send cell feedback get PBE-CC by default
		return func() cc.Controller { return cc.NewFeedbackFollower(cc.NewCUBIC(), rand.Uint64()) }
	case tcp.PBE:
		return func() cc.Controller { return cc.NewPBE(rand.Uint64()) }
	case "bbr":
		// flows that probe at the same time measure queues
		return func() cc.Controller { return cc.NewBBR(rand.Uint64()) }
	case tcp.Copa:
		return func() cc.Controller { return cc.NewCopa(0.5) }
	}
	return func() cc.Controller { return cc.NewCUBIC() }
}

// dialFeedbackUDP implements Config.DialUDP of primary and helper. The connection sends the peer
// feedback about the cells of its interface. Of the options, the user of the connection sets
// KeepAlive and NotSentLowat later; Ledger is for TCP, and Local and MaxSegment are for other
// transports.
func (c cellListeners) dialFeedbackUDP(ctx context.Context, addr string, opt tcp.Options) (dial.UDPConn, error) {
	conn, err := transport.Dial(ctx, addr, transport.Options{Controller: controllerFactory(opt.Congestion),
		Control: opt.Bind, UserTimeout: opt.UserTimeout,
		Feedback: c.feedbackSource(c.routeInterface(ctx, addr, opt))})
	if err != nil {
		return nil, err // not a nil *transport.Conn in an interface
	}
	return conn, nil
}

// routeInterface returns the interface by which a server is reached, "" if no interface has a
// listener. It sends nothing, except to resolve a name.
func (c cellListeners) routeInterface(ctx context.Context, addr string, opt tcp.Options) string {
	if opt.Interface != "" || len(c) == 0 {
		return opt.Interface
	}
	probe, err := (&net.Dialer{Control: opt.Bind}).DialContext(ctx, "udp", addr)
	if err != nil {
		return "" // the connection will fail too
	}
	defer probe.Close()
	return mydevice.NetworkOf(probe.LocalAddr())
}

// udpListener implements server.Listener over UDP.
type udpListener struct{ *transport.Endpoint }

func (l udpListener) Accept() (dial.Conn, error) {
	c, err := l.Endpoint.Accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// udpListenFunc returns a function that listens for UDP with the named congestion controller. The
// secret comes from the key, so that after a restart this device can reset old connections of
// primaries.
func udpListenFunc(congestion string, key *identity.Key) func(addr string) (server.Listener, error) {
	return func(addr string) (server.Listener, error) {
		secret, err := key.Derive("mpbond udp reset")
		if err != nil {
			return nil, err
		}
		ep, err := transport.Listen(addr, transport.Options{Controller: controllerFactory(congestion),
			UserTimeout: server.UserTimeout, ResetKey: secret})
		if err != nil {
			return nil, err
		}
		return udpListener{ep}, nil
	}
}
