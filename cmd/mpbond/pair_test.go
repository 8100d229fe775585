package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/identity"
	"mpbond/pairing"
	"mpbond/wire"
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
		trust, err := openTrust()
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
		if (code == exitOK) != (says == "") || !strings.Contains(errs, says) {
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
