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

const (
	imagesDir = "docs/images"
	// Pages load quickly, and the repository stays small.
	maxPNGSize = 150_000
	maxSVGSize = 40_000
)

// imageLink matches a picture in a document: its text alternative and its file.
var imageLink = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]*)\)`)

// TestImages checks that each picture of a document has a text alternative that says what it shows,
// that each file in docs/images is small and shown somewhere, and that SVG files contain no script
// and load nothing. TestLinksLead checks that the files exist.
func TestImages(t *testing.T) {
	root := os.DirFS("..")
	shown := map[string]bool{}
	eachFile(t, ".md", 40, func(name, text string) {
		for _, m := range imageLink.FindAllStringSubmatch(text, -1) {
			if len(strings.Fields(m[1])) < 3 {
				t.Errorf("%s: the picture %s needs a text that says what it shows, not %q", name, m[2], m[1])
			}
			shown[path.Join(path.Dir(name), m[2])] = true
		}
	})
	files, err := fs.ReadDir(root, imagesDir)
	if err != nil || len(files) < 5 {
		t.Fatalf("%d pictures, %v: this test looks in the wrong place", len(files), err)
	}
	for _, f := range files {
		name := imagesDir + "/" + f.Name()
		data, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		most := map[string]int{".png": maxPNGSize, ".svg": maxSVGSize}[path.Ext(name)]
		if len(data) > most {
			t.Errorf("%s has %d bytes, over %d", name, len(data), most)
		}
		if !shown[name] {
			t.Errorf("no document shows %s", name)
		}
		if path.Ext(name) == ".svg" && regexp.MustCompile(`<script|<image|<foreignObject|href=|@import|url\(`).Match(data) {
			t.Errorf("%s has a script or loads something", name)
		}
	}
}
