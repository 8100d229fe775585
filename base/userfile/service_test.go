// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"mpbond/api/serve"
	"mpbond/base/fault"
	"mpbond/base/identity"
)

// TestFilesOfAService checks that a service can read what root writes into its directory, and root
// what the service keeps there: keys, the trust file, the API token. Tokens of other users are
// rejected.
func TestFilesOfAService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to another user")
	}
	const user = 12345
	dir := t.TempDir()
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "api.token")
	if _, err := serve.ReadToken(path); !fault.Is(err, fault.NotFound) {
		t.Errorf("there is none: %v", err)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("%v was made", list)
	}
	token, err := serve.LoadOrCreateToken(path)
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.CreateKey(filepath.Join(dir, "device.key"))
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	if err == nil {
		err = trust.Add(identity.Peer{Name: "laptop", Key: key.Public(), Roles: []identity.Role{identity.RolePrimary}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api.token", "device.key", "trust.toml"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if sys := st.Sys().(*syscall.Stat_t); sys.Uid != user || sys.Gid != user || st.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %d:%d, mode %v; want %d, 0600", name, sys.Uid, sys.Gid, st.Mode(), user)
		}
	}
	if got, err := serve.ReadToken(path); got != token || err != nil {
		t.Errorf("root reads %q, want %q (%v)", got, token, err)
	}
	if err := os.Chown(path, user+1, user); err != nil {
		t.Fatal(err)
	}
	if _, err := serve.ReadToken(path); !fault.Is(err, fault.Permission) {
		t.Errorf("somebody else's: %v", err)
	}
}
