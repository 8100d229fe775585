// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)]*))?\)`)
	markdownHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notInAnchors    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchorsOf returns the anchors of a document's headings, as GitHub makes them.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range markdownHeading.FindAllStringSubmatch(text, -1) {
		heading := markdownLink.ReplaceAllString(m[1], "")
		slug := strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
		anchor := slug
		for i := 1; anchors[anchor]; i++ {
			anchor = fmt.Sprintf("%s-%d", slug, i)
		}
		anchors[anchor] = true
	}
	return anchors
}

func TestAnchors(t *testing.T) {
	got := anchorsOf("# A b\n\n## C, d: `e`\n\n## A b\n")
	if len(got) != 3 || !got["a-b"] || !got["c-d-e"] || !got["a-b-1"] {
		t.Errorf("%v", got)
	}
}

// TestLinksLead checks that each link of a document to a file of the tree, and to a heading of a
// document, has a target.
func TestLinksLead(t *testing.T) {
	root := os.DirFS("..")
	links := 0
	eachFile(t, ".md", 40, func(name, text string) {
		for _, m := range markdownLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], ":") {
				continue // not in the tree
			}
			links++
			target := name
			if m[1] != "" {
				target = path.Join(path.Dir(name), m[1])
			}
			if _, err := fs.Stat(root, target); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			} else if m[2] != "" && strings.HasSuffix(target, ".md") && !anchorsOf(readFile(t, target))[m[2]] {
				t.Errorf("%s links to %s#%s, which has no such heading", name, m[1], m[2])
			}
		}
	})
	if links < 100 {
		t.Errorf("%d links: this test looks in the wrong place", links)
	}
}
