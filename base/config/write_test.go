// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/fault"
)

// TestWrite checks that a file is replaced atomically, keeps its mode, and is written at a link's
// target, without leftovers.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "there", "p.toml"), filepath.Join(dir, "here.toml")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	expect := func(text string, mode fs.FileMode) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil || string(data) != text {
			t.Errorf("%q, %v, want %q", data, err, text)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != mode {
			t.Errorf("%v, %v, want %v", st.Mode(), err, mode)
		}
		if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	}
	if err := Write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	expect("new", 0o600)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("other")); err != nil {
		t.Fatal(err)
	}
	expect("other", 0o640)
	if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st.Mode(), err)
	}
	if err := Write(filepath.Join(dir, "none", "p.toml"), nil); !fault.Is(err, fault.Config) {
		t.Errorf("without a directory: %v", err)
	}
}

func TestLocate(t *testing.T) {
	const text = "default = 'deny' # [[rule]]\n\n[[rule]]\nname = \"\"\"\n[[rule]]\n\"\"\"\n\n  [[ rule ]]\r\n" +
		"mode='block'\n\tport = [ 1,\n2 ]\n" +
		"[device.phone]\nx=1\n[device.\"a b\"]\n[[rule]]"
	l := NewLocator([]byte(text))
	for _, c := range []struct {
		table        string
		n            int
		key          string
		line, column int
	}{
		{"rule", 0, "", 3, 3}, {"rule", 0, "name", 4, 1}, {"rule", 0, "mode", 3, 3}, {"rule", 1, "", 8, 6},
		{"rule", 1, "mode", 9, 1},
		{"rule", 1, "port", 10, 2}, {"device.phone", 0, "x", 13, 1}, {"device.a b", 0, "", 14, 2},
		{"rule", 2, "", 15, 3}, {"rule", 3, "", 0, 0},
		{"device.phone", 1, "x", 0, 0}, {"", 0, "default", 0, 0},
	} {
		if line, column := l.FindTable(c.table, c.n, c.key); line != c.line || column != c.column {
			t.Errorf("%s %d %q: at %d:%d, want %d:%d", c.table, c.n, c.key, line, column, c.line, c.column)
		}
	}
	big := strings.Repeat("[[rule]]\nname='x'\n", 100_000) // a lookup must not scan the whole file each time
	if line, _ := NewLocator([]byte(big)).FindTable("rule", 99_999, "name"); line != 200_000 {
		t.Errorf("the last of many is on line %d", line)
	}
}

// TestPlace checks that errors have a machine-readable position.
func TestPlace(t *testing.T) {
	for text, want := range map[string]string{
		"name='x'\n  nmae='y'": "2 3 name",
		"name='x'\nname = 5":   "2 1 ",
		"name =":               "1 6 ",
		"limits = 1":           "1 10 ",
	} {
		err := Parse("a.toml", []byte(text), new(sample))
		var at interface{ Place() (int, int, string) }
		if !errors.As(err, &at) {
			t.Errorf("%q: %v tells no place", text, err)
			continue
		}
		line, column, near := at.Place()
		if got := fmt.Sprint(line, column, " ", near); got != want {
			t.Errorf("%q: %v: at %s, want %s", text, err, got, want)
		}
	}
}

func FuzzLocate(f *testing.F) {
	f.Add([]byte("[[rule]]\nname='x'\n[device.a]"), 0)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		line, column := NewLocator(data).FindTable("rule", n, "name")
		if line < 0 || line > 1+bytes.Count(data, []byte("\n")) || (line == 0) != (column == 0) {
			t.Errorf("at %d:%d", line, column)
		}
	})
}

// TestWritable checks that Writable predicts failures without trying.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link.toml")
	there := filepath.Join(dir, "p.toml")
	if err := os.WriteFile(there, nil, 0o400); err != nil { // the file is replaced, so its own mode does not matter
		t.Fatal(err)
	}
	if err := os.Symlink(there, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{there: true, link: true, filepath.Join(dir, "new.toml"): true,
		filepath.Join(dir, "none", "p.toml"): false} {
		if Writable(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if os.Geteuid() == 0 {
		return // root may write everywhere
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if Writable(there) || Writable(link) {
		t.Error("a directory that this user may not change")
	}
}
