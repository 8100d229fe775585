// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cgroupPrefix and the process ID of its owner form the name of the cgroup of one `mpbond run`.
const cgroupPrefix = "mpbond-run-"

// CheckLabel returns an error if a label is not valid. A label becomes part of the name of a
// control group, which all users can read.
func CheckLabel(s string) error {
	if len(s) > maxLabel || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != "" {
		return fmt.Errorf("a label is up to %d letters, digits and the characters _ - . in ASCII, not %q", maxLabel, s)
	}
	return nil
}

const maxLabel = 64

// LabelOf returns the label in the path of a control group of `mpbond run`, or of a group below it;
// "" if there is none.
func LabelOf(group string) (label string) {
	for part := range strings.SplitSeq(group, "/") {
		if rest, ok := strings.CutPrefix(part, cgroupPrefix); ok {
			_, label, _ = strings.Cut(rest, "-")
		}
	}
	return label
}

// cgroup is a control group (version 2) made for one app.
type cgroup struct {
	dir    *os.File // open directory; its inode number is the cgroup's id
	name   string
	parent *os.File // directory of the parent
	depth  int      // depth below the root that this process sees
	id     uint64
}

// newCgroup makes a cgroup below that of this process, so that the limits of this process apply to
// the app. It removes cgroups of dead owners.
//
// It does not need a mounted hierarchy. If /sys/fs/cgroup holds version 1 or nothing (as in a
// network namespace with a fresh /sys), it mounts a hierarchy that only this process sees, outside
// the file tree.
func newCgroup(label string) (*cgroup, error) {
	own, err := ownCgroupPath()
	if err != nil {
		return nil, err
	}
	mnt, err := mountCgroups()
	if err != nil {
		return nil, err
	}
	defer unix.Close(mnt)
	up, err := openDirectoryAt(mnt, path.Join(".", own))
	if err != nil {
		return nil, fmt.Errorf("opening the own cgroup %s: %w", own, err)
	}
	g := &cgroup{parent: up, name: cgroupPrefix + strconv.Itoa(os.Getpid())}
	if label != "" {
		g.name += "-" + label
	}
	_, _ = removeStaleCgroups(mnt) // stale ones are harmless
	if err := unix.Mkdirat(int(up.Fd()), g.name, 0o755); err != nil && err != unix.EEXIST {
		up.Close()
		return nil, fmt.Errorf("making cgroup %s: %w", path.Join(own, g.name), err)
	}
	if g.dir, err = openDirectoryAt(int(up.Fd()), g.name); err != nil {
		g.removeCgroup()
		return nil, fmt.Errorf("opening cgroup %s: %w", path.Join(own, g.name), err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(g.dir.Fd()), &st); err != nil {
		g.removeCgroup()
		return nil, err
	}
	g.id = st.Ino
	g.depth = len(strings.FieldsFunc(own, func(r rune) bool { return r == '/' })) + 1
	return g, nil
}

// mountCgroups mounts the hierarchy for this process alone and returns a descriptor of its root.
func mountCgroups() (int, error) {
	root, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("opening the cgroup file system: %w", err)
	}
	defer unix.Close(root)
	if err := unix.FsconfigCreate(root); err != nil {
		return -1, fmt.Errorf("opening the cgroup file system: %w", err)
	}
	mnt, err := unix.Fsmount(root, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mounting the cgroup file system: %w", err)
	}
	return mnt, nil
}

// ownCgroupPath returns the path of this process in the version 2 hierarchy, from the line
// "0::/path".
func ownCgroupPath() (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("finding the own cgroup: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			if strings.HasPrefix(p, "/..") {
				return "", errors.New("this process is in a cgroup outside of its cgroup namespace")
			}
			return p, nil
		}
	}
	return "", errors.New("the kernel has no cgroup version 2 hierarchy")
}

func openDirectoryAt(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// removeStaleCgroups removes cgroups anywhere in the hierarchy if their owner died before removing
// them, and returns their paths. The kernel refuses to remove a cgroup that still holds processes.
func removeStaleCgroups(mnt int) (removed []string, err error) {
	root := fmt.Sprintf("/proc/self/fd/%d/", mnt)
	return removed, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile
		}
		rest, ours := strings.CutPrefix(d.Name(), cgroupPrefix)
		if !d.IsDir() || !ours {
			return nil
		}
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if err != nil || pid <= 0 || unix.Kill(pid, 0) != unix.ESRCH {
			return nil
		}
		switch err := unix.Rmdir(at); err {
		case nil:
			removed = append(removed, "/"+strings.TrimPrefix(at, root))
		case unix.EPERM, unix.EACCES:
			return fmt.Errorf("removing cgroup %s: %w", d.Name(), err)
		}
		return fs.SkipDir
	})
}

// removeCgroup moves processes that outlived the app to the parent and its network, and
// removes the cgroup.
func (g *cgroup) removeCgroup() error {
	defer g.parent.Close()
	if g.dir != nil {
		defer g.dir.Close()
	}
	var err error
	// Processes may fork while they are moved, so try several times.
	for range 10 {
		err = unix.Unlinkat(int(g.parent.Fd()), g.name, unix.AT_REMOVEDIR)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if g.dir == nil || err != unix.EBUSY {
			break
		}
		if merr := g.moveProcessesOut(); merr != nil {
			return fmt.Errorf("removing cgroup %s: %w", g.name, merr)
		}
	}
	return fmt.Errorf("removing cgroup %s: %w", g.name, err)
}

// moveProcessesOut moves the processes of the group to its parent.
func (g *cgroup) moveProcessesOut() error {
	procs, err := openFileInDir(g.dir, "cgroup.procs", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer procs.Close()
	s := bufio.NewScanner(procs)
	for s.Scan() {
		to, err := openFileInDir(g.parent, "cgroup.procs", unix.O_WRONLY)
		if err != nil {
			return err
		}
		_, err = to.WriteString(s.Text())
		to.Close()
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return s.Err()
}

func openFileInDir(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
