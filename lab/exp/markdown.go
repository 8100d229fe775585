// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxWideLines is the largest number of lines of a row's table with all metrics. Above it, tables
// have a line for each cell and a column for each scheme.
const maxWideLines = 16

// WriteMarkdown writes the results for a document. First comes what is worse than another
// scheme or not as published; then for each row its verdict, its assumptions, its points and its
// metrics. The HTML page and the CSV have the rest.
func WriteMarkdown(w io.Writer, all []Evaluation) error {
	var b strings.Builder
	writeListMarkdown(&b, worseHead, worseItems(all))
	b.WriteString("\n")
	writeListMarkdown(&b, unlikePublishedHead, unlikePublishedItems(all))
	if slices.ContainsFunc(all, Evaluation.hasTransferTimes) {
		b.WriteString("\n")
		writeListMarkdown(&b, unsureHead, unsureItems(all))
	}
	fmt.Fprintf(&b, "\n## All rows\n\n%s\n\n", verdictSummary(all))
	rowVerdictTable(all).writeMarkdown(&b)
	for _, e := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s. %s. Verdict: **%s**%s.\n\n%s\n\n", e.Row, escapeMarkdown(e.Title),
			escapeMarkdown(e.Source), e.Verdict, e.Caution(), escapeMarkdown(e.Setup))
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
			fmt.Fprintf(&b, "\nNot covered: %s.\n", escapeMarkdown(e.NotCovered))
		}
		fmt.Fprintf(&b, "\n%s. `%s`\n", e.Provenance(), e.Rerun)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdictSummary returns how many rows, and how many figures, have which verdict.
func verdictSummary(all []Evaluation) string {
	rows, figures := map[Verdict]int{}, map[Verdict]int{}
	for _, e := range all {
		rows[e.Verdict]++
		for _, p := range e.Points {
			figures[p.Verdict]++
		}
	}
	return strings.TrimSpace(countedVerdicts("rows", rows) + " " + countedVerdicts("figures", figures))
}

// countedVerdicts returns a sentence that counts verdicts on things with this name; without any,
// "".
func countedVerdicts(name string, counts map[Verdict]int) string {
	var parts []string
	total := 0
	for _, v := range append(slices.Clone(verdicts), NoClaim) {
		if n := counts[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
			total += n
		}
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s: %s.", total, name, strings.Join(parts, ", "))
}

// writeListMarkdown writes a list of worse results below a head.
func writeListMarkdown(b *strings.Builder, head string, list []worseItem) {
	fmt.Fprintf(b, "## %s\n\n", head)
	for _, x := range list {
		fmt.Fprintf(b, "* %s: %s\n", x.row, escapeMarkdown(x.what))
	}
	if len(list) == 0 {
		b.WriteString(nothingWorse + "\n")
	}
}

// hasTransferTimes reports whether times of transfers were measured.
func (e Evaluation) hasTransferTimes() bool {
	return slices.ContainsFunc(e.Lines, func(l Line) bool { return l.Metric == Time.Name })
}

// rowCountedText returns how many transfers count, of those planned.
func (e Evaluation) rowCountedText() string { return fmt.Sprintf("%d of %d", e.Counted, e.Planned) }

// writeMetricTables writes the metrics of all cells: in one table; or, with many lines, in one
// table each for the first metric and the one that is also compared, or the first energy.
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
	if i := slices.IndexFunc(metrics, func(m string) bool {
		return m == e.secondMetric || strings.HasPrefix(m, activePrefix)
	}); i > 0 {
		writeGridTable(b, lines, metrics[i])
	}
}

// maxWideMetrics is the largest number of metrics in one table.
const maxWideMetrics = 6

// writeWideTable writes a line for each scheme in each cell, and a column for each metric.
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
			t.Rows[at][3+i] = l.tableCellText()
		}
	}
	b.WriteString("\n")
	t.writeMarkdown(b)
	b.WriteString("\nMean ± 95 %, share of the fluid bound's rate where one exists, σ.\n")
}

// writeGridTable writes a line for each cell, and a column for each scheme.
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
		text := l.tableCellText()
		if l.N > 0 && l.N != most {
			text += fmt.Sprintf(", n %d", l.N)
		}
		t.Rows[len(t.Rows)-1][1+slices.Index(schemes, l.Scheme)] = text
	}
	b.WriteString("\n")
	t.writeMarkdown(b)
	fmt.Fprintf(b, "\nMean ± 95 %%, share of the fluid bound's rate where one exists, σ; n is %d unless given.\n", most)
}

// tableCellText returns a line in short form.
func (l Line) tableCellText() string {
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
