// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"
)

// writeMetricBars writes one metric: a block for each cell, with a bar for each scheme, a line for
// the 95 % interval, and a mark at the fluid bound. Blocks stand side by side as the window allows.
// Names and values are text, so that nothing is cut.
func writeMetricBars(b *strings.Builder, lines []Line, metric string, all palette) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.Metric != metric || l.N == 0 })
	if len(lines) == 0 {
		return
	}
	var cells []string
	bound := false
	for _, l := range lines {
		if !slices.Contains(cells, l.Cell) {
			cells = append(cells, l.Cell)
		}
		bound = bound || l.Bound > 0
	}
	scales, together := computeBarScales(lines, cells)
	note := ""
	if bound {
		note += "; the mark is the fluid bound"
	}
	if !together {
		note += "; each cell has its own scale"
	}
	class := "bars"
	if len(cells) == 1 {
		class += " one" // metrics stand side by side
	}
	fmt.Fprintf(b, "<figure class=%q><figcaption>%s</figcaption>\n<div class=\"cells\">\n", class,
		escapeText("%s, %s%s", metric, lines[0].Unit, note))
	for _, cell := range cells {
		fmt.Fprintf(b, "<div class=\"cell\"><p>%s</p>\n", escapeText("%s", cell))
		for _, l := range lines {
			if l.Cell == cell {
				l.writeSchemeBar(b, scales[cell], all)
			}
		}
		b.WriteString("</div>\n")
	}
	b.WriteString("</div></figure>\n")
}

// scale maps values to the width of a bar's track.
type scale struct{ low, high float64 }

// trackPercent returns the place of a value on the track in percent.
func (s scale) trackPercent(v float64) float64 {
	return 100 * (min(max(v, s.low), s.high) - s.low) / (s.high - s.low)
}

// maxScaleRatio is the largest ratio of the greatest values of two cells that share a scale. With a
// larger one the bars of one cell would be too short to compare.
const maxScaleRatio = 8

// computeBarScales returns the scale of each cell, and reports whether all cells have the same.
// Scales contain 0.
func computeBarScales(lines []Line, cells []string) (scales map[string]scale, together bool) {
	scales = map[string]scale{}
	whole := scale{}
	for _, l := range lines {
		s := scales[l.Cell]
		s.low, s.high = min(s.low, l.Mean), max(s.high, l.Mean+l.Half, l.Bound)
		scales[l.Cell] = s
		whole.low, whole.high = min(whole.low, s.low), max(whole.high, s.high)
	}
	together = true
	for _, s := range scales {
		together = together && whole.high-whole.low <= maxScaleRatio*(s.high-s.low)
	}
	for _, cell := range cells {
		s := scales[cell]
		if together {
			s = whole
		}
		if s.high <= s.low {
			s.high = s.low + 1 // all values are 0
		}
		scales[cell] = s
	}
	return scales, together
}

// writeSchemeBar writes the bar of a line.
func (l Line) writeSchemeBar(b *strings.Builder, s scale, all palette) {
	from, to := s.trackPercent(min(l.Mean, 0)), s.trackPercent(max(l.Mean, 0))
	fmt.Fprintf(b, "<span>%s</span><span class=\"track\"><i style=\"left:%.1f%%;width:%.1f%%;background:%s\"></i>",
		escapeText("%s", l.Scheme), from, to-from, formatCSSColor(all.schemeColor(l.Scheme)))
	if l.N > 1 {
		from, to := s.trackPercent(l.Mean-l.Half), s.trackPercent(l.Mean+l.Half)
		fmt.Fprintf(b, "<b style=\"left:%.1f%%;width:%.1f%%\"></b>", from, to-from)
	}
	if l.Bound > 0 {
		fmt.Fprintf(b, "<u style=\"left:%.1f%%\"></u>", s.trackPercent(l.Bound))
	}
	fmt.Fprintf(b, "</span><span>%s</span>\n", escapeText("%s", strings.TrimSpace(l.Text(l.Unit))))
}
