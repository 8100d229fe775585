package primary

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/identity"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// offline is a primary that has no subflow and does not run.
func offline(t *testing.T, giveUp time.Duration) *Primary {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err == nil {
		err = trust.Add(identity.Peer{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: key.Public(), Addresses: []string{"192.0.2.1:1"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default
	cfg.Pipe, cfg.GiveUp = "", Duration(giveUp)
	p, err := New(cfg, key, trust, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRest: an idle keeper that has failed often sleeps long; a stream that is
// wanted ends that at once, and while it waits rests are short.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(t, time.Minute)
		var b backoff.Backoff
		for range 10 {
			b.Next(idleBackoff, idleBackoff)
		}
		took := func() time.Duration {
			began := time.Now()
			p.demand.rest(t.Context(), &b)
			return time.Since(began)
		}
		if d := took(); d < idleBackoff*3/4 || d > idleBackoff {
			t.Errorf("idle: %v", d)
		}
		answer := make(chan error)
		go func() {
			time.Sleep(10 * time.Second)
			_, err := p.DialStream(t.Context(), "web:80")
			answer <- err
		}()
		if d := took(); d != 10*time.Second {
			t.Errorf("a stream wanted after 10 s ended the rest after %v", d)
		}
		for range 5 {
			if d := took(); d > busyBackoff {
				t.Errorf("while a stream waits: %v", d)
			}
		}
		var r wire.Reset
		if err := <-answer; !errors.As(err, &r) || r.Code != wire.CodeTimeout {
			t.Errorf("without a subflow: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if p.demand.rest(ended, &b); p.demand.resting+p.demand.waiting != 0 {
			t.Errorf("%+v", p.demand)
		}
	})
}

// TestPatience: a new stream waits for a subflow as long as streams would, and
// some seconds if there has been none for longer.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(t, time.Minute)
		dial := func() time.Duration {
			began := time.Now()
			if _, err := p.DialStream(t.Context(), "web:80"); err == nil {
				t.Fatal("a stream without a subflow")
			}
			return time.Since(began)
		}
		time.Sleep(20 * time.Second)
		if d := dial(); d != 40*time.Second {
			t.Errorf("at first %v", d)
		}
		time.Sleep(time.Hour)
		if d := dial(); d != leastPatience {
			t.Errorf("after an hour %v", d)
		}
		close(p.closing)
		if d := dial(); d != 0 {
			t.Errorf("at the end %v", d)
		}
	})
}

// TestClassPatience: a stream whose rule allows no device that works waits as long,
// too.
func TestClassPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(t, time.Minute)
		p.mu.Lock()
		id, err := p.classOf(&policy.Treatment{Devices: []string{"phone"}, Weight: 1})
		p.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.keepClasses(ctx)
		lasts := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			c, err := p.cur.e.Dial("web:80", wire.Bond, id)
			if err != nil {
				t.Fatal(err)
			}
			var r wire.Reset
			if _, err := c.Read(make([]byte, 1)); !errors.As(err, &r) || r.Code != wire.CodeTimeout {
				t.Errorf("it ended with %v", err)
			}
			if d := time.Since(began); d < want || d > want+2*classesEvery {
				t.Errorf("it waited %v, want %v", d, want)
			}
		}
		lasts(time.Minute)
		time.Sleep(time.Hour)
		lasts(leastPatience)
	})
}
