package exp

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// mostLines is of how many lines a row's table may be; above it has a line for
// each cell and a column for each scheme.
const mostLines = 16

// WriteMarkdown writes the figures for a document: what is worse than a baseline
// or than published first, then of each row its verdict, what is assumed, its
// points and its metrics. The HTML page and the CSV have the rest.
func WriteMarkdown(w io.Writer, all []Evaluation) error {
	var b strings.Builder
	worse := worseOf(all)
	b.WriteString("## Where we are worse\n\n")
	for _, x := range worse {
		fmt.Fprintf(&b, "* %s: %s\n", x.row, md(x.what))
	}
	if len(worse) == 0 {
		b.WriteString("Nowhere in what was measured.\n")
	}
	if list := unsure(all); slices.ContainsFunc(all, Evaluation.timed) {
		fmt.Fprintf(&b, "\n## %s\n\n", unsureHead)
		for _, x := range list {
			fmt.Fprintf(&b, "* %s: %s\n", x.row, md(x.what))
		}
		if len(list) == 0 {
			b.WriteString("Nowhere in what was measured.\n")
		}
	}
	b.WriteString("\n## All rows\n\n")
	var rows [][]string
	for _, e := range all {
		rows = append(rows, []string{"[" + e.Row + "](#" + e.Row + ")", e.Title, string(e.Verdict) + e.Caution(), e.counted()})
	}
	mdTable(&b, []string{"row", "what", "verdict", "transfers that count"}, rows)
	for _, e := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s. %s. Verdict: **%s**%s.\n\n%s\n\n", e.Row, md(e.Title), md(e.Source), e.Verdict, e.Caution(), md(e.Setup))
		rows = nil
		for _, p := range e.Points {
			rows = append(rows, []string{p.What, p.Published, p.Text(p.Unit), fmt.Sprint(p.N), string(p.Verdict)})
		}
		mdTable(&b, []string{"figure", "published", "here, mean ± 95 %", "n", "verdict"}, rows)
		e.mdLines(&b)
		if e.Search != "" {
			fmt.Fprintf(&b, "\n%s\n", md(e.Search))
		}
		if e.Lacks != "" {
			fmt.Fprintf(&b, "\nNot in it: %s.\n", md(e.Lacks))
		}
		fmt.Fprintf(&b, "\nmpbond %s, seed %d, Linux %s, %d processors, %s; %s planned transfers count. `%s`\n", e.Version, e.Seed, e.Kernel, e.Cores, e.Date, e.counted(), e.Rerun)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// timed tells whether times of transfers were measured.
func (e Evaluation) timed() bool {
	return slices.ContainsFunc(e.Lines, func(l Line) bool { return l.Metric == Time.Name })
}

// counted is how many transfers count, of those that were planned.
func (e Evaluation) counted() string { return fmt.Sprintf("%d of %d", e.Counted, e.Planned) }

// mdLines writes the metrics of all cells: all in a table, or, where there are many
// lines, a table each for the first metric and the one that is compared besides it,
// or the first energy.
func (e Evaluation) mdLines(b *strings.Builder) {
	lines := e.Tabled()
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
	if first <= mostLines {
		mdWide(b, lines, metrics[:min(mostMetrics, len(metrics))])
		return
	}
	mdGrid(b, lines, metrics[0])
	if i := slices.IndexFunc(metrics, func(m string) bool { return m == e.second || strings.HasPrefix(m, activeName) }); i > 0 {
		mdGrid(b, lines, metrics[i])
	}
}

// mostMetrics is how many stand beside each other.
const mostMetrics = 6

// mdWide has a line for each scheme in each cell, and a column for each metric.
func mdWide(b *strings.Builder, lines []Line, metrics []string) {
	head := []string{"cell", "scheme", "n"}
	var rows [][]string
	for i, m := range metrics {
		for _, l := range lines {
			if l.Metric != m {
				continue
			}
			if len(head) == 3+i {
				head = append(head, m+", "+l.Unit)
			}
			at := slices.IndexFunc(rows, func(r []string) bool { return r[0] == l.Cell && r[1] == l.Scheme })
			if at < 0 {
				at = len(rows)
				rows = append(rows, append([]string{l.Cell, l.Scheme, fmt.Sprint(l.N)}, make([]string, len(metrics))...))
			}
			rows[at][3+i] = l.cell()
		}
	}
	b.WriteString("\n")
	mdTable(b, head, rows)
	b.WriteString("\nMean ± 95 %, part of the fluid bound's rate where there is one, σ.\n")
}

// mdGrid has a line for each cell, and a column for each scheme.
func mdGrid(b *strings.Builder, lines []Line, metric string) {
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
	var rows [][]string
	for _, l := range lines {
		if l.Metric != metric {
			continue
		}
		if len(rows) == 0 || rows[len(rows)-1][0] != l.Cell {
			rows = append(rows, append([]string{l.Cell}, make([]string, len(schemes))...))
		}
		text := l.cell()
		if l.N > 0 && l.N != most {
			text += fmt.Sprintf(", n %d", l.N)
		}
		rows[len(rows)-1][1+slices.Index(schemes, l.Scheme)] = text
	}
	b.WriteString("\n")
	mdTable(b, append([]string{metric + ", " + unit}, schemes...), rows)
	fmt.Fprintf(b, "\nMean ± 95 %%, part of the fluid bound's rate where there is one, σ; n is %d where nothing is said.\n", most)
}

// cell is a line in few letters.
func (l Line) cell() string {
	if l.N == 0 {
		return ""
	}
	text := number(l.Mean, l.Unit)
	if l.N > 1 {
		text += " ± " + number(l.Half, l.Unit)
	}
	if l.Bound > 0 {
		text += fmt.Sprintf(", %.0f %%", 100*l.Bound/l.Mean)
	}
	if l.N > 1 {
		text += ", σ " + number(l.Sigma, l.Unit)
	}
	return text
}

// mdTable writes a table of texts.
func mdTable(b *strings.Builder, head []string, rows [][]string) {
	for i, r := range append([][]string{head}, rows...) {
		b.WriteString("|")
		for _, c := range r {
			if c == "" {
				c = "–"
			}
			b.WriteString(" " + md(c) + " |")
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
		}
	}
}

// md is a text that is no table's end, and no tag.
func md(s string) string { return strings.NewReplacer("|", "\\|", "<", "&lt;", "\n", " ").Replace(s) }
