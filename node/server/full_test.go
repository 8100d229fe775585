// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestFullServer: a server without memory for another device refuses new ones by a word that sends them to another
// server. Devices that are in keep their streams and may begin another bond, and the end of one makes room.
func TestFullServer(t *testing.T) {
	cfg := Default
	cfg.Memory, cfg.Allow = 3*unit.MB, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s, first, _ := startServerWith(t, time.Minute, cfg)
	d, echo := startDesktop(t, s)
	c, err := d.Dial(echo, wire.ModeBond, 0)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip := func() {
		t.Helper()
		if _, err := c.Write([]byte{7}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	roundTrip()
	join := func(device *identity.Key, id byte, instance uint64) (*session, error) {
		return s.bondForSubflow(t.Context(), bondKey{device.Public(), wire.BondID{id}}, wire.Join{Instance: instance})
	}
	newDevice := func() *identity.Key {
		key := newTestKey(t)
		peer := identity.Peer{Name: "d" + key.Public().ID().String()[:8], Roles: []identity.Role{identity.RolePrimary},
			Key: key.Public()}
		if err := s.trustFile().Add(peer); err != nil {
			t.Fatal(err)
		}
		return key
	}
	if _, err := join(first, 1, 0); err != nil {
		t.Fatal(err)
	}
	var last *identity.Key
	var refusal wire.Refuse
	for n := range 100 {
		device := newDevice()
		if _, err = join(device, 1, 0); err != nil {
			t.Logf("%d devices", n+2)
			break
		}
		last = device
	}
	if !errors.As(err, &refusal) || refusal.Code != wire.CodeClosed || !strings.Contains(refusal.Text, "full") ||
		!strings.Contains(refusal.Text, "memory") {
		t.Errorf("refused by %v", err)
	}
	if !s.IsFull() {
		t.Error("it does not report that it is full")
	}
	if b, err := join(first, 1, 0); err != nil || b == nil {
		t.Error("its own bond:", err)
	}
	if _, err := join(first, 2, 0); err != nil {
		t.Error("another bond of a device that is in:", err)
	}
	// the rest goes to further subflows of those that are in
	a := s.accounts.accountOfDevice(first.Public())
	for s.memory.LackForBond() == "" {
		endpoint.New(endpoint.Config{Share: a.memory})
	}
	if b, err := join(last, 1, 0); err != nil || b == nil {
		t.Error("the first subflow of a bond that is in:", err)
	}
	_, err = s.bondForSubflow(t.Context(), bondKey{d.key.Public(), wire.BondID{9}}, wire.Join{})
	if !errors.As(err, &refusal) || refusal.Code != wire.CodeLimit {
		t.Errorf("another subflow: %v", err)
	}
	joined := &subflow.Subflow{Peer: d.key.Public(), ID: 9} // as if others had filled the server meanwhile
	if s.sessions.attachSubflow(joined, wire.BondID{9}, s.cfg.MaxSubflows) != nil {
		t.Error("a subflow of a full server that was admitted before")
	}
	roundTrip()
	for _, b := range s.sessions.listSessions() {
		if b.key.device != d.key.Public() && b.key.device != first.Public() {
			s.endSession(b)
		}
	}
	if _, err := join(newDevice(), 1, 0); err != nil {
		t.Error("after the end of bonds:", err)
	}
}
