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
// or than published first, then of each row its verdict, its points, and its
// first metric. The HTML page and the CSV have the rest.
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
	b.WriteString("\n## All rows\n\n")
	var rows [][]string
	for _, e := range all {
		rows = append(rows, []string{"[" + e.Row + "](#" + e.Row + ")", e.Title, string(e.Verdict) + e.Caution(), e.counted()})
	}
	mdTable(&b, []string{"row", "what", "verdict", "transfers that count"}, rows)
	for _, e := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s. %s. Verdict: **%s**%s.\n\n", e.Row, md(e.Title), md(e.Source), e.Verdict, e.Caution())
		rows = nil
		for _, p := range e.Points {
			rows = append(rows, []string{p.What, p.Published, p.Text(p.Unit), fmt.Sprint(p.N), string(p.Verdict)})
		}
		mdTable(&b, []string{"figure", "published", "here, mean ± 95 %", "n", "verdict"}, rows)
		e.mdLines(&b)
		if e.Lacks != "" {
			fmt.Fprintf(&b, "\nNot in it: %s.\n", md(e.Lacks))
		}
		fmt.Fprintf(&b, "\nmpbond %s, seed %d, Linux %s, %d processors, %s; %s planned transfers count. `%s`\n", e.Version, e.Seed, e.Kernel, e.Cores, e.Date, e.counted(), e.Rerun)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// counted is how many transfers count, of those that were planned.
func (e Evaluation) counted() string { return fmt.Sprintf("%d of %d", e.Counted, e.Planned) }

// mdLines writes the first metric of all cells.
func (e Evaluation) mdLines(b *strings.Builder) {
	if len(e.Lines) == 0 {
		return
	}
	metric, unit := e.Lines[0].Metric, e.Lines[0].Unit
	lines := slices.DeleteFunc(slices.Clone(e.Lines), func(l Line) bool { return l.Metric != metric })
	b.WriteString("\n")
	bound := func(l Line) string {
		if l.Bound <= 0 || l.N == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f %%", 100*l.Bound/l.Mean)
	}
	var rows [][]string
	if len(lines) <= mostLines {
		for _, l := range lines {
			rows = append(rows, []string{l.Cell, l.Scheme, l.Text(l.Unit), l.spread(l.Unit), fmt.Sprint(l.N), bound(l)})
		}
		mdTable(b, []string{"cell", "scheme", metric + ", mean ± 95 %", "σ", "n", "of the fluid bound"}, rows)
		return
	}
	var schemes []string
	most := 0
	for _, l := range lines {
		if !slices.Contains(schemes, l.Scheme) {
			schemes = append(schemes, l.Scheme)
		}
		most = max(most, l.N)
	}
	for _, l := range lines {
		if len(rows) == 0 || rows[len(rows)-1][0] != l.Cell {
			rows = append(rows, append([]string{l.Cell}, make([]string, len(schemes))...))
		}
		text := fmt.Sprintf("%s ± %s", number(l.Mean, l.Unit), number(l.Half, l.Unit))
		if l.N < 2 {
			text = number(l.Mean, l.Unit)
		}
		if s := bound(l); s != "" {
			text += ", " + s
		}
		if l.N > 1 {
			text += ", σ " + number(l.Sigma, l.Unit)
		}
		if l.N != most {
			text += fmt.Sprintf(", n %d", l.N)
		}
		if l.N > 0 {
			rows[len(rows)-1][1+slices.Index(schemes, l.Scheme)] = text
		}
	}
	mdTable(b, append([]string{metric + ", " + unit}, schemes...), rows)
	fmt.Fprintf(b, "\nMean ± 95 %%, part of the fluid bound's rate where there is one, σ; n is %d where nothing is said.\n", most)
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
