// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"io"
)

// Print prints the result of a row, worse results first.
func (e Evaluation) Print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s: %s (%s)\n", e.Row, e.Title, e.Source)
	for _, list := range []struct {
		head string
		all  []string
	}{{"WORSE", e.Worse}, {"INCOMPLETE", e.Errors}, {"not surely faster:", e.NotSurelyFaster}} {
		for _, what := range list.all {
			fmt.Fprintln(w, list.head, what)
		}
	}
	fmt.Fprintf(w, "verdict: %s%s\n%s\n", e.VerdictLine, e.Caution(), e.Setup)
	tables := append([]Table{e.pointTable()}, e.Tables...)
	if e.Tables == nil {
		tables = append(tables, e.metricLineTable())
	}
	for _, t := range tables {
		if err := t.Print(w); err != nil {
			return err
		}
	}
	if e.Search != "" {
		fmt.Fprintln(w, "\n"+e.Search)
	}
	if e.NotCovered != "" {
		fmt.Fprintln(w, "\nnot covered:", e.NotCovered)
	}
	_, err := fmt.Fprintf(w, "\n%s; rerun: %s\n", e.Provenance(), e.Rerun)
	return err
}

// pointTable returns a table of the published values and the measured ones.
func (e Evaluation) pointTable() Table {
	t := Table{Head: []string{"figure", "published", "measured, mean ± 95 %", "n", "σ", "verdict", "not in",
		"not measured"}}
	for _, p := range e.Points {
		sigma := p.sigmaText(p.Unit)
		if p.claimed {
			sigma = ""
		}
		t.Add(p.What, p.Published, p.measuredText(), fmt.Sprint(p.N), sigma, string(p.Verdict), joinBySemicolon(p.Misses),
			joinBySemicolon(p.Missing))
	}
	return t
}

// metricLineTable has a row for each scheme in each cell and each metric.
func (e Evaluation) metricLineTable() Table {
	t := Table{Head: []string{"cell", "scheme", "metric", "n", "mean ± 95 %", "σ", "fluid bound", "discarded",
		"failed"}}
	for _, l := range e.TableLines() {
		bound := ""
		if l.Bound > 0 && l.N > 0 {
			bound = fmt.Sprintf("%.3f s (%.1f %%)", l.Bound, 100*l.Bound/l.Mean)
		}
		t.Add(l.Cell, l.Scheme, l.Metric, fmt.Sprint(l.N), l.Text(l.Unit), l.sigmaText(l.Unit), bound,
			formatUnlessZero(l.Discarded), formatUnlessZero(l.Failed))
	}
	return t
}

// rowVerdictTable has each row's verdict.
func rowVerdictTable(all []Evaluation) Table {
	t := Table{Head: []string{"row", "title", "source", "verdict", "counted transfers"}, linked: true}
	for _, e := range all {
		t.Add(e.Row, e.Title, e.Source, string(e.Verdict)+e.Caution(), e.rowCountedText())
	}
	return t
}
