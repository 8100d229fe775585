// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"mpbond/base/fault"
)

func TestMeet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trust.toml")
	tr, again := openTrust(t, path), openTrust(t, path)
	k1, k2 := mustKey(t).Public(), mustKey(t).Public()
	first, err := tr.AddPaired(Peer{"Anna's phone\n", []Role{RoleHelper}, k1, nil, nil, "", false})
	if err != nil || first.Name != "Anna-s-phone" {
		t.Fatalf("%+v, %v", first, err)
	}
	// The same device again keeps its name and gains the new parts.
	both, err := tr.AddPaired(Peer{"other", []Role{RolePrimary}, k1, []string{"10.0.0.1:1"}, []string{"a:1"}, "",
		false})
	if err != nil || fmt.Sprintf("%s %v %v", both.Name, both.Roles,
		both.Addresses) != "Anna-s-phone [helper primary] [10.0.0.1:1]" {
		t.Fatalf("%+v, %v", both, err)
	}
	both, err = tr.AddPaired(Peer{"other", []Role{RolePrimary}, k1, []string{"10.0.0.2:1", "10.0.0.1:1"},
		[]string{"b:1", "c:1"}, "", false})
	if err != nil || fmt.Sprintf("%v %v", both.Roles, both.Addresses) != "[helper primary] [10.0.0.2:1 10.0.0.1:1]" {
		t.Fatalf("%+v, %v", both, err)
	}
	if p, err := tr.AddPaired(Peer{"other", []Role{RoleHelper}, k1, nil, nil, "", false}); err != nil ||
		fmt.Sprint(p.Servers) != "[b:1 c:1]" {
		t.Fatalf("those announced last: %+v, %v", p, err)
	}
	// Another device with that name.
	if p, err := tr.AddPaired(Peer{"Anna-s-phone", []Role{RoleHelper}, k2, nil, nil, "", false}); err != nil ||
		p.Name != "Anna-s-phone-2" {
		t.Fatalf("%+v, %v", p, err)
	}
	for i, proposed := range []string{"", "...", "--", strings.Repeat("x", 64), "日本", "a b"} {
		p, err := tr.AddPaired(Peer{proposed, []Role{RoleHelper}, mustKey(t).Public(), nil, nil, "", false})
		if err != nil || CheckName(p.Name) != nil {
			t.Errorf("proposal %d %q: %+v, %v", i, proposed, p, err)
		}
	}
	if _, err := tr.AddPaired(Peer{"x", nil, mustKey(t).Public(), nil, nil, "", false}); err == nil {
		t.Error("a device without role was taken")
	}
	if err := again.Reload(); err != nil || len(again.Peers()) != 8 {
		t.Errorf("the file has %d devices, %v", len(again.Peers()), err)
	}
}

func TestRename(t *testing.T) {
	tr := openTrust(t, filepath.Join(t.TempDir(), "trust.toml"))
	for _, n := range []string{"a", "b"} {
		if err := tr.Add(Peer{n, []Role{RoleHelper}, mustKey(t).Public(), nil, nil, "", false}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, to string
		kind     fault.Kind
	}{{"c", "d", fault.NotFound}, {"a", "b", fault.Exists}, {"a", "", fault.Usage}, {"a", "x y", fault.Usage}} {
		if err := tr.Rename(c.from, c.to); !fault.Is(err, c.kind) {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
	before, _ := tr.LookupName("a")
	if err := tr.Rename("a", "c"); err != nil {
		t.Fatal(err)
	}
	if after, ok := tr.LookupName("c"); !ok || after.Key != before.Key || len(tr.Peers()) != 2 {
		t.Errorf("%+v", tr.Peers())
	}
}

// FuzzMeet checks that data of a pairing device is either rejected, or the trust file reads back as
// written.
func FuzzMeet(f *testing.F) {
	f.Add("phone", "10.0.0.9:7602", "vps.example.org:7600")
	f.Add("-.", "rfcomm://AA:BB:CC:DD:EE:FF/3", "[2001:db8::1%25]:1")
	f.Add("home\x00'''\n[[peer]]", "a'b\":1", "\xff:2")
	f.Fuzz(func(t *testing.T, proposed, address, server string) {
		known, err := newTrustState([]Peer{{Name: "home", Roles: []Role{RoleServer}, Key: PublicKey{1},
			Addresses: []string{"h:1"}}})
		if err != nil {
			t.Fatal(err)
		}
		p := Peer{Name: deriveUnusedName(proposed, known), Roles: []Role{RolePrimary}, Key: PublicKey{2},
			Addresses: []string{address}, Servers: []string{server}}
		if err := CheckName(p.Name); err != nil {
			t.Fatal(err)
		}
		after, err := newTrustState(append(slices.Clone(known.list), p))
		if err != nil {
			return // of the addresses
		}
		data, err := toml.Marshal(trustFile{after.list})
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseTrust("f", data)
		if err != nil || !reflect.DeepEqual(again.list, after.list) {
			t.Errorf("%v: %+v is read as %+v from\n%s", err, after.list, again, data)
		}
	})
}

// TestServersOfPrimary checks that a primary's servers replace the earlier ones, and are accepted
// from primaries only.
func TestServersOfPrimary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trust.toml")
	tr := openTrust(t, path)
	laptop, phone := mustKey(t).Public(), mustKey(t).Public()
	for _, p := range []Peer{{"laptop", []Role{RolePrimary}, laptop, nil, []string{"a:1"}, "", false},
		{"phone", []Role{RoleHelper}, phone, nil, nil, "", false},
		{"home", []Role{RoleServer}, mustKey(t).Public(), []string{"h:1", "i:1"}, nil, "", false}} {
		if err := tr.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if got := tr.ServerAddresses(); fmt.Sprint(got) != "[h:1 i:1]" {
		t.Errorf("servers: %v", got)
	}
	for _, list := range [][]string{{"b:1", "[2001:db8::1]:2"}, nil, {"c:1"}} {
		if err := tr.SetServers(laptop, list); err != nil {
			t.Fatal(err)
		}
		if p, _ := openTrust(t, path).Lookup(laptop); !slices.Equal(p.Servers, list) {
			t.Errorf("it has %v, want %v", p.Servers, list)
		}
	}
	if err := tr.SetServers(phone, []string{"b:1"}); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("a helper's: %v", err)
	}
	if err := tr.SetServers(mustKey(t).Public(), nil); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("a stranger's: %v", err)
	}
	if err := tr.SetServers(laptop, []string{"d:1", "no port"}); !fault.Is(err, fault.Protocol) {
		t.Errorf("nonsense: %v", err)
	}
	if p, _ := tr.Lookup(laptop); !slices.Equal(p.Servers, []string{"c:1"}) {
		t.Errorf("after all: %v", p.Servers)
	}
}

// TestPause checks that a paused device stays trusted through other changes, and that a server
// cannot be paused.
func TestPause(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trust.toml")
	tr := openTrust(t, path)
	k := mustKey(t).Public()
	for _, p := range []Peer{{Name: "phone", Roles: []Role{RoleHelper}, Key: k},
		{Name: "home", Roles: []Role{RoleServer}, Key: mustKey(t).Public()}} {
		if err := tr.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if tr.Paused(k) || tr.Paused(mustKey(t).Public()) {
		t.Error("paused at first")
	}
	if err := tr.SetPaused("phone", true); err != nil {
		t.Fatal(err)
	}
	if err := tr.Rename("phone", "tablet"); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.AddPaired(Peer{Name: "x", Roles: []Role{RoleHelper}, Key: k,
		Addresses: []string{"10.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	again := openTrust(t, path)
	if !again.Paused(k) || !again.Allowed(RoleHelper)(k) {
		t.Errorf("after a restart: %+v", again.Peers())
	}
	if err := again.SetPaused("tablet", false); err != nil || again.Paused(k) {
		t.Errorf("resumed: %v, %+v", err, again.Peers())
	}
	// an older mpbond reads it again
	if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), "paused") {
		t.Errorf("%s, %v", data, err)
	}
	if err := again.SetPaused("nobody", true); !fault.Is(err, fault.NotFound) {
		t.Errorf("nobody: %v", err)
	}
	if err := again.SetPaused("home", true); !fault.Is(err, fault.Usage) || fault.HintOf(err) == "" {
		t.Errorf("a server: %v", err)
	}
}
