// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/core/trace"
	"mpbond/internal/cli"
	"mpbond/link/wire"
)

func TestDevices(t *testing.T) {
	dir := newHome(t)
	other, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Add(identity.Peer{Name: "phone", Roles: []identity.Role{identity.RoleHelper},
		Key: other.Public()}); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runProgram(t, "devices")
	if code != cli.ExitOK || !strings.Contains(out, "phone  helper  "+other.ID().String()+"  -") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if st, err := os.Stat(filepath.Join(dir, "device.key")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key was not made: %v, %v", st, err)
	}
	if code, out, errs := runProgram(t, "rename", "phone", "pixel"); code != cli.ExitOK {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	var r struct {
		Self    struct{ ID string }
		Devices []struct{ Name, ID string }
	}
	if _, out, _ := runProgram(t, "devices", "--json"); json.Unmarshal([]byte(out), &r) != nil ||
		len(r.Devices) != 1 || r.Devices[0].Name != "pixel" ||
		r.Devices[0].ID != other.ID().String() || len(r.Self.ID) != len(r.Devices[0].ID) {
		t.Errorf("%s", out)
	}
	if code, out, errs := runProgram(t, "revoke", "pixel"); code != cli.ExitOK {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if _, out, errs := runProgram(t, "devices"); strings.Contains(out, "pixel") {
		t.Errorf("%s%s", out, errs)
	}
}

func TestPresence(t *testing.T) {
	at := time.Unix(1e9, 0)
	peer := func(name string, r identity.Role) identity.Peer {
		return identity.Peer{Name: name, Roles: []identity.Role{r}}
	}
	s := peerPresence{map[identity.Role]bool{}, map[string]time.Time{}, map[string]string{}}
	if got, _ := s.lookupPeerState(peer("home", identity.RoleServer)); got != "" {
		t.Errorf("nobody can tell, and it is %q", got)
	}
	s.addRoleStatus(api.Status{Role: "primary", Devices: []api.Device{{Name: "laptop", Self: true, Online: true},
		{Name: "spare", Online: true, Pipes: 1}, {Name: "watch"}},
		Bonds: []api.Bond{{Peer: "home", Subflows: []api.Subflow{
			{Kind: api.Direct, Device: "laptop", State: api.Up},
			{Kind: api.Helped, Device: "phone", State: api.Up, LastData: at},
			{Kind: api.Helped, Device: "watch", State: api.Down}}}}})
	for _, c := range []struct {
		peer identity.Peer
		want string
	}{
		{peer("home", identity.RoleServer), "connected"}, {peer("phone", identity.RoleHelper), "connected"},
		{peer("spare", identity.RoleHelper), "connected"},
		{peer("watch", identity.RoleHelper), "away"}, {peer("tablet", identity.RoleHelper), "away"},
		{peer("anna", identity.RolePrimary), ""},
	} {
		if got, _ := s.lookupPeerState(c.peer); got != c.want {
			t.Errorf("%s is %q, want %q", c.peer.Name, got, c.want)
		}
	}
	if _, last := s.lookupPeerState(peer("phone", identity.RoleHelper)); !last.Equal(at) {
		t.Errorf("last data at %v", last)
	}
	s.addRoleStatus(api.Status{Role: "helper", Helper: &api.HelperStatus{Primary: "anna"}})
	if got, _ := s.lookupPeerState(peer("anna", identity.RolePrimary)); got != "connected" {
		t.Errorf("anna is %q", got)
	}
}

// TestDeviceNameIsText checks that names that are too long are cut between characters.
func TestDeviceNameIsText(t *testing.T) {
	long := strings.Repeat("x", wire.MaxName-1)
	for name, want := range map[string]string{"phone": "phone", "über": "über", long + "y": long + "y",
		long + "yz": long + "y", long + "ü": long, "a\xffb": "ab"} {
		if got := resolveDeviceName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestDeviceEvents checks the events of devices that are added to the trust file, renamed, removed,
// or get other roles.
func TestDeviceEvents(t *testing.T) {
	peer := func(n byte, name string, roles ...identity.Role) identity.Peer {
		return identity.Peer{Name: name, Key: identity.PublicKey{n}, Roles: roles}
	}
	const helper, primary = identity.RoleHelper, identity.RolePrimary
	var r role
	if _, err := r.openRecorder(""); err != nil {
		t.Fatal(err)
	}
	var got []string
	r.rec.NotifyChanges("", func(e trace.Event) { got = append(got, describeEvent(toAPIEvent(e))) })
	r.recordDeviceChanges([]identity.Peer{peer(1, "a", helper), peer(2, "b", helper), peer(3, "c", helper),
		peer(4, "d", helper), peer(5, "e", helper)},
		[]identity.Peer{peer(5, "e", helper), peer(1, "b", helper), peer(6, "f", helper),
			peer(3, "c", helper, primary), peer(4, "g", primary)})
	want := []string{"a is renamed to b", "f is trusted as helper", "c is trusted as helper primary",
		"d is renamed to g", "g is trusted as primary", "b is no longer trusted"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRefusedDevices checks that status and devices show refused devices with the reason, once for
// all addresses, and not after they have connected.
func TestRefusedDevices(t *testing.T) {
	const why = "version 4 here, 5 there: upgrade mpbond on this device"
	st := api.Status{Role: "helper", Name: "phone", Helper: &api.HelperStatus{},
		Pipes: []api.Pipe{{Device: "laptop", Address: "192.0.2.1:7602", State: api.PipeRetrying,
			Error: "refused: " + why}, {Device: "laptop", Address: "192.0.2.2:7602", State: api.PipeRetrying,
			Error: "refused: " + why}},
		Refused: []api.Refusal{{Device: "laptop", Reason: why, Count: 7, Since: time.Now()},
			{Address: "192.0.2.9:1", Here: true, Reason: "unknown device", Hint: "pair the two", Count: 1,
				Since: time.Now()}}}
	peers := []identity.Peer{{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}},
		{Name: "tablet", Roles: []identity.Role{identity.RolePrimary}}}
	st.Devices = listKnownDevices(st, peers, nil)
	if st.Devices[1].Refused != why || st.Devices[1].Online || st.Devices[2].Refused != "" {
		t.Errorf("devices %+v", st.Devices)
	}
	var out strings.Builder
	printStatus(&out, st)
	for want, n := range map[string]int{"refused by laptop: " + why + " (7 times since ": 1, why: 1,
		"an unknown device at 192.0.2.9:1 is refused here: unknown device; pair the two (1 times": 1} {
		if got := strings.Count(out.String(), want); got != n {
			t.Errorf("%d times %q in\n%s", got, want, &out)
		}
	}
	s := peerPresence{map[identity.Role]bool{}, map[string]time.Time{}, map[string]string{}}
	if s.addRoleStatus(st); s.refused["laptop"] != why {
		t.Errorf("%+v", s)
	}
	there := listKnownDevices(st, peers, []api.BondSubflow{{Peer: "laptop", Subflow: api.Subflow{ID: 1}}})
	if there[1].Refused != "" {
		t.Errorf("it is there, and refused: %q", there[1].Refused)
	}
}
