// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/internal/cli"
	"mpbond/link/pairing"
	"mpbond/link/wire"
)

// newPairingDevice starts a device with these roles. Each call of code returns a new code of it.
func newPairingDevice(t *testing.T, roles wire.PairRoles, name string) (code func() string) {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := pairing.NewAcceptor(pairing.Self{Key: key, Trust: trust,
		About: func() wire.PairIdentity {
			return wire.PairIdentity{Roles: roles,
				Name: name}
		}}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, l) }()
	t.Cleanup(func() {
		a.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func() string {
		inv, _ := a.NewCode()
		return pairing.Code{Secret: inv.Secret, Addrs: []string{l.Addr().String()}}.String()
	}
}

// TestSecondServer checks that a second server is paired only with --as, and known servers and
// helpers without it.
func TestSecondServer(t *testing.T) {
	newHome(t)
	one, two := newPairingDevice(t, wire.PairServer, "one"), newPairingDevice(t, wire.PairServer, "two")
	phone, both := newPairingDevice(t, wire.PairHelper, "phone"), newPairingDevice(t, wire.PairServer|wire.PairHelper,
		"both")
	knows := func(want string) {
		t.Helper()
		trust, err := cli.OpenTrust()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range trust.Peers() {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("it knows %q, want %q", got, want)
		}
	}
	pair := func(says string, args ...string) {
		t.Helper()
		code, out, errs := runProgram(t, append([]string{"pair"}, args...)...)
		if (code == cli.ExitOK) != (says == "") || !strings.Contains(errs, says) {
			t.Errorf("%q: code %d: %s%s", args, code, out, errs)
		}
	}
	pair("--as server", one(), two())
	pair("a server and something else", both())
	pair("--as must be", "--as", "king", one())
	pair("is not a helper", "--as", "helper", one())
	knows("")
	pair("", phone(), one())
	knows("one phone")
	pair("", one(), phone())
	pair("--as server", two())
	knows("one phone")
	pair("", "--as", "server", two())
	knows("one phone two")
}

func TestWhyCodesEnd(t *testing.T) {
	for _, c := range []struct {
		inv  api.Invitation
		says string
	}{
		{api.Invitation{Code: "a", State: string(pairing.Expired)}, "expired"},
		{api.Invitation{Code: "a", State: string(pairing.UsedUp)}, "too many wrong tries"},
		{api.Invitation{Code: "a", State: string(pairing.Replaced)}, "replaced"},
		{api.Invitation{Code: "b", State: string(pairing.Open)}, "replaced"},
		{api.Invitation{Code: "b", State: string(pairing.Paired)}, "replaced"},
	} {
		if got := invitationEndReason(c.inv, "a"); !strings.Contains(got, c.says) {
			t.Errorf("%+v: %s", c.inv, got)
		}
	}
}

// TestPairer checks that the API pairs devices like `mpbond pair`, one request at a time, and
// reports each device.
func TestPairer(t *testing.T) {
	newHome(t)
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	r := &role{trust: trust}
	r.enablePairing(key, wire.PairIdentity{Roles: wire.PairPrimary, Name: "laptop"})
	p := r.pairs
	ask := func(as string, codes ...string) error {
		got, err := p.startPairing(api.PairRequest{Codes: codes, As: as})
		if err == nil && (got.State != api.PairRunning || len(got.Devices) != len(codes)) {
			t.Errorf("%+v", got)
		}
		return err
	}
	one, phone := newPairingDevice(t, wire.PairServer, "one"), newPairingDevice(t, wire.PairHelper, "phone")
	if err := ask("", one()); !fault.Is(err, fault.NotRunning) {
		t.Errorf("before it runs: %v", err)
	}
	if now := p.currentPairing(); now.State != "" || now.Devices == nil {
		t.Errorf("%+v", now)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	p.ctx = ctx // as run sets it
	go func() { done <- p.servePairing(ctx) }()
	if err := ask("", "K7QF"); !fault.Is(err, fault.Usage) {
		t.Errorf("half a code: %v", err)
	}
	held, err := net.Listen("tcp", "127.0.0.1:0") // a device that does not answer
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := ask("", "K7QF-3M2A@"+held.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := ask("", phone()); !fault.Is(err, fault.AlreadyRunning) || fault.HintOf(err) == "" {
		t.Errorf("a second one meanwhile: %v", err)
	}
	conn, err := held.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	p.wg.Wait()
	if now := p.currentPairing(); now.State != api.PairFailed || now.Devices[0].State != api.PairFailed ||
		now.Devices[0].Error == "" || now.Devices[0].Kind == "" || now.Devices[0].Hint == "" {
		t.Errorf("%+v", now)
	}
	if err := ask("helper", one(), phone()); err != nil {
		t.Fatal(err)
	}
	p.wg.Wait()
	now := p.currentPairing()
	if now.State != api.PairFailed || !strings.Contains(now.Devices[0].Error, "not a helper") ||
		now.Devices[1].State != api.PairDone || now.Devices[1].Name != "phone" || now.Devices[1].ID == "" {
		t.Errorf("%+v", now)
	}
	if err := ask("", one()); err != nil {
		t.Fatal(err)
	}
	p.wg.Wait()
	if now := p.currentPairing(); now.State != api.PairDone || now.Devices[0].Roles[0] != "server" ||
		len(trust.Peers()) != 2 {
		t.Errorf("%+v", now)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := ask("", one()); !fault.Is(err, fault.NotRunning) {
		t.Errorf("after it has run: %v", err)
	}
}

// TestPairJSON checks that the results are one object on standard output.
func TestPairJSON(t *testing.T) {
	newHome(t)
	one := newPairingDevice(t, wire.PairServer, "one")
	code, out, errs := runProgram(t, "pair", "--json", one(), "K7QF-3M2A@127.0.0.1:1")
	var got api.Pairing
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != cli.ExitNoConnection {
		t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}
	if got.State != api.PairFailed || got.Devices[0].State != api.PairDone || got.Devices[0].Name != "one" ||
		got.Devices[1].State != api.PairFailed || got.Devices[1].Kind != string(fault.Unreachable) {
		t.Errorf("%+v", got)
	}
	if errs = errs[strings.LastIndex(errs, "{"):]; !json.Valid([]byte(errs)) { // after the log
		t.Errorf("standard error: %s", errs)
	}
}
