// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryFileLock locks the file for this process until it is closed.
func tryFileLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("the file is in use")
	}
	return nil // on systems without locks, ignore them
}

// releaseFileLock unlocks the file, which stays open.
func releaseFileLock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
