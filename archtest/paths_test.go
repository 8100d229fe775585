// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namedPath matches a path from the root of the tree, in a comment: a document or a folder of
// documents, or a file with a suffix that only files have.
var namedPath = regexp.MustCompile(`(?:^|[\s("'` + "`" + `])(?:\.\./)*(docs/[\w./-]*\w|` +
	`[a-z]\w*/[\w./-]+\.(?:go|md|sh|mk))\b`)

// listedFile matches a file of the same folder in a list of files, as in the comment of a package.
var listedFile = regexp.MustCompile(`[\w*]+\.go\b`)

// findListed returns the files in the indented lines of a comment, as patterns.
func findListed(comment string) (list []string) {
	for line := range strings.Lines(comment) {
		if strings.HasPrefix(line, "\t") {
			list = append(list, listedFile.FindAllString(namedPath.ReplaceAllString(line, ""), -1)...)
		}
	}
	return list
}

// deadPaths are named paths that may be missing, by the file that names them, with the reason.
var deadPaths = map[string]string{}

// findPaths returns the paths that a comment names.
func findPaths(comment string) (list []string) {
	for _, m := range namedPath.FindAllStringSubmatch(comment, -1) {
		list = append(list, m[1])
	}
	return list
}

// pathExists reports whether a file or a folder has this path, or is the decision record with this
// number, such as docs/adr/0008.
func pathExists(root fs.FS, name string) bool {
	if _, err := fs.Stat(root, name); err == nil {
		return true
	}
	records, err := fs.Glob(root, name+"-*.md")
	return err == nil && len(records) == 1 && path.Dir(name) == "docs/adr"
}

// TestPathsInCommentsExist checks that each file that a comment of the code names exists, from the
// root of the tree or from the folder of the code, and each file in the list of files of a package.
func TestPathsInCommentsExist(t *testing.T) {
	root := os.DirFS("..")
	found := 0
	for _, s := range parseSources(t) {
		for _, group := range s.syntax.Comments {
			for _, name := range findPaths(group.Text()) {
				found++
				if !pathExists(root, name) && !pathExists(root, path.Join(s.dir, name)) && deadPaths[s.name+" "+name] == "" {
					t.Errorf("%s: a comment names %s, which does not exist", s.name, name)
				}
			}
			for _, name := range findListed(group.Text()) {
				found++
				if files, err := fs.Glob(root, path.Join(s.dir, name)); err != nil || len(files) == 0 {
					t.Errorf("%s: a comment lists %s, which is not in its folder", s.name, name)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("%d paths are named: this test looks in the wrong place", found)
	}
}

// TestPathsAreFound checks what counts as a path in a comment.
func TestPathsAreFound(t *testing.T) {
	const comment = "see docs/a.md, docs/adr/0008. (link/b/c.go) and ../../docs/d-e.md#f; core/bond.TestX, " +
		"application/json, https://example.org/docs/a.md, x/y.Z, docs/adr"
	want := []string{"docs/a.md", "docs/adr/0008", "link/b/c.go", "docs/d-e.md", "docs/adr"}
	if got := findPaths(comment); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	const files = "see a.go\n\tb.go, c*.go  text\n\t\tlink/d/e.go\n"
	if got, want := findListed(files), []string{"b.go", "c*.go"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	root := os.DirFS("..")
	for name, want := range map[string]bool{"docs/adr/0008": true, "docs/adr/0000": false, "docs": true,
		"docs/explanation/schedulers.md": true, "docs/explanation/scheduling.md": false} {
		if pathExists(root, name) != want {
			t.Errorf("%s exists: %v, want %v", name, !want, want)
		}
	}
	for key := range deadPaths {
		if name, _, ok := strings.Cut(key, " "); !ok || !pathExists(root, name) {
			t.Errorf("%q is not a file of the code and a path", key)
		}
	}
}
