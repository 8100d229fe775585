// SPDX-License-Identifier: Apache-2.0

//go:build linux && !router

// Package tun takes the whole traffic of a machine, or of a network namespace, from a TUN device.
// Apps and the kernel's own TCP/IP come before it in the data path. After it comes package
// intercept. Its Edge carries TCP connections, DNS queries and datagram flows.
//
//	link.go     packets from and to the device
//	icmp.go     which packets are carried, and which are refused
//	stack.go    the TCP/IP stack at the far end of the device (gVisor's)
//	flows.go    UDP
//	route.go    which traffic goes to the device
//	sockets.go  connections that a killed process has left
//
// # What an app sees
//
// A SYN is answered when the far end has connected, and in the same way: a refused connection is
// refused, an unreachable destination is unreachable. This takes as long as without the bond. The
// other ways into the bond may answer early. Here every app of the machine would then have to
// handle connections that open and break, such as those of a browser to IPv6 addresses that a
// server without IPv6 cannot reach.
//
// The device's MTU is 1500, as apps expect, so that datagrams leaving the server need no fragments.
// TCP is not limited by it: its connections end here, and the kernel passes and accepts up to 64 KB
// at a time, unsegmented and without checksums.
//
// ICMP is not carried (see classifyPacket), except errors about an app's own packets, which the far
// end reports.
package tun

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"mpbond/node/intercept"
)

// Config configures a TUN. Edge is required.
type Config struct {
	// Edge carries TCP connections, datagrams and DNS queries. It must have Config.Packets. Its
	// sockets and those of its Dialer must carry Mark.
	Edge *intercept.Edge
	// Mark is the mark of sockets that bypass the device.
	Mark uint32
	// Log gets a line if a part does not work. nil discards.
	Log *slog.Logger
}

// TUN is a device that takes all traffic from Open until Close.
type TUN struct {
	edge      *intercept.Edge
	stack     *netstack
	routes    *routes
	closeOnce sync.Once // for Close
	closeErr  error     // result of Close
}

// Open makes the device mpbond0 in the network namespace of this process and sends all traffic to
// it. Run should follow soon. It first removes what a killed process has left. Errors carry a hint
// for the user.
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
	s, err := newNetstack(l, cfg.Edge, cfg.Log)
	if err != nil {
		return nil, err
	}
	r, err := installTUNRoutes(deviceName, cfg.Mark, cfg.Log)
	if err != nil {
		s.closeNetstack()
		return nil, err
	}
	return &TUN{edge: cfg.Edge, stack: s, routes: r}, nil
}

// Run carries traffic until ctx ends or the device fails, and then closes the device.
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

// Close restores rules and routes, so that new connections bypass the bond, then closes the Edge
// and the device. Further calls return the same result.
func (t *TUN) Close() error {
	t.closeOnce.Do(func() {
		t.closeErr = t.routes.removeAllRoutes()
		t.edge.Close()
		t.stack.closeNetstack()
	})
	return t.closeErr
}
