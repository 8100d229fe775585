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

// Flags of os.OpenFile: NoFollow refuses a symbolic link, NoWait does not wait
// for the other end of a pipe that lies in the file's place.
const (
	NoFollow = syscall.O_NOFOLLOW
	NoWait   = syscall.O_NONBLOCK
)

// IsOwn tells whether a file belongs to the user of this process.
func IsOwn(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return !ok || int(sys.Uid) == os.Geteuid()
}

// IsOwnIn is Mine of a file in dir; root's process takes those of the user to whom dir
// belongs, a service, say, for its own.
func IsOwnIn(st fs.FileInfo, dir string) bool {
	o, err := findAccess(dir)
	if err != nil || o.ownRights {
		return err == nil && IsOwn(st)
	}
	return ownerUID(st) == o.uid
}

// GrantsOthers tells whether a file gives others one of the rights.
func GrantsOthers(st fs.FileInfo, rights fs.FileMode) bool { return st.Mode().Perm()&rights != 0 }

// Writable reports whether files can be made in dir, as far as its rights say.
func Writable(dir string) bool {
	return WithOwnerRights(dir, func(dir string) error {
		return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}) == nil
}

// LockDir locks a directory, which is made if need be; while another process has
// it, it waits.
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

// TryLock locks an open file until it is closed. If another process has it, that
// is ErrLocked.
func TryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// CloseToOthers takes all rights of others from what an open descriptor is, before
// it has a name.
func CloseToOthers(fd uintptr) error { return syscall.Fchmod(int(fd), 0o600) }

func syncDir(d *os.File) error { return d.Sync() }
