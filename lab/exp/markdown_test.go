// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
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
	rows, figures := countVerdicts(text.String())
	if want := countedVerdicts("rows", rows) + " " + countedVerdicts("figures", figures); !strings.Contains(
		text.String(), "\n## All rows\n\n"+want+"\n\n") {
		t.Errorf("the verdicts in the tables are not those counted above them: %s", want)
	}
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

// TestResults checks the documents of the latest full run, if they exist: their tables, the sentence
// that counts verdicts, and that the page of headlines has these counts.
func TestResults(t *testing.T) {
	const dir = "../../docs/evidence/"
	headlines, err := os.ReadFile(dir + "README.md")
	if err != nil {
		t.Skip("no results are kept")
	}
	for _, name := range []string{"bonding.md", "pbe.md", "onload.md"} {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			t.Skip("no results are kept")
		}
		checkResults(t, string(text))
		rows, figures := countVerdicts(string(text))
		if want := countedVerdicts("rows", rows) + " " + countedVerdicts("figures", figures) + "\n"; !strings.Contains(
			string(text), "\n\n"+want) {
			t.Errorf("%s does not say: %s", name, want)
		}
		for what, counts := range map[string]map[Verdict]int{"rows": rows, "values": figures} {
			total := 0
			for _, n := range counts {
				total += n
			}
			if want := fmt.Sprintf("%d of %d %s", counts[Reproduced]+counts[Exceeded], total,
				what); !strings.Contains(string(headlines), want) {
				t.Errorf("README.md does not say of %s: %s", name, want)
			}
		}
	}
}

// countVerdicts counts the verdicts in the tables of a document of WriteMarkdown.
func countVerdicts(text string) (rows, figures map[Verdict]int) {
	rows, figures = map[Verdict]int{}, map[Verdict]int{}
	for _, m := range regexp.MustCompile(`(?m)^\S.* Verdict: \*\*(.+?)\*\*`).FindAllStringSubmatch(text, -1) {
		rows[Verdict(m[1])]++
	}
	inPoints := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "| figure | published |"):
			inPoints = true
		case !strings.HasPrefix(line, "|"):
			inPoints = false
		case inPoints && !strings.HasPrefix(line, "|---"):
			for _, v := range verdicts {
				if strings.Contains(line, " | "+string(v)+" |") {
					figures[v]++
				}
			}
		}
	}
	return rows, figures
}
