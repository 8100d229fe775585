// SPDX-License-Identifier: Apache-2.0

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

// errTooManyLinks is the error of a cycle of links, as the kernel's ELOOP.
var errTooManyLinks = errors.New("too many symbolic links")

const maxLinks = 40 // as on Linux

// walkPathToOwner determines the user who controls path, and resolves links as long as they are
// root's. Each step looks only into directories that only root can change, or where users may add
// files but change only their own.
func walkPathToOwner(path string) (o fileAccess, err error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return o, err
	}
	o = fileAccess{ownRights: true, path: filepath.Clean(path)}
	at, todo := "/", splitPathNames(full)
	for follow := 0; len(todo) > 0; {
		if at == "/proc" {
			return o, nil // its links have no target path; only root's path leads here
		}
		if todo[0] == ".." {
			at, todo = filepath.Dir(at), todo[1:]
			continue
		}
		dir, err := os.Lstat(at)
		if err != nil {
			return o, err
		}
		shared := isSharedDir(dir)
		if shared && dir.Mode()&fs.ModeSticky == 0 {
			o.openDir = at
		}
		next := filepath.Join(at, todo[0])
		st, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && len(todo) == 1 {
			o.stopWalkAtFile(next, shared)
			return o, nil
		}
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			return o, &fs.PathError{Op: "open", Path: path, Err: pe.Err}
		} else if err != nil {
			return o, err
		}
		uid := fileOwnerUID(st)
		switch {
		case st.IsDir():
			if uid != 0 {
				return fileAccess{uid: uid, pin: next, path: filepath.Join(todo[1:]...), openDir: o.openDir}, nil
			}
			if len(todo) == 1 && isSharedDir(st) && st.Mode()&fs.ModeSticky == 0 {
				o.openDir = next
			}
			at, todo = next, todo[1:]
		case uid != 0 && (shared || st.Mode()&fs.ModeSymlink != 0): // a link belongs to its creator
			return fileAccess{uid: uid, pin: at, path: filepath.Join(todo...), openDir: o.openDir}, nil
		case st.Mode()&fs.ModeSymlink != 0:
			if follow++; follow > maxLinks {
				return o, &fs.PathError{Op: "open", Path: path, Err: errTooManyLinks}
			}
			to, err := os.Readlink(next)
			if err != nil {
				return o, err
			}
			if filepath.IsAbs(to) {
				at = "/"
			}
			todo = append(splitPathNames(to), todo[1:]...)
		default:
			o.stopWalkAtFile(filepath.Join(append([]string{at}, todo...)...), shared)
			return o, nil
		}
	}
	return o, nil
}

// isSharedDir reports whether users other than root may create files in a directory of root's. Even
// root's own group counts: its bits may be the mask of an access control list.
func isSharedDir(dir fs.FileInfo) bool { return GrantsOthers(dir, 0o022) }

// stopWalkAtFile ends a walk at a file of root's. If others may put a link in its place, links are
// not followed and at, the result of root's links, is used.
func (o *fileAccess) stopWalkAtFile(at string, shared bool) {
	if o.shared = shared; shared {
		o.path = at
	}
}

// errWritableByOthers rejects a directory for root's files: others can replace them.
var errWritableByOthers = errors.New("users other than root can write to this directory: " +
	"run `chmod go-w` on it, or use another one")

// splitPathNames returns the names in a path, without "." and empty ones.
func splitPathNames(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// fileOwnerUID returns the user ID of a file's owner. Users outside a user namespace count as its
// root.
func fileOwnerUID(st fs.FileInfo) int {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid == 65534 && nobodyIsUnmapped() {
		return 0
	}
	return int(sys.Uid)
}

// hardLinkCount returns the number of names of a file.
func hardLinkCount(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Nlink)
	}
	return 1
}
