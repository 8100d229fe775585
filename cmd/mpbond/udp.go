package main

import (
	"context"
	"math/rand/v2"

	"mpbond/identity"
	"mpbond/paths"
	"mpbond/pbe/cc"
	"mpbond/pbe/udp"
	"mpbond/server"
	"mpbond/tcp"
)

// controller makes the one of a configured name: of those that are known here too,
// else CUBIC.
func controller(name string) func() cc.Controller {
	switch name {
	case "bbr":
		return func() cc.Controller { return cc.NewBBR(rand.Uint64()) } // flows that probe together find queues
	case "copa":
		return func() cc.Controller { return cc.NewCopa(0.5) }
	}
	return func() cc.Controller { return cc.NewCUBIC() }
}

// dialUDP is that of primary.Config and helper.Config. Of the options KeepAlive and
// NotSentLowat are set later, by who uses the connection; Ledger is for TCP, and Local and
// MaxSegment for others.
func dialUDP(ctx context.Context, addr string, opt tcp.Options) (paths.OverUDP, error) {
	c, err := udp.Dial(ctx, addr, udp.Options{Controller: controller(opt.Congestion), Control: opt.Bind, UserTimeout: opt.UserTimeout})
	if err != nil {
		return nil, err // not a nil *udp.Conn in an interface
	}
	return c, nil
}

// udpListener is server.Config's.
type udpListener struct{ *udp.Endpoint }

func (l udpListener) Accept() (paths.Conn, error) {
	c, err := l.Endpoint.Accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// listenUDP makes one, with a controller of that name. The key's device can tell
// primaries after a restart that their connections are over.
func listenUDP(congestion string, key *identity.Key) func(addr string) (server.Listener, error) {
	return func(addr string) (server.Listener, error) {
		secret, err := key.Derive("mpbond udp reset")
		if err != nil {
			return nil, err
		}
		ep, err := udp.Listen(addr, udp.Options{Controller: controller(congestion), UserTimeout: server.UserTimeout, Secret: secret})
		if err != nil {
			return nil, err
		}
		return udpListener{ep}, nil
	}
}
