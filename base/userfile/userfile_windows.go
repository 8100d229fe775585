package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// Flags of os.OpenFile that Windows does not have.
const (
	NoFollow = 0
	NoWait   = 0
)

// IsOwn takes every file for this user's: what is in a user's own directories
// nobody else may reach, but administrators.
func IsOwn(fs.FileInfo) bool { return true }

// IsOwnIn is Mine.
func IsOwnIn(fs.FileInfo, string) bool { return true }

// GrantsOthers is false: on Windows a file's mode does not tell who may use it, and what is
// in a user's own directories is closed to others.
func GrantsOthers(fs.FileInfo, fs.FileMode) bool { return false }

// Writable takes each directory for one where this user may make files: who may is not
// in its mode.
func Writable(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}

// LockDir locks a directory, which is made if need be, by a file in it; while
// another process has it, it waits.
func LockDir(dir string) (unlock func(), err error) {
	if err := MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// TryLock locks an open file until it is closed. If another process has it, that
// is ErrLocked.
func TryLock(f *os.File) error {
	err := lockFile(f, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

func lockFile(f *os.File, flags uint32) error {
	var at windows.Overlapped
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|flags, 0, 1, 0, &at)
}

// CloseToOthers does nothing: see Has.
func CloseToOthers(uintptr) error { return nil }

func syncDir(*os.File) error { return nil } // directories cannot be
