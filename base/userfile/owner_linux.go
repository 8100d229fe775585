// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// actsFor is the user whose rights this process uses for all files, 0 for none.
var actsFor atomic.Int64

// ActAsOwnerOf makes root's process use all files with the rights of the user who owns path, if
// that is not root: the content of path, a configuration, names other files.
func ActAsOwnerOf(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	o, err := walkPathToOwner(path)
	if err == nil && o.openDir != "" {
		return &fs.PathError{Op: "use", Path: o.openDir, Err: errWritableByOthers}
	}
	if err == nil && o.ownRights { // in root's directory
		var st fs.FileInfo
		if st, err = os.Stat(o.path); err == nil {
			o.uid = fileOwnerUID(st)
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // only root could create it
		return nil
	}
	if err != nil || o.uid == 0 {
		return err
	}
	if !actsFor.CompareAndSwap(0, int64(o.uid)) && actsFor.Load() != int64(o.uid) {
		return fmt.Errorf("%s belongs to user %d, but this process already acts for user %d", path, o.uid,
			actsFor.Load())
	}
	return nil
}

// findFileAccess returns how to access path.
func findFileAccess(path string) (fileAccess, error) {
	if os.Geteuid() != 0 {
		return fileAccess{ownRights: true, path: path}, nil
	}
	o, err := walkPathToOwner(path)
	uid := int(actsFor.Load())
	switch {
	case uid == 0:
		return o, err
	case err == nil && !o.ownRights && o.uid == uid:
		return o, nil
	}
	return fileAccess{uid: uid, path: path}, nil // the kernel reports errors
}

// withAccessRights calls f with these rights and a path that leads to o's.
func (o fileAccess) withAccessRights(f func(path string) error) error {
	if o.ownRights {
		return f(o.path)
	}
	r, err := lookupUserRights(o.uid)
	if err != nil {
		return err
	}
	path, pinned := o.path, ""
	if o.pin != "" {
		fd, err := o.openPinned()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		pinned = "/proc/self/fd/" + strconv.Itoa(fd)
		path = pinned + "/" + cmp.Or(o.path, ".")
	}
	result := make(chan error, 1)
	go func() { result <- r.runWithUserRights(func() error { return f(path) }) }()
	return unpinErrorPaths(<-result, pinned, o.pin)
}

// openPinned opens the user's directory. Root's process gets there even if the user cannot: systemd
// keeps its services' directories in one that is closed to them.
func (o fileAccess) openPinned() (fd int, err error) {
	fd, err = unix.Open(o.pin, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: o.pin, Err: err}
	}
	return fd, nil
}

// unpinErrorPaths replaces pinned, where an error names it as the beginning of a path, by dir.
func unpinErrorPaths(err error, pinned, dir string) error {
	if err == nil || pinned == "" {
		return err
	}
	restore := func(path *string) {
		if rest, ok := strings.CutPrefix(*path, pinned); ok {
			*path = filepath.Join(dir, rest)
		}
	}
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		restore(&e.Path)
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) {
		restore(&e.Old)
		restore(&e.New)
	}
	return err
}

// userRights are the rights of a user.
type userRights struct {
	uid, gid int
	groups   []int
}

var rightsCache struct {
	sync.Mutex
	rights map[int]userRights
}

// nobodyID is the group of users without one.
const nobodyID = 65534

// lookupUserRights returns the user's groups from the system's user database. For an unknown user
// it assumes only the group of the same number, by custom.
func lookupUserRights(uid int) (userRights, error) {
	rightsCache.Lock()
	defer rightsCache.Unlock()
	if r, ok := rightsCache.rights[uid]; ok {
		return r, nil
	}
	r := userRights{uid: uid, gid: uid}
	if uid > 1<<31-1 {
		r.gid = nobodyID
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err == nil {
		if r.gid, err = strconv.Atoi(u.Gid); err != nil {
			return r, err
		}
		list, _ := u.GroupIds() // without them fewer accesses succeed
		for _, g := range list {
			if n, err := strconv.Atoi(g); err == nil {
				r.groups = append(r.groups, n)
			}
		}
	}
	if rightsCache.rights == nil {
		rightsCache.rights = map[int]userRights{}
	}
	rightsCache.rights[uid] = r
	return r, nil
}

// runWithUserRights calls f with these rights on a locked thread. A thread whose own rights cannot
// be restored ends with the goroutine, which belongs to this call.
func (r userRights) runWithUserRights(f func() error) error {
	runtime.LockOSThread()
	groups, err := unix.Getgroups()
	if err != nil {
		return err
	}
	root := userRights{os.Geteuid(), os.Getegid(), groups}
	if err := r.applyToThread(); err != nil {
		_ = root.applyToThread()
		return fmt.Errorf("cannot switch to the rights of user %d, who owns the directory: %w: "+
			"run mpbond as that user, or with the capabilities SETUID and SETGID", r.uid, err)
	}
	err = f()
	if root.applyToThread() == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// applyToThread sets the file system rights of this thread. The kernel drops root's file
// capabilities together with the user ID, and restores them with root's.
func (r userRights) applyToThread() error {
	if err := unix.Setgroups(r.groups); err != nil { // for this thread; package syscall's changes all
		return err
	}
	_ = unix.Setfsgid(r.gid) // these calls return no errors; the result is checked below
	_ = unix.Setfsuid(r.uid)
	gid, _ := unix.SetfsgidRetGid(-1)
	uid, _ := unix.SetfsuidRetUid(-1)
	if uid != r.uid || gid != r.gid {
		return unix.EPERM
	}
	return nil
}

// openFileNamed opens the file at path; name appears in errors.
func openFileNamed(path, name string, flag int, mode fs.FileMode) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC|unix.O_LARGEFILE, uint32(mode.Perm()))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case !errors.Is(err, unix.EINTR):
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// nobodyIsUnmapped reports whether nobodyID stands for users outside this process's user namespace:
// root of a namespace cannot act for them, nor they in it. The kernel shows them as "nobody".
var nobodyIsUnmapped = sync.OnceValue(func() bool {
	f, err := os.Open("/proc/self/uid_map")
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var in, out, n int64
		if _, err := fmt.Sscan(lines.Text(), &in, &out, &n); err == nil && in <= nobodyID && nobodyID < in+n {
			return false
		}
	}
	return true
})
