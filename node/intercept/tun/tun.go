//go:build linux && !router

// Package tun takes the whole traffic of a machine, or of a network namespace,
// from a TUN device. In the data path apps and the kernel's own TCP/IP stand
// before it; after it stands package intercept, with whose Edge it carries TCP
// connections and DNS queries, and the bond's datagram flows.
//
//	link.go   packets from and to the device
//	icmp.go   which packets are carried, and the ICMP errors for others
//	stack.go  the TCP/IP stack at the far end of the device (gVisor's)
//	flows.go  UDP
//	route.go  what goes to the device and what around it
//
// # What an app sees
//
// A SYN is answered when the far end has connected, which takes the time that
// it takes without the bond, and as the far end was answered: a refused
// connection is refused, an unreachable destination is unreachable. (The other
// ways into the bond answer at once; here every app of the machine would have
// to live with connections that open and then break, and a browser with IPv6
// addresses that a server without IPv6 will never reach.)
//
// The device's MTU is 1500, what every app expects, so that datagrams which
// leave the server need no fragments on their way. TCP does not pay for it:
// its connections end here, and the kernel hands over up to 64 KB at a time
// with segmentation and checksums left out, and takes them so.
//
// ICMP is not carried (see judge) but the errors about an app's own packets,
// which the far end tells.
package tun

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"mpbond/node/intercept"
)

// Config is what Open needs. Edge is required.
type Config struct {
	// Edge carries TCP connections, datagrams and DNS queries. It must have
	// Config.Packets. Its own sockets and those of the Dialer behind it must
	// carry Mark.
	Edge *intercept.Edge
	// Mark is the mark of sockets whose packets go around the device.
	Mark uint32
	// Log tells what works only in part. nil discards.
	Log *slog.Logger
}

// TUN is a device that takes all traffic from Open to Close.
type TUN struct {
	edge      *intercept.Edge
	stack     *netstack
	routes    *routes
	closeOnce sync.Once // Close
	closeErr  error     // its
}

// Open makes the device mpbond0 in the network namespace of this process and
// sends all traffic to it, from which Run should take it soon. What a process
// that was killed has left is removed first. Errors carry a hint for people.
func Open(cfg Config) (_ *TUN, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f, err := openDevice(deviceName)
	if err != nil {
		return nil, err
	}
	l, err := newLink(f, deviceMTU)
	if err != nil {
		return nil, err
	}
	s, err := newStack(l, cfg.Edge, cfg.Log)
	if err != nil {
		return nil, err
	}
	r, err := newRoutes(deviceName, cfg.Mark, cfg.Log)
	if err != nil {
		s.close()
		return nil, err
	}
	return &TUN{edge: cfg.Edge, stack: s, routes: r}, nil
}

// Run carries traffic until ctx ends or the device fails, and then closes it.
func (t *TUN) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- t.stack.carryPackets() }()
	select {
	case <-ctx.Done():
		err := t.Close()
		return errors.Join(err, <-done)
	case err := <-done:
		return errors.Join(err, t.Close())
	}
}

// Close restores rules and routes, so that new connections go as before, then
// closes the Edge and the device, which vanishes. Only the first call does.
func (t *TUN) Close() error {
	t.closeOnce.Do(func() {
		t.closeErr = t.routes.removeAll()
		t.edge.Close()
		t.stack.close()
	})
	return t.closeErr
}
