// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// transferBytes sends n bytes, checks what arrives, and ends the direction.
func transferBytes(t *testing.T, from, to pipe.Hop, n int64, seed byte) {
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := io.CopyBuffer(struct{ io.Writer }{from}, newNoise(n, seed), make([]byte, 64<<10)); err != nil {
			t.Error(err)
		}
		if err := from.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	got := sha256.New()
	k, err := io.CopyBuffer(got, struct{ io.Reader }{to}, make([]byte, 64<<10))
	all.Wait()
	want := sha256.New()
	_, _ = io.Copy(want, newNoise(n, seed))
	if k != n || err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes of %d arrived, right: %v, %v", k, n, bytes.Equal(got.Sum(nil), want.Sum(nil)), err)
	}
}

func TestRelayBothWays(t *testing.T) {
	for name, c := range map[string]struct {
		carrier func() pipe.Carrier
		addr    string
		n       int64
	}{
		"tcp":    {overTCP, "127.0.0.1:0", 100 << 20},
		"memory": {inMemory, "x:1", 4 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t, c.carrier, c.addr, Config{Buffer: unit.MB})
			p, s, _ := w.joinSubflow()
			var all sync.WaitGroup
			all.Go(func() { transferBytes(t, p, s, c.n, 1) })
			all.Go(func() { transferBytes(t, s, p, c.n, 2) })
			all.Wait()
			waittest.Until(t, "the relay has ended", func() bool { return len(w.h.Status().Subflows) == 0 })
			if got := w.h.Status().Relayed; got != uint64(2*c.n) {
				t.Errorf("relayed %d bytes", got)
			}
		})
	}
}

// TestPushBack: while the primary reads nothing, the helper takes no more from the server than its
// ring holds.
func TestPushBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buffer, n = 512 << 10, 3 << 20
		w := newTestWorld(t, inMemory, "x:1", Config{Buffer: buffer})
		p, s, _ := w.joinSubflow()
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{s}, newNoise(n, 1))
			_ = s.CloseWrite()
		}()
		time.Sleep(time.Minute)
		d := w.h.Status().Subflows[0].Down
		// Besides the ring: what the pipe holds.
		if d.Buffered != buffer || d.MaxBuffered != buffer || d.Bytes < buffer || d.Bytes > buffer+256<<10 {
			t.Errorf("%d bytes taken, %d held, at most %d; the ring has %d", d.Bytes, d.Buffered, d.MaxBuffered, buffer)
		}
		got, want := sha256.New(), sha256.New()
		k, err := io.Copy(got, p)
		_, _ = io.Copy(want, newNoise(n, 1))
		if k != n || err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			t.Errorf("%d bytes, %v", k, err)
		}
		p.Close()
		s.Close()
		w.stop()
	})
}

// TestPushBackTCP is the same over TCP, with the buffers of the kernel on top.
func TestPushBackTCP(t *testing.T) {
	const buffer, n = 256 << 10, 64 << 20
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{Buffer: buffer})
	p, s, _ := w.joinSubflow()
	go func() {
		_, _ = io.Copy(struct{ io.Writer }{s}, newNoise(n, 1))
		_ = s.CloseWrite()
	}()
	waittest.Until(t, "the ring is full", func() bool {
		f := w.h.Status().Subflows
		return len(f) == 1 && f[0].Down.Buffered == buffer
	})
	got, want := sha256.New(), sha256.New()
	k, err := io.Copy(got, p)
	_, _ = io.Copy(want, newNoise(n, 1))
	if k != n || err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes, %v", k, err)
	}
	if f := w.h.Status().Subflows; len(f) == 1 && f[0].Down.MaxBuffered > buffer {
		t.Errorf("held %d bytes in a ring of %d", f[0].Down.MaxBuffered, buffer)
	}
}

func TestHalfClose(t *testing.T) {
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{})
	p, s, _ := w.joinSubflow()
	_, _ = p.Write([]byte("request"))
	_ = p.CloseWrite()
	if got, err := io.ReadAll(s); string(got) != "request" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	_, _ = s.Write([]byte("answer"))
	s.Close()
	if got, err := io.ReadAll(p); string(got) != "answer" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestCloseDelivers: bytes written before an orderly end arrive although nothing reads the other
// direction any more.
func TestCloseDelivers(t *testing.T) {
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{Buffer: 256 << 10})
	p, s, _ := w.joinSubflow()
	go func() { _, _ = io.Copy(struct{ io.Writer }{s}, newNoise(64<<20, 1)) }()
	if _, err := io.ReadFull(p, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	_, _ = p.Write([]byte("goodbye"))
	_ = p.CloseWrite()
	if got, err := io.ReadAll(s); string(got) != "goodbye" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	s.Close()
}

func TestKillEitherEnd(t *testing.T) {
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{})
	for _, end := range []string{"server", "primary"} {
		p, s, conn := w.joinSubflow()
		go func() { _, _ = io.Copy(struct{ io.Writer }{s}, newNoise(1<<30, 1)) }()
		_, _ = io.ReadFull(p, make([]byte, 1<<20))
		if end == "server" {
			_ = conn.(*tcp.Conn).Abort()
			if _, err := io.Copy(io.Discard, p); err == nil {
				t.Error("a reset of the HS-path looks like an end in order")
			}
		} else {
			p.Close()
			_ = s.CloseWrite()
			_, _ = io.Copy(io.Discard, s)
		}
		s.Close()
		waittest.Until(t, "the relay has ended: "+end, func() bool { return len(w.h.Status().Subflows) == 0 })
	}
}

func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		p, s, _ := w.joinSubflow()
		time.Sleep(time.Hour) // an idle subflow stays
		_, _ = s.Write([]byte("x"))
		_, _ = p.Read(make([]byte, 1))
		_ = p.CloseWrite()
		began := time.Now()
		if _, err := p.Read(make([]byte, 1)); err == nil {
			t.Error("data from nowhere")
		}
		if took := time.Since(began); took < lingerTimeout || took > 3*lingerTimeout {
			t.Errorf("closed after %v", took)
		}
		p.Close()
		s.Close()
		w.stop()
	})
}

func TestRefusals(t *testing.T) {
	w := newTestWorld(t, inMemory, "x:1", Config{MaxSubflows: 1})
	refused := func(server string, code wire.Code, says string) {
		t.Helper()
		_, err := w.acceptWaiting().Join(t.Context(), server, pipe.DefaultResumeTimeout)
		var r wire.Refuse
		if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Text, says) {
			t.Errorf("%s: %v", server, err)
		}
	}
	refused("evil.example:80", wire.CodeForbidden, "mpbond trust add")
	refused("192.0.2.9:1", wire.CodeUnreachable, "refused")
	refused("[2001:db8:0::]:7", wire.CodeUnreachable, "refused") // allowed, in another spelling
	w.joinSubflow()
	refused(w.server, wire.CodeLimit, "max_subflows")
}

// TestServerRefusal: a refusal by the server reaches the primary.
func TestServerRefusal(t *testing.T) {
	w := newTestWorld(t, inMemory, "x:1", Config{})
	p, s, _ := w.joinSubflow()
	_ = s.Refuse(wire.CodeVersion, "too old")
	var r wire.Refuse
	if _, err := p.Read(make([]byte, 1)); !errors.As(err, &r) || r.Code != wire.CodeVersion || r.Text != "too old" {
		t.Errorf("primary got %v", err)
	}
}

// singlePipe is a carrier of one connection at a time.
type singlePipe struct {
	pipe.Carrier
	open  atomic.Bool
	tries atomic.Int32
}

type singleConn struct {
	pipe.Conn
	end func() // once
}

func (c *singlePipe) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	c.tries.Add(1)
	if c.open.Swap(true) {
		return nil, fault.New(fault.Exists, errors.New("busy"), "")
	}
	end := sync.OnceFunc(func() { c.open.Store(false) })
	conn, err := c.Carrier.Dial(ctx, addr)
	if err != nil {
		end()
		return nil, err
	}
	return singleConn{conn, end}, nil
}

func (c singleConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// TestOnePipe: if a subflow leaves no room for another pipe, the next pipe comes soon after that
// subflow; meanwhile no error is shown.
func TestOnePipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		carrier := &singlePipe{Carrier: inMemory()}
		w := &testWorld{t: t, pipes: carrier, servers: inMemory()}
		w.listenAll("x:1")
		w.startHelper(Config{})
		p, s, _ := w.joinSubflow()
		time.Sleep(time.Minute)
		if p := w.h.Status().Pipes[0]; p.State != "busy" || p.Error != "" {
			t.Errorf("status %+v", p)
		}
		if n := carrier.tries.Load(); n > 120 {
			t.Errorf("%d tries in a minute", n)
		}
		p.Close()
		synctest.Wait() // else the helper may take the end for a break and call once more
		s.Close()
		began := time.Now()
		w.acceptWaiting()
		if took := time.Since(began); took > 2*soonCallBackoff {
			t.Errorf("the next pipe took %v", took)
		}
	})
}

// TestRejoin: the helper returns after either side was gone, soon but without hammering.
func TestRejoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		a := w.acceptWaiting()
		// The primary restarts.
		w.pl.Close()
		w.sl.Close()
		a.Close()
		time.Sleep(10 * time.Minute)
		if p := w.h.Status().Pipes[0]; p.State != "retrying" || p.Error == "" || p.Hint == "" {
			t.Errorf("status %+v", p)
		}
		w.listenAll("x:1")
		began := time.Now()
		b := w.acceptWaiting()
		if took := time.Since(began); took > maxCallBackoff {
			t.Errorf("came back after %v", took)
		}
		synctest.Wait()
		if p := w.h.Status().Pipes[0]; p.State != "waiting" {
			t.Errorf("status %+v", p)
		}
		// The helper restarts.
		w.stop()
		<-b.Done()
		w.startHelper(Config{})
		// A used pipe is replaced at once.
		began = time.Now()
		p, s, _ := w.joinSubflow()
		c := w.acceptWaiting()
		if took := time.Since(began); took > 0 {
			t.Errorf("the next pipe took %v", took)
		}
		w.stop()
		c.Close()
		p.Close()
		s.Close()
	})
}

// TestBackoff: a primary that hangs up is not called in quick succession.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		var calls int
		go func() {
			for {
				c, err := w.pl.Accept()
				if err != nil {
					return
				}
				calls++
				c.Close()
			}
		}()
		time.Sleep(time.Minute)
		w.stop()
		w.pl.Close()
		synctest.Wait()
		if calls < 10 || calls > 60 {
			t.Errorf("%d calls in a minute", calls)
		}
	})
}

func TestBadConfig(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(cfg Config, says string) {
		t.Helper()
		if _, err := New(cfg, "phone", Identity{keys().helper, trust}, slog.New(slog.DiscardHandler), nil); !fault.Is(err,
			fault.Config) ||
			fault.HintOf(err) == "" ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := New(Config{}, "phone", Identity{keys().helper, trust}, slog.New(slog.DiscardHandler), nil); err != nil {
		t.Errorf("one that is to be paired: %v", err)
	}
	check(Config{Primaries: []string{"h:1"}}, "0 trusted primaries")
	check(Config{Primaries: []string{"laptop"}}, "no primary of that name")
	check(Config{Buffer: 1}, "buffer")
	check(Config{MaxSubflows: -1}, "max_subflows")
	check(Config{Feedback: "often"}, "feedback")
	check(Config{PipeCongestion: "copa", UDP: []string{"any"}}, "pipe_congestion")
	check(Config{HSCongestion: "pbe"}, "UDP is off")
	for i, name := range []string{"laptop", "tablet"} {
		if err := trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RolePrimary},
			Key: []*identity.Key{keys().primary, keys().server}[i].Public()}); err != nil {
			t.Fatal(err)
		}
	}
	check(Config{Primaries: []string{"laptop"}}, "no address")
	check(Config{Primaries: []string{"h:1"}}, "2 trusted primaries")
	check(Config{Primaries: []string{"laptop@h"}}, "no host:port")
	h, err := New(
		Config{Primaries: []string{"laptop@h:1", "tablet@h:1", "laptop@h:1"}},
		"phone",
		Identity{keys().helper, trust},
		slog.New(slog.DiscardHandler),
		nil,
	)
	if err != nil || len(h.targets.listTargets()) != 2 {
		t.Errorf("%v, %v", h, err)
	}
}

// TestRename: the status has the primary's current name.
func TestRename(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		p, s, _ := w.joinSubflow()
		if err := w.h.trust.Rename("laptop", "notebook"); err != nil {
			t.Fatal(err)
		}
		w.h.TrustChanged()
		synctest.Wait()
		st := w.h.Status()
		if len(st.Pipes) != 1 || len(st.Subflows) != 1 || st.Pipes[0].Primary != "notebook" ||
			st.Subflows[0].Primary != "notebook" {
			t.Errorf("%+v", st)
		}
		p.Close()
		s.Close()
		w.stop()
	})
}

func TestRunEndsWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		c, err := w.pl.Accept() // and send nothing
		if err != nil {
			t.Fatal(err)
		}
		w.stop()
		c.Close()
	})
}

func TestLongestWait(t *testing.T) {
	for away, want := range map[time.Duration]time.Duration{0: soonCallBackoff, 15 * time.Second: 1500 * time.Millisecond,
		time.Minute: 6 * time.Second, time.Hour: maxCallBackoff} {
		if got := maxCallWait(away); got != want {
			t.Errorf("away %v: %v, want %v", away, got, want)
		}
	}
}
