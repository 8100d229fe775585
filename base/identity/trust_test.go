// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"mpbond/base/fault"
)

func openTrust(t *testing.T, path string) *Trust {
	t.Helper()
	tr, err := OpenTrust(path)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTrust(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "trust.toml")
	a, other := openTrust(t, path), openTrust(t, path)
	home := Peer{"home", []Role{RoleServer}, mustKey(t).Public(),
		[]string{"vps.example.org:7600", "[2001:db8::1]:7600"}, nil, "", false}
	phone := Peer{"phone", []Role{RoleHelper, RolePrimary}, mustKey(t).Public(), nil, nil, "", false}
	for _, p := range []Peer{home, phone} {
		if err := a.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if len(other.Peers()) != 0 {
		t.Error("changes of others came without Reload")
	}
	if err := other.Reload(); err != nil {
		t.Fatal(err)
	}
	for _, tr := range []*Trust{a, other} {
		if p, ok := tr.Lookup(home.Key); !ok || fmt.Sprint(p) != fmt.Sprint(home) {
			t.Errorf("Lookup: %v, %v", p, ok)
		}
		if p, ok := tr.LookupName("phone"); !ok || p.Key != phone.Key || !p.HasRole(RolePrimary) ||
			p.HasRole(RoleServer) {
			t.Errorf("LookupName: %v, %v", p, ok)
		}
		if got := tr.ByRole(RoleHelper); len(got) != 1 || got[0].Name != "phone" {
			t.Errorf("ByRole: %v", got)
		}
		if ok := tr.Allowed(RoleHelper); !ok(phone.Key) || ok(home.Key) || ok(PublicKey{}) {
			t.Error("Allowed is wrong")
		}
	}
	if err := a.Remove("home"); err != nil {
		t.Fatal(err)
	}
	if err := a.Remove("home"); !fault.Is(err, fault.NotFound) {
		t.Errorf("second Remove: %v", err)
	}
	if _, ok := a.Lookup(home.Key); ok || len(a.Peers()) != 1 {
		t.Error("home is still there")
	}
}

func TestAddRefuses(t *testing.T) {
	tr := openTrust(t, filepath.Join(t.TempDir(), "trust.toml"))
	k := mustKey(t).Public()
	good := Peer{"a", []Role{RoleHelper}, k, nil, nil, "", false}
	if err := tr.Add(good); err != nil {
		t.Fatal(err)
	}
	k2 := mustKey(t).Public()
	helper := []Role{RoleHelper}
	for _, c := range []struct {
		peer Peer
		kind fault.Kind
		text string
	}{
		{Peer{"a", helper, k2, nil, nil, "", false}, fault.Exists, "already trusted"},
		{Peer{"b", helper, k, nil, nil, "", false}, fault.Exists, `name "a"`},
		{Peer{"", helper, k2, nil, nil, "", false}, fault.Usage, "name"},
		{Peer{"two words", helper, k2, nil, nil, "", false}, fault.Usage, "letters"},
		{Peer{strings.Repeat("x", 65), helper, k2, nil, nil, "", false}, fault.Usage, "64"},
		{Peer{"b", nil, k2, nil, nil, "", false}, fault.Usage, "role"},
		{Peer{"b", []Role{"king"}, k2, nil, nil, "", false}, fault.Usage, "king"},
		{Peer{"b", []Role{RoleHelper, RoleHelper}, k2, nil, nil, "", false}, fault.Usage, "twice"},
		{Peer{"b", helper, PublicKey{}, nil, nil, "", false}, fault.Usage, "no key"},
		{Peer{"b", helper, k2, []string{"example.org"}, nil, "", false}, fault.Usage, "host:port"},
		{Peer{"b", helper, k2, []string{"example.org:http"}, nil, "", false}, fault.Usage, "port"},
		{Peer{"b", helper, k2, []string{"example.org:0"}, nil, "", false}, fault.Usage, "port"},
		{Peer{"b", helper, k2, []string{":80"}, nil, "", false}, fault.Usage, "host"},
		{Peer{"b", helper, k2, slices.Repeat([]string{"h:1"}, 17), nil, "", false}, fault.Usage, "16"},
		{Peer{"b", helper, k2, nil, slices.Repeat([]string{"h:1"}, 65), "", false}, fault.Usage, "64 servers"},
		{Peer{"b", helper, k2, nil, []string{"h"}, "", false}, fault.Usage, "host:port"},
	} {
		if err := tr.Add(c.peer); !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v of kind %q, want %q and kind %q", c.peer, err, fault.KindOf(err), c.text, c.kind)
		}
	}
	if len(tr.Peers()) != 1 {
		t.Error("a refused device was added")
	}
}

func TestBadTrustFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trust.toml")
	k := mustKey(t).Public().String()
	entry := "[[peer]]\nname='a'\nroles=['helper']\nkey='" + k + "'\n"
	write := func(s string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(entry, 0o600)
	tr := openTrust(t, path)
	for in, text := range map[string]string{
		"[[peer]]\nnmae='a'": "nmae", "x": "toml:1", entry + entry: "two devices",
		entry + strings.Replace(entry, "'a'", "'b'", 1): "same key", "[[peer]]\nname='a'\n": "no role",
		"[[peer]]\nname='a'\nroles=['helper']\n": "no key", strings.Replace(entry, k[4:8], "aaaa", 1): "typo",
	} {
		write(in, 0o600)
		if err := tr.Reload(); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want %q in it", in, err, text)
		}
		if len(tr.Peers()) != 1 {
			t.Fatal("a bad file replaced what was known")
		}
		if err := tr.Rename("a", "b"); err == nil {
			t.Fatal("a bad file was overwritten")
		}
	}
	write(entry, 0o622)
	if err := tr.Reload(); !fault.Is(err, fault.Permission) {
		t.Errorf("writable by others: %v", err)
	}
	write(entry, 0o644)
	if err := tr.Reload(); err != nil {
		t.Errorf("readable by others: %v", err)
	}
	broken, err := OpenTrust(filepath.Dir(path))
	if err == nil || broken.Allowed(RoleHelper)(PublicKey{}) || len(broken.Peers()) != 0 {
		t.Error("a directory passed as a trust file")
	}
}

// TestTrustConcurrently checks that changes through several Trusts of one file, as by several
// processes, are all kept, with concurrent lookups.
func TestTrustConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trust.toml")
	reader := openTrust(t, path)
	var wg sync.WaitGroup
	for i := range 8 {
		tr, key := openTrust(t, path), mustKey(t).Public()
		wg.Go(func() {
			if err := tr.Add(Peer{fmt.Sprintf("d%d", i), []Role{RoleHelper}, key, nil, nil, "", false}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := reader.Reload(); err != nil {
				t.Error(err)
			}
			for _, p := range reader.Peers() {
				if _, ok := reader.Lookup(p.Key); !ok {
					t.Error("listed and not found, though nothing is removed")
				}
			}
		})
	}
	wg.Wait()
	if err := reader.Reload(); err != nil || len(reader.Peers()) != 8 {
		t.Errorf("%d devices, %v", len(reader.Peers()), err)
	}
}

// TestReloadKeepsChanges checks that Reload does not restore an older state.
func TestReloadKeepsChanges(t *testing.T) {
	tr := openTrust(t, filepath.Join(t.TempDir(), "trust.toml"))
	end := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if err := tr.Reload(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 50 {
		p := Peer{fmt.Sprintf("d%d", i), []Role{RoleHelper}, mustKey(t).Public(), nil, nil, "", false}
		if err := tr.Add(p); err != nil {
			t.Error(err)
		}
		for range 10 {
			if _, ok := tr.Lookup(p.Key); !ok {
				t.Errorf("device %d was added, and is not known", i)
			}
		}
	}
	close(end)
	wg.Wait()
}

func FuzzTrustFile(f *testing.F) {
	f.Add("[[peer]]\nname='a'\nroles=['helper']\nkey='mpb1aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypya6um'\n" +
		"addresses=['h:1']")
	f.Add("[[peer]]\nname=1")
	f.Fuzz(func(t *testing.T, in string) {
		p, err := parseTrust("f", []byte(in))
		if err != nil {
			if fault.KindOf(err) != fault.Config {
				t.Errorf("kind %q: %v", fault.KindOf(err), err)
			}
			return
		}
		for _, peer := range p.list {
			if err := peer.Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRemoveUnread checks that a removed device loses trust at once even if the file cannot be
// read, that the error says so, and that the file is written once it can be read again.
func TestRemoveUnread(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"open to others": func(path string) error { return os.Chmod(path, 0o666) },
		"broken":         func(path string) error { return os.WriteFile(path, []byte("[[peer"), 0o600) },
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"no directory": func(path string) error {
			dir := filepath.Dir(path)
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "mpbond")
			path := filepath.Join(dir, "trust.toml")
			tr := openTrust(t, path)
			lost, other := mustKey(t).Public(), mustKey(t).Public()
			for name, key := range map[string]PublicKey{"lost": lost, "other": other} {
				if err := tr.Add(Peer{Name: name, Roles: []Role{RoleHelper}, Key: key}); err != nil {
					t.Fatal(err)
				}
			}
			data, err := os.ReadFile(path)
			if err == nil {
				err = spoil(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			expect := func(unsaved int) {
				t.Helper()
				if tr.Allowed(RoleHelper)(lost) || !tr.Allowed(RoleHelper)(other) || len(tr.Unsaved()) != unsaved {
					t.Errorf("trusted are %v, unsaved %v", tr.Peers(), tr.Unsaved())
				}
			}
			if err := tr.Remove("nobody"); err == nil || fault.Is(err, fault.NotSaved) {
				t.Errorf("nobody: %v", err)
			}
			err = tr.Remove("lost")
			if !fault.Is(err, fault.NotSaved) || !strings.Contains(err.Error(), "not yet written") ||
				!strings.Contains(fault.HintOf(err), "restart") {
				t.Errorf("%v (%s)", err, fault.HintOf(err))
			}
			expect(1)
			if tr.Reload() == nil || tr.Save() == nil {
				t.Error("it can be read")
			}
			expect(1)
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(path, data, 0o600),
				tr.Reload()); err != nil {
				t.Fatal(err)
			}
			expect(1)
			if err := tr.Save(); err != nil {
				t.Error(err)
			}
			expect(0)
			if now := openTrust(t, path); now.Allowed(RoleHelper)(lost) || !now.Allowed(RoleHelper)(other) {
				t.Error("it was not written")
			}
		})
	}
}
