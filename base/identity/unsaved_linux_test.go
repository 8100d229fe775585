// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
)

// fullDisk returns a directory on its own disk, which fill fills and empty empties.
func fullDisk(t *testing.T) (dir string, fill, empty func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs root, to mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	name := filepath.Join(dir, "ballast")
	fill = func() {
		if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	return dir, fill, func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveOnAFullDisk checks that a removed device loses trust at once even if the file cannot be
// written: the error says so, the device stays removed after Reload, and the file is written later.
func TestRemoveOnAFullDisk(t *testing.T) {
	dir, fill, empty := fullDisk(t)
	path := filepath.Join(dir, "trust.toml")
	tr := openTrust(t, path)
	lost, other := mustKey(t).Public(), mustKey(t).Public()
	for name, key := range map[string]PublicKey{"lost": lost, "other": other} {
		if err := tr.Add(Peer{Name: name, Roles: []Role{RoleHelper}, Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if err := tr.Remove("nobody"); !fault.Is(err, fault.NotFound) {
		t.Errorf("nobody: %v", err)
	}
	err := tr.Remove("lost")
	if !fault.Is(err, fault.NotSaved) || !errors.Is(err, unix.ENOSPC) || fault.HintOf(err) == "" {
		t.Errorf("on a full disk: %v", err)
	}
	expect := func(unsaved int) {
		t.Helper()
		if tr.Allowed(RoleHelper)(lost) || !tr.Allowed(RoleHelper)(other) || len(tr.Unsaved()) != unsaved {
			t.Errorf("trusted are %v, unsaved %v", tr.Peers(), tr.Unsaved())
		}
	}
	expect(1)
	if err := tr.Remove("lost"); !fault.Is(err, fault.NotFound) {
		t.Errorf("again: %v", err)
	}
	if err := errors.Join(tr.Reload(), tr.Reload()); err != nil {
		t.Error(err)
	}
	expect(1)
	if !openTrust(t, path).Allowed(RoleHelper)(lost) {
		t.Error("another process knows already: the hint is wrong")
	}
	if err := tr.Save(); err == nil {
		t.Error("it was written on a full disk")
	}
	expect(1)
	empty()
	if err := tr.Save(); err != nil {
		t.Error(err)
	}
	expect(0)
	if openTrust(t, path).Allowed(RoleHelper)(lost) {
		t.Error("it was not written")
	}
	// Pairing the device again restores trust.
	if err := tr.Add(Peer{Name: "lost", Roles: []Role{RoleHelper}, Key: lost}); err != nil ||
		!tr.Allowed(RoleHelper)(lost) {
		t.Error(err)
	}
	// Any other change writes the removal too; another process may do so as well.
	fill()
	if err := tr.Remove("lost"); !fault.Is(err, fault.NotSaved) {
		t.Error(err)
	}
	empty()
	if err := tr.Rename("other", "new"); err != nil {
		t.Error(err)
	}
	expect(0)
	if openTrust(t, path).Allowed(RoleHelper)(lost) {
		t.Error("it was not written")
	}
}
