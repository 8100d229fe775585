// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Flags of os.OpenFile. NoFollow rejects a symbolic link. NoWait does not wait for the other end of
// a FIFO in the file's place.
const (
	NoFollow = syscall.O_NOFOLLOW
	NoWait   = syscall.O_NONBLOCK
)

// IsOwn reports whether a file belongs to the user of this process.
func IsOwn(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return !ok || int(sys.Uid) == os.Geteuid()
}

// IsOwnIn is IsOwn for a file in dir. Root's process also accepts files of the user who owns dir,
// such as a service.
func IsOwnIn(st fs.FileInfo, dir string) bool {
	o, err := findFileAccess(dir)
	if err != nil || o.ownRights {
		return err == nil && IsOwn(st)
	}
	return fileOwnerUID(st) == o.uid
}

// GrantsOthers reports whether a file's mode has any of the given permissions.
func GrantsOthers(st fs.FileInfo, rights fs.FileMode) bool { return st.Mode().Perm()&rights != 0 }

// Writable reports whether files can be created in dir, according to its permissions.
func Writable(dir string) bool {
	return WithOwnerRights(dir, func(dir string) error {
		return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}) == nil
}

// LockDir locks a directory, which it creates if needed. It waits while another process holds the
// lock.
func LockDir(dir string) (unlock func(), err error) {
	if err := MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, err := Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		d.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { d.Close() }, nil
}

// TryLock locks an open file until it is closed. If another process holds the lock it returns
// ErrLocked.
func TryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// CloseToOthers removes all permissions of others from an open descriptor, before it has a name.
func CloseToOthers(fd uintptr) error { return syscall.Fchmod(int(fd), 0o600) }

func syncOpenDir(d *os.File) error { return d.Sync() }
