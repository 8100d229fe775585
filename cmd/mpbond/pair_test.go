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

// shows is a device of some roles; each call is a new code of it.
func shows(t *testing.T, roles wire.PairRoles, name string) (code func() string) {
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
	a := pairing.NewAcceptor(pairing.Self{Key: key, Trust: trust, About: func() wire.PairAbout { return wire.PairAbout{Roles: roles, Name: name} }}, slog.New(slog.DiscardHandler))
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
		inv, _ := a.Open()
		return pairing.Code{Secret: inv.Secret, Addrs: []string{l.Addr().String()}}.String()
	}
}

// TestSecondServer: who says that it is one is believed only if that was asked
// for; a server that is known, and helpers, are paired without words.
func TestSecondServer(t *testing.T) {
	home(t)
	one, two := shows(t, wire.PairServer, "one"), shows(t, wire.PairServer, "two")
	phone, both := shows(t, wire.PairHelper, "phone"), shows(t, wire.PairServer|wire.PairHelper, "both")
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
		code, out, errs := mpbond(t, append([]string{"pair"}, args...)...)
		if (code == cli.ExitOK) != (says == "") || !strings.Contains(errs, says) {
			t.Errorf("%q: code %d: %s%s", args, code, out, errs)
		}
	}
	pair("--as server", one(), two())
	pair("a server and something else", both())
	pair("--as is", "--as", "king", one())
	pair("is no helper", "--as", "helper", one())
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
		{api.Invitation{Code: "a", State: string(pairing.UsedUp)}, "in vain too often"},
		{api.Invitation{Code: "a", State: string(pairing.Replaced)}, "replaced"},
		{api.Invitation{Code: "b", State: string(pairing.Open)}, "replaced"},
		{api.Invitation{Code: "b", State: string(pairing.Paired)}, "replaced"},
	} {
		if got := whyEnded(c.inv, "a"); !strings.Contains(got, c.says) {
			t.Errorf("%+v: %s", c.inv, got)
		}
	}
}

// TestPairer: what the API is asked for is done as `mpbond pair` does it, one at
// a time, and each device's outcome is told.
func TestPairer(t *testing.T) {
	home(t)
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	r := &role{trust: trust}
	r.pairsAs(key, wire.PairAbout{Roles: wire.PairPrimary, Name: "laptop"})
	p := r.pairs
	ask := func(as string, codes ...string) error {
		got, err := p.pair(api.PairRequest{Codes: codes, As: as})
		if err == nil && (got.State != api.PairRunning || len(got.Devices) != len(codes)) {
			t.Errorf("%+v", got)
		}
		return err
	}
	one, phone := shows(t, wire.PairServer, "one"), shows(t, wire.PairHelper, "phone")
	if err := ask("", one()); !fault.Is(err, fault.NotRunning) {
		t.Errorf("before it runs: %v", err)
	}
	if now := p.current(); now.State != "" || now.Devices == nil {
		t.Errorf("%+v", now)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	p.ctx = ctx // as run sets it
	go func() { done <- p.run(ctx) }()
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
	if now := p.current(); now.State != api.PairFailed || now.Devices[0].State != api.PairFailed || now.Devices[0].Error == "" || now.Devices[0].Kind == "" || now.Devices[0].Hint == "" {
		t.Errorf("%+v", now)
	}
	if err := ask("helper", one(), phone()); err != nil {
		t.Fatal(err)
	}
	p.wg.Wait()
	now := p.current()
	if now.State != api.PairFailed || !strings.Contains(now.Devices[0].Error, "no helper") || now.Devices[1].State != api.PairDone || now.Devices[1].Name != "phone" || now.Devices[1].ID == "" {
		t.Errorf("%+v", now)
	}
	if err := ask("", one()); err != nil {
		t.Fatal(err)
	}
	p.wg.Wait()
	if now := p.current(); now.State != api.PairDone || now.Devices[0].Roles[0] != "server" || len(trust.Peers()) != 2 {
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

// TestPairJSON: what became of each code is one object on standard output.
func TestPairJSON(t *testing.T) {
	home(t)
	one := shows(t, wire.PairServer, "one")
	code, out, errs := mpbond(t, "pair", "--json", one(), "K7QF-3M2A@127.0.0.1:1")
	var got api.Pairing
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != cli.ExitNoConn {
		t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}
	if got.State != api.PairFailed || got.Devices[0].State != api.PairDone || got.Devices[0].Name != "one" || got.Devices[1].State != api.PairFailed || got.Devices[1].Kind != string(fault.Unreachable) {
		t.Errorf("%+v", got)
	}
	if errs = errs[strings.LastIndex(errs, "{"):]; !json.Valid([]byte(errs)) { // after the log
		t.Errorf("standard error: %s", errs)
	}
}
