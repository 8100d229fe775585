// SPDX-License-Identifier: Apache-2.0

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

// IsOwn returns true: only administrators can access another user's directories.
func IsOwn(fs.FileInfo) bool { return true }

// IsOwnIn returns true, as IsOwn does.
func IsOwnIn(fs.FileInfo, string) bool { return true }

// GrantsOthers returns false: on Windows a file's mode does not show who may use it, and a user's
// own directories are closed to others.
func GrantsOthers(fs.FileInfo, fs.FileMode) bool { return false }

// Writable reports whether dir is a directory: its mode does not show who may write.
func Writable(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}

// LockDir locks a directory, which it creates if needed, by a file in it. It waits while another
// process holds the lock.
func LockDir(dir string) (unlock func(), err error) {
	if err := MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFileExclusive(f, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// TryLock locks an open file until it is closed. If another process holds the lock it returns
// ErrLocked.
func TryLock(f *os.File) error {
	err := lockFileExclusive(f, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

func lockFileExclusive(f *os.File, flags uint32) error {
	var at windows.Overlapped
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|flags, 0, 1, 0, &at)
}

// CloseToOthers does nothing: see GrantsOthers.
func CloseToOthers(uintptr) error { return nil }

func syncOpenDir(*os.File) error { return nil } // directories cannot be synced
