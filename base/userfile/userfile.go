// Package userfile uses the files that belong to one user: with that user's rights,
// also when root's process is asked to, with locks, and whole or not at all. It stands
// beside the data path, below all that keeps files: what else uses package os for that
// does not pass the tests of package archtest.
//
// A directory of root's that a group or everybody may write protects nothing in it: whoever
// may write there gives a file of root's, or a directory, the name of another one, or puts
// a link in its place between a look at it and its use. Root's process does not keep its
// key, its list of devices or its configuration in or below one. Files that root itself
// names there are used, since people share directories so: no link is followed in the
// place of such a file, one to be written has no other name, and what belongs to another
// user is used with that user's rights. The directories on the way to it are root's to
// choose. With the sticky bit others may add files, but replace none.
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
