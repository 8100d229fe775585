// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	licenceLine = "// SPDX-License-Identifier: Apache-2.0\n"
	maxColumns  = 120 // a tab counts as one
)

// TestFilesBeginWithTheirLicence checks the first line of each Go file.
func TestFilesBeginWithTheirLicence(t *testing.T) {
	eachGoFile(t, func(name, text string) {
		if !strings.HasPrefix(text, licenceLine) {
			t.Errorf("%s does not begin with %q", name, strings.TrimSpace(licenceLine))
		}
	})
}

// longLines are files that may have longer lines, with the reason.
var longLines = map[string]string{
	"core/bond/bind_test.go": "one condition of a figure and its bound",
}

// TestLinesAreShort checks that no line of code is over maxColumns wide. Lines with a string
// literal, a URL or a struct tag may be longer: a split hides them from a search.
func TestLinesAreShort(t *testing.T) {
	eachGoFile(t, func(name, text string) {
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

// eachGoFile calls f with the name and text of each Go file of the tree.
func eachGoFile(t *testing.T, f func(name, text string)) {
	t.Helper()
	root := os.DirFS("..")
	found := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if isNoSource(name, d) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		found++
		f(name, string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 500 {
		t.Errorf("%d files: this test looks in the wrong place", found)
	}
}
