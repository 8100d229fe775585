// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mpbond/base/identity"
	"mpbond/base/natstest"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/filestore"
	"mpbond/internal/cli"
	"mpbond/link/pairing"
)

// fleetWorld is a fleet in a directory, with one server that runs in this process.
type fleetWorld struct {
	*testing.T
	engine string
	member *fleet.Member
	usage  []fleet.DeviceUsage
}

// must runs a command that must succeed, and returns its standard output.
func (w *fleetWorld) must(args ...string) string {
	w.Helper()
	code, out, errs := runProgram(w.T, args...)
	if code != cli.ExitOK {
		w.Fatalf("%v: code %d: %s%s", args, code, out, errs)
	}
	return out
}

// fails runs a command that must fail with an exit code and these words.
func (w *fleetWorld) fails(code int, words string, args ...string) {
	w.Helper()
	got, out, errs := runProgram(w.T, args...)
	if got != code || !strings.Contains(out+errs, words) {
		w.Errorf("%v: code %d, want %d and %q:\n%s%s", args, got, code, words, out, errs)
	}
}

func newFleetWorld(t *testing.T) *fleetWorld {
	t.Helper()
	newHome(t)
	w := &fleetWorld{T: t, engine: "file:" + t.TempDir()}
	w.fails(cli.ExitUsage, "mpbond fleet init", "fleet", "status")
	w.fails(cli.ExitUsage, "nats://HOST:PORT", "fleet", "init", "acme", "--fleet", "http://example.org")
	out := w.must("fleet", "init", "acme", "--fleet", w.engine)
	if !strings.Contains(out, "fleet acme has the key mpb1") || !strings.Contains(out, "fleet.key") {
		t.Errorf("init printed %s", out)
	}
	store, err := filestore.Open(strings.TrimPrefix(w.engine, "file:"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	w.member, err = fleet.NewMember(store, fleet.MemberConfig{Version: "test", Log: slog.New(slog.DiscardHandler),
		Server: fleet.Server{Name: "eu1", Region: "eu", Key: key.Public(), Addresses: []string{"eu1.example.org:7600"}},
		Usage:  func() []fleet.DeviceUsage { return w.usage },
		Load: func() fleet.Load {
			return fleet.Load{Bonds: 3, Streams: 40, Rate: 5 * unit.Mbps, CPU: 0.25, Memory: 60 * unit.MB}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.member.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	waittest.Until(t, "the server runs", func() bool { return len(w.member.Status().Running) == 1 })
	w.fails(cli.ExitUsage, "--key "+key.Public().String()+" --addr eu1.example.org:7600 --region eu", "fleet", "add",
		"eu1")
	w.must("fleet", "add", "eu1", "--key", key.Public().String(), "--addr", "eu1.example.org:7600", "--region", "eu")
	waittest.Until(t, "the server knows the list", func() bool { return len(w.member.Status().List.Servers) == 1 })
	return w
}

// enroll has a new device use a code.
func (w *fleetWorld) enroll(code string) *identity.Key {
	w.Helper()
	key, err := identity.Generate()
	if err != nil {
		w.Fatal(err)
	}
	c, err := pairing.ParseCode(code)
	if err != nil {
		w.Fatal(err)
	}
	claim, err := c.SignClaim(key.Public())
	if err == nil {
		_, err = w.member.Enroll(w.Context(), c.ID(), pairing.Enrollee{Key: key.Public(), Name: "laptop", Claim: claim})
	}
	if err != nil {
		w.Fatal(err)
	}
	return key
}

// TestFleetCommands goes through what an operator does.
func TestFleetCommands(t *testing.T) {
	w := newFleetWorld(t)
	out := w.must("fleet", "status")
	for _, want := range []string{"fleet acme", "eu1", "runs", "40", "25 %", "60 MB", "eu1.example.org:7600"} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
	var report fleetReport
	if err := json.Unmarshal([]byte(w.must("fleet", "status", "--json")), &report); err != nil ||
		report.Name != "acme" ||
		len(report.Servers) != 1 || !report.Servers[0].Listed || !*report.Servers[0].Running {
		t.Errorf("status %+v, %v", report, err)
	}
	w.fails(cli.ExitUsage, "--count", "fleet", "invite", "--count", "0")
	w.fails(cli.ExitUsage, "50GB", "fleet", "invite", "--quota", "much")
	w.fails(cli.ExitFailure, "no server in the region", "fleet", "invite", "--region", "mars")
	w.fails(cli.ExitUsage, "group", "fleet", "invite", "--group", "a b")
	var codes []string
	for line := range strings.Lines(w.must("fleet", "invite", "--count", "3", "--json", "--group", "staff", "--quota",
		"50GB")) {
		var inv fleetInvitation
		if err := json.Unmarshal([]byte(line), &inv); err != nil || time.Until(inv.Expires) < 23*time.Hour {
			t.Errorf("%s: %v", line, err)
		}
		codes = append(codes, inv.Code)
	}
	first, second := w.enroll(codes[0]), w.enroll(codes[1])
	named := w.enroll(strings.TrimSpace(strings.TrimPrefix(w.must("fleet", "invite", "--name", "anna"),
		"mpbond pair ")))
	out = w.must("fleet", "devices")
	for _, want := range []string{"laptop", "anna", first.ID().String(), "staff", "50 GB", "active", "eu1"} {
		if !strings.Contains(out, want) {
			t.Errorf("devices lacks %q:\n%s", want, out)
		}
	}
	if n := strings.Count(w.must("fleet", "devices", "--group", "staff", "--json"), "\n"); n != 2 {
		t.Errorf("%d devices in the group", n)
	}
	w.fails(cli.ExitUsage, "2 devices", "fleet", "revoke", "laptop")
	w.fails(cli.ExitFailure, "no device", "fleet", "revoke", "nobody")
	w.fails(cli.ExitUsage, "--paused", "fleet", "set", "anna")
	w.must("fleet", "set", "anna", "--paused")
	waittest.Until(t, "anna is paused", func() bool { return w.member.Paused(named.Public()) })
	w.must("fleet", "set", "anna", "--paused=false", "--quota", "1GB", "--group", "a,b")
	out = w.must("fleet", "devices", "--json")
	if !strings.Contains(out, `"quota_bytes":1073741824`) || !strings.Contains(out, `"groups":["a","b"]`) {
		t.Errorf("devices %s", out)
	}
	_, _, errs := runProgram(t, "fleet", "revoke", second.ID().String())
	if !strings.Contains(errs, "revoked at all servers") {
		t.Errorf("revoke printed %s", errs)
	}
	if _, ok := w.member.Lookup(second.Public()); ok {
		t.Error("the revoked device is served")
	}
	if _, ok := w.member.Lookup(first.Public()); !ok {
		t.Error("another device is not served")
	}
	w.must("fleet", "drain", "eu1")
	waittest.Until(t, "eu1 drains", w.member.IsDraining)
	w.must("fleet", "undrain", "eu1")
	waittest.Until(t, "eu1 serves", func() bool { return !w.member.IsDraining() })
	out = w.must("fleet", "events", "--json")
	if strings.Count(out, `"kind":"paired"`) != 3 || strings.Count(out, `"kind":"revoked"`) != 1 {
		t.Errorf("events %s", out)
	}
	if out = w.must("fleet", "events", "--since", "1h"); !strings.Contains(out, "operator") {
		t.Errorf("events %s", out)
	}
	for args, want := range map[string]string{"drain": "eu1", "revoke": "anna\nlaptop", "add": "eu1"} {
		if out = w.must("__complete", "fleet", args, ""); !strings.HasPrefix(out, want+"\n:") {
			t.Errorf("%s is completed by %q", args, out)
		}
	}
	w.must("fleet", "renew")
	w.must("fleet", "remove", "eu1")
	w.fails(cli.ExitFailure, "no server", "fleet", "remove", "eu1")
	if out = w.must("fleet", "status"); !strings.Contains(out, "not listed") {
		t.Errorf("status %s", out)
	}
	w.fails(cli.ExitFailure, "no server", "fleet", "invite")
	w.fails(cli.ExitFailure, "joined no fleet", "fleet", "leave")
}

// TestFleetReadersChangeNothing checks that commands that read leave the engine of an older fleet as it is, and that
// one that writes bounds its buckets.
func TestFleetReadersChangeNothing(t *testing.T) {
	newHome(t)
	w := &fleetWorld{T: t}
	c := natstest.Start(t, natstest.Options{Discreet: true})
	w.must("fleet", "init", "acme", "--fleet", c.URLs())
	conn, err := nats.Connect(c.URLs())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	codes := func() jetstream.StreamConfig {
		t.Helper()
		st, err := js.Stream(t.Context(), "KV_mpbond-codes")
		if err != nil {
			t.Fatal(err)
		}
		return st.CachedInfo().Config
	}
	cfg := codes()
	cfg.MaxBytes = -1
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"fleet status", "fleet usage", "fleet devices", "fleet events",
		"__complete fleet drain "} {
		if w.must(strings.Split(args, " ")...); codes().MaxBytes != -1 {
			t.Fatalf("%s has changed the engine", args)
		}
	}
	if w.must("fleet", "renew"); codes().MaxBytes <= 0 {
		t.Error("a command that writes has left a bucket without a bound")
	}
}

// TestFleetKeyLost checks the error without the fleet's key, and that a second init does not replace it.
func TestFleetKeyLost(t *testing.T) {
	w := newFleetWorld(t)
	path, err := cli.InHome("fleet.key")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.must("fleet", "init", "acme", "--fleet", w.engine)
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("init has replaced the key")
	}
	moved := filepath.Join(t.TempDir(), "k")
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	w.fails(cli.ExitFailure, "--key-file", "fleet", "invite")
	w.must("fleet", "invite", "--key-file", moved)
	w.fails(cli.ExitFailure, "another key", "fleet", "init", "acme", "--fleet", w.engine) // with a new key
}

// TestSumFleetUsage checks sums over servers and months.
func TestSumFleetUsage(t *testing.T) {
	v := func(n unit.Bytes) fleet.Volume { return fleet.Volume{Down: n, Up: n / 10} }
	list := sumFleetUsage([]fleet.UsageRow{
		{Device: "A", Server: "eu1", Month: "2026-10", InMonth: v(100), All: v(1000)},
		{Device: "A", Server: "eu2", Month: "2026-11", InMonth: v(20), All: v(200)},
		{Device: "A", Server: "us1", Month: "2026-11", InMonth: v(30), All: v(300)},
		{Device: "B", Server: "eu1", Month: "2026-11", InMonth: v(10), All: v(10)},
	}, nil)
	const want = "[{ A 2026-11 50 B 5 B 1.46 KB 150 B 0 B [eu1 eu2 us1]} { B 2026-11 10 B 1 B 10 B 1 B 0 B [eu1]}]"
	if got := fmt.Sprint(list); got != want {
		t.Error(got)
	}
}
