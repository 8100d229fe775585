// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

const service = 4321 // a user

// serviceDir returns a directory of another user in which root works.
func serviceDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this needs root")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, service, service); err != nil {
		t.Skipf("this needs rights that root has not got here: %v", err)
	}
	return dir
}

// TestRootsFilesAreTheDirectorys checks that files that root creates and replaces belong to the
// owner of the directory, as a service's files do.
func TestRootsFilesAreTheDirectorys(t *testing.T) {
	dir := serviceDir(t)
	path := filepath.Join(dir, "x.jsonl")
	belongs := func(path string) {
		t.Helper()
		st, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if userfile.IsOwn(st) || !userfile.IsOwnIn(st, dir) || !st.Mode().IsRegular() || st.Mode().Perm() != 0o600 {
			t.Errorf("%s is root's, or %v", path, st.Mode())
		}
	}
	j, _, _ := openTestJournal(t, path)
	belongs(path)
	if err := j.Rewrite(row{"a", 1}); err != nil {
		t.Fatal(err)
	}
	belongs(path)
	if _, err := j.file.WriteString("damage\n"); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if _, s, damage := openTestJournal(t, path); damage == nil || s["a"] != 1 {
		t.Errorf("%v, %v", s, damage)
	}
	belongs(path)
	belongs(path + ".bad")
}

// TestNothingPlanted checks that links and files that a service plants in place of its journal do
// not make root read, change or give away their targets.
func TestNothingPlanted(t *testing.T) {
	const line, damaged = `{"key":"secret","n":1}` + "\n", "no JSON\n"
	dir := serviceDir(t)
	secret := filepath.Join(t.TempDir(), "secret") // root's
	symlink := func(path string) error { return os.Symlink(secret, path) }
	hardlink := func(path string) error { return os.Link(secret, path) }
	of := func(user int, then func(path string) error) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
				return err
			}
			if err := os.Chown(path, user, user); err != nil || then == nil {
				return err
			}
			return then(path)
		}
	}
	for _, c := range []struct {
		what    string
		at      string // beside the journal
		plant   func(path string) error
		refused bool
	}{
		{"a link in its place", "", symlink, true},
		{"a link to what is not there", "", func(path string) error { return os.Symlink(secret+".none", path) }, true},
		{"another name of root's file", "", hardlink, true},
		{"root's file", "", of(0, nil), true},
		{"another user's file", "", of(service+1, nil), true},
		{"a file with another name", "", of(service, func(path string) error { return os.Link(path, path+".too") }),
			true},
		{"a named pipe", "", func(path string) error { return syscall.Mkfifo(path, 0o600) }, true},
		{"a directory", "", func(path string) error { return os.Mkdir(path, 0o700) }, true},
		{"its own file", "", of(service, nil), false},
		{"a link where it is made anew", ".new", symlink, false},
		{"another name there", ".new", hardlink, false},
		{"a link where damage is kept", ".bad", symlink, false},
		{"another name there", ".bad", hardlink, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(secret, []byte(line), 0o600), os.Chmod(secret, 0o640)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "x.jsonl")
			t.Cleanup(func() {
				names, _ := filepath.Glob(path + "*")
				for _, name := range append(names, secret) {
					if err := os.Remove(name); err != nil {
						t.Error(err)
					}
				}
			})
			if c.at != "" {
				if err := of(service, nil)(path); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.plant(path + c.at); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path + c.at)
			if err != nil {
				t.Fatal(err)
			}
			s := state{}
			j, _, err := Open(path, 0, s.take)
			switch {
			case c.refused && !fault.Is(err, fault.Permission), !c.refused && err != nil:
				t.Fatalf("opened: %v", err)
			case c.refused:
				checkState(t, s, state{})
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) ||
					owner(after) != owner(before) {
					t.Errorf("what was there is %v now, %v", after, err)
				}
			default:
				if err := j.Append(row{"a", 1}); err != nil {
					t.Error(err)
				}
				if err := j.Rewrite(row{"a", 2}); err != nil {
					t.Error(err)
				}
				if err := j.Close(); err != nil {
					t.Error(err)
				}
				s = state{}
				j, _, err := Open(path, 0, s.take)
				if err != nil {
					t.Fatal(err)
				}
				j.Close()
				checkState(t, s, state{"a": 2})
			}
			text, err := os.ReadFile(secret)
			if err != nil {
				t.Fatal(err)
			}
			st, err := os.Lstat(secret)
			if err != nil {
				t.Fatal(err)
			}
			if string(text) != line || owner(st) != 0 || st.Mode().Perm() != 0o640 {
				t.Errorf("root's file has %q, owner %d, mode %v", text, owner(st), st.Mode())
			}
			if _, err := os.Lstat(secret + ".none"); err == nil {
				t.Error("what a link leads to was made")
			}
		})
	}
}

func owner(st os.FileInfo) uint32 { return st.Sys().(*syscall.Stat_t).Uid }
