// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"

	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/core/trace"
	"mpbond/node/server"
)

// TestUplinksJoinFirst: when a VPN comes or goes, the new subflow joins before the old one ends.
func TestUplinksJoinFirst(t *testing.T) {
	key, theirs := newKey(t), newKey(t)
	trust := func(name string, peer identity.Peer) *identity.Trust {
		list, err := identity.OpenTrust(filepath.Join(t.TempDir(), name))
		if err == nil {
			err = list.Add(peer)
		}
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	cfg := server.Default
	cfg.Listen = "127.0.0.1:0"
	s, err := server.New(
		cfg,
		theirs,
		trust("server", identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: key.Public()}),
		slog.New(slog.DiscardHandler),
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

	up, gaps := atomic.Int32{}, atomic.Int32{}
	rec := (*trace.Recorder)(nil).NotifyChanges("laptop", func(e trace.Event) {
		switch e.Kind {
		case trace.SubflowUp:
			up.Add(1)
		case trace.SubflowDown:
			if up.Add(-1) == 0 {
				gaps.Add(1)
			}
		}
	})
	mine := Default
	mine.Name, mine.Pipe, mine.Interfaces = "laptop", "", []string{autoInterfaces}
	p, err := New(
		mine,
		key,
		trust(
			"primary",
			identity.Peer{
				Name:      "home",
				Roles:     []identity.Role{identity.RoleServer},
				Key:       theirs.Public(),
				Addresses: []string{s.Addr().String()},
			},
		),
		slog.New(slog.DiscardHandler),
		rec,
	)
	if err != nil {
		t.Fatal(err)
	}
	var vpn atomic.Bool
	p.uplinks.listInterfaces = func() ([]string, error) {
		if vpn.Load() {
			return nil, nil
		}
		return []string{"lo", "none"}, nil // the latter has no subflow
	}
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		p.uplinks.runUplinks(ctx)
	}()
	uses := func(want string) {
		t.Helper()
		waittest.UntilSuccess(t, func() error {
			up := ""
			for _, path := range p.bond.active.endpoint.Status(false).Subflows {
				if !path.SubflowInfo.Silent {
					up += path.Device
				}
			}
			if up != want {
				return fmt.Errorf("subflows by %q, want %q", up, want)
			}
			return nil
		})
	}
	uses("laptop/lo")
	vpn.Store(true)
	uses("laptop")
	vpn.Store(false)
	uses("laptop/lo")
	if up.Load() != 1 || gaps.Load() != 0 {
		t.Errorf("%d times a subflow ended before another one had joined; %d are up", gaps.Load(), up.Load())
	}
	cancel()
	<-ran
	p.wg.Wait()
	p.bond.closeWithFarewell(ctx)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
