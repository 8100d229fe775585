// SPDX-License-Identifier: Apache-2.0

//go:build unix

package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWriteKeepsOwner checks that a replaced file keeps its owner, group and mode.
func TestWriteKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file to another user")
	}
	path := filepath.Join(t.TempDir(), "p.toml")
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1234, 1235); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("theirs")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "theirs" {
		t.Errorf("%q, %v", data, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if uid, gid := ownerOf(t, path); uid != 1234 || gid != 1235 {
		t.Errorf("it belongs to %d:%d now", uid, gid)
	}
}

func ownerOf(t *testing.T, path string) (uid, gid int) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	return int(sys.Uid), int(sys.Gid)
}
