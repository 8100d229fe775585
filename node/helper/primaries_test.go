// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"path/filepath"
	"slices"
	"testing"

	"mpbond/base/identity"
)

// TestPrimaryList: the addresses of primaries to call and the primaries to search for, by the
// entries of the configuration.
func TestPrimaryList(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	primary := []identity.Role{identity.RolePrimary}
	for _, p := range []identity.Peer{
		{Name: "laptop", Roles: primary, Key: keys().primary.Public(),
			Addresses: []string{"192.0.2.1:7602", "192.0.2.2:7602"}},
		{Name: "desk", Roles: primary, Key: keys().helper.Public(), Addresses: []string{"127.0.0.1:7602"}},
		{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: keys().server.Public(),
			Addresses: []string{"192.0.2.9:7600"}},
	} {
		if err := trust.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	found := func(key identity.PublicKey) []string {
		if key == keys().primary.Public() {
			return []string{"10.0.0.1:7602", "192.0.2.1:7602"}
		}
		return []string{"10.0.0.2:7602"}
	}
	for _, c := range []struct {
		entries []string
		want    []string
		roaming []string
		fails   bool
	}{
		{nil, []string{"192.0.2.1:7602", "192.0.2.2:7602", "127.0.0.1:7602", "10.0.0.1:7602"}, []string{"laptop"}, false},
		{[]string{"laptop"}, []string{"192.0.2.1:7602", "192.0.2.2:7602", "10.0.0.1:7602"}, []string{"laptop"}, false},
		{[]string{"desk"}, []string{"127.0.0.1:7602"}, nil, false}, // known to be on this machine
		{[]string{"laptop@198.51.100.7:1", "laptop@rfcomm://00:11:22:33:44:55"},
			[]string{"198.51.100.7:1", "rfcomm://00:11:22:33:44:55"}, nil, false},
		{[]string{"192.0.2.2:7602"}, []string{"192.0.2.2:7602"}, nil, false}, // the trust file has its device
		{[]string{"198.51.100.7:1"}, nil, nil, true},                         // two could match
		{[]string{"home", "desk"}, []string{"127.0.0.1:7602"}, nil, true},
	} {
		l := primaryList{c.entries, trust}
		list, err := l.resolveTargets(found)
		var got []string
		for _, x := range list {
			got = append(got, x.addr)
		}
		if !slices.Equal(got, c.want) || (err != nil) != c.fails {
			t.Errorf("%q: %q, %v", c.entries, got, err)
		}
		var names []string
		for _, p := range l.roamingPrimaries() {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, c.roaming) {
			t.Errorf("%q: %q may be searched for", c.entries, names)
		}
	}
}
