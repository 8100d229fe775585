// SPDX-License-Identifier: Apache-2.0

package exp

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
	"strings"

	"mpbond/base/unit"
)

// pageHead is the beginning of the page with its styles. html/template is not used: it makes the
// linker keep every method of the program, 8 MB.
//
//go:embed report_head.html
var pageHead string

// escapeText formats and escapes text for HTML.
func escapeText(format string, args ...any) string {
	return html.EscapeString(fmt.Sprintf(format, args...))
}

// WriteHTML writes one self-contained page. First comes what was measured, with a picture of all
// rows; then the rows; then results that are worse than published or than a baseline, by cause;
// then for each record its plots, the measured and published values, and the verdict.
func WriteHTML(w io.Writer, all []Evaluation) error {
	var b strings.Builder
	b.WriteString(pageHead)
	writeRowsSummary(&b, all)
	b.WriteString("<h2 id=\"rows\">Rows</h2>\n")
	rowVerdictTable(all).writeHTML(&b)
	writeCauses(&b, all)
	for _, e := range all {
		if err := writeSection(&b, e); err != nil {
			return err
		}
	}
	b.WriteString("</body>\n</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func formatRowLink(row string) string {
	return fmt.Sprintf(`<a href="#%[1]s">%[1]s</a>`, html.EscapeString(row))
}

// worseItem is one result that is worse than another scheme, or than published.
type worseItem struct {
	row, what string
	surely    bool // than a baseline; or it could not be measured
}

// worseItems returns the results that are worse than those of other schemes, and the cells that
// could not be measured.
func worseItems(all []Evaluation) (list []worseItem) {
	for _, e := range all {
		for _, what := range e.Worse {
			list = append(list, worseItem{e.Row, what, true})
		}
		for _, failed := range e.Errors {
			list = append(list, worseItem{e.Row, "incomplete: " + failed, true})
		}
	}
	return list
}

// unlikePublishedItems returns the figures that are not as published, or not as claimed.
func unlikePublishedItems(all []Evaluation) (list []worseItem) {
	for _, e := range all {
		missing := 0
		for _, p := range e.Points {
			switch {
			case p.Verdict.isAsPublished():
			case p.Verdict == NotMeasured:
				missing++
			default:
				list = append(list, worseItem{e.Row, p.String(), false})
			}
		}
		if missing > 0 {
			list = append(list, worseItem{e.Row, missingText(missing, len(e.Points)), false})
		}
	}
	return list
}

// unsureItems returns where mpbond is not surely faster than kernel MPTCP, its best fixed ratio or
// COMBINE.
func unsureItems(all []Evaluation) (list []worseItem) {
	for _, e := range all {
		for _, what := range e.NotSurelyFaster {
			list = append(list, worseItem{e.Row, what, false})
		}
	}
	return list
}

// Heads of the lists, and the text of an empty one. The page groups the first two by cause.
const (
	worseHead           = "Worse than another scheme"
	unlikePublishedHead = "Not as published or claimed"
	causesHead          = "Worse than another scheme, or not as published or claimed"
	unsureHead          = "Not surely faster than kernel MPTCP, its best fixed ratio or COMBINE"
	nothingWorse        = "Nowhere in what was measured."
)

// writeSection writes everything about one row.
func writeSection(b *strings.Builder, e Evaluation) error {
	fmt.Fprintf(b, "<h2 id=%q>%s</h2>\n<p><b>%s</b></p>\n<p>%s", html.EscapeString(e.Row), escapeText("%s: %s", e.Row,
		e.Title), escapeText("%s%s", e.verdictCounts(), e.Caution()), escapeText("%s. %s", e.Source, e.Setup))
	if e.Search != "" {
		b.WriteString(escapeText(" %s", e.Search))
	}
	if e.NotCovered != "" {
		b.WriteString(escapeText(" Not covered: %s.", e.NotCovered))
	}
	b.WriteString("</p>\n")
	e.pointTable().writeHTML(b)
	for _, t := range e.Tables {
		t.writeHTML(b)
	}
	drawn := map[string]bool{}
	var colors palette
	tabled := e.TableLines()
	for _, l := range tabled {
		if !slices.Contains(colors, l.Scheme) {
			colors = append(colors, l.Scheme)
		}
	}
	b.WriteString("<div class=\"metrics\">\n")
	for _, l := range tabled {
		if !drawn[l.Metric] {
			drawn[l.Metric] = true
			writeMetricBars(b, tabled, l.Metric, colors)
		}
	}
	b.WriteString("</div>\n")
	if err := writeDetails(b, e, colors); err != nil {
		return err
	}
	open := " open"
	if len(tabled) > maxWideLines {
		open = ""
	}
	fmt.Fprintf(b, "<details%s><summary>%d figures</summary>\n", open, len(tabled))
	e.metricLineTable().writeHTML(b)
	b.WriteString("</details>\n")
	fmt.Fprintf(b, "<p class=\"small\">%s. Rerun: <code>%s</code></p>\n", escapeText("%s", e.Provenance()),
		escapeText("%s", e.Rerun))
	return nil
}

// writeDetails writes distributions, charts, and the timelines and energies by radio of the shown
// cell.
func writeDetails(b *strings.Builder, e Evaluation, colors palette) error {
	var plots []linePlot
	add := func(p linePlot, err error) error {
		plots = append(plots, p)
		return err
	}
	for _, s := range e.figures.spreads {
		if err := add(drawDistribution(s, colors)); err != nil {
			return err
		}
	}
	for _, s := range e.figures.scatters {
		if err := add(s.drawPoints(colors)); err != nil {
			return err
		}
	}
	for _, c := range e.figures.charts {
		if err := add(c.drawChartLines(colors)); err != nil {
			return err
		}
	}
	if err := writePlots(b, plots); err != nil {
		return err
	}
	plots = nil
	seconds, mb := 0.0, 0.0
	for _, t := range e.figures.timelines {
		seconds = max(seconds, t.took)
		for _, l := range t.lines {
			mb = max(mb, slices.Max(l.mb))
		}
	}
	if len(e.figures.timelines) > 0 {
		fmt.Fprintf(b, "<p>%s</p>\n", escapeText("%s: IP bytes over each link of the primary so far, and the backlog "+
			"of helpers, of each scheme's median transfer.", e.figures.shown))
	}
	for _, t := range e.figures.timelines {
		if err := add(t.drawTimeline(seconds, mb)); err != nil {
			return err
		}
	}
	if err := writePlots(b, plots); err != nil {
		return err
	}
	if len(e.Energies) == 0 {
		return nil
	}
	fmt.Fprintf(b, "<p>%s</p>\n", escapeText("%s: energy by radio, J, means. E_active is promotion, base and "+
		"data; E_full adds the tail and idle times.", e.figures.shown))
	t := Table{Head: []string{"scheme", "device", "radio", "n", "promotion", "base", "data", "tail", "idle", "E_active",
		"E_full"}}
	for _, l := range e.Energies {
		r := []string{l.Scheme, l.Device, string(l.Radio), fmt.Sprint(l.N)}
		for _, v := range []unit.Joules{l.Promotion, l.Base, l.Data, l.Tail, l.Idle, l.Active(), l.Full()} {
			r = append(r, formatNumber(float64(v), "J"))
		}
		t.Add(r...)
	}
	t.writeHTML(b)
	return nil
}

// writePlots writes plots side by side as the window allows.
func writePlots(b *strings.Builder, plots []linePlot) error {
	if len(plots) == 0 {
		return nil
	}
	b.WriteString("<div class=\"plots\">\n")
	for _, p := range plots {
		if err := p.writeFigure(b); err != nil {
			return err
		}
	}
	b.WriteString("</div>\n")
	return nil
}

// csvHead names the columns of WriteCSV. A line is a scheme in a cell, or a point; then "published"
// and "verdict" are not empty.
var csvHead = []string{"row", "cell_or_figure", "scheme", "metric", "unit", "n", "mean", "sigma", "half_interval95",
	"fluid_bound_s",
	"published", "verdict", "discarded", "failed", "seed", "commit", "kernel", "quick"}

// WriteCSV writes all values, one a line.
func WriteCSV(w io.Writer, all []Evaluation) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvHead); err != nil {
		return err
	}
	float := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	write := func(e Evaluation, s Stat, first, rest []string) error {
		l := append(append([]string{e.Row}, first...), strconv.Itoa(s.N), float(s.Mean), float(s.Sigma), float(s.Half))
		return out.Write(append(append(l, rest...), strconv.FormatUint(e.Seed, 10), e.Version, e.kernelsText(),
			strconv.FormatBool(e.Quick)))
	}
	for _, e := range all {
		for _, p := range e.Points {
			if err := write(e, p.Stat, []string{p.What, "", "", p.Unit}, []string{"", p.Published, string(p.Verdict),
				"", ""}); err != nil {
				return err
			}
		}
		for _, l := range e.Lines {
			bound := ""
			if l.Bound > 0 {
				bound = float(l.Bound)
			}
			if err := write(e, l.Stat, []string{l.Cell, l.Scheme, l.Metric, l.Unit},
				[]string{bound, "", "", strconv.Itoa(l.Discarded), strconv.Itoa(l.Failed)}); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}
