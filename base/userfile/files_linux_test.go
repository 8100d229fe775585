// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const someUser = 12345

// newUserDir returns a user's directory within one that is closed to the user, as systemd keeps
// those of its services, and a file of root's beside it that the user cannot read.
func newUserDir(t *testing.T) (dir, secret string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to work in another user's directory")
	}
	top := t.TempDir()
	dir, secret = filepath.Join(top, "user"), filepath.Join(top, "secret")
	err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o640), os.Mkdir(dir, 0o700),
		os.Chown(dir, someUser, someUser))
	if err != nil {
		t.Skipf("needs rights that root has not got here: %v", err)
	}
	return dir, secret
}

func belongsTo(t *testing.T, path string, uid uint32) {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
	} else if got := st.Sys().(*syscall.Stat_t).Uid; got != uid {
		t.Errorf("%s belongs to %d, want %d", path, got, uid)
	}
}

// TestNothingOfRootsThroughAUsersDirectory checks that no function reads, changes or creates more
// than the user could, whatever the user has put in the directory.
func TestNothingOfRootsThroughAUsersDirectory(t *testing.T) {
	dir, secret := newUserDir(t)
	closed := filepath.Join(filepath.Dir(secret), "closed") // root's
	if err := errors.Join(os.Mkdir(closed, 0o700),
		os.WriteFile(filepath.Join(closed, "file"), []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	plants := map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(secret, path) },
		"dangling":  func(path string) error { return os.Symlink(filepath.Join(closed, "new"), path) },
		"hard link": func(path string) error { return os.Link(secret, path) },
		"FIFO":      func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"device": func(path string) error {
			return errors.Join(syscall.Mknod(path, syscall.S_IFCHR|0o666,
				1<<8|5))
		},
		"directory link": func(path string) error { return os.Symlink(closed, path) },
		"other's file": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("secret"), 0o600), os.Chown(path, someUser+1, someUser+1))
		},
	}
	read := func(path string) error {
		text, err := ReadFile(path)
		if bytes.Contains(text, []byte("secret")) {
			t.Errorf("ReadFile shows %q", text)
		}
		return err
	}
	write := func(flag int) func(path string) error {
		return func(path string) error {
			f, err := OpenFile(path, os.O_RDWR|flag, 0o600)
			if err != nil {
				return err
			}
			_, err = f.WriteString("user")
			return errors.Join(err, f.Close())
		}
	}
	listen := func(path string) error {
		return WithOwnerRights(filepath.Dir(path), func(dir string) error {
			l, err := net.Listen("unix", filepath.Join(dir, filepath.Base(path)))
			if err == nil {
				l.Close()
			}
			return err
		})
	}
	verbs := map[string]func(path string) error{
		"ReadFile":  read,
		"write":     write(0),
		"truncate":  write(os.O_TRUNC),
		"create":    write(os.O_CREATE),
		"append":    write(os.O_CREATE | os.O_APPEND),
		"exclusive": write(os.O_CREATE | os.O_EXCL),
		"ReadDir":   func(path string) error { _, err := ReadDir(path); return err },
		"chmod":     func(path string) error { return Chmod(path, 0o777) },
		"below": func(path string) error {
			return errors.Join(read(filepath.Join(path, "file")), write(os.O_CREATE)(filepath.Join(path, "made")))
		},
		"mkdir":   func(path string) error { return MkdirAll(filepath.Join(path, "made"), 0o700) },
		"listen":  listen,
		"remove":  func(path string) error { return Remove(filepath.Join(path, "file")) },
		"replace": nil, // see below
	}
	for what, plant := range plants {
		for name, v := range verbs {
			t.Run(what+"/"+name, func(t *testing.T) {
				path := filepath.Join(dir, "x")
				if err := plant(path); err != nil {
					t.Skip(err)
				}
				defer os.Remove(path)
				begin := time.Now()
				if v != nil {
					if err := v(path); err == nil && !(what == "device" || what == "FIFO") {
						t.Error("done")
					}
				} else if err := replaceBy(path, "user"); err != nil {
					t.Error(err) // the user owns the directory
				} else {
					belongsTo(t, path, someUser)
				}
				if took := time.Since(begin); took > time.Minute {
					t.Errorf("it took %v", took)
				}
				if text, err := os.ReadFile(secret); string(text) != "secret" || err != nil {
					t.Errorf("root's file has %q, %v", text, err)
				}
				belongsTo(t, secret, 0)
				if st, err := os.Stat(secret); err != nil || st.Mode().Perm() != 0o640 {
					t.Errorf("root's file has mode %v, %v", st.Mode(), err)
				}
				if list, err := os.ReadDir(closed); len(list) != 1 || err != nil {
					t.Errorf("root's directory has %v, %v", list, err)
				}
			})
		}
	}
	if uid, gid, groups := idsNow(t); uid != 0 || gid != 0 {
		t.Errorf("a thread stayed the user's: %d, %d, %v", uid, gid, groups)
	}
}

func replaceBy(path, text string) error {
	f, err := CreateNew(path + ".new")
	if err != nil {
		return err
	}
	return Replace(f, path, []byte(text))
}

// idsNow returns the owner, group and mode of a new file.
func idsNow(t *testing.T) (uid, gid uint32, mode fs.FileMode) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	return sys.Uid, sys.Gid, st.Mode()
}

// TestUsersFilesStayTheUsers checks that files that root's process creates in a user's directory
// belong to the user and keep the given name, and that a closed directory above it does not stop
// root.
func TestUsersFilesStayTheUsers(t *testing.T) {
	dir, _ := newUserDir(t)
	deep, path := filepath.Join(dir, "a", "b"), filepath.Join(dir, "a", "b", "file")
	if err := MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	belongsTo(t, deep, someUser)
	if _, err := Open(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	if err := Rename(path, path+".to"); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), path+".to") || strings.Contains(err.Error(), "/proc") {
		t.Errorf("a missing file: %v", err)
	}
	if err := replaceBy(path, "text"); err != nil {
		t.Fatal(err)
	}
	belongsTo(t, path, someUser)
	if text, err := ReadFile(path); string(text) != "text" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	f, err := Open(path)
	if err != nil || f.Name() != path {
		t.Errorf("%v, %v", f.Name(), err)
	}
	f.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(link); err == nil { // the user cannot pass root's closed directory
		t.Errorf("a link through another's directory leads to %q", text)
	}
	if err := errors.Join(os.Remove(link), os.Symlink("a/b/file", link)); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(link); string(text) != "text" || err != nil {
		t.Errorf("the user's own link leads to %q, %v", text, err)
	}
	if unlock, err := LockDir(deep); err != nil {
		t.Error(err)
	} else {
		unlock()
	}
	if list, err := ReadDir(deep); len(list) != 1 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if !Writable(deep) {
		t.Error("not writable")
	}
}

// TestSwappedWhileUsed checks that quickly swapping a directory for a link gains nothing.
func TestSwappedWhileUsed(t *testing.T) {
	dir, secret := newUserDir(t)
	sub, aside := filepath.Join(dir, "sub"), filepath.Join(dir, "aside")
	target := filepath.Join(filepath.Dir(secret), "closed")
	err := errors.Join(os.Mkdir(sub, 0o700), os.Chown(sub, someUser, someUser), os.Mkdir(target, 0o700),
		os.WriteFile(filepath.Join(sub, "x"), []byte("user"), 0o644),
		os.WriteFile(filepath.Join(target, "x"), []byte("secret"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	swapped := make(chan int)
	go func() {
		n := 0
		defer func() { swapped <- n }()
		for ; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Rename(sub, aside)
			_ = os.Symlink(target, sub)
			_ = os.Remove(sub)
			_ = os.Rename(aside, sub)
		}
	}()
	for range 2000 {
		if text, _ := ReadFile(filepath.Join(sub, "x")); string(text) == "secret" {
			t.Fatal("root's file was read")
		}
		if f, err := OpenFile(filepath.Join(sub, "new"), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			f.Close()
		}
		_ = Remove(filepath.Join(sub, "x.none"))
	}
	close(done)
	if n := <-swapped; n < 100 {
		t.Errorf("swapped %d times only", n)
	}
	if list, err := os.ReadDir(target); len(list) != 1 || err != nil {
		t.Errorf("root's directory has %v, %v", list, err)
	}
}

// TestWhoseDirectory checks that the first directory that is not root's determines the user, and
// that root's links are followed, also out of it.
func TestWhoseDirectory(t *testing.T) {
	dir, secret := newUserDir(t)
	top := filepath.Dir(dir)
	shared, open := filepath.Join(top, "shared"), filepath.Join(top, "open")
	err := errors.Join(os.Mkdir(shared, 0o777), os.Chmod(shared, 0o777|fs.ModeSticky), os.Mkdir(open, 0o777),
		os.Chmod(open, 0o777),
		os.Symlink("user/run", filepath.Join(top, "to")), os.Symlink(secret, filepath.Join(shared, "theirs")),
		os.Lchown(filepath.Join(shared, "theirs"), someUser, someUser),
		os.WriteFile(filepath.Join(shared, "roots"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fileAccess{
		secret:                                 {ownRights: true, path: secret},
		top + "/none":                          {ownRights: true, path: top + "/none"},
		dir:                                    {uid: someUser, pin: dir},
		dir + "/run/x":                         {uid: someUser, pin: dir, path: "run/x"},
		dir + "/../secret":                     {ownRights: true, path: secret},
		top + "/to/x":                          {uid: someUser, pin: dir, path: "run/x"},
		shared + "/theirs":                     {uid: someUser, pin: shared, path: "theirs"},
		shared + "/roots":                      {ownRights: true, shared: true, path: shared + "/roots"},
		shared + "/none":                       {ownRights: true, shared: true, path: shared + "/none"},
		"/proc/self/fd/0":                      {ownRights: true, path: "/proc/self/fd/0"},
		top + "/" + strings.Repeat("./", 3000): {ownRights: true, path: top},
	} {
		if got, err := findFileAccess(path); err != nil || got != want {
			t.Errorf("%.100s: %+v, %v; want %+v", path, got, err, want)
		}
	}
	if got, err := findFileAccess(shared + "/none/x"); err == nil {
		t.Errorf("what may be made by anybody: %+v", got)
	}
	if err := ActAsOwnerOf(open + "/x"); !errors.Is(err, errWritableByOthers) {
		t.Errorf("a home in a directory that anybody may change: %v", err)
	}
	if err := ActAsOwnerOf(open); !errors.Is(err, errWritableByOthers) {
		t.Errorf("a home that anybody may change: %v", err)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenFile(link, os.O_RDONLY|NoFollow, 0); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
	if _, err := ReadFile(shared + "/theirs"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a link in a shared directory: %v", err)
	}
	if err := os.Link(secret, shared+"/linked"); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenFile(shared+"/linked", os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		f.Close()
		t.Error("root's file was opened by another name")
	}
	if text, _ := os.ReadFile(secret); string(text) != "secret" {
		t.Errorf("root's file has %q", text)
	}
}

// TestActFor checks that files named in a user's configuration are opened with the user's rights,
// wherever they are.
func TestActFor(t *testing.T) {
	dir, secret := newUserDir(t)
	defer actsFor.Store(0)
	if err := errors.Join(ActAsOwnerOf(filepath.Dir(dir)), ActAsOwnerOf(filepath.Join(dir, "none"))); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(secret); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("root's file: %v", err)
	}
	if err := replaceBy(filepath.Join(filepath.Dir(dir), "new"), ""); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("root's directory: %v", err)
	}
	if err := replaceBy(filepath.Join(dir, "new"), ""); err != nil {
		t.Error(err)
	}
	other := filepath.Join(filepath.Dir(dir), "other")
	if err := errors.Join(os.Mkdir(other, 0o755), os.Chown(other, someUser+1, 0),
		os.WriteFile(other+"/x", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(other + "/x"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("another user's file in a directory that is closed to this one: %v", err)
	}
	if err := ActAsOwnerOf(other); err == nil {
		t.Error("one process acts for two users")
	}
}

// TestSharedWithAGroup checks that members of a group with write access to a directory of root's
// cannot make root's process use files that they could not use: such a directory is rejected as
// home, as is one below it, and links and other names there lead to no file of root's.
func TestSharedWithAGroup(t *testing.T) {
	dir, secret := newUserDir(t)
	group := filepath.Join(filepath.Dir(dir), "group")
	home := filepath.Join(group, "home")
	err := errors.Join(os.Mkdir(group, 0o770), os.Chown(group, 0, someUser), os.Chmod(group, 0o770|fs.ModeSetgid),
		os.Mkdir(home, 0o700),
		os.Symlink(secret, group+"/theirs"), os.Lchown(group+"/theirs", someUser, someUser),
		os.Symlink(secret, group+"/link"), os.Link(secret, group+"/linked"),
		os.WriteFile(group+"/roots", []byte("old"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{group, group + "/device.key", group + "/roots", home, home + "/device.key"} {
		if err := ActAsOwnerOf(path); !errors.Is(err, errWritableByOthers) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, name := range []string{"theirs", "linked"} {
		if f, err := OpenFile(group+"/"+name, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
			f.Close()
			t.Errorf("%s leads to a file of root's", name)
		}
	}
	if text, err := ReadFile(group + "/theirs"); err == nil {
		t.Errorf("a member's link shows %q", text)
	}
	if text, _ := os.ReadFile(secret); string(text) != "secret" {
		t.Errorf("root's file has %q", text)
	}
	if err := replaceBy(group+"/roots", "new"); err != nil { // root shares the directory with the group
		t.Error(err)
	}
	if text, err := ReadFile(group + "/roots"); string(text) != "new" || err != nil {
		t.Errorf("%q, %v", text, err)
	}

	// A member swaps a file for a link while root uses it.
	file, aside := filepath.Join(group, "file"), filepath.Join(group, "aside")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o644), os.Symlink(secret, aside),
		os.Lchown(aside, someUser, someUser)); err != nil {
		t.Fatal(err)
	}
	done, swapped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { swapped <- n }()
		for ; ; n++ {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 5000 {
		if text, err := ReadFile(file); err == nil && string(text) != "old" {
			t.Errorf("root's file was read: %q", text)
			break
		}
	}
	close(done)
	if n := <-swapped; n < 100 {
		t.Errorf("swapped %d times only", n)
	}
	if err := errors.Join(os.Chmod(group, 0o750), ActAsOwnerOf(home+"/device.key"), ActAsOwnerOf(group)); err != nil {
		t.Errorf("a directory that root alone may write: %v", err)
	}
}
