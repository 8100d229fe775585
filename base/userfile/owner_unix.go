//go:build unix

package userfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// errDeep is the error of links that lead to links, as the kernel's ELOOP.
var errDeep = errors.New("too many symbolic links")

const maxLinks = 40 // as Linux

// walk finds whose directory decides on path, as a path without links as far as it is
// root's. Each step looks only into directories that nobody but root can change, or
// where everybody may add files but change only their own.
func walk(path string) (o owner, err error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return o, err
	}
	o = owner{own: true, path: filepath.Clean(path)}
	at, todo := "/", split(full)
	for follow := 0; len(todo) > 0; {
		if at == "/proc" {
			return o, nil // its links have no text; only root's way leads here
		}
		if todo[0] == ".." {
			at, todo = filepath.Dir(at), todo[1:]
			continue
		}
		dir, err := os.Lstat(at)
		if err != nil {
			return o, err
		}
		shared := isShared(dir)
		if shared && dir.Mode()&fs.ModeSticky == 0 {
			o.open = at
		}
		next := filepath.Join(at, todo[0])
		st, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && len(todo) == 1 {
			o.leaveAt(next, shared)
			return o, nil
		}
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			return o, &fs.PathError{Op: "open", Path: path, Err: pe.Err}
		} else if err != nil {
			return o, err
		}
		uid := ownerOf(st)
		switch {
		case st.IsDir():
			if uid != 0 {
				return owner{uid: uid, pin: next, path: filepath.Join(todo[1:]...), open: o.open}, nil
			}
			if len(todo) == 1 && isShared(st) && st.Mode()&fs.ModeSticky == 0 {
				o.open = next
			}
			at, todo = next, todo[1:]
		case uid != 0 && (shared || st.Mode()&fs.ModeSymlink != 0): // a link belongs to the user who made it
			return owner{uid: uid, pin: at, path: filepath.Join(todo...), open: o.open}, nil
		case st.Mode()&fs.ModeSymlink != 0:
			if follow++; follow > maxLinks {
				return o, &fs.PathError{Op: "open", Path: path, Err: errDeep}
			}
			to, err := os.Readlink(next)
			if err != nil {
				return o, err
			}
			if filepath.IsAbs(to) {
				at = "/"
			}
			todo = append(split(to), todo[1:]...)
		default:
			o.leaveAt(filepath.Join(append([]string{at}, todo...)...), shared)
			return o, nil
		}
	}
	return o, nil
}

// isShared reports whether others than root may make files in a directory of root's: its
// group, be it root's own, may also be the mask of an access control list.
func isShared(dir fs.FileInfo) bool { return Has(dir, 0o022) }

// leaveAt ends a walk at a file of root's. Where others may put a link in its place none
// is followed: then at, which root's links led to, is used.
func (o *owner) leaveAt(at string, shared bool) {
	if o.shared = shared; shared {
		o.path = at
	}
}

// errOpen is why a directory is no home for root's files: others can replace them.
var errOpen = errors.New("others than root can change what is in this directory: run `chmod go-w` on it, or use another one")

// split lists the names of a path, without those that stay where they are.
func split(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// ownerOf returns the user to whom a file belongs; who is over this process's root, in
// a user namespace, counts as root.
func ownerOf(st fs.FileInfo) int {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid == 65534 && unmapped() {
		return 0
	}
	return int(sys.Uid)
}

// links returns how many names a file has.
func links(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Nlink)
	}
	return 1
}
