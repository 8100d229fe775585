// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/tcp"
	"mpbond/node/dial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBadConfig: problems are reported before anything is opened. Package e2e tests primaries with
// servers and helpers.
func TestBadConfig(t *testing.T) {
	peer := func(name string, role identity.Role, addr ...string) identity.Peer {
		key, err := identity.Generate()
		if err != nil {
			t.Fatal(err)
		}
		return identity.Peer{Name: name, Roles: []identity.Role{role}, Key: key.Public(), Addresses: addr}
	}
	one, two := peer("home", identity.RoleServer, "127.0.0.1:1"), peer("away", identity.RoleServer, "127.0.0.1:2")
	for _, c := range []struct {
		name       string
		peers      []identity.Peer
		change     func(*Config)
		says, hint string
	}{
		{"nobody", nil, nil, "no server is trusted", "mpbond trust add"},
		{"a helper only", []identity.Peer{peer("phone", identity.RoleHelper)}, nil, "no server is trusted",
			"mpbond trust add"},
		{"no address", []identity.Peer{peer("home", identity.RoleServer)}, nil, "server home has no address",
			"mpbond trust add"},
		{"two", []identity.Peer{one, two}, nil, "2 servers are trusted", "--server"},
		{"another", []identity.Peer{one}, func(c *Config) { c.Server = "hom" }, `no server called "hom"`, "mpbond trust add"},
		{"scheduler", []identity.Peer{one}, func(c *Config) { c.Scheduler = "best" }, "best", "scheduler"},
		{"subflows", []identity.Peer{one}, func(c *Config) { c.Subflows = -1 }, "-1 subflows", "1 to 32"},
		{"many subflows", []identity.Peer{one}, func(c *Config) { c.Subflows = 33 }, "33 subflows", "1 to 32"},
		{"reinject nan", []identity.Peer{one}, func(c *Config) { c.Reinject = math.NaN() }, "threshold is NaN", "0.2"},
		{"give up without a unit", []identity.Peer{one}, func(c *Config) { c.GiveUp = 60 }, "after 60ns", "60s"},
		{"resume without a unit", []identity.Peer{one}, func(c *Config) { c.Resume = 10 }, "wait 10ns", "10s"},
		{"no resume", []identity.Peer{one}, func(c *Config) { c.Resume = 0 }, "", ""},
		{"reinject", []identity.Peer{one}, func(c *Config) { c.Reinject = 0 }, "threshold is 0", "0.2"},
		{"no reinjection", []identity.Peer{one}, func(c *Config) { c.Reinject = -1 }, "", ""},
		{"UDP over another interface", []identity.Peer{one}, func(c *Config) {
			c.UDP, c.Interfaces = []string{"wwan0"},
				[]string{"wlan0"}
		}, "wwan0", "interfaces"},
		{"copa over TCP", []identity.Peer{one}, func(c *Config) { c.Congestion = "copa" }, "UDP is off", "udp"},
		{"copa over UDP", []identity.Peer{one}, func(c *Config) {
			c.Congestion, c.UDP, c.DialUDP = "copa", []string{"any"},
				noUDP
		}, "", ""},
		{"pbe over UDP", []identity.Peer{one}, func(c *Config) {
			c.Congestion, c.UDP, c.DialUDP = "pbe", []string{"any"},
				noUDP
		}, "", ""},
		{"auto and a name", []identity.Peer{one}, func(c *Config) { c.Interfaces = []string{"wlan0", "auto"} }, "wlan0",
			"alone"},
		{"give up", []identity.Peer{one}, func(c *Config) { c.GiveUp = 0 }, "after 0s", "60s"},
		{"pipe", []identity.Peer{one}, func(c *Config) { c.Pipe = "203.0.113.1:7602" }, "203.0.113.1", "ip address"},
		{"pipe of no carrier", []identity.Peer{one}, func(c *Config) { c.Pipe = "127.0.0.1:0,smoke://1" }, "smoke",
			"rfcomm://"},
		{"resume", []identity.Peer{one}, func(c *Config) { c.Resume = -1 }, "wait -1ns", "10s"},
		{"one of two", []identity.Peer{one, two}, func(c *Config) { c.Server = "away" }, "", ""},
	} {
		trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
		for _, p := range c.peers {
			if err == nil {
				err = trust.Add(p)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		key, err := identity.Generate()
		if err != nil {
			t.Fatal(err)
		}
		cfg := Default
		cfg.Pipe = ""
		if c.change != nil {
			c.change(&cfg)
		}
		_, err = New(cfg, key, trust, slog.New(slog.DiscardHandler), nil)
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%s: %v (%v, %s)", c.name, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
}

func noUDP(context.Context, string, tcp.Options) (dial.UDPConn, error) {
	return nil, errors.New("no")
}
