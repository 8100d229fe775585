// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package userfile

import (
	"errors"
	"io/fs"
	"os"
)

// ActAsOwnerOf returns an error if root's process would have to act for the owner of path: only
// Linux lets a single thread drop its rights.
func ActAsOwnerOf(path string) error {
	_, err := findFileAccess(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// findFileAccess returns the rights for path. On this system root cannot use directories of other
// users.
func findFileAccess(path string) (fileAccess, error) {
	if os.Geteuid() != 0 {
		return fileAccess{ownRights: true, path: path}, nil
	}
	o, err := walkPathToOwner(path)
	if err == nil && !o.ownRights {
		err = &fs.PathError{Op: "use", Path: path,
			Err: errors.New("root cannot use another user's directory on this system: run mpbond as that user")}
	}
	return o, err
}

func (o fileAccess) withAccessRights(f func(path string) error) error { return f(o.path) }

func openFileNamed(path, _ string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, mode)
}

func nobodyIsUnmapped() bool { return false }
