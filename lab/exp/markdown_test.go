// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mpbond/lab/radio"
)

// Each row has a section, tables are complete, and worse results come first.
func TestMarkdown(t *testing.T) {
	var all []Evaluation
	for _, r := range PublishedRows(radio.Sets[0]) {
		rec := Record{Row: r.ID, Stamp: Stamp{Version: "abc1234", Planned: 1000},
			Results: newData(r, 3, func(_, scheme string) float64 {
				return float64(40 - len(scheme))
			})}
		all = append(all, Evaluate(r, rec))
	}
	all[0].Errors = []string{"a cell: the <lab> died | twice"}
	var text strings.Builder
	if err := WriteMarkdown(&text, all); err != nil {
		t.Fatal(err)
	}
	checkResults(t, text.String())
	if first, _, _ := strings.Cut(text.String(), "\n## All rows"); !strings.Contains(first,
		"the &lt;lab> died \\| twice") || !strings.Contains(first, "slower than") {
		t.Errorf("what is worse: %s", first)
	}
	for _, e := range all {
		_, part, ok := strings.Cut(text.String(), "\n## "+e.Row+"\n")
		if !ok {
			t.Errorf("no %s", e.Row)
		}
		if part, _, _ = strings.Cut(part, "\n## "); !strings.Contains(part, "abc1234") ||
			!strings.Contains(part, "mpbond-lab exp run "+e.Row) || strings.Count(part, "\n") > 120 {
			t.Errorf("%s: %s", e.Row, part)
		}
		if (e.Row == "p0" || e.Row == "p2" || e.Row == "p10") &&
			(e.secondMetric == "" || !strings.Contains(part, "\n| "+e.secondMetric+", ms |")) {
			t.Errorf("%s has no table of %q: %s", e.Row, e.secondMetric, part)
		}
	}
}

// checkResults checks a document of WriteMarkdown: sections of existing rows, and tables with
// equally many cells in each line.
func checkResults(t *testing.T, text string) {
	t.Helper()
	var ids []string
	for _, r := range PublishedRows(radio.Sets[0]) {
		ids = append(ids, r.ID)
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^## ([mpg]\d\S*)$`).FindAllStringSubmatch(text, -1) {
		if found++; !slices.Contains(ids, m[1]) {
			t.Errorf("there is no row %s", m[1])
		}
	}
	if found == 0 {
		t.Error("no row")
	}
	columns := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := strings.Count(strings.ReplaceAll(line, "\\|", ""), "|")
		if columns != 0 && n != columns {
			t.Errorf("%d cells, not %d: %s", n-1, columns-1, line)
		}
		columns = n
	}
}

// TestResults checks the documents of the latest full run, if they exist.
func TestResults(t *testing.T) {
	for _, name := range []string{"../../docs/evidence/bonding.md", "../../docs/evidence/pbe.md",
		"../../docs/evidence/onload.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Skip("no results are kept")
		}
		checkResults(t, string(text))
	}
}
