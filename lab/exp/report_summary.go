// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// verdictMark is a verdict in the picture of all rows.
type verdictMark struct {
	verdict Verdict
	class   string
}

var verdictMarks = []verdictMark{{Reproduced, "v0"}, {Exceeded, "v0"}, {Fitted, "v0"}, {DirectionOnly, "v1"},
	{NotReproduced, "v2"}, {Opposite, "v3"},
	{NotMeasured, "v4"}}

// writeRowsSummary writes what was measured and a picture of all rows.
func writeRowsSummary(b *strings.Builder, all []Evaluation) {
	counted, planned := 0, 0
	var versions, machines, dates []string
	quick := false
	total := map[Verdict]int{}
	for _, e := range all {
		counted, planned, quick = counted+e.Counted, planned+e.Planned, quick || e.Quick
		versions = appendIfMissing(versions, "mpbond "+e.Version)
		machines = appendIfMissing(machines, e.machinesText())
		dates = appendIfMissing(dates, e.Date)
		for _, p := range e.Points {
			total[p.Verdict]++
		}
	}
	slices.Sort(dates)
	b.WriteString("<h2>What was measured</h2>\n")
	text := fmt.Sprintf("%d rows; %d of %d planned transfers count; %s on %s, %s.", len(all), counted, planned,
		strings.Join(versions, ", "), strings.Join(machines, ", "), strings.Join(slices.Compact(dates), ", "))
	if quick {
		text += " This is the short form: it shows that everything runs, and has no figures."
	}
	fmt.Fprintf(b, "<p>%s</p>\n<p class=\"legend\">Published figures and claims: ", escapeText("%s", text))
	for _, v := range verdictMarks {
		if total[v.verdict] > 0 {
			fmt.Fprintf(b, "<span><i class=\"%s\"></i>%d %s</span> ", v.class, total[v.verdict],
				escapeText("%s", v.verdict))
		}
	}
	b.WriteString("</p>\n")
	if slices.ContainsFunc(all, func(e Evaluation) bool { return len(e.changesFromMPTCP()) > 0 }) {
		fmt.Fprintf(b, "<p class=\"legend\"><span><i class=\"dot\"></i>a cell: time of %s relative to %s, from −%d %% "+
			"(left, faster) to +%[3]d %%</span></p>\n", Product, html.EscapeString(mptcp), maxShownChange)
	}
	b.WriteString("<div class=\"picture\">\n")
	for _, e := range all {
		e.writePictureLine(b)
	}
	b.WriteString("</div>\n")
}

// verdictCounts returns the verdict on the row and on how many of its figures it rests. The table
// of figures has the reasons.
func (e Evaluation) verdictCounts() string {
	text := string(e.Verdict)
	var counts []string
	for _, v := range verdictMarks {
		if n := e.countVerdict(v.verdict); n > 0 {
			counts = append(counts, fmt.Sprintf("%d of %d figures %s", n, len(e.Points), v.verdict))
		}
	}
	if len(counts) > 1 {
		text += ": " + strings.Join(counts, ", ")
	}
	return text
}

// countVerdict returns how many figures have a verdict.
func (e Evaluation) countVerdict(v Verdict) (n int) {
	for _, p := range e.Points {
		if p.Verdict == v {
			n++
		}
	}
	return n
}

// appendIfMissing appends a text that the list does not have.
func appendIfMissing(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// writePictureLine writes the row's line of the picture: how many of its published figures have
// which verdict, and the times of the product relative to kernel MPTCP.
func (e Evaluation) writePictureLine(b *strings.Builder) {
	fmt.Fprintf(b, "<span>%s</span><span class=\"title\">%s</span><span class=\"stack\">", formatRowLink(e.Row),
		escapeText("%s", e.Title))
	for _, v := range verdictMarks {
		if n := e.countVerdict(v.verdict); n > 0 {
			fmt.Fprintf(b, "<i class=\"%s\" style=\"flex:%d\" title=\"%s\">%[2]d</i>", v.class, n,
				escapeText("%d %s", n, v.verdict))
		}
	}
	b.WriteString("</span><span class=\"beside\">")
	if changes := e.changesFromMPTCP(); len(changes) > 0 {
		b.WriteString("<b></b>")
		for _, c := range changes {
			fmt.Fprintf(b, "<i style=\"left:%.1f%%\" title=\"%s\"></i>",
				scale{-maxShownChange, maxShownChange}.trackPercent(c.percent), escapeText("%s: %+.1f %%", c.cell,
					c.percent))
		}
	}
	b.WriteString("</span>\n")
}

// maxShownChange is the end of the axis of changes relative to kernel MPTCP, in percent.
const maxShownChange = 60

// cellChange is the change of a cell's mean in percent.
type cellChange struct {
	cell    string
	percent float64
}

// changesFromMPTCP returns for each cell by how much the product's mean time differs from
// that of kernel MPTCP.
func (e Evaluation) changesFromMPTCP() (list []cellChange) {
	base := map[string]float64{}
	for _, l := range e.Lines {
		if l.Metric == Time.Name && l.Scheme == mptcp && l.N > 0 {
			base[l.Cell] = l.Mean
		}
	}
	for _, l := range e.Lines {
		if l.Metric == Time.Name && l.Scheme == Product && l.N > 0 && base[l.Cell] > 0 {
			list = append(list, cellChange{l.Cell, 100 * (l.Mean/base[l.Cell] - 1)})
		}
	}
	return list
}

// cause is a group of worse results.
type cause struct {
	head   string
	surely bool
	items  []worseItem
}

// groupByCause groups all results that are worse than those of another scheme, than published, or
// than claimed. The most serious cause comes first.
func groupByCause(all []Evaluation) (groups []*cause) {
	add := func(head string, surely bool, row, what string) {
		i := slices.IndexFunc(groups, func(g *cause) bool { return g.head == head })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &cause{head: head, surely: surely})
		}
		groups[i].items = append(groups[i].items, worseItem{row, what, surely})
	}
	for _, m := range []string{Time.Name, ""} { // times first
		for _, e := range all {
			for _, w := range e.worse {
				if (w.Metric.Name == Time.Name) == (m != "") {
					add(w.worseCauseText(), true, e.Row, w.String())
				}
			}
		}
	}
	for _, e := range all {
		for _, failed := range e.Errors {
			add("Incomplete: a cell could not be measured", true, e.Row, failed)
		}
	}
	for _, v := range []Verdict{Opposite, NotReproduced, DirectionOnly} {
		for _, e := range all {
			for _, p := range e.Points {
				if p.Verdict == v && (p.claimed || p.N > 1) {
					add(p.pointCauseText(), false, e.Row, p.String())
				}
			}
		}
	}
	for _, e := range all {
		for _, p := range e.Points {
			if !p.Verdict.isAsPublished() && p.Verdict != NotMeasured && !p.claimed && p.N == 1 {
				add("Not as published, in one transfer: nothing is sure", false, e.Row, p.String())
			}
		}
	}
	for _, e := range all {
		for _, p := range e.Points {
			if p.Verdict == NotMeasured {
				add("Not fully measured", false, e.Row, p.What)
			}
		}
	}
	return groups
}

// worseCauseText returns the cause of a result that is worse than another scheme.
func (w WorseResult) worseCauseText() string {
	if w.Metric.Name == Time.Name {
		return "Slower than " + schemeFamily(w.Other)
	}
	if w.Metric.energySet != nil {
		return "More energy than " + schemeFamily(w.Other)
	}
	return fmt.Sprintf("Worse than %s: %s", schemeFamily(w.Other), w.Metric.Name)
}

// schemeFamily names the kind of a scheme.
func schemeFamily(scheme string) string {
	kind, _, _ := strings.Cut(scheme, ":")
	switch {
	case isRatioScheme(scheme):
		return "the best fixed ratio"
	case kind == mptcp:
		return "kernel MPTCP"
	case kind == "single":
		return "one link alone"
	case kind == "combine":
		return "COMBINE"
	case kind == Product && kind != scheme:
		return "another choice of mpbond"
	}
	return scheme
}

// pointCauseText returns the cause of a figure that is not as published.
func (p PointLine) pointCauseText() string {
	low, high := p.confidenceInterval()
	switch {
	case p.claimed:
		return "A claim does not hold in some case"
	case p.Verdict == Opposite:
		return "The opposite of what is published, surely"
	case p.Verdict == DirectionOnly:
		return "The published effect, but less of it"
	case p.Unit == "%" && low < 0 && high > 0:
		return "No effect outside the noise"
	}
	return "Not the published value"
}

// maxOpenItems is the largest number of a row's results that are shown without a click.
const maxOpenItems = 3

// writeCauses writes what is worse or not as published, by cause and row.
func writeCauses(b *strings.Builder, all []Evaluation) {
	groups := groupByCause(all)
	fmt.Fprintf(b, "<h2 id=\"worse\">%s</h2>\n", causesHead)
	if len(groups) == 0 {
		b.WriteString("<p>" + nothingWorse + "</p>\n")
	}
	for _, g := range groups {
		writeCause(b, *g)
	}
	writeCause(b, cause{head: unsureHead, items: unsureItems(all)})
}

// writeCause writes a cause: for each row its results, folded if they are many.
func writeCause(b *strings.Builder, g cause) {
	class := ""
	if g.surely {
		class = ` class="worse"`
	}
	fmt.Fprintf(b, "<h3%s>%s</h3>\n", class, escapeText("%s (%d)", g.head, len(g.items)))
	if len(g.items) == 0 {
		b.WriteString("<p>" + nothingWorse + "</p>\n")
		return
	}
	b.WriteString("<ul>\n")
	for len(g.items) > 0 {
		row := g.items[0].row
		n := slices.IndexFunc(g.items, func(w worseItem) bool { return w.row != row })
		if n < 0 {
			n = len(g.items)
		}
		items := g.items[:n]
		g.items = g.items[n:]
		if n <= maxOpenItems {
			for _, w := range items {
				fmt.Fprintf(b, "<li>%s: %s</li>\n", formatRowLink(row), escapeText("%s", w.what))
			}
			continue
		}
		fmt.Fprintf(b, "<li><details><summary>%s: %d results</summary>\n<ul>\n", formatRowLink(row), n)
		for _, w := range items {
			fmt.Fprintf(b, "<li>%s</li>\n", escapeText("%s", w.what))
		}
		b.WriteString("</ul></details></li>\n")
	}
	b.WriteString("</ul>\n")
}
