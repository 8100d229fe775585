// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mpbond/base/fault"
)

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file); !fault.Is(err, fault.Exists) {
		t.Errorf("plain file: %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "precious" {
		t.Error("the file was touched")
	}
	if _, err := Listen(filepath.Join(dir, strings.Repeat("x", 120))); !fault.Is(err, fault.Limit) {
		t.Errorf("long path: %v", err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(open, "x")); !fault.Is(err, fault.Permission) {
		t.Errorf("open directory: %v", err)
	}
}

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

func TestRuntimeDir(t *testing.T) {
	t.Setenv("MPBOND_HOME", "/h")
	if got := SocketPath("helper"); got != "/h/run/helper.sock" {
		t.Error(got)
	}
	t.Setenv("MPBOND_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "/x")
	want := "/x/mpbond"
	if os.Geteuid() == 0 {
		want = "/run/mpbond"
	}
	if got := RuntimeDir(); got != want {
		t.Error(got)
	}
}
