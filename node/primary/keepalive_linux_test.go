// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/control/facts"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
	"mpbond/node/server"
)

// keepAliveIn returns when the kernel sends a keep-alive on the idle connection with these ports.
func keepAliveIn(t *testing.T, local, remote int) time.Duration {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp") // proc(5): addresses, and "timer:when" in 1/100 s
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 5 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", local)) &&
			strings.HasSuffix(f[2], fmt.Sprintf(":%04X", remote)) {
			timer, when, _ := strings.Cut(f[5], ":")
			ticks, err := strconv.ParseInt(when, 16, 64)
			if timer != "02" || err != nil {
				return 0
			}
			return time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	t.Fatalf("no connection from %d to %d", local, remote)
	return 0
}

// TestRadioKeepAlive: neither end probes an idle direct subflow over a cellular link for minutes;
// others are probed every 30 s.
func TestRadioKeepAlive(t *testing.T) {
	for radio, want := range map[wire.Radio]time.Duration{wire.RadioCellular: tcp.RadioKeepAlive,
		wire.RadioWiFi: tcp.DefaultKeepAlive} {
		k := newTestSupervisor(t)
		theirs := newKey(t)
		trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
		if err == nil {
			err = trust.Add(
				identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: k.key.Public()},
			)
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg := server.Default
		cfg.Listen = "127.0.0.1:0"
		s, err := server.New(cfg, theirs, trust, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		k.server.peer = identity.Peer{Name: "home", Key: theirs.Public(), Addresses: []string{s.Addr().String()}}
		k.states.setOwnFacts(facts.Facts{Links: map[string]facts.Link{"lo": {Radio: radio}}})
		l, err := k.openDirect(ctx, "", "laptop", 0)
		if err != nil {
			t.Fatal(err)
		}
		here, there := l.conn.LocalAddr().(*net.TCPAddr).Port, s.Addr().(*net.TCPAddr).Port
		waittest.UntilSuccess(t, func() error { // when everything is acknowledged
			a, b := keepAliveIn(t, here, there), keepAliveIn(t, there, here)
			if a > want/2 && a <= want+time.Second && b > want/2 && b <= want+time.Second {
				return nil
			}
			return fmt.Errorf("%v: keep-alives in %v here and %v at the server, want %v", radio, a, b, want)
		})
		if got := dial.RadioKeepAlive(l.conn); got != tcp.RadioKeepAlive {
			t.Errorf("over TCP: %v", got)
		}
		cancel()
		k.bond.closeWithFarewell(ctx)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
