// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// formatVerb matches a verb of a format, such as %s.
var formatVerb = regexp.MustCompile(`%[-+# 0-9.*]*[a-zA-Z]`)

// joinLiterals returns the text of a string expression, with gap in place of what is computed.
func joinLiterals(e ast.Expr) string {
	const gap = "…"
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return formatVerb.ReplaceAllString(text, gap)
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return joinLiterals(e.X) + joinLiterals(e.Y)
		}
	}
	return gap
}

// collectMessages returns all texts in the code of the programs, with … for what is computed.
func collectMessages(t *testing.T) (list []string) {
	for _, s := range parseSources(t) {
		if s.test || strings.HasPrefix(s.dir, "archtest") || strings.HasPrefix(s.dir, "e2e") {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text := joinLiterals(e)
			if strings.Trim(text, "… ") != "" {
				list = append(list, text)
				return false
			}
			return true
		})
	}
	return list
}

// isPrinted reports whether a message has the parts of a quotation between … in order.
func isPrinted(quotation string, messages []string) bool {
	return slices.ContainsFunc(messages, func(text string) bool {
		for part := range strings.SplitSeq(quotation, "…") {
			_, after, ok := strings.Cut(text, strings.TrimSpace(part))
			if !ok {
				return false
			}
			text = after
		}
		return true
	})
}

// TestQuotedMessagesExist checks that the program has each message that
// docs/howto/troubleshoot.md quotes.
func TestQuotedMessagesExist(t *testing.T) {
	messages, found := collectMessages(t), 0
	for line := range strings.Lines(readFile(t, "docs/howto/troubleshoot.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(cells[1], -1) {
			found++
			if !isPrinted(m[1], messages) {
				t.Errorf("no program prints %q", m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d messages are quoted: this test looks in the wrong place", found)
	}
}

// TestPrintedMessages checks what counts as printed.
func TestPrintedMessages(t *testing.T) {
	messages := []string{"the code is wrong: compare it", "the … cap of … is used up, until …"}
	for quotation, want := range map[string]bool{"the code is wrong": true, "the … cap of … is used up": true,
		"the code is right": false, "the … cap of … is reached": false, "is used up … the": false} {
		if isPrinted(quotation, messages) != want {
			t.Errorf("%q is printed: %v, want %v", quotation, !want, want)
		}
	}
}

// pagesThatNameTests are pages for users that may name tests, with the reason.
var pagesThatNameTests = map[string]string{
	"docs/explanation/security.md": "each promise names the test that tries it",
	"docs/explanation/datapath.md": "it is the page for people who change the data path",
}

// TestTextsForUsersNameNoTests checks that neither pages for users nor the programs' texts name a
// test.
func TestTextsForUsersNameNoTests(t *testing.T) {
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	pages := []string{"README.md"}
	for _, dir := range []string{"tutorial", "howto", "reference", "explanation"} {
		list, err := filepath.Glob("../docs/" + dir + "/*.md")
		if err != nil || len(list) == 0 {
			t.Fatalf("docs/%s has no pages: %v", dir, err)
		}
		for _, name := range list {
			pages = append(pages, strings.TrimPrefix(filepath.ToSlash(name), "../"))
		}
	}
	for _, page := range pages {
		m := named.FindString(readFile(t, page))
		switch _, may := pagesThatNameTests[page]; {
		case m != "" && !may:
			t.Errorf("%s names %s", page, m)
		case m == "" && may:
			t.Errorf("%s names no test: remove it from pagesThatNameTests", page)
		}
	}
	for _, text := range collectMessages(t) {
		if m := named.FindString(text); m != "" {
			t.Errorf("a text names %s: %q", m, text)
		}
	}
}
