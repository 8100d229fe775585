//go:build unix && !linux

package userfile

import (
	"errors"
	"io/fs"
	"os"
)

// ActFor refuses to have root's process work for the user to whom path belongs:
// only Linux lets one thread give up its rights.
func ActFor(path string) error {
	_, err := find(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func find(path string) (owner, error) {
	if os.Geteuid() != 0 {
		return owner{own: true, path: path}, nil
	}
	o, err := walk(path)
	if err == nil && !o.own {
		err = &fs.PathError{Op: "use", Path: path, Err: errors.New("root's mpbond does not work in another user's directory on this system: run it as that user")}
	}
	return o, err
}

func (o owner) do(f func(path string) error) error { return f(o.path) }

func openNamed(path, _ string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, mode)
}

func unmapped() bool { return false }
