package exp

import (
	"fmt"
	"slices"

	"mpbond/lab"
)

// Evaluation is what a record says, for screens, JSON, CSV and HTML alike.
type Evaluation struct {
	Row     string  `json:"row"`
	Title   string  `json:"title"`
	Source  string  `json:"source"`
	Setup   string  `json:"setup"`
	Search  string  `json:"search,omitempty"` // what the search for fixed ratios may have missed
	Lacks   string  `json:"lacks,omitempty"`
	Verdict Verdict `json:"verdict"`
	Line    string  `json:"verdict_line"`
	// Behind is where the product is slower than another scheme, outside the noise.
	Behind []string `json:"behind"`
	// Unsure is where it is not surely faster than kernel MPTCP, its best fixed ratio or
	// COMBINE.
	Unsure  []string    `json:"unsure"`
	Points  []PointLine `json:"points"`
	Lines   []Line      `json:"lines"`
	Version string      `json:"commit"`
	Kernel  string      `json:"kernel"`
	Date    string      `json:"date"`
	Cores   int         `json:"processors"`
	Seed    uint64      `json:"seed"`
	Quick   bool        `json:"quick"`
	Counted int         `json:"counted"` // transfers
	Planned int         `json:"planned"`
	Rerun   string      `json:"rerun"`
	Errors  []string    `json:"errors,omitempty"`
	// Of the cell that is looked at more closely.
	Energies  []EnergyLine `json:"energies,omitempty"`
	shown     string
	second    string // metric that is compared too; "" if there is none
	timelines []timeline
	spreads   []spread
	charts    []chart
}

// Caution is what to write behind a verdict that too few transfers stand behind
// to be a figure: those of the short form, or one alone, which has no interval.
// It is empty for others.
func (e Evaluation) Caution() string {
	switch {
	case e.Quick:
		return " (short form: not for figures)"
	case slices.ContainsFunc(e.Points, func(p PointLine) bool { return p.N == 1 }):
		return " (of one transfer alone: not for figures)"
	}
	return ""
}

// PointLine is a published figure beside ours.
type PointLine struct {
	What      string `json:"what"`
	Unit      string `json:"unit"`
	Published string `json:"published"`
	Stat
	Verdict Verdict `json:"verdict"`
}

func (p PointLine) String() string {
	return fmt.Sprintf("%s: %s (published %s): %s", p.What, p.Text(p.Unit), p.Published, p.Verdict)
}

// Line is one scheme in one cell.
type Line struct {
	Cell   string `json:"cell"`
	Scheme string `json:"scheme"`
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
	Stat
	Bound     float64 `json:"bound,omitempty"` // fluid bound, s; of times only
	Discarded int     `json:"discarded"`       // disturbed transfers
	Failed    int     `json:"failed"`
	oracle    bool    // its scheme is the best of the cell's fixed ratios
	one       bool    // its cell is one of many places
}

// Tabled are the lines for tables and plots: of the fixed ratios, of which each
// cell has others, the best one alone; of many places the median one alone.
func (e Evaluation) Tabled() (some []Line) {
	for _, l := range e.Lines {
		if l.one {
			continue
		}
		if isOracle(l.Scheme) {
			if !l.oracle {
				continue
			}
			l.Scheme = bestRatio
		}
		some = append(some, l)
	}
	return some
}

// Evaluate judges a record.
func Evaluate(row Row, rec Record) Evaluation {
	e := Evaluation{Row: row.ID, Title: row.Title, Source: row.Source, Setup: row.Setup, Search: row.searched(rec.Results), Lacks: row.Lacks, Line: row.Line(rec.Results),
		Version: rec.Version, Kernel: rec.Kernel, Date: rec.Date, Cores: rec.Processors, Seed: rec.Seed, Quick: rec.Quick, Planned: rec.Planned,
		Rerun: fmt.Sprintf("mpbond-lab exp run %s --seed %d", row.ID, rec.Seed), Behind: []string{}, Unsure: row.Unsure(rec.Results)}
	if rec.Quick {
		e.Rerun += " --quick"
	}
	if rec.Reps > 0 {
		e.Rerun += fmt.Sprintf(" --reps %d", rec.Reps)
	}
	if rec.Traces != "" {
		e.Rerun += " --traces " + rec.Traces
	}
	e.shown = row.shown(rec.Results)
	if compared := row.compared(); len(compared) > 1 {
		e.second = compared[1].Name
	}
	e.timelines, e.spreads, e.Energies = row.timelines(rec.Results, e.shown), row.spreads(rec.Results), row.energies(rec.Results, e.shown)
	outcomes, verdict := row.Judge(rec.Results)
	e.Verdict = verdict
	for _, o := range outcomes {
		e.Points = append(e.Points, o.line())
	}
	for _, b := range row.Behind(rec.Results) {
		e.Behind = append(e.Behind, b.String())
	}
	for _, results := range rec.Results {
		for _, r := range results {
			if Counts(r) {
				e.Counted++
			}
		}
	}
	for _, c := range row.Cells {
		if text := rec.Errors[c.Name]; text != "" {
			e.Errors = append(e.Errors, c.Name+": "+text)
		}
		if _, measured := rec.Results[c.Name]; !measured {
			continue
		}
		best := rec.Results.best(c.Name, c.ratios(), Time)
		for _, m := range row.Metrics {
			for _, scheme := range c.Schemes {
				if told, is := c.Told[scheme]; is && m.Name == row.Metrics[0].Name {
					e.Lines = append(e.Lines, Line{Cell: c.Name, Scheme: scheme + ", published", Metric: m.Name, Unit: m.Unit, Stat: Stat{N: 1, Mean: told}})
				}
				l := line(rec.Results, c, scheme, m)
				l.oracle, l.one = scheme == best, row.Places
				if l.N > 0 || m.Name == Time.Name {
					e.Lines = append(e.Lines, l)
				}
			}
		}
	}
	e.Lines = append(e.Lines, row.medians(rec.Results)...)
	e.charts = row.charts(rec.Results)
	return e
}

func line(d Data, c Cell, scheme string, m Metric) Line {
	bounds := 0.0
	l := Line{Cell: c.Name, Scheme: scheme, Metric: m.Name, Unit: m.Unit, Stat: Summarize(d.Values(c.Name, scheme, m))}
	for _, r := range d[c.Name] {
		switch {
		case r.Scheme != scheme:
		case r.Error != "":
			l.Failed++
		case r.Disturbed:
			l.Discarded++
		case m.Name == Time.Name && r.Video == nil: // each repetition may have its own
			bounds += r.Bound
		}
	}
	if l.N > 0 {
		l.Bound = bounds / float64(l.N)
	}
	return l
}

// Transfers is how many transfers an experiment makes.
func Transfers(e lab.Experiment) (n int) {
	for _, s := range e.Plan.Schemes {
		n += e.Plan.RepsOf(s)
	}
	return n
}
