// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// crowdedServer is an attack: each of many addresses keeps connections to the server, 64 at most,
// and replaces each that the server ends, 500 a second in all. No more than maxQueued connections
// wait until the server accepts them: on a slow machine they would fill the kernel's queue, where a
// device's connection waits behind all of them, whatever the server does.
type crowdedServer struct {
	opened, ended atomic.Int64
	first         []byte // what each sends before it falls silent
}

// maxQueued is the most connections of the attack beyond those that the server holds.
const maxQueued = 256

// startCrowd starts the attack from that many addresses.
func (a *crowdedServer) startCrowd(t *testing.T, s *Server, addresses int) {
	ctx, cancel := context.WithCancel(t.Context())
	pace := rate.NewLimiter(500, 1)
	open := make(chan struct{}, maxHandshakes+maxQueued)
	var all sync.WaitGroup
	for i := range addresses * 64 {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 7, byte(i%addresses), 1)}}
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				case open <- struct{}{}:
					a.keepConn(ctx, pace, from, s.Addr().String())
					<-open
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// keepConn opens a connection when pace permits, and keeps it until the server or ctx ends it.
func (a *crowdedServer) keepConn(ctx context.Context, pace *rate.Limiter, from net.Dialer, server string) {
	if pace.Wait(ctx) != nil {
		return
	}
	c, err := from.DialContext(ctx, "tcp", server)
	if err != nil {
		return
	}
	a.opened.Add(1)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	_, _ = c.Write(a.first)
	_, _ = io.Copy(io.Discard, c)
	stop()
	c.Close()
	a.ended.Add(1)
}

// clientHello is the first flight of an unknown device that speaks our protocol.
func clientHello(t *testing.T, server identity.PublicKey) []byte {
	t.Helper()
	unknown, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer far.Close()
	go func() { _ = tls.Client(near, unknown.ClientConfig(server, wire.ALPN)).Handshake(); near.Close() }()
	b := make([]byte, 16<<10)
	n, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// TestCrowdAtTheServer: while a crowd takes all slots by silence, by a byte and by half a
// handshake, a known device joins at its first attempt from a new address, and the server holds no
// more connections than its limit.
func TestCrowdAtTheServer(t *testing.T) {
	for _, a := range []struct {
		name      string
		addresses int
		first     func(identity.PublicKey) []byte
	}{
		{"24 silent", 24, func(identity.PublicKey) []byte { return nil }},
		{"240 silent", 240, func(identity.PublicKey) []byte { return nil }},
		{"240 with a byte", 240, func(identity.PublicKey) []byte { return []byte{22} }},
		{"240 with half a handshake", 240, func(k identity.PublicKey) []byte { return clientHello(t, k) }},
	} {
		t.Run(a.name, func(t *testing.T) {
			s, primary, _ := startServer(t, firstByteTimeout)
			c := crowdedServer{first: a.first(s.handshakes.key.Public())}
			c.startCrowd(t, s, a.addresses)
			waittest.Until(t, "a crowd", func() bool { return c.opened.Load() >= maxHandshakes+100 })
			var worst time.Duration
			most := 0
			for try := range 10 {
				began := time.Now()
				err := joinFrom(t, s, primary, netip.AddrFrom4([4]byte{127, 8, 0, byte(1 + try)}), byte(1+try%4))
				worst = max(worst, time.Since(began))
				s.handshakes.mu.Lock()
				most = max(most, len(s.handshakes.conns))
				s.handshakes.mu.Unlock()
				if err != nil {
					t.Errorf("try %d, after %v: %v", try+1, time.Since(began), err)
				}
			}
			t.Logf(
				"%d connections of unknown devices, %d ended by the server; a join took %v at most; the server had %d at most",
				c.opened.Load(),
				c.ended.Load(),
				worst,
				most,
			)
			if most > 2*maxHandshakes { // half of them evicted, but not gone yet
				t.Errorf("the server had %d connections in handshakes at once", most)
			}
		})
	}
}

// joinFrom joins a bond from an address, once.
func joinFrom(t *testing.T, s *Server, device *identity.Key, from netip.Addr, bond byte) error {
	t.Helper()
	c, err := tcp.Dial(t.Context(), s.Addr().String(), tcp.Options{Local: from.String()})
	if err != nil {
		return err
	}
	sf, _, err := subflow.Join(
		t.Context(),
		c,
		device.ClientConfig(s.handshakes.key.Public(), wire.ALPN),
		wire.Join{Version: wire.Version, Bond: wire.BondID{bond}, Subflow: 1, Device: "test"},
	)
	if err == nil {
		sf.Close()
	}
	return err
}
