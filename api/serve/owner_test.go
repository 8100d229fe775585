//go:build unix

package serve

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"mpbond/fault"
)

// TestTokenOfAService: root reads a service's token, and the one that root makes
// the service can read; nobody else's is taken.
func TestTokenOfAService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to another user")
	}
	const user = 12345
	dir := t.TempDir()
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "api.token")
	if _, err := ReadToken(path); !fault.Is(err, fault.NotFound) {
		t.Errorf("there is none: %v", err)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("%v was made", list)
	}
	token, err := Token(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if sys := st.Sys().(*syscall.Stat_t); sys.Uid != user || sys.Gid != user || st.Mode().Perm() != 0o600 {
		t.Errorf("it belongs to %d:%d, mode %v; want %d, 0600", sys.Uid, sys.Gid, st.Mode(), user)
	}
	if got, err := ReadToken(path); got != token || err != nil {
		t.Errorf("root reads %q, want %q (%v)", got, token, err)
	}
	if err := os.Chown(path, user+1, user); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(path); !fault.Is(err, fault.Permission) {
		t.Errorf("somebody else's: %v", err)
	}
}
