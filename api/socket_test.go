// SPDX-License-Identifier: Apache-2.0

package api

import (
	"os"
	"path/filepath"
	"strings"
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
