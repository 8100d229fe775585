package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"mpbond/fault"
)

// Write replaces the file at path, or where it links to, by one with that text:
// whatever happens meanwhile, there is either the old one or the new one, whole.
// Its rights and its owner stay; a new file is its owner's alone. Errors are
// faults.
func Write(path string, data []byte) error {
	err := replace(path, data)
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
func Writable(path string) bool {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	return dirWritable(filepath.Dir(path))
}

func replace(path string, data []byte) (err error) {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".mpbond-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if old, err := os.Stat(path); err == nil {
		if err := keepOwner(f, old); err != nil {
			return err
		}
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil //nolint:nilerr // it is there; only its name is not surely on the disk
	}
	defer d.Close()
	_ = d.Sync() // as above
	return nil
}
