// SPDX-License-Identifier: Apache-2.0

//go:build unix

package api

import (
	"errors"
	"mpbond/base/fault"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestListenForAUser: a process of root opens a socket in a user's directory as that user; a
// directory of another user there is rejected.
func TestListenForAUser(t *testing.T) {
	dir, run := t.TempDir(), ""
	if err := syscall.Chown(dir, 12345, 12345); err != nil || os.Geteuid() != 0 {
		t.Skipf("needs root, to give a directory to another user: %v", err)
	}
	run = filepath.Join(dir, "run")
	path := filepath.Join(run, "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{run, path, path + ".lock"} {
		if st, err := os.Lstat(name); err != nil || st.Sys().(*syscall.Stat_t).Uid != 12345 ||
			st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if l.Addr().String() != path {
		t.Errorf("it listens at %v", l.Addr())
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := Listen(path); !fault.Is(err, fault.AlreadyRunning) {
		t.Errorf("twice: %v", err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("closed: %v", err)
	}
	if err := errors.Join(os.RemoveAll(run), os.Mkdir(run, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !fault.Is(err, fault.Permission) {
		t.Errorf("root's directory in a user's: %v", err)
	}
}
