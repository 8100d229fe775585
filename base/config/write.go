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

// Write replaces the file at path, or where it links to, by one with that text:
// whatever happens meanwhile, there is either the old one or the new one, whole.
// Its rights and its owner stay; a new file is its owner's alone. Errors are
// faults.
func Write(path string, data []byte) error {
	err := replaceFile(path, data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fault.New(fault.Permission, fmt.Errorf("%s cannot be written: %w", path, err), "change the file by hand: a running mpbond notices")
	}
	return fault.New(fault.Config, fmt.Errorf("%s cannot be written: %w", path, err), "")
}

// Writable tells whether Write could replace the file at path, or make it, as far as
// the rights of its directory tell. Nothing is tried.
func Writable(path string) bool { return userfile.Writable(filepath.Dir(userfile.Resolve(path))) }

func replaceFile(path string, data []byte) error {
	path = userfile.Resolve(path)
	f, err := userfile.CreateTemp(filepath.Dir(path), ".mpbond-*") // several processes may write at once
	if err != nil {
		return err
	}
	if old, err := userfile.Stat(path); err == nil {
		if err := errors.Join(keepOwner(f, old), f.Chmod(old.Mode().Perm())); err != nil {
			return errors.Join(err, f.Close(), userfile.Remove(f.Name()))
		}
	}
	return userfile.Replace(f, path, data)
}
