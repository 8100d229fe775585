// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks the file for this process until it is closed.
func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("the file is in use")
	}
	return nil // on systems without locks, ignore them
}

// releaseLock unlocks the file, which stays open.
func releaseLock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
