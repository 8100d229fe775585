// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/control/fleet"
	"mpbond/link/wire"
)

// fakeServers are the servers of a fleet as a device meets them: how long a handshake takes, 0 for no answer.
type fakeServers map[string]time.Duration

func (f fakeServers) measure(ctx context.Context, addr, _ string) (time.Duration, error) {
	took := f[addr]
	if took == 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	select {
	case <-time.After(took):
		return took, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// newTestGuide returns a guide with these servers, whose first one is in use. Random choices take the first.
func newTestGuide(t *testing.T, b *bondHolder, servers fakeServers, names ...string) *fleetGuide {
	t.Helper()
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var peers []identity.Peer
	for _, name := range names {
		peers = append(peers, identity.Peer{Name: name, Roles: []identity.Role{identity.RoleServer},
			Key:       newKey(t).Public(),
			Addresses: []string{name + ".example.org:7600"}})
	}
	if err := trust.SetFleet("acme", peers); err != nil {
		t.Fatal(err)
	}
	server, err := newServerPeer("", trust)
	if err != nil {
		t.Fatal(err)
	}
	g := newFleetGuide(Config{}, server, b, b.demand, slog.New(slog.DiscardHandler))
	g.fleet = &fleet.Joined{}
	g.measure = servers.measure
	t.Cleanup(g.measuring.Wait)
	g.random = func(int) int { return 0 }
	return g
}

func addrOf(name string) string { return name + ".example.org:7600" }

// TestFleetIsOneServer checks which server a configuration means where a fleet is trusted.
func TestFleetIsOneServer(t *testing.T) {
	g := newTestGuide(t, newBondHolder(t, time.Minute), nil, "eu1", "eu2")
	trust := g.server.trust
	for name, want := range map[string]string{"": "eu1", "acme": "eu1", "eu2": "eu2"} {
		s, err := newServerPeer(name, trust)
		if err != nil || s.peer.Name != want || s.isFleet() != (name != "eu2") {
			t.Errorf("%q: %s, %v; a fleet: %v", name, s.peer.Name, err, s.isFleet())
		}
	}
	if err := trust.Add(identity.Peer{Name: "home", Roles: []identity.Role{identity.RoleServer},
		Key:       newKey(t).Public(),
		Addresses: []string{"192.0.2.1:1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := newServerPeer("", trust); err == nil {
		t.Error("a fleet and a server of its own count as one")
	}
	if s, err := newServerPeer("home", trust); err != nil || s.isFleet() {
		t.Errorf("%v, a fleet: %v", err, s.isFleet())
	}
}

// TestChooseServer checks which server is chosen, and how long that takes.
func TestChooseServer(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		servers fakeServers
		hints   []fleet.Hint
		avoid   string
		want    string // "": none
		within  time.Duration
	}{
		"the nearest": {servers: fakeServers{addrOf("a"): 80 * ms, addrOf("b"): 20 * ms, addrOf("c"): 60 * ms},
			want:   "b",
			within: 20*ms + handshakeGrace},
		"not the one that is loaded": {servers: fakeServers{addrOf("a"): 20 * ms, addrOf("b"): 30 * ms},
			hints: []fleet.Hint{{Name: "a", CPU: 0.8}, {Name: "b", CPU: 0.1},
				{Name: "c"}}, want: "b", within: time.Second},
		"one that answers": {servers: fakeServers{addrOf("c"): 200 * ms}, want: "c", within: 400 * ms},
		"none":             {servers: fakeServers{}, within: 2 * handshakeTimeout},
		"not one that failed lately": {servers: fakeServers{addrOf("a"): 10 * ms, addrOf("b"): 50 * ms,
			addrOf("c"): 90 * ms,
			addrOf("d"): 40 * ms}, avoid: "a", want: "d", within: time.Second},
		"one that drains if it is the only one": {servers: fakeServers{addrOf("a"): 10 * ms},
			hints: []fleet.Hint{{Name: "a", Draining: true}, {Name: "b"}, {Name: "c"}, {Name: "d"}}, want: "a",
			within: 2 * handshakeTimeout},
		"not one that is full": {servers: fakeServers{addrOf("a"): 10 * ms, addrOf("b"): 50 * ms},
			hints: []fleet.Hint{{Name: "a", Full: true}, {Name: "b"}, {Name: "c"}, {Name: "d"}}, want: "b",
			within: 2 * handshakeTimeout},
		"not one that does not run": {servers: fakeServers{addrOf("a"): 10 * ms, addrOf("b"): 50 * ms,
			addrOf("c"): 60 * ms,
			addrOf("d"): 70 * ms}, hints: []fleet.Hint{{Name: "b"}, {Name: "c"}, {Name: "d"}}, want: "b", within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newTestGuide(t, newBondHolder(t, time.Minute), c.servers, "a", "b", "c", "d")
				for _, h := range c.hints {
					g.hints[h.Name], g.hintsAt = h, time.Now()
				}
				if c.avoid != "" {
					p, _ := g.server.trust.LookupName(c.avoid)
					g.avoided[p.Key] = time.Now().Add(avoidTime)
				}
				began := time.Now()
				got, ok := g.choose(t.Context(), identity.PublicKey{}, "")
				if got.Name != c.want || ok != (c.want != "") {
					t.Errorf("chose %q (%v), want %q", got.Name, ok, c.want)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %v, over %v", took, c.within)
				}
			})
		})
	}
}

// TestChoicesDivide checks that devices divide among similar servers, and do not go to a much slower one.
func TestChoicesDivide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGuide(t, newBondHolder(t, time.Minute), fakeServers{addrOf("a"): 20 * time.Millisecond,
			addrOf("b"): 22 * time.Millisecond, addrOf("c"): 90 * time.Millisecond}, "a", "b", "c")
		g.random = rand.New(rand.NewPCG(1, 2)).IntN
		count := map[string]int{}
		for range 300 {
			s, _ := g.choose(t.Context(), identity.PublicKey{}, "")
			count[s.Name]++
		}
		if count["a"] < 100 || count["b"] < 100 || count["c"] > 0 {
			t.Errorf("chose %v", count)
		}
	})
}

// TestServerFailed checks when a failure makes the bond go to another server: at once if the server's machine refuses
// or the server drains, after a second failure if this device's links may be the cause, and only if another answers.
func TestServerFailed(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	drains := wire.Refuse{Code: wire.CodeClosed, Text: "draining"}
	unknown := wire.Refuse{Code: wire.CodeUnknown, Text: "revoked"}
	late := context.DeadlineExceeded
	for name, c := range map[string]struct {
		causes  []error
		servers fakeServers
		want    []bool
	}{
		"refused":            {[]error{refused}, fakeServers{addrOf("b"): 1}, []bool{true}},
		"drains":             {[]error{drains}, fakeServers{addrOf("b"): 1}, []bool{true}},
		"no answer":          {[]error{late, late}, fakeServers{addrOf("b"): 1}, []bool{false, true}},
		"unknown device":     {[]error{unknown, unknown, unknown}, fakeServers{addrOf("b"): 1}, []bool{false, false, false}},
		"nobody answers":     {[]error{refused, refused, late}, fakeServers{}, []bool{false, false, false}},
		"it works meanwhile": {[]error{late, nil, late}, fakeServers{addrOf("b"): 1}, []bool{false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBondHolder(t, time.Minute)
				g := newTestGuide(t, b, c.servers, "a", "b")
				first, _ := g.server.currentServer()
				old := b.currentSession()
				moved := false
				for i, cause := range c.causes {
					if cause == nil {
						g.serverWorked(first.Key)
						continue
					}
					got := g.switchServer(t.Context(), failedAttempt{first.Key, cause, "", false})
					if moved = moved || got; got != c.want[i] {
						t.Errorf("failure %d: %v", i+1, got)
					}
				}
				now, _ := g.server.currentServer()
				if (now.Name == "b") != moved || (b.currentSession() != old) != moved {
					t.Errorf("the server is %s, a new session: %v", now.Name, b.currentSession() != old)
				}
				if moved && !g.switchServer(t.Context(),
					failedAttempt{first.Key, errors.New("late news"), "", false}) {
					t.Error("a supervisor with an old server is not told of the new one")
				}
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				b.closeWithFarewell(gone)
			})
		})
	}
}

// TestAllServersRefuse checks that a device whose servers all drain does not go round among them.
func TestAllServersRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBondHolder(t, time.Minute)
		g := newTestGuide(t, b, fakeServers{addrOf("a"): 1, addrOf("b"): 1, addrOf("c"): 1}, "a", "b", "c")
		switches := 0
		for range 100 {
			now, _ := g.server.currentServer()
			if g.switchServer(t.Context(), failedAttempt{now.Key, wire.Refuse{Code: wire.CodeClosed}, "", false}) {
				switches++
			}
		}
		if switches > 3 {
			t.Errorf("it changed its server %d times at once", switches)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		b.closeWithFarewell(gone)
	})
}

// TestHelperOnly checks that a device without links of its own leaves a server that its helpers do not reach.
func TestHelperOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBondHolder(t, time.Minute)
		g := newTestGuide(t, b, fakeServers{}, "a", "b")
		first, _ := g.server.currentServer()
		f := failedAttempt{first.Key, wire.Refuse{Code: wire.CodeTimeout}, "", true}
		if g.switchServer(t.Context(), f) {
			t.Error("it left the server after one failure")
		}
		if !g.switchServer(t.Context(), f) {
			t.Error("it stays at a server that does not answer")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		b.closeWithFarewell(gone)
	})
}

// TestDrainSession checks that the streams of a session that drains go on, that its supervisors open subflows of the
// new session at once, and that it ends with its last stream, at the limit, or with the primary.
func TestDrainSession(t *testing.T) {
	for _, end := range []string{"stream", "limit", "primary"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBondHolder(t, time.Minute)
			old := b.currentSession()
			c, err := old.endpoint.Dial("web:80", wire.ModeBond, 0)
			if err != nil {
				t.Fatal(err)
			}
			m := &sessionSubflow{ended: make(chan error, 1)}
			old.subflows[1] = m
			const limit = 20 * time.Second // below the time without a subflow
			b.drainSession(old, limit)
			if err := <-m.ended; err != errRestarted {
				t.Errorf("the supervisor gets %v", err)
			}
			b.endSubflow(old, 1, errors.New("later")) // without a receiver
			if now := b.currentSession(); now == old || now.id == old.id {
				t.Error("it is the same session")
			}
			b.drainSession(old, limit) // once is enough
			time.Sleep(5 * time.Second)
			if old.endpoint.Streams() != 1 {
				t.Fatal("the stream has ended")
			}
			switch end {
			case "stream":
				c.Reset()
			case "limit":
				time.Sleep(limit)
			case "primary":
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				b.closeWithFarewell(gone)
			}
			time.Sleep(2 * time.Second)
			if _, err := old.endpoint.Dial("web:80", wire.ModeBond, 0); err == nil {
				t.Errorf("%s: the old session is still open", end)
			}
			if end != "primary" {
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				b.closeWithFarewell(gone)
			}
		})
	}
}
