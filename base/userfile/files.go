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

// fileAccess is the user whose rights are used for the files at a path.
//
// Root's process may be asked to work in a user's directory, with sudo and
// MPBOND_HOME, say, or for a service. That user can put a link, a FIFO or another
// name of a file there at any time. So root's process gives up its rights for
// everything there: what the user may not do, it cannot be made to do. The first
// directory on the way that is not root's decides, since nobody but root can change
// what is above it. See docs/adr/0012-files-with-the-rights-of-their-user.md.
type fileAccess struct {
	ownRights bool   // the process's own rights
	openDir   string // a directory on the way that others than root may change; "": none
	shared    bool   // others may make files in the directory: root follows no link there
	uid       int    // unless own
	pin       string // the directory that decided, as a path; "": none
	path      string // with pin: from there
}

// The functions of this file do what those of package os do, with the rights of the
// user to whom the files belong: see owner.

// WithOwnerRights calls f with a path that leads to where path does. For root's process in a
// user's directory f runs with that user's rights, on a thread of its own, and must
// start no goroutine that uses the path. Use it for what no other function here does:
// to listen or to dial at a Unix socket, or to watch a directory.
func WithOwnerRights(path string, f func(path string) error) error {
	o, err := findAccess(path)
	if err != nil {
		return err
	}
	return o.withRights(f)
}

// withDirRights is Do for what changes the entry of a directory and never follows a link
// in its place: there the directory alone decides on the rights.
func withDirRights(path string, f func(path string) error) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return WithOwnerRights(dir, func(dir string) error { return f(filepath.Join(dir, base)) })
}

// Open opens a file or a directory for reading.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile opens a file. For root's process in a user's directory it must be a plain
// one, or a directory, and one to be written has no other name.
func OpenFile(path string, flag int, mode fs.FileMode) (*os.File, error) {
	return openChecked(path, flag, mode, true)
}

// OpenSpecial is OpenFile of what may be a FIFO or a device too.
func OpenSpecial(path string, flag int) (*os.File, error) { return openChecked(path, flag, 0, false) }

func openChecked(path string, flag int, mode fs.FileMode, plain bool) (f *os.File, err error) {
	o, err := findAccess(path)
	if err != nil {
		return nil, err
	}
	if o.ownRights && flag&NoFollow != 0 {
		o.path = filepath.Clean(path) // not where it leads
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
		flag |= NoWait // a FIFO in the file's place
	}
	err = o.withRights(func(actual string) (err error) {
		f, err = openNamed(actual, path, flag, mode)
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

// checkPlain returns an error unless f is a plain file, with one name if it is to be
// written, or a directory.
func checkPlain(f *os.File, write bool) error {
	st, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular() && !st.IsDir():
		return &fs.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf("it is no plain file: %w", fs.ErrPermission)}
	case write && st.Mode().IsRegular() && linkCount(st) > 1:
		return &fs.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf("it has another name too (a hard link): %w", fs.ErrPermission)}
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

// CreateTemp makes a new file in dir, mode 0600; the last * of pattern, or its end,
// stands for something random.
func CreateTemp(dir, pattern string) (f *os.File, err error) {
	before, after := pattern, ""
	if i := strings.LastIndexByte(pattern, '*'); i >= 0 {
		before, after = pattern[:i], pattern[i+1:]
	}
	for range 100 {
		name := before + strconv.FormatUint(uint64(rand.Uint32()), 10) + after
		if f, err = OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return f, err
}

// Replace gives f, a new file with that text beside the file at path, its name:
// whenever the process is killed, that is the old one or the new one, whole, and on
// the disk once this returns. F is closed, and after an error removed. What is in its
// place, a link too, is replaced, not followed.
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

// CreateNew makes a new file, mode 0600, in the place of what is there. What is
// written goes to its end.
func CreateNew(path string) (*os.File, error) {
	if err := Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
}

// Stat describes the file at path, or where it links to.
func Stat(path string) (st fs.FileInfo, err error) {
	err = WithOwnerRights(path, func(path string) (err error) { st, err = os.Stat(path); return err })
	return st, err
}

// Lstat describes the file at path, which may be a link.
func Lstat(path string) (st fs.FileInfo, err error) {
	err = withDirRights(path, func(path string) (err error) { st, err = os.Lstat(path); return err })
	return st, err
}

// Exists reports whether there is a file, directory or link at path.
func Exists(path string) bool {
	_, err := Lstat(path)
	return err == nil
}

// ReadDir lists a directory, by name.
func ReadDir(path string) (list []fs.DirEntry, err error) {
	err = WithOwnerRights(path, func(path string) (err error) { list, err = os.ReadDir(path); return err })
	return list, err
}

// Remove removes a file or an empty directory.
func Remove(path string) error { return withDirRights(path, os.Remove) }

// Rename gives a file another name in the same directory.
func Rename(from, to string) error { return withinDir(from, to, os.Rename) }

// Link gives a file a second name in the same directory.
func Link(from, to string) error { return withinDir(from, to, os.Link) }

func withinDir(from, to string, f func(from, to string) error) error {
	if a, b := absoluteDir(from), absoluteDir(to); a != b {
		return &os.LinkError{Op: "move", Old: from, New: to, Err: errors.New("they are in different directories")}
	}
	return withDirRights(to, func(to string) error { return f(filepath.Join(filepath.Dir(to), filepath.Base(from)), to) })
}

// absoluteDir returns the directory that a path is in: an open file has an absolute name,
// also if it was opened by another one.
func absoluteDir(path string) string {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return filepath.Dir(path)
	}
	return dir
}

// Chmod changes the rights of the file at path.
func Chmod(path string, mode fs.FileMode) error {
	return WithOwnerRights(path, func(path string) error { return os.Chmod(path, mode) })
}

// Resolve returns where path leads through links, as far as the rights of the user of
// the files at path go there too, or path.
func Resolve(path string) string {
	o, err := findAccess(path)
	if err != nil {
		return path
	}
	to := path
	err = o.withRights(func(string) (err error) { to, err = filepath.EvalSymlinks(path); return err })
	if err != nil {
		return path
	}
	if there, err := findAccess(to); err != nil || there.uid != o.uid {
		return path
	}
	return to
}

// MkdirAll makes a directory, and those that it is in.
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
	if errors.Is(err, fs.ErrExist) { // made meanwhile
		if st, e := Stat(path); e == nil && st.IsDir() {
			return nil
		}
	}
	return err
}
