// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"testing"

	"mpbond/base/identity"
)

// TestServerPeer: the server follows the trust file. It stays while it is trusted, also under
// another name or address. Another one replaces it, and without one the reason is stored. Addresses
// are tried in turn.
func TestServerPeer(t *testing.T) {
	trust, _ := newTrustWith(t, "phone")
	add := func(name string, addrs ...string) {
		t.Helper()
		if err := trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RoleServer}, Key: newKey(t).Public(),
			Addresses: addrs}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newServerPeer("", trust); err == nil {
		t.Error("a server out of nothing")
	}
	add("home", "192.0.2.1:1", "192.0.2.2:1")
	s, err := newServerPeer("", trust)
	if err != nil {
		t.Fatal(err)
	}
	for attempt, want := range []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.1:1"} {
		if got, err := s.addressFor(attempt); got != want || err != nil {
			t.Errorf("attempt %d: %s, %v", attempt, got, err)
		}
	}
	first, _ := s.currentServer()
	if err := trust.Rename("home", "house"); err != nil {
		t.Fatal(err)
	}
	add("away", "192.0.2.3:1")
	if changed := s.reloadServerTrust(); changed {
		t.Error("it is another server by another name")
	}
	if now, err := s.currentServer(); now.Name != "house" || now.Key != first.Key || err != nil {
		t.Errorf("%+v, %v", now, err)
	}
	if err := trust.Remove("house"); err != nil {
		t.Fatal(err)
	}
	if changed := s.reloadServerTrust(); !changed {
		t.Error("the only one left does not take its place")
	}
	if now, err := s.currentServer(); now.Name != "away" || err != nil {
		t.Errorf("%+v, %v", now, err)
	}
	if err := trust.Remove("away"); err != nil {
		t.Fatal(err)
	}
	if changed := s.reloadServerTrust(); !changed {
		t.Error("one that is gone is the same")
	}
	if _, err := s.currentServer(); err == nil {
		t.Error("nobody says why there is none")
	}
	if _, err := s.addressFor(0); err == nil {
		t.Error("no server has an address")
	}
}
