// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/link/wire"
)

// newTestTroubles returns a troubleLog with an unreachable server, and counts changes.
func newTestTroubles(t *testing.T) (l *troubleLog, log *strings.Builder, changes *int) {
	t.Helper()
	log, changes = &strings.Builder{}, new(int)
	trust, _ := newTrustWith(t, "phone")
	return &troubleLog{
		server:      &serverPeer{peer: identity.Peer{Name: "home", Addresses: []string{"192.0.2.1:1"}}},
		trust:       trust,
		log:         slog.New(slog.NewTextHandler(log, nil)),
		onChange:    func() { *changes++ },
		last:        map[string]api.Trouble{},
		helperNames: func() map[string]bool { return map[string]bool{"phone": true} },
		hasSubflow:  func() bool { return false },
	}, log, changes
}

// TestTroubles: each change is logged and reported once; nil ends a trouble.
func TestTroubles(t *testing.T) {
	l, log, changes := newTestTroubles(t)
	for i, c := range []struct {
		err            error
		changes, lines int // in all, after it
	}{
		{errors.New("no route"), 1, 1}, {errors.New("no route"), 1, 1}, {errors.New("no answer"), 2, 2}, {nil, 3, 2},
		{nil, 3, 2}, {errors.New("no route"), 4, 3},
	} {
		l.setDeviceTrouble("laptop", c.err)
		if n := strings.Count(log.String(), "no subflow"); *changes != c.changes || n != c.lines {
			t.Errorf("step %d: %d changes, %d lines; want %d and %d", i, *changes, n, c.changes, c.lines)
		}
	}
	if l.forgetDevice("laptop"); len(l.listTroubles()) > 0 {
		t.Errorf("left are %v", l.listTroubles())
	}
}

// TestRefusalInTroubles: a refusal is shown as such, logged once, and removed when the device has
// joined.
func TestRefusalInTroubles(t *testing.T) {
	l, log, _ := newTestTroubles(t)
	for range 5 {
		l.setDeviceTrouble("laptop", wire.Refuse{Code: wire.CodeVersion, Version: wire.Version + 1})
	}
	if text := l.listTroubles()["laptop"].Text; !strings.HasPrefix(text, "refused: ") ||
		strings.Count(log.String(), "no subflow") != 1 {
		t.Errorf("%q, log: %s", text, log)
	}
	if list := l.listRefusals(time.Now()); len(list) != 1 || list[0].Count != 5 || list[0].Device != "home" {
		t.Errorf("%+v", list)
	}
	server, _ := l.server.currentServer()
	if l.forgetRefusalBy(server.Key); len(l.listRefusals(time.Now())) > 0 {
		t.Error("it is kept after the server has accepted this device")
	}
}

// TestOwnTrouble: helpers learn why no direct subflow reaches the server, but nothing about other
// helpers.
func TestOwnTrouble(t *testing.T) {
	l, _, _ := newTestTroubles(t)
	if f := l.serverTrouble(); f.Text != "" {
		t.Errorf("before anything was tried: %+v", f)
	}
	l.setDeviceTrouble("phone", errors.New("a broken pipe"))
	if f := l.serverTrouble(); f.Text != "" {
		t.Errorf("a helper's: %+v", f)
	}
	l.setDeviceTrouble("laptop/wlan0", errors.New("no route"))
	l.setDeviceTrouble("laptop/eth0", errors.New("no cable"))
	if f := l.serverTrouble(); f.Text != "no cable" || f.Address != "192.0.2.1:1" {
		t.Errorf("%+v", f)
	}
	l.hasSubflow = func() bool { return true }
	if f := l.serverTrouble(); f.Text != "" {
		t.Errorf("while a subflow reaches the server: %+v", f)
	}
	l.server.missing = errors.New("no server is trusted")
	if f := l.serverTrouble(); f.Text != "no server is trusted" || f.Code != wire.CodeUnknown {
		t.Errorf("without a server: %+v", f)
	}
}
