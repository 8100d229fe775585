// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys are generated once.
var keys = sync.OnceValue(func() (k struct{ primary, helper, server *identity.Key }) {
	for _, p := range []**identity.Key{&k.primary, &k.helper, &k.server} {
		key, err := identity.Generate()
		if err != nil {
			panic(err)
		}
		*p = key
	}
	return k
})

// testWorld is a primary and a server around one helper.
type testWorld struct {
	t       testing.TB
	pipes   pipe.Carrier
	servers pipe.Carrier
	primary string // addresses
	server  string
	pl, sl  pipe.Listener
	h       *Helper
	stop    func() // ends the helper and waits for it
	prepare func(*Helper)
}

// newTestWorld listens at addr over carriers made by c, and starts a helper.
func newTestWorld(t testing.TB, c func() pipe.Carrier, addr string, cfg Config) *testWorld {
	t.Helper()
	w := &testWorld{t: t, pipes: c(), servers: c()}
	w.listenAll(addr)
	w.startHelper(cfg)
	return w
}

func inMemory() pipe.Carrier { return &pipe.Memory{} }
func overTCP() pipe.Carrier  { return pipe.TCP(tcp.Options{}) }

func (w *testWorld) listenAll(addr string) { w.listenAt(addr, addr) }

func (w *testWorld) listenAt(primary, server string) {
	w.t.Helper()
	var err error
	if w.pl, err = w.pipes.Listen(w.t.Context(), primary); err == nil {
		w.sl, err = w.servers.Listen(w.t.Context(), server)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.primary, w.server = w.pl.Addr().String(), w.sl.Addr().String()
	w.t.Cleanup(func() { w.pl.Close(); w.sl.Close() })
}

func (w *testWorld) startHelper(cfg Config) {
	w.t.Helper()
	trust, err := identity.OpenTrust(filepath.Join(w.t.TempDir(), "trust.toml"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range []identity.Peer{
		{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: keys().primary.Public(),
			Addresses: []string{w.primary}},
		{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: keys().server.Public(),
			Addresses: []string{w.server, "192.0.2.9:1", "[2001:DB8::0]:7"}},
	} {
		if err := trust.Add(p); err != nil {
			w.t.Fatal(err)
		}
	}
	h, err := New(cfg, "phone", Identity{keys().helper, trust}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	h.calls.carrier = w.pipes
	h.dialWith(w.servers)
	w.h = h
	if w.prepare != nil {
		w.prepare(h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- h.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			w.t.Errorf("Run ended with %v", err)
		}
	})
	w.t.Cleanup(w.stop)
}

// dialWith makes d the dialer of servers.
func (h *Helper) dialWith(d dialer) { h.servers.dialer, h.trouble.servers = d, d }

// acceptWaiting accepts one pipe.
func (w *testWorld) acceptWaiting() *pipe.Waiting {
	w.t.Helper()
	c, err := w.pl.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := pipe.Accept(
		w.t.Context(),
		c,
		keys().primary.ServerConfig(
			wire.PipeALPN,
			func(k identity.PublicKey) bool { return k == keys().helper.Public() },
		),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { p.Close() })
	return p
}

// joinSubflow joins a helped subflow. It returns both ends and the carrier's connection at the
// server.
func (w *testWorld) joinSubflow() (primary *pipe.Link, server *pipe.HSPath, conn pipe.Conn) {
	w.t.Helper()
	p := w.acceptWaiting()
	joined := make(chan *pipe.Link, 1)
	go func() {
		l, err := p.Join(w.t.Context(), w.server, pipe.DefaultResumeTimeout)
		if err != nil {
			w.t.Error(err)
		}
		joined <- l
	}()
	conn, err := w.sl.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	server, name, err := pipe.AcceptHS(w.t.Context(), conn)
	if err != nil || name != "phone" {
		w.t.Fatal(name, err)
	}
	if primary = <-joined; primary == nil {
		w.t.FailNow()
	}
	if err := server.Authenticate(primary.HopKey(), nil); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { primary.Close(); server.Close() })
	return primary, server, conn
}

// newNoise returns n reproducible bytes.
func newNoise(n int64, seed byte) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), n)
}
