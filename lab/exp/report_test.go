// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"mpbond/lab/radio"
)

// barLines returns a line for each value in a cell.
func barLines(cell string, means ...float64) (lines []Line) {
	for i, m := range means {
		lines = append(lines, Line{Cell: cell, Scheme: "scheme" + strconv.Itoa(i), Metric: "time", Unit: "s",
			Stat: Stat{N: 3, Mean: m, Half: m / 10}, Bound: 1})
	}
	return lines
}

// TestBars checks that each scheme has a visible bar within its track, also in a row of one cell,
// and that its full name and value are shown.
func TestBars(t *testing.T) {
	width := regexp.MustCompile(`<i style="left:([\d.]+)%;width:([\d.]+)%`)
	for _, c := range []struct {
		name  string
		lines []Line
		want  string
	}{
		{"one cell", barLines("5/10/5, 4 MB, pipe to 1 Mbit/s at 2 s", 4.9, 6.5, 7), `class="bars one"`},
		{"two cells", slices.Concat(barLines("a", 1, 2), barLines("b", 2, 3)), "fluid bound</fig"},
		{"far apart", slices.Concat(barLines("a", 1, 2), barLines("b", 200, 300)), "each cell has its own scale"},
		{"below 0", barLines("a", -5, 5), `left:0.0%;width:47.6%`},
		{"nothing", barLines("a", 0, 0), `left:0.0%;width:0.0%`},
	} {
		c.lines[0].Scheme = "mpbond:pams:feedback=fixed-on-demand <x>"
		var b strings.Builder
		writeMetricBars(&b, c.lines, "time", palette{"scheme0", "scheme1"})
		text := b.String()
		bars := width.FindAllStringSubmatch(text, -1)
		if len(bars) != len(c.lines) || !strings.Contains(text, c.want) ||
			!strings.Contains(text, "mpbond:pams:feedback=fixed-on-demand &lt;x&gt;") {
			t.Errorf("%s: %d bars, want %q in\n%s", c.name, len(bars), c.want, text)
		}
		for _, m := range bars {
			left, _ := strconv.ParseFloat(m[1], 64)
			wide, _ := strconv.ParseFloat(m[2], 64)
			if left+wide > 100.1 || wide < 25 && c.name != "nothing" {
				t.Errorf("%s: a bar from %v of %v %%", c.name, left, wide)
			}
		}
	}
	var b strings.Builder
	if writeMetricBars(&b, barLines("a", 1), "energy", nil); b.Len() > 0 {
		t.Errorf("without lines: %s", &b)
	}
}

// TestPlotFits checks that a plot has no size of its own, so that the page fits it into the window,
// and that its legend is text of the page.
func TestPlotFits(t *testing.T) {
	p, err := chart{title: "a <title>", unit: "ms", names: []string{"a long name, which is cut in no legend"}, step: 1,
		values: [][]float64{{1, 2, 3}}}.drawChartLines(nil)
	var b strings.Builder
	if err = errors.Join(err, p.writeFigure(&b)); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.Contains(text, `<svg role="img" viewBox=`) ||
		!strings.Contains(text, "</i>a long name, which is cut in no legend<") ||
		!strings.Contains(text, "<figcaption>a &lt;title&gt;") {
		t.Error(text)
	}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCauses checks the groups of worse results and their order, and that each result is in one.
func TestCauses(t *testing.T) {
	stat := func(n int, mean, half float64) Stat { return Stat{N: n, Mean: mean, Half: half} }
	a := Evaluation{Row: "a", Errors: []string{"cell: the lab died"}, worse: []WorseResult{
		{Cell: "c", Ours: Product, Other: "single", Metric: Energy(radio.Sets[0], "", false), Stat: stat(3, 5, 1)},
		{Cell: "c", Ours: Product, Other: "mptcp:own", Metric: Time, Stat: stat(3, 5, 1)}}}
	b := Evaluation{Row: "b",
		worse: []WorseResult{{Cell: "d", Ours: Product, Other: mptcp, Metric: Time, Stat: stat(3, 5, 1)}},
		Points: []PointLine{
			{What: "p1", Unit: "%", Stat: stat(3, 0, 1), Verdict: NotReproduced},
			{What: "p2", Unit: "s", Stat: stat(3, 9, 1), Verdict: NotReproduced},
			{What: "p3", Unit: "%", Stat: stat(3, 9, 1), Verdict: Opposite},
			{What: "p4", Unit: "%", Stat: stat(3, -9, 1), Verdict: DirectionOnly},
			{What: "p5", Unit: "%", Stat: stat(1, -9, 0), Verdict: NotReproduced},
			{What: "p6", Verdict: NotMeasured}, {What: "p7", Stat: stat(3, 1, 1), Verdict: Reproduced},
			{What: "p8", Stat: stat(2, 50, 0), Verdict: NotReproduced, claimed: true, Misses: []string{"x"}}}}
	var got []string
	for _, g := range groupByCause([]Evaluation{a, b}) {
		line := g.head + ":"
		for _, w := range g.items {
			line += " " + w.row
		}
		got = append(got, line)
	}
	want := []string{"Slower than kernel MPTCP: a b", "More energy than one link alone: a",
		"Incomplete: a cell could not be measured: a", "The opposite of what is published, surely: b",
		"No effect outside the noise: b", "Not the published value: b", "A claim does not hold in some case: b",
		"The published effect, but less of it: b", "Not as published, in one transfer: nothing is sure: b",
		"Not fully measured: b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := b.verdictCounts(); !strings.Contains(got, "1 of 8 figures opposite, surely") {
		t.Error(got)
	}
}

// TestPrintWithin checks that a wide table continues below, with the first column again, and that
// no line is wider than the screen unless one column is.
func TestPrintWithin(t *testing.T) {
	table := Table{Head: []string{"scheme", "one", "two", "empty", "three"}}
	table.Add("mpbond", "12345678", "–234567890", "", "12345")
	table.Add("mptcp", "1", "", "", "2")
	for _, c := range []struct {
		width, blocks int
	}{{1000, 1}, {37, 1}, {36, 2}, {20, 3}, {3, 3}} {
		var b strings.Builder
		if err := table.PrintWithin(&b, c.width); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "mpbond"); n != c.blocks {
			t.Errorf("width %d: %d blocks, want %d:\n%s", c.width, n, c.blocks, &b)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > max(c.width, 22) {
				t.Errorf("width %d: %d columns: %q", c.width, n, line)
			}
		}
		for _, want := range []string{"12345678", "–234567890", "12345"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("width %d: no %s", c.width, want)
			}
		}
	}
}
