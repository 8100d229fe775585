// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/config"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// newOfflinePrimary returns a primary without subflows that does not run.
func newOfflinePrimary(t *testing.T, giveUp time.Duration) *Primary {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err == nil {
		err = trust.Add(
			identity.Peer{
				Name:      "home",
				Roles:     []identity.Role{identity.RoleServer},
				Key:       key.Public(),
				Addresses: []string{"192.0.2.1:1"},
			},
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default
	cfg.Pipe, cfg.GiveUp = "", config.Duration(giveUp)
	p, err := New(cfg, key, trust, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRefusalsBackOff: after refusals by the server a supervisor waits for minutes although apps
// want streams; another trust file ends that.
func TestRefusalsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newOfflinePrimary(t, 3*time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = p.DialStream(ctx, "web:80") }()
		var b backoff.Backoff
		refusal := wire.Refuse{Code: wire.CodeVersion, Version: wire.Version + 1}
		began, tries := time.Now(), 0
		for ; time.Since(began) < time.Hour; tries++ {
			p.troubles.setDeviceTrouble("laptop", refusal)
			p.demand.waitBeforeRetry(t.Context(), refusal, &b, nil)
		}
		if tries > 25 {
			t.Errorf("%d attempts in an hour", tries)
		}
		list := p.Refusals()
		want := fmt.Sprintf("version %d here, %d there: upgrade mpbond on this device", wire.Version, wire.Version+1)
		if len(list) != 1 || list[0].Device != "home" || list[0].Here || list[0].Reason != want ||
			list[0].Count != tries {
			t.Errorf("refusals %+v, want %q", list, want)
		}
		if paths := p.Status(false).Subflows; len(paths) != 1 || paths[0].LastError != "refused: "+want {
			t.Errorf("paths %+v", paths)
		}
		began = time.Now()
		go func() {
			time.Sleep(time.Second)
			p.TrustChanged()
		}()
		if p.demand.waitBeforeRetry(t.Context(), refusal, &b, nil); time.Since(began) != time.Second {
			t.Errorf("another trust file ended the rest after %v", time.Since(began))
		}
		// An unreachable server is retried every second while apps wait.
		b.Reset()
		began = time.Now()
		for range 10 {
			p.demand.waitBeforeRetry(t.Context(), errors.New("no answer"), &b, nil)
		}
		if took := time.Since(began); took > 10*maxBusyBackoff {
			t.Errorf("ten attempts without an answer took %v", took)
		}
		cancel()
	})
}

// TestCallersRefused: a helper of another version and an unknown one are stored with the reason and
// logged once each, however often they call.
func TestCallersRefused(t *testing.T) {
	helper, unknown := newKey(t), newKey(t)
	p, _ := newPool(t)
	if err := p.trust.Add(identity.Peer{Name: "phone", Roles: []identity.Role{identity.RoleHelper},
		Key: helper.Public()}); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	p.unknownLog = loglimit.New(slog.New(slog.NewTextHandler(&log, nil)))
	var carrier pipe.Memory
	l, err := carrier.Listen(t.Context(), "laptop:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	admission := tcp.NewAdmissionLimit(maxHandshakes, maxPerSource, maxPerSourceMinute)
	call := func(key *identity.Key) {
		var both sync.WaitGroup
		both.Go(func() {
			if a, err := l.Accept(); err != nil {
				t.Error(err)
			} else {
				v := admission.AdmitEvicting(a.RemoteAddr(), func() {})
				defer v.Release()
				p.authenticate(t.Context(), a, v)
			}
		})
		b, err := carrier.Dial(t.Context(), "laptop:1")
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(b, key.ClientConfig(p.key.Public(), wire.PipeALPN))
		_, _ = c.Write(wire.Append(nil, wire.Hello{Version: wire.Version - 1, Name: "phone"}))
		_, _ = c.Read(make([]byte, 100))
		b.Close()
		both.Wait()
	}
	for range 5 {
		call(helper)
		call(unknown)
	}
	want := fmt.Sprintf("version %d here, %d there: upgrade mpbond on phone", wire.Version, wire.Version-1)
	list := p.troubles.listRefusals(time.Now())
	if len(list) != 2 || list[1].Device != "phone" || list[1].Reason != want || list[1].Count != 5 ||
		!strings.HasPrefix(list[0].Reason, "unknown device") {
		t.Errorf("refusals %+v, want %q", list, want)
	}
	if n := strings.Count(log.String(), "pipe refused"); n < 1 || n > 2 { // the log limits them too
		t.Errorf("%d lines: %s", n, &log)
	}
}
