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

// controllerFactory makes the one of a configured name: of those that are known here too,
// else CUBIC. Without a name it is CUBIC until the peer tells of its cells, and then
// PBE-CC.
func controllerFactory(name string) func() cc.Controller {
	switch name {
	case "": // who hears its cells gets PBE-CC without asking
		return func() cc.Controller { return cc.NewFeedbackFollower(cc.NewCUBIC(), rand.Uint64()) }
	case tcp.PBE:
		return func() cc.Controller { return cc.NewPBE(rand.Uint64()) }
	case "bbr":
		return func() cc.Controller { return cc.NewBBR(rand.Uint64()) } // flows that probe together find queues
	case tcp.Copa:
		return func() cc.Controller { return cc.NewCopa(0.5) }
	}
	return func() cc.Controller { return cc.NewCUBIC() }
}

// dialUDP is that of primary.Config and helper.Config; the sender is told of the cells
// of the interface. Of the options KeepAlive and NotSentLowat are set later, by who uses
// the connection; Ledger is for TCP, and Local and MaxSegment for others.
func (c cellListeners) dialUDP(ctx context.Context, addr string, opt tcp.Options) (dial.UDPConn, error) {
	conn, err := transport.Dial(ctx, addr, transport.Options{Controller: controllerFactory(opt.Congestion), Control: opt.Bind, UserTimeout: opt.UserTimeout,
		Feedback: c.feedbackSource(c.routeInterface(ctx, addr, opt))})
	if err != nil {
		return nil, err // not a nil *transport.Conn in an interface
	}
	return conn, nil
}

// routeInterface is the interface by which a server is reached, if it is any of which cells
// are heard. Nothing is sent, but to resolve a name.
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

// udpListener is server.Config's.
type udpListener struct{ *transport.Endpoint }

func (l udpListener) Accept() (dial.Conn, error) {
	c, err := l.Endpoint.Accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// udpListenFunc makes one, with a controller of that name. The key's device can tell
// primaries after a restart that their connections are over.
func udpListenFunc(congestion string, key *identity.Key) func(addr string) (server.Listener, error) {
	return func(addr string) (server.Listener, error) {
		secret, err := key.Derive("mpbond udp reset")
		if err != nil {
			return nil, err
		}
		ep, err := transport.Listen(addr, transport.Options{Controller: controllerFactory(congestion), UserTimeout: server.UserTimeout, ResetKey: secret})
		if err != nil {
			return nil, err
		}
		return udpListener{ep}, nil
	}
}
