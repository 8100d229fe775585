// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// fileAccess says how to access the files at a path: with the rights of which user, and from where.
//
// A process of root may have to work in a user's directory, for instance with sudo and MPBOND_HOME,
// or for a service. That user can put a link, a FIFO or a hard link there at any time. So root's
// process drops its rights for everything there: it cannot be made to do what the user may not do.
// The first directory on the way that is not root's determines the user, since only root can change
// the ones above it. See docs/adr/0012-files-with-the-rights-of-their-user.md.
type fileAccess struct {
	ownRights bool   // use the process's own rights
	openDir   string // a directory on the way that users other than root may change, or ""
	shared    bool   // others may create files in the directory: root follows no link there
	uid       int    // unless ownRights
	pin       string // path of the user's directory, or ""
	path      string // with pin: relative to it
}

// The functions of this file correspond to those of package os, but use the rights of the files'
// owner: see fileAccess.

// WithOwnerRights calls f with a path that leads to the same file as path. In root's process, f
// runs with the rights of the owner of the directory, on its own thread, and must not start
// goroutines that use the path. Use it only where no other function here fits: to listen or dial at
// a Unix socket, or to watch a directory.
func WithOwnerRights(path string, f func(path string) error) error {
	o, err := findFileAccess(path)
	if err != nil {
		return err
	}
	return o.withAccessRights(f)
}

// withDirRights is WithOwnerRights for operations on a directory entry that never follow a link in
// its place: there the directory alone determines the rights.
func withDirRights(path string, f func(path string) error) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return WithOwnerRights(dir, func(dir string) error { return f(filepath.Join(dir, base)) })
}

// Open opens a file or directory for reading.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile opens a file. In a user's directory, root's process opens only regular files and
// directories, and for writing only files without further hard links.
func OpenFile(path string, flag int, mode fs.FileMode) (*os.File, error) {
	return openChecked(path, flag, mode, true)
}

// OpenSpecial is OpenFile but also opens FIFOs and devices.
func OpenSpecial(path string, flag int) (*os.File, error) { return openChecked(path, flag, 0, false) }

// openChecked opens a file with the rights that findFileAccess names. plain requires a regular
// file.
func openChecked(path string, flag int, mode fs.FileMode, plain bool) (f *os.File, err error) {
	o, err := findFileAccess(path)
	if err != nil {
		return nil, err
	}
	if o.ownRights && flag&NoFollow != 0 {
		o.path = filepath.Clean(path) // not its target
	}
	if o.ownRights && !o.shared {
		return os.OpenFile(o.path, flag, mode)
	}
	truncate := flag&os.O_TRUNC != 0
	flag &^= os.O_TRUNC
	if o.shared {
		flag |= NoFollow
	}
	if plain {
		flag |= NoWait // there may be a FIFO
	}
	err = o.withAccessRights(func(actual string) (err error) {
		f, err = openFileNamed(actual, path, flag, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	if plain {
		err = checkPlain(f, flag&(os.O_WRONLY|os.O_RDWR) != 0)
	}
	if err == nil && truncate {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkPlain returns an error unless f is a directory or a regular file, with one name if it is to
// be written.
func checkPlain(f *os.File, write bool) error {
	st, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular() && !st.IsDir():
		return &fs.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf("not a regular file: %w", fs.ErrPermission)}
	case write && st.Mode().IsRegular() && hardLinkCount(st) > 1:
		return &fs.PathError{Op: "open", Path: f.Name(),
			Err: fmt.Errorf("the file has several names (hard links): %w", fs.ErrPermission)}
	}
	return nil
}

// ReadFile returns the content of a file.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// CreateTemp creates a new file in dir, mode 0600. The last * of pattern, or its end, becomes a
// random string.
func CreateTemp(dir, pattern string) (f *os.File, err error) {
	before, after := pattern, ""
	if i := strings.LastIndexByte(pattern, '*'); i >= 0 {
		before, after = pattern[:i], pattern[i+1:]
	}
	for range 100 {
		name := before + strconv.FormatUint(uint64(rand.Uint32()), 10) + after
		if f, err = OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); !errors.Is(err,
			fs.ErrExist) {
			break
		}
	}
	return f, err
}

// Replace writes data to f, a new file next to path, and renames it to path. If the process is
// killed, path is the old or the new file, complete. On return it is on the disk. f is always
// closed, and removed after an error. A link at path is replaced, not followed.
func Replace(f *os.File, path string, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = Rename(f.Name(), path)
	}
	if err != nil {
		_ = Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// CreateNew replaces path by a new, empty file, mode 0600. Writes append to it.
func CreateNew(path string) (*os.File, error) {
	if err := Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
}

// Stat describes the file at path and follows links.
func Stat(path string) (st fs.FileInfo, err error) {
	err = WithOwnerRights(path, func(path string) (err error) { st, err = os.Stat(path); return err })
	return st, err
}

// Lstat describes the file at path and does not follow a link.
func Lstat(path string) (st fs.FileInfo, err error) {
	err = withDirRights(path, func(path string) (err error) { st, err = os.Lstat(path); return err })
	return st, err
}

// Exists reports whether there is a file, directory or link at path.
func Exists(path string) bool {
	_, err := Lstat(path)
	return err == nil
}

// ReadDir returns the entries of a directory, by name.
func ReadDir(path string) (list []fs.DirEntry, err error) {
	err = WithOwnerRights(path, func(path string) (err error) { list, err = os.ReadDir(path); return err })
	return list, err
}

// Remove removes a file or an empty directory.
func Remove(path string) error { return withDirRights(path, os.Remove) }

// Rename changes the name of a file within a directory.
func Rename(from, to string) error { return withSameDirRights(from, to, os.Rename) }

// Link gives a file a second name within a directory.
func Link(from, to string) error { return withSameDirRights(from, to, os.Link) }

// withSameDirRights calls f, with the rights for the directory, on two paths that must be in the
// same one.
func withSameDirRights(from, to string, f func(from, to string) error) error {
	if a, b := absoluteDir(from), absoluteDir(to); a != b {
		return &os.LinkError{Op: "move", Old: from, New: to, Err: errors.New("they are in different directories")}
	}
	return withDirRights(to, func(to string) error {
		return f(filepath.Join(filepath.Dir(to), filepath.Base(from)),
			to)
	})
}

// absoluteDir returns the absolute directory of a path: open files have absolute names even if
// opened by a relative one.
func absoluteDir(path string) string {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return filepath.Dir(path)
	}
	return dir
}

// Chmod changes the mode of the file at path.
func Chmod(path string, mode fs.FileMode) error {
	return WithOwnerRights(path, func(path string) error { return os.Chmod(path, mode) })
}

// Resolve returns the target of path after following links, or path if the owner of the files at
// path has no rights there.
func Resolve(path string) string {
	o, err := findFileAccess(path)
	if err != nil {
		return path
	}
	to := path
	err = o.withAccessRights(func(string) (err error) { to, err = filepath.EvalSymlinks(path); return err })
	if err != nil {
		return path
	}
	if target, err := findFileAccess(to); err != nil || target.uid != o.uid {
		return path
	}
	return to
}

// MkdirAll creates a directory and its parents.
func MkdirAll(path string, mode fs.FileMode) error {
	if st, err := Stat(path); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if up := filepath.Dir(path); up != path {
		if err := MkdirAll(up, mode); err != nil {
			return err
		}
	}
	err := withDirRights(path, func(path string) error { return os.Mkdir(path, mode) })
	if errors.Is(err, fs.ErrExist) { // created meanwhile
		if st, e := Stat(path); e == nil && st.IsDir() {
			return nil
		}
	}
	return err
}
