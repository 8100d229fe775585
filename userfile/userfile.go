// Package userfile has what differs between systems about files that belong to
// one user: owner, rights and locks. It stands beside the data path, below
// identity and api, which keep keys, lists and sockets to their user.
package userfile

import (
	"errors"
	"os"
)

// ErrLocked tells that another process holds a lock.
var ErrLocked = errors.New("another process has locked it")

// SyncDir brings what has happened in a directory to the disk, where the system
// can: a file that was renamed there is there after a loss of power too.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(sync(d), d.Close())
}
