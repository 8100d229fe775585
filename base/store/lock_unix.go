//go:build unix

package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the file for this process, until it is closed.
func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("it is in use")
	}
	return nil // where locks do not work, there are none
}

// releaseLock lets other processes have the file, which is still open.
func releaseLock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
