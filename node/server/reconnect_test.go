// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// reconnects is an attack by a trusted device: 1,000 times a second it connects and completes a handshake. Every
// second time it opens a bond. Then it closes the connection.
type reconnects struct {
	device            *identity.Key
	addresses         int
	calls, handshakes atomic.Int64
}

// start starts the attack, until the test ends.
func (a *reconnects) start(t *testing.T, s *Server) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	pace := rate.NewLimiter(1000, 10)
	cfg := a.device.ClientConfig(s.handshakes.key.Public(), wire.ALPN)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for pace.Wait(ctx) == nil {
				a.call(ctx, s.Addr().String(), cfg)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// call connects once.
func (a *reconnects) call(ctx context.Context, server string, cfg *tls.Config) {
	n := a.calls.Add(1)
	from := n / 2 % int64(a.addresses)
	c, err := tcp.Dial(ctx, server, tcp.Options{
		Local: netip.AddrFrom4([4]byte{127, 9, byte(from >> 8), byte(from)}).String(),
	})
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	defer c.Close()
	session := tls.Client(c, cfg)
	if session.HandshakeContext(ctx) != nil {
		return
	}
	a.handshakes.Add(1)
	if n%2 == 0 {
		_, _ = session.Write(wire.Append(nil, wire.Join{Version: wire.Version, Bond: wire.BondID{byte(n), byte(n >> 8)},
			Subflow: 1, Device: "hostile"}))
		_, _ = session.Read(make([]byte, 1))
	}
}

// TestHostileReconnects: a trusted device that reconnects all the time from one address, and from many, costs the
// server a bounded number of handshakes, goroutines and log lines, and does not delay the streams of another device.
func TestHostileReconnects(t *testing.T) {
	for _, c := range []struct {
		name      string
		addresses int
	}{{"1 address", 1}, {"256 addresses", 256}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Default
			cfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			s, device, stop := startServerWith(t, firstByteTimeout, cfg)
			other, web := startDesktop(t, s)
			quiet, _ := medianStream(t, other, web, time.Second)
			heap, goroutines := heapBytes(), runtime.NumGoroutine()
			a := reconnects{device: device, addresses: c.addresses}
			end := a.start(t, s)
			waittest.Until(t, "the device has used up its joins", func() bool {
				s.accounts.mu.Lock()
				defer s.accounts.mu.Unlock()
				return !s.accounts.joins.Allow(device.Public(), time.Now()) || c.addresses == 1 && a.calls.Load() > 2000
			})
			before, began := a.handshakes.Load(), time.Now()
			busy, direct := medianStream(t, other, web, 3*time.Second)
			perSecond := float64(a.handshakes.Load()-before) / time.Since(began).Seconds()
			most := runtime.NumGoroutine() - goroutines
			began = time.Now()
			if err := joinFrom(t, s, other.key, netip.AddrFrom4([4]byte{127, 8, 0, 1}), 7); err != nil {
				t.Error(err)
			}
			join := time.Since(began)
			end()
			waittest.Until(t, "the server has ended all handshakes", func() bool {
				s.handshakes.mu.Lock()
				defer s.handshakes.mu.Unlock()
				return len(s.handshakes.conns) == 0
			})
			grown := heapBytes() - heap
			log := stop()
			lines := strings.Count(log, "\n")
			t.Logf("%d connections, %.0f handshakes a second; a stream took %v, and %v before; a join %v; %d goroutines, "+
				"%v and %d lines more", a.calls.Load(), perSecond, busy, quiet, join, most, grown, lines)
			if perSecond > maxPerSecond {
				t.Errorf("%.0f handshakes a second", perSecond)
			}
			if busy > 3*max(quiet, 5*time.Millisecond) && busy > 10*direct || join > 5*time.Second {
				t.Errorf("a stream took %v, and %v before; a connection without the server %v; a join %v", busy, quiet,
					direct, join)
			}
			if most > 1000 || grown > 30*unit.MB {
				t.Errorf("%d goroutines and %v more", most, grown)
			}
			if lines > 300 || !strings.Contains(log, "device=laptop") || !strings.Contains(log, "too often") {
				t.Errorf("%d lines:\n%.3000s", lines, log)
			}
		})
	}
}

// maxPerSecond bounds the handshakes that a server answers: turns, and those of the addresses of one device.
const maxPerSecond = 450

// desktop is another trusted device with a bond.
type desktop struct {
	*endpoint.Endpoint
	key *identity.Key
}

// startDesktop returns another device, and the address of a server that echoes.
func startDesktop(t *testing.T, s *Server) (d desktop, echo string) {
	t.Helper()
	key, err := identity.Generate()
	if err == nil {
		err = s.trustFile().Add(
			identity.Peer{Name: "desktop", Roles: []identity.Role{identity.RolePrimary}, Key: key.Public()},
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { web.Close() })
	go func() {
		for {
			c, err := web.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	e, _ := bondWith(t, s, key, 9)
	return desktop{e, key}, web.Addr().String()
}

// medianStream returns how long a device needs to open a stream and to get a byte back, the median of those in a time.
// direct is the same for a connection without the server: the attack takes processor time too, here.
func medianStream(t *testing.T, d desktop, echo string, within time.Duration) (median, direct time.Duration) {
	t.Helper()
	ask := func(c net.Conn, err error) {
		if err == nil {
			_, err = c.Write([]byte("x"))
		}
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	var streams, conns []time.Duration
	pace, end := time.NewTicker(10*time.Millisecond), time.Now().Add(within)
	defer pace.Stop()
	for time.Now().Before(end) {
		<-pace.C
		began := time.Now()
		s, err := d.Dial(echo, wire.ModeBond, 0)
		if err != nil {
			t.Fatal(err)
		}
		ask(s, nil)
		streams = append(streams, time.Since(began))
		began = time.Now()
		ask(net.Dial("tcp", echo))
		conns = append(conns, time.Since(began))
	}
	slices.Sort(streams)
	slices.Sort(conns)
	return streams[len(streams)/2], conns[len(conns)/2]
}
