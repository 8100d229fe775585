//go:build unix

package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Flags of os.OpenFile: NoFollow refuses a symbolic link, NoWait does not wait
// for the other end of a pipe that lies in the file's place.
const (
	NoFollow = syscall.O_NOFOLLOW
	NoWait   = syscall.O_NONBLOCK
)

// Mine tells whether a file belongs to the user of this process.
func Mine(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return !ok || int(sys.Uid) == os.Geteuid()
}

// MineIn is Mine of a file in dir; root's process takes those of the user to whom
// dir belongs, a service, say, for its own, too.
func MineIn(st fs.FileInfo, dir string) bool {
	if Mine(st) || os.Geteuid() != 0 {
		return Mine(st)
	}
	d, err := os.Stat(dir)
	if err != nil {
		return false
	}
	file, ok := st.Sys().(*syscall.Stat_t)
	in, same := d.Sys().(*syscall.Stat_t)
	return ok && same && file.Uid == in.Uid
}

// Planted tells whether the user to whom dir belongs may have put a file there that
// is not theirs, so that root's process reads, changes or gives away what it leads
// to: it belongs to somebody else, or has another name too. For other processes
// nothing is planted, since they may do what their user may, nor in root's directories.
func Planted(st fs.FileInfo, dir string) bool {
	if os.Geteuid() != 0 {
		return false
	}
	d, err := os.Stat(dir)
	if err != nil {
		return true
	}
	file, ok := st.Sys().(*syscall.Stat_t)
	in, same := d.Sys().(*syscall.Stat_t)
	return !ok || !same || in.Uid != 0 && (file.Uid != in.Uid || file.Nlink > 1)
}

// Has tells whether a file gives others one of the rights.
func Has(st fs.FileInfo, rights fs.FileMode) bool { return st.Mode().Perm()&rights != 0 }

// GiveTo makes the owner of dir that of f, if this is root's process.
func GiveTo(f *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(sys.Uid), int(sys.Gid))
	}
	return nil
}

// LockDir locks a directory, which is made if need be; while another process has
// it, it waits.
func LockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
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

func sync(d *os.File) error { return d.Sync() }
