// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	licence    = "SPDX-License-Identifier: Apache-2.0"
	maxColumns = 120 // a tab counts as one
)

// eachText calls f with the name and text of each tracked text file.
func eachText(t *testing.T, f func(name, text string)) {
	t.Helper()
	out, err := exec.Command("git", "-C", "..", "ls-files").Output()
	if err != nil {
		t.Skipf("needs git to list the files: %v", err)
	}
	tracked := setOf(strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")...)
	root := os.DirFS("..")
	found := 0
	// A walk, so that `go test` notices a new file and does not use a cached result.
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (name == ".git" || name == "bin" || name == "out") {
			return fs.SkipDir
		}
		if !tracked[name] {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err == nil && utf8.Valid(text) && !strings.Contains(string(text), "\x00") {
			found++
			f(name, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 1000 {
		t.Fatalf("%d text files: this test looks in the wrong place", found)
	}
}

// comments maps the ending of a file, or its whole name, to its form of a comment.
var comments = map[string]string{
	".go": "// %", ".mod": "// %", ".js": "// %", ".css": "/* % */", ".html": "<!-- % -->", ".svg": "<!-- % -->",
	".toml": "# %", ".conf": "# %", ".service": "# %", "Makefile": "# %", "Containerfile": "# %",
	".gitignore": "# %", ".dockerignore": "# %",
}

// noComments maps the ending of a file, or its whole name, to the reason why it names no licence.
var noComments = map[string]string{
	".md":     "pages show their comments in some viewers, and LICENSE covers them",
	".csv":    "the format has no comments",
	".sum":    "the format has no comments",
	"LICENSE": "it is the licence",
}

// licenceMistake returns what is wrong with the beginning of a file, or "".
func licenceMistake(name, text string) string {
	form, kind := "", path.Ext(name)
	for _, k := range []string{path.Base(name), path.Ext(name)} {
		if noComments[k] != "" {
			return ""
		}
		if comments[k] != "" {
			form, kind = comments[k], k
		}
	}
	switch first, rest, _ := strings.Cut(text, "\n"); {
	case strings.HasPrefix(first, "#!"):
		form, text = "# %", rest
	case kind == ".html" && strings.EqualFold(first, "<!doctype html>"):
		text = rest
	case form == "":
		return "is of an unknown kind: add it to comments or noComments"
	}
	if want := strings.Replace(form, "%", licence, 1) + "\n"; !strings.HasPrefix(text, want) {
		return "does not begin with " + strings.TrimSpace(want)
	}
	return ""
}

// TestFilesBeginWithTheirLicence checks the first line of each text file that can hold a comment.
func TestFilesBeginWithTheirLicence(t *testing.T) {
	eachText(t, func(name, text string) {
		if why := licenceMistake(name, text); why != "" {
			t.Errorf("%s %s", name, why)
		}
	})
}

// TestLicenceMistakes checks the rule for each kind of file.
func TestLicenceMistakes(t *testing.T) {
	for _, c := range []struct{ name, text, why string }{
		{"a/b.go", "// " + licence + "\n\npackage b\n", ""},
		{"a/b.go", "// Package b is new.\npackage b\n", "does not begin with // " + licence},
		{"a/b.go", "//go:build linux\n\n// " + licence + "\n", "does not begin with // " + licence},
		{"a/b.css", "/* " + licence + " */\n", ""},
		{"a/b.html", "<!doctype html>\n<!-- " + licence + " -->\n", ""},
		{"a/b.html", "<!DOCTYPE html>\n<html>\n", "does not begin with <!-- " + licence + " -->"},
		{"a/b.html", "<!-- " + licence + " -->\n<p>\n", ""}, // a part of a page
		{"a/script", "#!/bin/sh\n# " + licence + "\n", ""},
		{"a/script", "#!/bin/sh\nset -e\n", "does not begin with # " + licence},
		{"a/script", "set -e\n", "is of an unknown kind: add it to comments or noComments"},
		{"Makefile", "# " + licence + "\n", ""},
		{"a/.gitignore", "/bin/\n", "does not begin with # " + licence},
		{"a/b.toml", "# " + licence, "does not begin with # " + licence},
		{"a/b.md", "# B\n", ""}, {"LICENSE", "Apache\n", ""}, {"go.sum", "", ""},
	} {
		if why := licenceMistake(c.name, c.text); why != c.why {
			t.Errorf("%s %q: %q, want %q", c.name, c.text, why, c.why)
		}
	}
}

// longLines are files that may have longer lines, with the reason.
var longLines = map[string]string{
	"core/bond/bind_test.go": "one condition of a figure and its bound",
}

// TestLinesAreShort checks that no line of code is over maxColumns wide. Lines with a string
// literal, a URL or a struct tag may be longer: a split hides them from a search.
func TestLinesAreShort(t *testing.T) {
	eachFile(t, ".go", 500, func(name, text string) {
		raw := false
		for line := range strings.Lines(text) {
			inRaw := raw
			raw = raw != (strings.Count(line, "`")%2 == 1)
			line = strings.TrimSuffix(line, "\n")
			if longLines[name] != "" || utf8.RuneCountInString(line) <= maxColumns || inRaw ||
				strings.ContainsAny(line, "\"`") {
				continue
			}
			t.Errorf("%s: %d columns, over %d: %s", name, utf8.RuneCountInString(line), maxColumns,
				strings.TrimSpace(line))
		}
	})
}
