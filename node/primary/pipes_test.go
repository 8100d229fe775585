// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// slowConn sends at a rate that can change.
type slowConn struct {
	pipe.Conn
	rate *atomic.Int64
}

func (c slowConn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		m := min(len(p)-n, 4000)
		time.Sleep(unit.Rate(c.rate.Load()).Time(unit.Bytes(m)))
		m, err = c.Conn.Write(p[n : n+m])
		n += m
	}
	return n, err
}

// pipeWorld is a helper with a pipe over each of several links, and the server behind it over an
// unlimited HS-path.
type pipeWorld struct {
	t           *testing.T
	p           *Primary
	key, server *identity.Key
	carrier     pipe.Memory
	rates       map[string]*atomic.Int64
	busy        atomic.Bool // more waits for the pipes than they carry
	e           *endpoint.Endpoint
	all         sync.WaitGroup

	mu    sync.Mutex
	links map[wire.Token]*pipe.Link
}

func newPipeWorld(t *testing.T, rates map[string]unit.Rate) *pipeWorld {
	t.Helper()
	w := &pipeWorld{t: t, rates: map[string]*atomic.Int64{}, links: map[wire.Token]*pipe.Link{}}
	var keys [3]*identity.Key
	for i := range keys {
		var err error
		if keys[i], err = identity.Generate(); err != nil {
			t.Fatal(err)
		}
	}
	w.key, w.server = keys[1], keys[2]
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	for _, peer := range []identity.Peer{
		{Name: "phone", Roles: []identity.Role{identity.RoleHelper}, Key: w.key.Public()},
		{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: w.server.Public(),
			Addresses: []string{"192.0.2.1:1"}},
	} {
		if err == nil {
			err = trust.Add(peer)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default
	cfg.Pipe = ""
	if w.p, err = New(cfg, keys[0], trust, slog.New(slog.DiscardHandler), nil); err != nil {
		t.Fatal(err)
	}
	for name, r := range rates {
		l, err := w.carrier.Listen(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		w.p.helpers.listeners = append(w.p.helpers.listeners, l)
		w.rates[name] = &atomic.Int64{}
		w.rates[name].Store(int64(r))
	}
	w.e = endpoint.New(endpoint.Config{Bond: bond.Config{}, Accept: func(c *endpoint.Conn) {
		c.Opened()
		_, _ = io.Copy(struct{ io.Writer }{c}, newNoise())
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}})
	return w
}

const noiseBytes = 12_000_000

func newNoise() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), noiseBytes) }

// offerPipe keeps a pipe waiting over a link.
func (w *pipeWorld) offerPipe(ctx context.Context, link string) {
	for ctx.Err() == nil {
		conn, err := w.carrier.Dial(ctx, link)
		if err != nil {
			return
		}
		o, err := pipe.NewOffer(
			ctx,
			slowConn{conn, w.rates[link]},
			w.key.ClientConfig(w.p.supervisor.key.Public(), wire.PipeALPN),
			"phone",
		)
		if err != nil {
			return
		}
		q, err := o.Wait(ctx)
		if err != nil {
			return
		}
		w.all.Go(func() { w.serveRequest(ctx, o, q) })
	}
}

func (w *pipeWorld) serveRequest(ctx context.Context, o *pipe.Offer, q pipe.Request) {
	w.mu.Lock()
	l := w.links[q.Token]
	w.mu.Unlock()
	if q.Resume != nil {
		if err := l.AcceptResume(o, *q.Resume); err != nil {
			w.t.Error(err)
		}
		return
	}
	l, err := o.Accept(q, q.ResumeTimeout, wire.RadioNone)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.mu.Lock()
	w.links[q.Token] = l
	w.mu.Unlock()
	sf, _, err := subflow.Accept(
		ctx,
		l,
		w.server.ServerConfig(wire.ALPN, func(identity.PublicKey) bool { return true }),
		func(identity.PublicKey, wire.Join) (wire.OK, error) { return wire.OK{Instance: 1}, nil },
	)
	if err == nil {
		err = w.e.Attach(sf)
	}
	if err != nil {
		w.t.Error(err)
		return
	}
	for s := (wire.HopState{AboutPipe: true, ForPrimary: true}); ctx.Err() == nil &&
		!l.HasEnded(); time.Sleep(100 * time.Millisecond) {
		s.Received = 1 << 20
		if s.Forwarded = s.Received; w.busy.Load() {
			s.Forwarded -= 200_000
		}
		_ = l.SendState(s)
	}
}

// runWorld calls f while the primary accepts pipes, and then ends everything.
func (w *pipeWorld) runWorld(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.p.wg.Go(func() {
		if err := w.p.helpers.acceptPipes(ctx); err != nil {
			w.t.Error(err)
		}
	})
	w.all.Go(func() { w.offerPipe(ctx, "a") })
	time.Sleep(100 * time.Millisecond) // to be the first
	w.all.Go(func() { w.offerPipe(ctx, "b") })
	time.Sleep(time.Second)
	f(ctx)
	now, over := context.WithCancel(context.Background())
	over()
	cancel()
	w.p.bond.closeWithFarewell(now)
	w.e.Close(now)
	w.p.wg.Wait()
	w.p.helpers.waitClosed()
	w.mu.Lock()
	for _, l := range w.links {
		l.Close()
	}
	w.mu.Unlock()
	w.all.Wait()
	time.Sleep(time.Minute) // all timers have fired
}

// mainPipe returns the link of the helper's subflow, and its moves.
func (w *pipeWorld) mainPipe() (via string, c pipe.Counts) {
	l, _ := w.p.helpers.findHelper(w.key.Public()).currentLink()
	return l.Via(), l.Counts()
}

// TestPipesAreChosen: with 5 and 3 Mbit/s a download gets a second subflow. When the first link
// slows down, its subflow moves to the other one, and every byte is right. Afterwards there is one
// subflow, and none is tried while nothing waits.
func TestPipesAreChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipeWorld(t, map[string]unit.Rate{"a": 5 * unit.Mbps, "b": 3 * unit.Mbps})
		w.runWorld(func(ctx context.Context) {
			if via, _ := w.mainPipe(); via != "a-caller" {
				t.Fatalf("begins over %s", via)
			}
			time.Sleep(10 * time.Second)
			if n := w.e.SubflowCount(); n != 1 {
				t.Errorf("%d subflows while nothing is carried", n)
			}
			w.busy.Store(true)
			c, err := w.p.DialStream(ctx, "web:80")
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan []byte)
			go func() {
				h := sha256.New()
				if n, err := io.Copy(h, c); n != noiseBytes || err != nil {
					t.Errorf("%d bytes, %v", n, err)
				}
				got <- h.Sum(nil)
			}()
			time.Sleep(8 * time.Second)
			if n := w.e.SubflowCount(); n != 2 {
				t.Errorf("%d subflows after 8 s", n)
			}
			w.rates["a"].Store(int64(100 * unit.Kbps))
			time.Sleep(8 * time.Second)
			if via, n := w.mainPipe(); via != "b-caller" || n.Migrated+n.Resumed != 1 {
				t.Errorf("8 s after the fall it is over %s, %+v", via, n)
			}
			if n := w.e.SubflowCount(); n != 1 {
				t.Errorf("%d subflows after the fall", n)
			}
			want := sha256.New()
			_, _ = io.Copy(want, newNoise())
			if h := <-got; string(h) != string(want.Sum(nil)) {
				t.Error("other bytes")
			}
			w.busy.Store(false)
			c.Close()
			time.Sleep(time.Minute)
			if _, n := w.mainPipe(); n.Migrated+n.Resumed != 1 || w.e.SubflowCount() != 1 {
				t.Errorf("it went on: %+v, %d subflows", n, w.e.SubflowCount())
			}
		})
	})
}

// numbered gives each caller its own address.
type numbered struct {
	pipe.Listener
	calls *atomic.Int64
}

func (n numbered) Accept() (pipe.Conn, error) {
	c, err := n.Listener.Accept()
	return numberedConn{c, n.calls.Add(1)}, err
}

type numberedConn struct {
	pipe.Conn
	number int64
}

func (c numberedConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: int(c.number)}
}

// TestMoveByHand: a subflow moves to the requested pipe, or the error gives the reason.
func TestMoveByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipeWorld(t, map[string]unit.Rate{"a": 5 * unit.Mbps, "b": 5 * unit.Mbps})
		var calls atomic.Int64
		for i, l := range w.p.helpers.listeners {
			w.p.helpers.listeners[i] = numbered{l, &calls}
		}
		w.runWorld(func(context.Context) {
			var used, waits api.Pipe
			look := func() {
				for _, p := range w.p.Pipes() {
					if p.State == api.PipeCarries {
						used = p
					} else if p.Address != used.Address {
						waits = p
					}
				}
			}
			look()
			look() // the pipe in use is known by now
			from, _ := w.mainPipe()
			move := func(bond string, id uint32, to string) error { return w.p.MoveSubflow(bond, id, to) }
			if err := move(used.Bond, used.Subflow, "nowhere:1"); !fault.Is(err, fault.NotFound) ||
				fault.HintOf(err) == "" {
				t.Errorf("to no pipe: %v", err)
			}
			if err := move("another", used.Subflow, waits.Address); !fault.Is(err, fault.NotFound) {
				t.Errorf("of no bond: %v", err)
			}
			if err := move(used.Bond, used.Subflow+7, waits.Address); !fault.Is(err, fault.NotFound) {
				t.Errorf("no subflow: %v", err)
			}
			if err := move(used.Bond, used.Subflow, waits.Address); err != nil {
				t.Error(err)
			}
			to, n := w.mainPipe()
			if to == from || n.Migrated+n.Resumed != 1 {
				t.Errorf("from %s to %s, %+v", from, to, n)
			}
			look()
			if err := move(used.Bond, used.Subflow, used.Address); err != nil {
				t.Errorf("where it is: %v", err)
			}
		})
	})
}
