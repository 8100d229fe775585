// SPDX-License-Identifier: Apache-2.0

package archtest

import (
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
	eachFile(t, ".go", 500, func(name, text string) {
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
