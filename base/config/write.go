// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// Write replaces the file at path, or its link target, atomically by one with this content. Mode
// and owner stay; a new file is private to its owner. Errors are faults.
func Write(path string, data []byte) error {
	err := replaceConfigFile(path, data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fault.New(fault.Permission, fmt.Errorf("%s cannot be written: %w", path, err),
			"edit the file by hand; a running mpbond notices the change")
	}
	return fault.New(fault.Config, fmt.Errorf("%s cannot be written: %w", path, err), "")
}

// Writable reports whether Write could replace or create the file at path, according to the
// permissions of its directory. It does not try.
func Writable(path string) bool { return userfile.Writable(filepath.Dir(userfile.Resolve(path))) }

// replaceConfigFile replaces the content of the file at path, or of the one that it links to. An
// existing file keeps its owner and permissions.
func replaceConfigFile(path string, data []byte) error {
	path = userfile.Resolve(path)
	f, err := userfile.CreateTemp(filepath.Dir(path), ".mpbond-*") // several processes may write at once
	if err != nil {
		return err
	}
	if old, err := userfile.Stat(path); err == nil {
		if err := errors.Join(keepFileOwner(f, old), f.Chmod(old.Mode().Perm())); err != nil {
			return errors.Join(err, f.Close(), userfile.Remove(f.Name()))
		}
	}
	return userfile.Replace(f, path, data)
}
