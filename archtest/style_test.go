// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
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
	".go": "// %", ".c": "// %", ".mod": "// %", ".js": "// %", ".css": "/* % */", ".html": "<!-- % -->",
	".svg":  "<!-- % -->",
	".toml": "# %", ".conf": "# %", ".service": "# %", ".yaml": "# %", "Makefile": "# %", "Containerfile": "# %",
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

// wideFiles match files that may have longer lines: data of tests and drives, hashes and pictures
// that a program draws.
var wideFiles = regexp.MustCompile(`(^|/)testdata/|\.csv$|(^|/)go\.sum$|^docs/images/`)

var (
	webAddress = regexp.MustCompile(`\b[a-z]+://[^\s"'` + "`" + `<>)]+`)
	blockBegin = regexp.MustCompile(`^<!-- (\w+)(: .*)? -->$`)
)

// overlongLines returns the lines of a file that are wider than maxColumns. Web addresses and links to
// pictures have no width, because they cannot be split. Rows of tables, and what a program writes
// between the lines <!-- NAME --> and <!-- end of NAME --> of a page, may be wider.
func overlongLines(name, text string) (list []string) {
	if wideFiles.MatchString(name) {
		return nil
	}
	isPage, generated := strings.HasSuffix(name, ".md"), ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		measured := webAddress.ReplaceAllString(line, "")
		if isPage {
			if m := blockBegin.FindStringSubmatch(line); m != nil {
				generated = "<!-- end of " + m[1] + " -->"
			}
			if line == generated {
				generated = ""
			}
			if generated != "" || strings.HasPrefix(strings.TrimSpace(line), "|") {
				continue
			}
			measured = imageLink.ReplaceAllString(measured, "")
		}
		if utf8.RuneCountInString(measured) > maxColumns {
			list = append(list, line)
		}
	}
	return list
}

// TestLinesAreShort checks that no line of a text file is wider than maxColumns.
func TestLinesAreShort(t *testing.T) {
	eachText(t, func(name, text string) {
		for _, line := range overlongLines(name, text) {
			t.Errorf("%s: %d columns, over %d: %s", name, utf8.RuneCountInString(line), maxColumns,
				strings.TrimSpace(line))
		}
	})
}

// TestOverlongLines checks which lines may be wide.
func TestOverlongLines(t *testing.T) {
	wide := strings.Repeat("x", maxColumns+1)
	for _, c := range []struct {
		name, text string
		found      int
	}{
		{"a/b.go", wide[1:] + "\n" + "\t" + wide[2:] + "\n", 0}, {"a/b.go", "\n" + wide, 1},
		{"a/b.go", "const a = `" + wide + "`\n", 1}, {"Makefile", wide + "\n" + wide + "\n", 2},
		{"a.js", "// see https://example.org/" + wide + "\n", 0},
		{"a.js", "// see https://example.org/ " + wide + "\n", 1},
		{"a/testdata/b.json", wide, 0}, {"go.sum", wide, 0}, {"docs/images/a.svg", wide, 0}, {"a/b.svg", wide, 1},
		{"a.md", "| " + wide + " |\n", 0}, {"a.go", "| " + wide + " |\n", 1}, {"a.md", wide, 1},
		{"a.md", "![a b c](../" + wide + ".png)\n", 0},
		{"a.md", "<!-- bench -->\n" + wide + "\n<!-- end of bench -->\n" + wide + "\n", 1},
		{"a.md", "<!-- picture: make picture -->\n" + wide + "\n<!-- end of picture -->\n", 0},
	} {
		if got := overlongLines(c.name, c.text); len(got) != c.found {
			t.Errorf("%s %.40q: found %q, want %d", c.name, c.text, got, c.found)
		}
	}
}
