// Package userfile uses the files that belong to one user: with that user's rights,
// also when root's process is asked to, with locks, and whole or not at all. It stands
// beside the data path, below all that keeps files: what else uses package os for that
// does not pass the tests of package house.
package userfile

import "errors"

// ErrLocked tells that another process holds a lock.
var ErrLocked = errors.New("another process has locked it")

// SyncDir brings what has happened in a directory to the disk, where the system
// can: a file that was renamed there is there after a loss of power too.
func SyncDir(dir string) error {
	d, err := Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncDir(d), d.Close())
}
