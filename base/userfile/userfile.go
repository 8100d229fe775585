// SPDX-License-Identifier: Apache-2.0

// Package userfile accesses the files of one user: with that user's rights, even from root's
// process, with locks, and with atomic replacement. All packages that keep files use it; a test of
// package archtest rejects direct use of package os.
//
// A directory of root's that a group or everybody may write protects nothing in it: other writers
// can rename root's files and directories there, or put a link in place of one between a check and
// its use. Root's process keeps neither its key, its trust file nor its configuration in or below
// such a directory. Files that root itself names there are used, since people share directories:
// but links in their place are not followed, files to be written must have no other name, and files
// of another user are used with that user's rights. Root chooses the directories on the way. In
// directories with the sticky bit others may add files but replace none.
package userfile

import "errors"

// ErrLocked reports that another process holds a lock.
var ErrLocked = errors.New("another process has locked it")

// SyncDir writes changes of a directory to the disk, where the system can: a renamed file then
// survives a loss of power.
func SyncDir(dir string) error {
	d, err := Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncOpenDir(d), d.Close())
}
