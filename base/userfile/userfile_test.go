// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !IsOwn(st) || !GrantsOthers(st, 0o040) || !GrantsOthers(st, 0o077) || GrantsOthers(st, 0o037) {
		t.Errorf("a file of ours of mode %v: %v, %v, %v, %v", st.Mode(), IsOwn(st), GrantsOthers(st, 0o040),
			GrantsOthers(st, 0o077), GrantsOthers(st, 0o037))
	}
	if os.Geteuid() != 0 {
		if st, err = os.Stat("/"); err != nil || IsOwn(st) {
			t.Errorf("root's directory is this user's (%v)", err)
		}
		return
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if st, err = os.Stat(path); err != nil || IsOwn(st) {
		t.Errorf("another user's file is this user's (%v)", err)
	}
	// Root reads a service's files, but no other user's files there.
	if IsOwnIn(st, filepath.Dir(path)) || IsOwnIn(st, "/nowhere") {
		t.Error("another user's file in a directory of this user is this user's")
	}
	if err := os.Chown(filepath.Dir(path), 12345, 0); err != nil {
		t.Fatal(err)
	}
	if !IsOwnIn(st, filepath.Dir(path)) {
		t.Error("a service's file is not root's to read")
	}
	if err := os.Chown(path, 12346, 12345); err != nil {
		t.Fatal(err)
	}
	if st, err = os.Stat(path); err != nil || IsOwnIn(st, filepath.Dir(path)) {
		t.Errorf("another user's file in a service's directory is root's to read (%v)", err)
	}
}

func TestLocks(t *testing.T) {
	dir := t.TempDir()
	open := func() *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|NoFollow|NoWait, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	defer second.Close()
	if err := TryLock(first); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(second); !errors.Is(err, ErrLocked) {
		t.Errorf("a file that is locked: %v", err)
	}
	first.Close()
	if err := TryLock(second); err != nil {
		t.Errorf("a file that was unlocked: %v", err)
	}

	unlock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	locked := make(chan func(), 1)
	go func() {
		unlock, err := LockDir(dir)
		if err != nil {
			t.Error(err)
		}
		locked <- unlock
	}()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := TryLock(d); !errors.Is(err, ErrLocked) {
		t.Errorf("a directory that is locked: %v", err)
	}
	select {
	case <-locked:
		t.Error("two have a directory's lock")
	default:
	}
	unlock()
	(<-locked)()
	if err := SyncDir(dir); err != nil {
		t.Error(err)
	}
	if unlock, err = LockDir(filepath.Join(dir, "a/b")); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	} else {
		unlock()
	}
}

func TestNoFollow(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(link, os.O_RDONLY|NoFollow, 0); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
}

// TestRenameRelative checks Rename of a file that was opened by a relative name.
func TestRenameRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	f, err := CreateTemp(".", ".x-*")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := Rename(f.Name(), "x"); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir("d", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Rename("x", "d/x"); err == nil {
		t.Error("moved to another directory")
	}
}
