package userfile

import (
	"io/fs"
	"os"
)

// ActFor does nothing: an administrator's process is not asked to work for another user.
func ActFor(string) error { return nil }

func find(path string) (owner, error) { return owner{own: true, path: path}, nil }

func (o owner) do(f func(path string) error) error { return f(o.path) }

func openNamed(path, _ string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, mode)
}

func links(fs.FileInfo) int { return 1 }
