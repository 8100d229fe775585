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
