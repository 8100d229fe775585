// SPDX-License-Identifier: Apache-2.0

//go:build !router

package tun

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"mpbond/link/wire"
	"mpbond/node/intercept"
)

// fakePackets is a bond whose far end echoes every datagram and refuses some destinations.
type fakePackets struct {
	refuse string // refused destination
	code   wire.Code
	asked  chan<- intercept.App // gets the app of each dial, if set
	mu     sync.Mutex
	flows  int
}

func (f *fakePackets) DialPackets(ctx context.Context) (intercept.PacketConn, error) {
	if app, ok := intercept.AppOf(ctx); ok && f.asked != nil {
		f.asked <- app
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flows++
	return &fakeFlow{f: f, in: make(chan func([]byte) (int, netip.AddrPort, error), 64),
		closed: make(chan struct{})}, nil
}

type fakeFlow struct {
	f      *fakePackets
	in     chan func([]byte) (int, netip.AddrPort, error)
	closed chan struct{}
	once   sync.Once
}

func (c *fakeFlow) Send(b []byte, dest string) error {
	b = bytes.Clone(b)
	if dest == c.f.refuse {
		c.in <- func([]byte) (int, netip.AddrPort, error) {
			return 0, netip.AddrPort{}, &intercept.PacketRefusal{Dest: dest, Code: c.f.code}
		}
		return nil
	}
	c.in <- func(p []byte) (int, netip.AddrPort, error) { return copy(p, b), netip.MustParseAddrPort(dest), nil }
	return nil
}

func (c *fakeFlow) Receive(b []byte) (int, netip.AddrPort, error) {
	select {
	case f := <-c.in:
		return f(b)
	case <-c.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (c *fakeFlow) SetReadDeadline(time.Time) error { return nil }

func (c *fakeFlow) Close() error { c.once.Do(func() { close(c.closed) }); return nil }
