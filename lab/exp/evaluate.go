// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mpbond/lab"
)

// Evaluation is the result of a record, for screens, JSON, CSV and HTML alike.
type Evaluation struct {
	Row        string `json:"row"`
	Title      string `json:"title"`
	Source     string `json:"source"`
	Setup      string `json:"setup"`
	Search     string `json:"search,omitempty"` // what the search for fixed ratios may have missed
	NotCovered string `json:"not_covered,omitempty"`
	Stamp
	// Machines are those that made the transfers, if workers of a queue made some of them.
	Machines []lab.Machine `json:"machines,omitempty"`
	// CoreCommits is how many commits have changed the core since, if known: see AddAges.
	CoreCommits int      `json:"core_commits_since,omitempty"`
	Rerun       string   `json:"rerun"`
	Counted     int      `json:"counted"` // transfers
	Errors      []string `json:"errors,omitempty"`
	Verdict     Verdict  `json:"verdict"`
	VerdictLine string   `json:"verdict_line"`
	// Worse lists where the product is worse than another scheme, outside the noise.
	Worse []string `json:"worse"`
	// NotSurelyFaster lists where the product is not surely faster than kernel MPTCP, its best
	// fixed ratio or COMBINE.
	NotSurelyFaster []string    `json:"not_surely_faster"`
	Points          []PointLine `json:"points"`
	Lines           []Line      `json:"lines"`
	// Tables replace the lines on screens and in documents, if there are any.
	Tables       []Table       `json:"tables,omitempty"`
	Energies     []EnergyLine  `json:"energies,omitempty"` // of the cell that is shown in detail
	secondMetric string        // also compared; "" if there is none
	worse        []WorseResult // as in Worse
	overview     Table         // the row's part of WriteOverview
	figures      reportFigures
}

// reportFigures is what only the page shows: timelines of the shown cell, and distributions and
// charts of the cells that the row names.
type reportFigures struct {
	shown     string
	timelines []timeline
	spreads   []distribution
	charts    []chart
	scatters  []scatter
}

// Caution returns a warning for a verdict that rests on too few transfers: on the short form, or on
// single transfers without an interval. It is empty otherwise.
func (e Evaluation) Caution() string {
	switch {
	case e.Quick:
		return " (short form: not for figures)"
	case slices.ContainsFunc(e.Points, func(p PointLine) bool { return p.N == 1 && !p.claimed }):
		return " (of one transfer alone: not for figures)"
	}
	return ""
}

// PointLine is a published value and the measured one.
type PointLine struct {
	What      string `json:"what"`
	Unit      string `json:"unit"`
	Published string `json:"published"`
	Stat
	Verdict Verdict `json:"verdict"`
	// Of a claim: the cases that do not hold, and those not measured. N is then the number of
	// measured cases, and Mean the percentage of them that hold.
	Misses  []string `json:"misses,omitempty"`
	Missing []string `json:"not_measured,omitempty"`
	claimed bool
}

func (p PointLine) String() string {
	text := fmt.Sprintf("%s: %s (published %s): %s", p.What, p.measuredText(), p.Published, p.Verdict)
	if p.claimed {
		text = fmt.Sprintf("%s: %s, not in %s", p.What, p.measuredText(), strings.Join(p.Misses, "; "))
	}
	return text
}

// measuredText returns the measured value as text.
func (p PointLine) measuredText() string {
	if p.claimed && p.N > 0 {
		return fmt.Sprintf("%d of %d", p.N-len(p.Misses), p.N)
	}
	return p.Text(p.Unit)
}

// Line is one scheme in one cell.
type Line struct {
	Cell   string `json:"cell"`
	Scheme string `json:"scheme"`
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
	Stat
	Bound       float64 `json:"bound,omitempty"` // fluid bound in s, of times only
	Discarded   int     `json:"discarded"`       // disturbed transfers
	Failed      int     `json:"failed"`
	isBestRatio bool    // its scheme is the best of the cell's fixed ratios
	isPlace     bool    // its cell is one of many places
}

// TableLines returns the lines for tables and plots. Of fixed ratios, which differ between cells,
// only the best one is included; of many places only the median one.
func (e Evaluation) TableLines() (some []Line) {
	for _, l := range e.Lines {
		if l.isPlace {
			continue
		}
		if isRatioScheme(l.Scheme) {
			if !l.isBestRatio {
				continue
			}
			l.Scheme = bestRatioLabel
		}
		some = append(some, l)
	}
	return some
}

// EvaluateAll evaluates the records of rows in a directory.
func EvaluateAll(dir string, rows []Row) (all []Evaluation, err error) {
	for _, row := range rows {
		rec, err := row.LoadRowRecord(dir)
		if err != nil {
			return nil, err
		}
		if len(rec.Results) > 0 {
			all = append(all, Evaluate(row, rec))
		}
	}
	return all, nil
}

// Evaluate evaluates a record.
func Evaluate(row Row, rec Record) Evaluation {
	row = row.withCellsForSeed(rec.Seed).withoutMissingCells(rec)
	d := rec.Results
	e := Evaluation{Row: row.ID, Title: row.Title, Source: row.Source, Setup: row.Setup, Search: row.searchText(d),
		NotCovered: row.NotCovered,
		Stamp:      rec.Stamp, Machines: rec.machines(), Rerun: rec.rerunCommand(), VerdictLine: row.VerdictLine(d),
		Worse: []string{}, NotSurelyFaster: row.NotSurelyFaster(d)}
	shown := row.chooseShownCell(d)
	e.figures = reportFigures{shown, row.medianTimelines(d, shown), row.distributions(d), row.makeCharts(d),
		row.makeScatters(d)}
	e.Energies = row.energyLines(d, shown)
	if compared := row.comparedMetrics(); len(compared) > 1 {
		e.secondMetric = compared[1].Name
	}
	outcomes, verdict := row.EvaluatePoints(d)
	e.Verdict = verdict
	for _, o := range outcomes {
		e.Points = append(e.Points, o.toPointLine())
	}
	for _, b := range row.WorseThan(d) {
		e.Worse, e.worse = append(e.Worse, b.String()), append(e.worse, b)
	}
	for cell := range d {
		e.Counted += d.countedTransfers(cell)
	}
	for _, c := range row.Cells {
		if text := rec.Errors[c.Name]; text != "" {
			e.Errors = append(e.Errors, c.Name+": "+text)
		}
		e.Lines = append(e.Lines, row.cellMetricLines(d, c)...)
	}
	for _, id := range row.recounts {
		if text := rec.Errors[id]; text != "" {
			e.Errors = append(e.Errors, id+": "+text)
		}
	}
	e.Lines = append(e.Lines, row.medianLines(d)...)
	if row.tables != nil {
		e.Tables = row.tables(rec)
	}
	e.overview = row.overviewTable(rec)
	return e
}

// rerunCommand returns the command that makes a record like this one.
func (rec Record) rerunCommand() string {
	s, dir := rec.Stamp, rec.dir
	text := fmt.Sprintf("mpbond-lab exp run %s --seed %d", rec.Row, s.Seed)
	if s.Quick {
		text += " --quick"
	}
	if s.Reps > 0 {
		text += fmt.Sprintf(" --reps %d", s.Reps)
	}
	if s.Quick && dir != "" {
		dir = filepath.Dir(dir) // see QuickDir
	}
	if dir == DefaultDir {
		dir = ""
	}
	for _, option := range [][2]string{{"traces", s.Traces}, {"drives", s.Drives}, {"only", s.Only}, {"dir", dir}} {
		if option[1] != "" {
			text += fmt.Sprintf(" --%s %s", option[0], shellQuote(option[1]))
		}
	}
	return text
}

// shellQuote quotes a word of a command line if necessary.
func shellQuote(s string) string {
	if strings.ContainsAny(s, " ,'") {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// cellMetricLines returns the lines of a measured cell, by metric and scheme. A published value
// precedes the scheme's own line.
func (r Row) cellMetricLines(d Data, c Cell) (all []Line) {
	if _, measured := d[c.Name]; !measured {
		return nil
	}
	best := d.bestScheme(c.Name, c.listRatioSchemes(), Time)
	for _, m := range r.Metrics {
		for _, scheme := range c.Schemes {
			if published, ok := c.Published[scheme]; ok && m.Name == r.Metrics[0].Name {
				all = append(all, Line{Cell: c.Name, Scheme: scheme + ", published", Metric: m.Name, Unit: m.Unit,
					Stat: Stat{N: 1, Mean: published}})
			}
			l := newMetricLine(d, c, scheme, m)
			l.isBestRatio, l.isPlace = scheme == best, r.Places
			if l.N > 0 || m.Name == Time.Name {
				all = append(all, l)
			}
		}
	}
	return all
}

// newMetricLine returns the line of a scheme in a cell.
func newMetricLine(d Data, c Cell, scheme string, m Metric) Line {
	bounds := 0.0
	l := Line{Cell: c.Name, Scheme: scheme, Metric: m.Name, Unit: m.Unit, Stat: Summarize(d.Values(c.Name, scheme, m))}
	for _, r := range d[c.Name] {
		switch {
		case r.Scheme != scheme:
		case r.Error != "":
			l.Failed++
		case r.Disturbed:
			l.Discarded++
		case m.Name == Time.Name && r.Video == nil: // each repetition may have its own bound
			bounds += r.Bound
		}
	}
	if l.N > 0 {
		l.Bound = bounds / float64(l.N)
	}
	return l
}
