// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/device"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
)

// TestOwnerGoesFirst: while the owner uses the interface of a relay's HS-path, and no longer, both
// ends of that keep to a limit. The owner may be a program that only the counters show, or a
// primary in this process without counters.
func TestOwnerGoesFirst(t *testing.T) {
	start := time.Now()
	for name, prepare := range map[string]func(s *linkShare, own func() uint64){
		"any program": func(s *linkShare, own func() uint64) {
			s.readCounters = func() (map[string]device.Counters, error) {
				return map[string]device.Counters{"wwan0": {Rx: 1 + own(), Tx: 1 + own()}, "lo": {}}, nil
			}
		},
		"a primary here": func(s *linkShare, own func() uint64) {
			s.readCounters = func() (map[string]device.Counters, error) { return nil, os.ErrPermission }
			s.ownSubflows = func() map[string]device.ConnBytes {
				return map[string]device.ConnBytes{"x/1": {Local: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, Rx: own(),
					Tx: own()}}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var busy atomic.Bool
			moved, last := uint64(0), start // called by one goroutine
			own := func() uint64 {
				now := time.Now()
				if busy.Load() {
					moved += uint64(now.Sub(last) / time.Microsecond) // 8 Mbit/s
				}
				last = now
				return moved
			}
			w := &testWorld{t: t, pipes: overTCP(), servers: overTCP(), prepare: func(h *Helper) {
				h.share.interfaceOf = func(net.Addr) string { return "wwan0" }
				prepare(h.share, own)
			}}
			w.listenAll("127.0.0.1:0")
			w.startHelper(Config{})
			_, server, conn := w.joinSubflow()
			go func() { _, _ = server.Read(make([]byte, 1)) }() // limits come between data
			limited := func() (down, up bool) {
				p, err := conn.Probe()
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range w.h.relays.relayedSubflows() {
					h, _ := r.hs.Probe()
					up = h.PacingLimit > 0
				}
				return p.PacingLimit > 0, up
			}
			busy.Store(true)
			waittest.Until(t, "both ends are limited", func() bool { down, up := limited(); return down && up })
			if l := w.h.Status().Shares; len(l) != 1 || l[0].Interface != "wwan0" || !l[0].Down.Limited ||
				l[0].Down.Owner == 0 {
				t.Errorf("status: %+v", l)
			}
			busy.Store(false)
			waittest.Until(t, "no end is limited", func() bool { down, up := limited(); return !down && !up })
		})
	}
}

// TestLimitEndsOnFullHop: the limit of a blocked HS-path follows the owner's traffic too, up and
// down.
func TestLimitEndsOnFullHop(t *testing.T) {
	var busy atomic.Bool
	var moved atomic.Uint64
	w := &testWorld{t: t, pipes: overTCP(), servers: overTCP(), prepare: func(h *Helper) {
		h.share.interfaceOf = func(net.Addr) string { return "wwan0" }
		last := time.Now()
		h.share.readCounters = func() (map[string]device.Counters, error) {
			now := time.Now()
			if busy.Load() {
				moved.Add(uint64(now.Sub(last)/time.Microsecond) * 100) // 800 Mbit/s, more than fills the hop
			}
			last = now
			return map[string]device.Counters{"wwan0": {Rx: 1 + moved.Load(), Tx: 1 + moved.Load()}}, nil
		}
	}}
	w.listenAll("127.0.0.1:0")
	w.startHelper(Config{Buffer: 1 << 20})
	primary, server, _ := w.joinSubflow()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = primary.Write(make([]byte, 64<<20)) // unread
	}()
	defer func() { primary.Close(); server.Close(); <-written }()
	hop := func() (full bool, limit unit.Rate) {
		for _, r := range w.h.relays.relayedSubflows() {
			h, _ := r.hs.Probe()
			held, _ := r.up.ring.Held()
			return h.Unsent > 0 && held == 1<<20, h.PacingLimit
		}
		return false, 0
	}
	waittest.Until(t, "the hop takes nothing", func() bool { full, _ := hop(); return full })
	for range 2 {
		busy.Store(true)
		waittest.Until(t, "it is limited", func() bool { _, limit := hop(); return limit > 0 })
		busy.Store(false)
		waittest.Until(t, "it is not limited", func() bool { _, limit := hop(); return limit == 0 })
	}
}

// scripted is a carrier whose connections report what the test sets.
type scripted struct {
	pipe.Carrier
	hop *atomic.Pointer[estimate.Hop]
}

func (s scripted) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	c, err := s.Carrier.Dial(ctx, addr)
	return scriptedConn{c, s.hop}, err
}

type scriptedConn struct {
	pipe.Conn
	hop *atomic.Pointer[estimate.Hop]
}

func (c scriptedConn) Probe() (estimate.Hop, error) { return *c.hop.Load(), nil }

// TestLossIsNoOwner: retransmissions of a relay's TCP do not count as the owner's traffic, however
// many, with or without progress. The traffic of other programs does.
func TestLossIsNoOwner(t *testing.T) {
	var hop atomic.Pointer[estimate.Hop]
	hop.Store(&estimate.Hop{Received: 100, WireIn: 200, WireOut: 200})
	w := &testWorld{t: t, pipes: overTCP(), servers: scripted{overTCP(), &hop}}
	w.listenAll("127.0.0.1:0")
	w.startHelper(Config{})
	w.joinSubflow()
	waittest.Until(t, "the relay is there", func() bool {
		return len(w.h.relays.relayedSubflows()) == 1
	})
	s := newLinkShare(nil, w.h.log) // the helper's own ignores loopback
	for _, r := range w.h.relays.relayedSubflows() {
		hs := r.hs.LocalAddr().String()
		s.addSharedRelay(r.pipe, r.hs)
		s.interfaceOf = func(a net.Addr) string { return map[string]string{hs: "wwan0"}[a.String()] }
	}
	others, now := uint64(0), time.Now()
	s.readCounters = func() (map[string]device.Counters, error) {
		h := hop.Load()
		return map[string]device.Counters{"wwan0": {Rx: h.WireIn, Tx: h.WireOut + others}}, nil
	}
	// second passes a second in which the relay sends 8 Mbit/s, of which a share is new.
	second := func(fresh float64, other uint64) (limited bool) {
		for range 20 {
			h := *hop.Load()
			h.WireOut, h.WireIn = h.WireOut+50_000, h.WireIn+1_000
			h.Acked += uint64(50_000 * fresh)
			hop.Store(&h)
			others += other
			now = now.Add(shareInterval)
			s.updateShareLimits(now)
			limited = limited || s.links["wwan0"].up.grant.Limited
		}
		s.sends.Wait()
		return limited
	}
	for _, fresh := range []float64{1, 0, 0.5, 1, 0, 1} {
		if second(fresh, 0) {
			t.Fatalf("a share of %v is new, and the owner is said to be busy: %+v", fresh, s.links["wwan0"].up.grant)
		}
	}
	if !second(0.5, 25_000) {
		t.Errorf("4 Mbit/s of others are not seen: %+v", s.links["wwan0"].up.grant)
	}
}

// tunnel is a connection that the test controls.
type tunnel struct {
	local net.Addr
	hop   estimate.Hop
}

func (c *tunnel) Probe() (estimate.Hop, error) { return c.hop, nil }
func (c *tunnel) LocalAddr() net.Addr          { return c.local }

// TestOnloadIsNoOwner: traffic for other devices outside the bond counts as shared, however short
// its connections, and does not limit the relays. The same traffic of another program counts as the
// owner's, as does any excess.
func TestOnloadIsNoOwner(t *testing.T) {
	w := &testWorld{t: t, pipes: overTCP(), servers: overTCP()}
	w.listenAll("127.0.0.1:0")
	w.startHelper(Config{})
	w.joinSubflow()
	waittest.Until(t, "the relay is there", func() bool {
		return len(w.h.relays.relayedSubflows()) == 1
	})
	wwan := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for name, x := range map[string]struct {
		shared  bool // as onloading counts it
		ticks   int  // lifetime of a connection
		other   uint64
		limited bool
	}{
		"one connection":             {shared: true, ticks: 1 << 20},
		"a connection for each file": {shared: true, ticks: 2},
		"shorter than a tick":        {shared: true, ticks: 1},
		"another program":            {ticks: 1 << 20, limited: true},
		"another program beside it":  {shared: true, ticks: 2, other: 25_000, limited: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLinkShare(nil, w.h.log) // the helper's own ignores loopback
			for _, r := range w.h.relays.relayedSubflows() {
				s.addSharedRelay(r.pipe, r.hs)
			}
			s.interfaceOf = func(net.Addr) string { return "wwan0" }
			moved, now := uint64(1), time.Now()
			s.readCounters = func() (map[string]device.Counters, error) {
				return map[string]device.Counters{"wwan0": {Rx: moved, Tx: moved}}, nil
			}
			var c *tunnel
			limited := false
			for i := range 60 {
				if i%x.ticks == 0 {
					c = &tunnel{local: wwan}
					if x.shared {
						s.addSharedConn(c)
					}
				}
				c.hop.WireIn, c.hop.WireOut = c.hop.WireIn+50_000, c.hop.WireOut+50_000
				moved += 50_000 + x.other
				if (i+1)%x.ticks == 0 && x.shared {
					s.removeSharedConn(c)
				}
				now = now.Add(shareInterval)
				s.updateShareLimits(now)
				link := s.links["wwan0"]
				limited = limited || link.down.grant.Limited || link.up.grant.Limited
			}
			s.sends.Wait()
			if limited != x.limited {
				t.Errorf(
					"limited: %v, want %v: down %+v, up %+v",
					limited,
					x.limited,
					s.links["wwan0"].down.grant,
					s.links["wwan0"].up.grant,
				)
			}
			if shared := s.links["wwan0"].down.sharedBytes; x.shared && (shared < 59*50_000 || shared > 61*50_000) {
				t.Errorf("%.0f bytes are shared", shared)
			}
		})
	}
}

// TestLendTotals: the sums of linkShare for an interface are the bytes of all relays and the owner
// since they were first seen. A relay whose pipe uses the same interface counts twice.
func TestLendTotals(t *testing.T) {
	for name, same := range map[string]bool{"HS-paths alone": false, "pipes too": true} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			own := map[string]device.ConnBytes{
				"b/1": {Local: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Rx: 1 << 30, Tx: 1 << 30},
			}
			counters, broken := map[string]device.Counters{"wwan0": {Rx: 5, Tx: 7}}, false
			w := &testWorld{t: t, pipes: overTCP(), servers: overTCP(), prepare: func(h *Helper) {
				h.share.interfaceOf = func(a net.Addr) string {
					if !same && strings.HasPrefix(a.String(), "[::1]") {
						return "wlan0"
					}
					return "wwan0"
				}
				h.share.readCounters = func() (map[string]device.Counters, error) {
					mu.Lock()
					defer mu.Unlock()
					if broken {
						return nil, os.ErrDeadlineExceeded
					}
					return maps.Clone(counters), nil
				}
				h.share.ownSubflows = func() map[string]device.ConnBytes {
					mu.Lock()
					defer mu.Unlock()
					return maps.Clone(own)
				}
			}}
			w.listenAt("[::1]:0", "127.0.0.1:0")
			w.startHelper(Config{})
			s := w.h.share
			sums := func() sharedLink {
				s.updateShareLimits(time.Now())
				s.sends.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				if l := s.links["wwan0"]; l != nil && len(s.links) == 1 {
					return *l
				}
				t.Fatalf("interfaces %v", s.links)
				return sharedLink{}
			}

			// Two relays: one sends down, the other up.
			p1, s1, _ := w.joinSubflow()
			p2, s2, _ := w.joinSubflow()
			waittest.Until(t, "both are there", func() bool {
				return len(w.h.relays.relayedSubflows()) == 2
			})
			first := sums()
			if first.down.sharedBytes != 0 || first.up.sharedBytes != 0 || first.down.directBytes != 0 ||
				first.ownerSent != 0 {
				t.Errorf("before anything has moved: %+v", first)
			}
			const down, up = 2_000_000., 1_000_000.
			var all sync.WaitGroup
			for _, x := range []struct {
				from, to pipe.Hop
				n        int
			}{{s1, p1, down}, {p2, s2, up}} {
				all.Go(func() { _, _ = x.from.Write(make([]byte, x.n)) })
				all.Go(func() {
					if _, err := io.CopyN(io.Discard, struct{ io.Reader }{x.to}, int64(x.n)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			wantDown, wantUp := down, up // few headers on loopback
			if same {
				wantDown, wantUp = wantDown+wantUp, wantUp+wantDown
			}
			waittest.Until(
				t,
				"all is counted",
				func() bool { l := sums(); return l.down.sharedBytes >= wantDown && l.up.sharedBytes >= wantUp },
			)
			// plus frames, TLS and acknowledgements
			if l := sums(); l.down.sharedBytes > 1.1*wantDown || l.up.sharedBytes > 1.1*wantUp {
				t.Errorf(
					"shared: %.0f down and %.0f up, want a little more than %.0f and %.0f",
					l.down.sharedBytes,
					l.up.sharedBytes,
					wantDown,
					wantUp,
				)
			}

			// The owner: an existing flow, and one with earlier bytes.
			step := func(key string, f device.ConnBytes, fails bool) {
				mu.Lock()
				f.Local, broken = own["b/1"].Local, fails
				own[key] = f
				mu.Unlock()
				sums()
			}
			step("b/1", device.ConnBytes{Rx: 1<<30 + 500_000, Tx: 1<<30 + 100_000}, false)
			step("b/2", device.ConnBytes{Rx: 9_000_000, Tx: 9_000_000}, true)
			step("b/1", device.ConnBytes{Rx: 1<<30 + 500_000, Tx: 1<<30 + 99_000}, true) // its queue was read late
			step("b/1", device.ConnBytes{Rx: 1<<30 + 500_000, Tx: 1<<30 + 100_000}, true)
			step("b/2", device.ConnBytes{Rx: 9_000_000, Tx: 9_000_100}, true)
			l := sums()
			const rx, tx = 500_000., 100_100.
			if math.Abs(l.down.directBytes-(rx*headerFactor+tx*ackFactor)) > 1 ||
				math.Abs(l.up.directBytes-(tx*headerFactor+rx*ackFactor)) > 1 ||
				l.ownerSent != tx {
				t.Errorf("direct: %.0f down, %.0f up, %d sent", l.down.directBytes, l.up.directBytes, l.ownerSent)
			}
			s.mu.Lock()
			if s.totals["wwan0"] != counters["wwan0"] {
				t.Errorf("counters that cannot be read are taken for %+v", s.totals)
			}
			s.mu.Unlock()
		})
	}
}

// TestNoNetwork: traffic inside the machine belongs to no link.
func TestNoNetwork(t *testing.T) {
	if sharedInterfaceOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5}) != "" {
		t.Error("loopback counts as a network")
	}
	a, _ := pipe.MemoryPipe()
	if sharedInterfaceOf(a.LocalAddr()) != "" {
		t.Error("memory counts as a network")
	}
}
