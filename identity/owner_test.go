package identity

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFilesBelongToTheService: what root writes into a service's directory the
// service can read.
func TestFilesBelongToTheService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to another user")
	}
	const user = 12345
	dir := t.TempDir()
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	key, err := CreateKey(filepath.Join(dir, "device.key"))
	if err != nil {
		t.Fatal(err)
	}
	trust, err := OpenTrust(filepath.Join(dir, "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Add(Peer{Name: "laptop", Key: key.Public(), Roles: []Role{RolePrimary}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"device.key", "trust.toml"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if sys := st.Sys().(*syscall.Stat_t); sys.Uid != user || sys.Gid != user || st.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %d:%d, mode %v; want %d, 0600", name, sys.Uid, sys.Gid, st.Mode(), user)
		}
	}
}
