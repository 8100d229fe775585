// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

// TestLinksLead checks that each link of a document to a file of the tree has a target.
func TestLinksLead(t *testing.T) {
	root := os.DirFS("..")
	links := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if isNoSource(name, d) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		for _, m := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") {
				continue // not in the tree
			}
			links++
			if _, err := fs.Stat(root, path.Join(path.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 100 {
		t.Errorf("%d links: this test looks in the wrong place", links)
	}
}
