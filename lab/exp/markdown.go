package exp

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxWideLines is of how many lines a row's table may be; above it has a line for
// each cell and a column for each scheme.
const maxWideLines = 16

// WriteMarkdown writes the figures for a document: what is worse than a baseline
// or than published first, then of each row its verdict, what is assumed, its
// points and its metrics. The HTML page and the CSV have the rest.
func WriteMarkdown(w io.Writer, all []Evaluation) error {
	var b strings.Builder
	writeListMarkdown(&b, worseHead, worseItems(all))
	if slices.ContainsFunc(all, Evaluation.hasTimes) {
		b.WriteString("\n")
		writeListMarkdown(&b, unsureHead, unsureItems(all))
	}
	b.WriteString("\n## All rows\n\n")
	rowTable(all).writeMarkdown(&b)
	for _, e := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s. %s. Verdict: **%s**%s.\n\n%s\n\n", e.Row, escapeMarkdown(e.Title), escapeMarkdown(e.Source), e.Verdict, e.Caution(), escapeMarkdown(e.Setup))
		e.pointTable().writeMarkdown(&b)
		if e.Tables == nil {
			e.writeMetricTables(&b)
		}
		for _, t := range e.Tables {
			b.WriteString("\n")
			t.writeMarkdown(&b)
		}
		if e.Search != "" {
			fmt.Fprintf(&b, "\n%s\n", escapeMarkdown(e.Search))
		}
		if e.NotCovered != "" {
			fmt.Fprintf(&b, "\nNot in it: %s.\n", escapeMarkdown(e.NotCovered))
		}
		fmt.Fprintf(&b, "\n%s. `%s`\n", e.Provenance(), e.Rerun)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeListMarkdown writes what we do worse under a head.
func writeListMarkdown(b *strings.Builder, head string, list []worseItem) {
	fmt.Fprintf(b, "## %s\n\n", head)
	for _, x := range list {
		fmt.Fprintf(b, "* %s: %s\n", x.row, escapeMarkdown(x.what))
	}
	if len(list) == 0 {
		b.WriteString(nothingWorse + "\n")
	}
}

// hasTimes tells whether times of transfers were measured.
func (e Evaluation) hasTimes() bool {
	return slices.ContainsFunc(e.Lines, func(l Line) bool { return l.Metric == Time.Name })
}

// countedText is how many transfers count, of those that were planned.
func (e Evaluation) countedText() string { return fmt.Sprintf("%d of %d", e.Counted, e.Planned) }

// writeMetricTables writes the metrics of all cells: all in a table, or, where there are many
// lines, a table each for the first metric and the one that is compared besides it,
// or the first energy.
func (e Evaluation) writeMetricTables(b *strings.Builder) {
	lines := e.TableLines()
	var metrics []string
	first := 0 // lines of the first metric
	for _, l := range lines {
		if !slices.Contains(metrics, l.Metric) {
			metrics = append(metrics, l.Metric)
		}
		if l.Metric == metrics[0] {
			first++
		}
	}
	if len(lines) == 0 {
		return
	}
	if first <= maxWideLines {
		writeWideTable(b, lines, metrics[:min(maxWideMetrics, len(metrics))])
		return
	}
	writeGridTable(b, lines, metrics[0])
	if i := slices.IndexFunc(metrics, func(m string) bool { return m == e.secondMetric || strings.HasPrefix(m, activePrefix) }); i > 0 {
		writeGridTable(b, lines, metrics[i])
	}
}

// maxWideMetrics is how many stand beside each other.
const maxWideMetrics = 6

// writeWideTable has a line for each scheme in each cell, and a column for each metric.
func writeWideTable(b *strings.Builder, lines []Line, metrics []string) {
	t := Table{Head: []string{"cell", "scheme", "n"}}
	for i, m := range metrics {
		for _, l := range lines {
			if l.Metric != m {
				continue
			}
			if len(t.Head) == 3+i {
				t.Head = append(t.Head, m+", "+l.Unit)
			}
			at := slices.IndexFunc(t.Rows, func(r []string) bool { return r[0] == l.Cell && r[1] == l.Scheme })
			if at < 0 {
				at = len(t.Rows)
				t.Add(append([]string{l.Cell, l.Scheme, fmt.Sprint(l.N)}, make([]string, len(metrics))...)...)
			}
			t.Rows[at][3+i] = l.cellText()
		}
	}
	b.WriteString("\n")
	t.writeMarkdown(b)
	b.WriteString("\nMean ± 95 %, part of the fluid bound's rate where there is one, σ.\n")
}

// writeGridTable has a line for each cell, and a column for each scheme.
func writeGridTable(b *strings.Builder, lines []Line, metric string) {
	var schemes []string
	unit, most := "", 0
	for _, l := range lines {
		if l.Metric != metric {
			continue
		}
		if !slices.Contains(schemes, l.Scheme) {
			schemes = append(schemes, l.Scheme)
		}
		unit, most = l.Unit, max(most, l.N)
	}
	t := Table{Head: append([]string{metric + ", " + unit}, schemes...)}
	for _, l := range lines {
		if l.Metric != metric {
			continue
		}
		if len(t.Rows) == 0 || t.Rows[len(t.Rows)-1][0] != l.Cell {
			t.Add(append([]string{l.Cell}, make([]string, len(schemes))...)...)
		}
		text := l.cellText()
		if l.N > 0 && l.N != most {
			text += fmt.Sprintf(", n %d", l.N)
		}
		t.Rows[len(t.Rows)-1][1+slices.Index(schemes, l.Scheme)] = text
	}
	b.WriteString("\n")
	t.writeMarkdown(b)
	fmt.Fprintf(b, "\nMean ± 95 %%, part of the fluid bound's rate where there is one, σ; n is %d where nothing is said.\n", most)
}

// cellText is a line in few letters.
func (l Line) cellText() string {
	if l.N == 0 {
		return ""
	}
	text := formatNumber(l.Mean, l.Unit)
	if l.N > 1 {
		text += " ± " + formatNumber(l.Half, l.Unit)
	}
	if l.Bound > 0 {
		text += fmt.Sprintf(", %.0f %%", 100*l.Bound/l.Mean)
	}
	if l.N > 1 {
		text += ", σ " + formatNumber(l.Sigma, l.Unit)
	}
	return text
}
