// Package exp reproduces published tables and figures, one file for each, and measures
// what mpbond claims (bench.go). It stands behind the lab, which makes the transfers, and
// before the reports that people read.
//
//	Row ─ Experiments ─▶ Run: lab.RunAll ─▶ Journal, Record ─▶ Evaluate ─▶ screen, HTML, CSV, Markdown
//
// A row is one table or figure: cells (networks and sizes, each with the schemes
// that are compared in it, in turn), metrics, and points: figures that the paper
// tells, beside which ours stand, or claims of ours. What the package makes of results
// depends on them alone.
package exp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// Row is one published table or figure.
type Row struct {
	ID, Title  string
	Source     string // paper, section or figure
	Setup      string // what the paper does not tell and we assume
	NotCovered string // what the paper shows and this row does not yet
	Cells      []Cell
	// Groups are cells of so few repetitions that only all of them show what the
	// product is behind of. Others stand for themselves.
	Groups  [][]string
	Metrics []Metric // the first is what is compared with the baselines
	Points  []Point
	// What the report looks at more closely. Shown is the cell of which it draws
	// timelines, for which packets are kept, and tells energies by radio; none: the
	// first one that was measured with a helper's packets. Spread are cells whose transfers it draws as one
	// distribution; none: the shown one. Samples may be nil.
	Shown   string
	Spread  []string
	Samples *Samples
	// Of rows in virtual time. Ours is the scheme that is judged (none: the product).
	// Places says that cells are many places: shown is the median one of each
	// repetition. Of the cells in CDFs rates and delays are drawn as distributions, of
	// those in Series in time.
	Judged       string
	Places       bool
	CDFs, Series []string
	// Of rows of the bench: Claims says that what is judged is claimed by us, and
	// published by nobody. Tables are those of the row's own; Overview are cells that
	// WriteOverview has.
	IsClaim  bool
	tables   func(Record) []Table
	Overview []string
}

// Cell is one network and transfer, with the schemes that take turns in it.
type Cell struct {
	Name  string
	Links string // of lab.Triangle
	// Network makes the network where it is no house of steady links: the same one for
	// the same seed, as long as the lengths of its changes allow.
	Network func(seed uint64) (*lab.Topology, error)
	// FromRecordings makes it of recordings below a directory. Such cells are run if the user
	// names one, instead of the row's other cells.
	FromRecordings func(dir string) (*lab.Topology, error)
	Size           unit.Bytes // 0, with a Length: what the links can carry in it, and more
	Upload         bool
	Length         time.Duration // ends each transfer after it, as in lab.RunSpec
	Video          *lab.Video    // is played for Length instead, in the short form for less
	Stride         time.Duration // how much further in its network's changes each repetition begins
	// Items are moved instead of one object of Size: files of these sizes. Virtual says
	// that they are in virtual time, over what the network's links would carry; real
	// transfers all have those of the first repetition.
	Items       func(seed uint64, rep int) []unit.Bytes
	VirtualTime bool
	At          []string      // changes, as in lab.RunSpec
	Ping        time.Duration // as in lab.RunSpec
	Schemes     []string
	// Published are published figures of the row's first metric, by the scheme beside which
	// they stand.
	Published map[string]float64
	Reps      int
	// RepsByScheme says how many repetitions schemes make that need less than Reps.
	RepsByScheme map[string]int
	Quick        int  // repetitions in the short form; 0: the cell is not in it
	Alone        bool // nothing may run beside it, but in the short form: it measures the machine
	// FillsMachine says that it fills the machine: nothing may ever run beside it.
	FillsMachine bool
	Streams      int  // downloads of Size at once; 0 is 1
	Unchecked    bool // as in lab.RunSpec
	// Drive is a recorded drive, of which the network, size and direction are; in the
	// short form of less of it.
	Drive *lab.Drive
	// Dual is set where two users lend each other their links instead. Its rates,
	// size, repetitions and seed are the cell's, and House "PS/HS".
	Dual *lab.DualSpec
	// Flows has bulk flows for Length over one link instead, the only one of its
	// network; schemes are controllers.
	Flows func(seed uint64) *lab.Topology
	// Model is set where transfers are computed in virtual time instead.
	Model *model
}

// limitReps has some schemes make no more than so many repetitions: those of which a
// few tell as much as the paper's figure asks for.
func (c Cell) limitReps(reps int, schemes ...string) Cell {
	all := maps.Clone(c.RepsByScheme)
	if all == nil {
		all = map[string]int{}
	}
	for _, s := range schemes {
		all[s] = reps
	}
	c.RepsByScheme = all
	return c
}

// Metric is a figure of transfers, of those that tell it.
type Metric struct {
	Name, Unit   string
	Of           func(lab.Result) (v float64, told bool)
	More         bool       // more is better
	needsPackets bool       // it is made of the transfer's packets
	energySet    *radio.Set // of an energy
	alsoCompared bool       // is compared with the baselines too, though it is not the first
}

// isBetter tells whether a value is better than another one.
func (m Metric) isBetter(a, b float64) bool { return a != b && (a > b) == m.More }

// Metrics of any transfer.
var (
	Time = Metric{Name: "time", Unit: "s", Of: func(r lab.Result) (float64, bool) { return r.Seconds, true }}
	// Rate is the mean rate of the payload.
	Rate = Metric{Name: "rate", Unit: "Mbit/s", More: true, Of: func(r lab.Result) (float64, bool) {
		return float64(8*payloadBytes(r)) / 1e6 / r.Seconds, r.Seconds > 0
	}}
	// EndSpread is the time between the ends of the first and of the last subflow;
	// only mpbond tells it.
	EndSpread = Metric{Name: "subflows end apart", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return r.EndSpread, strings.HasPrefix(r.Scheme, Product)
	}}
)

// payloadBytes is that of all streams.
func payloadBytes(r lab.Result) unit.Bytes { return r.Bytes * unit.Bytes(max(1, r.Streams)) }

// Options of a run.
type Options struct {
	Quick bool
	Reps  int // of each cell; 0: the cell's own
	Seed  uint64
	Only  string // cells whose names have this text
	// Traces is where recordings are: a directory for each source, as docs/reference/experiments.md has
	// them. Empty: all networks are made here.
	Traces string
	// Drives is where other drives are than those of the program; those of the rows.
	Drives string
}

// rowMakers are all there are, in the order of the papers.
var rowMakers = []func(radio.Set) Row{
	rowM0a,
	rowM0d,
	rowM1,
	rowM2,
	rowM3,
	rowM4,
	rowM5,
	rowM5e,
	rowM6,
	rowM7,
	rowM8,
	rowM9,
	rowM10,
	rowM11,
	rowM12,
	rowM13,
	rowM14,
	rowM15,
	rowP0,
	rowP1,
	rowP1b,
	rowP2,
	rowP3,
	rowP4,
	rowP5,
	rowP6,
	rowP7,
	rowP8,
	rowP9,
	rowP10,
	rowP11,
	rowP12,
	rowG1,
	rowG2,
	rowG3,
	rowG4,
	rowG5,
}

// PublishedRows are the published ones. Energies are by the constants of a set: another one
// judges the same transfers anew.
func PublishedRows(set radio.Set) (all []Row) {
	for _, r := range rowMakers {
		all = append(all, r(set))
	}
	return all
}

// Names of several rows: those that are published, and those of the bench.
const (
	AllRows   = "all"
	BenchRows = "bench"
)

// SelectRows returns some of rows, each once, in the order of their RowIDs or of the names of
// several.
func SelectRows(rows []Row, ids ...string) (some []Row, err error) {
	for _, id := range ids {
		found := false
		for _, r := range rows {
			if r.ID != id && (id != AllRows || r.IsClaim) && (id != BenchRows || !r.IsClaim) {
				continue
			}
			found = true
			if !slices.ContainsFunc(some, func(s Row) bool { return s.ID == r.ID }) {
				some = append(some, r)
			}
		}
		if !found {
			return nil, fmt.Errorf("no row %q (there are %s)", id, strings.Join(RowIDs(rows), ", "))
		}
	}
	return some, nil
}

// RowIDs are those of rows, after the names of several.
func RowIDs(rows []Row) []string {
	ids := []string{AllRows, BenchRows}
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

// Experiments are what the lab is to run for a row: one for each cell, of the
// cell's name.
func (r Row) Experiments(o Options) (all []lab.Experiment, err error) {
	traced := o.Traces != "" && slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.FromRecordings != nil })
	for _, c := range r.Cells {
		reps := c.repetitions(o)
		if reps == 0 || (c.FromRecordings != nil) != traced || !strings.Contains(c.Name, o.Only) {
			continue
		}
		e, err := r.newExperiment(c, reps, o)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", r.ID, c.Name, err)
		}
		e.RunAlone = c.FillsMachine || c.Alone && !o.Quick
		all = append(all, e)
	}
	if o.Quick {
		startShortestFirst(all)
	}
	return all, nil
}

// repetitions are the repetitions of a cell.
func (c Cell) repetitions(o Options) int {
	reps := c.Reps
	if o.Quick {
		reps = c.Quick
	}
	if reps > 0 && o.Reps > 0 {
		reps = o.Reps
	}
	return reps
}

// newExperiment is that of a cell.
func (r Row) newExperiment(c Cell, reps int, o Options) (lab.Experiment, error) {
	switch {
	case c.Model != nil:
		return c.virtualExperiment(reps, o.Seed), nil
	case c.VirtualTime:
		return c.onloadExperiment(reps, o), nil
	case c.Flows != nil:
		return c.flows(reps, o.Seed), nil
	case c.Dual != nil:
		d := *c.Dual
		d.Links, d.Size, d.Reps, d.Seed, d.Traffic = c.Links, c.Size, reps, o.Seed, r.needsPackets()
		if o.Quick {
			d.Size = min(d.Size, quickDual)
		}
		return lab.NewDualExperiment(c.Name, d)
	}
	p, err := r.runSpec(c, o)
	if err != nil {
		return lab.Experiment{}, err
	}
	p.Reps = reps
	return lab.NewExperiment(c.Name, p)
}

// runSpec is that of a cell's transfers, but for its repetitions.
func (r Row) runSpec(c Cell, o Options) (p lab.RunSpec, err error) {
	p = lab.RunSpec{Schemes: c.Schemes, Size: c.Size, Streams: max(1, c.Streams), Seed: o.Seed, At: c.At, Upload: c.Upload, Unchecked: c.Unchecked,
		Length: c.Length, Stride: c.Stride, RepsByScheme: c.RepsByScheme, Video: c.Video, Ping: c.Ping, Traffic: r.needsPackets() || c.Name == r.Shown}
	if c.Items != nil {
		p.Streams, p.Items = 0, c.repItems(o, 0)
	}
	switch {
	case c.Drive != nil:
		if o.Quick {
			p.Length = min(p.Length, quickDrive)
		}
		d, err := c.Drive.RunSpec(p.Length)
		p.Topology, p.Size, p.Upload = d.Topology, d.Size, d.Upload
		return p, err
	case c.Video != nil && o.Quick:
		p.Length = min(p.Length, quickPlay)
	}
	if p.Topology, err = c.buildTopology(o); err == nil && p.Size == 0 && p.Video == nil && p.Items == nil {
		p.Size, err = lab.CarriedPayload(p.Topology, p.Upload, p.Length)
		p.Size += p.Size/20 + unit.MB
	}
	return p, err
}

// startShortestFirst has the cell in real time begin first that takes the least: the short
// form has something of every row, also if there is no time for all cells.
func startShortestFirst(all []lab.Experiment) {
	var first *lab.Experiment
	for i := range all {
		if e := &all[i]; !e.IsVirtual() && (first == nil || e.Expected < first.Expected) {
			first = e
		}
	}
	if first != nil {
		first.StartFirst = true
	}
}

// In the short form quickPlay of a video is played, quickDrive of a drive is made, and
// two users fetch quickDual each, at most.
const (
	quickPlay  = 20 * time.Second
	quickDrive = 10 * time.Second
	quickDual  = 2 * unit.MB
)

// repItems are those of a repetition: in the short form few, and small ones.
func (c Cell) repItems(o Options, rep int) []unit.Bytes {
	all := c.Items(o.Seed, rep)
	if o.Quick {
		all = all[:min(len(all), quickItems)]
		for i, n := range all {
			all[i] = min(n, quickItem)
		}
	}
	return all
}

// quickItems is how many items are moved in the short form, and quickItem the most of
// one.
const (
	quickItems = 5
	quickItem  = 200 * unit.KB
)

// needsPackets tells whether the row needs those of all its transfers.
func (r Row) needsPackets() bool {
	return r.Samples != nil || slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.needsPackets })
}

func (c Cell) buildTopology(o Options) (*lab.Topology, error) {
	switch {
	case c.FromRecordings != nil:
		return c.FromRecordings(o.Traces)
	case c.Network != nil:
		return c.Network(o.Seed)
	}
	return lab.Triangle(c.Links)
}

// Data is what was measured: by cell, then in the order of its transfers.
type Data map[string][]lab.Result

// countedResults are the transfers of a scheme that count, by repetition.
func (d Data) countedResults(cell, scheme string) (some []lab.Result) {
	for _, r := range d[cell] {
		if r.Scheme == scheme && IsCounted(r) {
			some = append(some, r)
		}
	}
	slices.SortStableFunc(some, func(a, b lab.Result) int { return a.Rep - b.Rep })
	return some
}

// countTransfers is how many transfers of a cell count.
func (d Data) countTransfers(cell string) (n int) {
	for _, r := range d[cell] {
		if IsCounted(r) {
			n++
		}
	}
	return n
}

// Values are a metric's, of each transfer that counts.
func (d Data) Values(cell, scheme string, m Metric) (v []float64) {
	for _, r := range d.countedResults(cell, scheme) {
		if x, ok := m.Of(r); ok {
			v = append(v, x)
		}
	}
	return v
}

// Changes are by how many percent a scheme differs from a base, in each
// repetition in which both count: they took turns, so each pair met about the
// same machine.
func (d Data) Changes(cell string, pair [2]string, m Metric) (percent []float64) {
	d.forEachPair(cell, pair, m, func(_ int, ours, base float64) {
		if base > 0 {
			percent = append(percent, 100*(ours/base-1))
		}
	})
	return percent
}

// PooledChanges are Changes of several cells, one cell after the other.
func (d Data) PooledChanges(cells []string, pair [2]string, m Metric) (percent []float64) {
	for _, c := range cells {
		percent = append(percent, d.Changes(c, pair, m)...)
	}
	return percent
}

// Differences are likewise by how much, in the metric's unit.
func (d Data) Differences(cell string, pair [2]string, m Metric) (all []float64) {
	d.forEachPair(cell, pair, m, func(_ int, ours, base float64) { all = append(all, ours-base) })
	return all
}

// forEachPair gives f a metric of two schemes, of each repetition in which both count.
func (d Data) forEachPair(cell string, pair [2]string, m Metric, f func(rep int, ours, base float64)) {
	d.forEachResultPair(cell, pair, func(r, b lab.Result) {
		ours, ok1 := m.Of(r)
		base, ok2 := m.Of(b)
		if ok1 && ok2 {
			f(r.Rep, ours, base)
		}
	})
}

// forEachResultPair gives f the transfers of two schemes, of each repetition in which both
// count.
func (d Data) forEachResultPair(cell string, pair [2]string, f func(ours, base lab.Result)) {
	bases := d.countedResults(cell, pair[1])
	for _, r := range d.countedResults(cell, pair[0]) {
		if i := slices.IndexFunc(bases, func(b lab.Result) bool { return b.Rep == r.Rep }); i >= 0 {
			f(r, bases[i])
		}
	}
}

// cellChanges are changes of a scheme likewise, in one cell beside another one. Cells
// do not take turns: the same repetition is only about as far from the start.
func (d Data) cellChanges(cells [2]string, scheme string, m Metric) []float64 {
	return d.crossChanges(cells, [2]string{scheme, scheme}, m)
}

// crossChanges are likewise changes of a scheme in one cell beside another scheme in
// another cell.
func (d Data) crossChanges(cells, pair [2]string, m Metric) []float64 {
	const here, there = "here", "there"
	both := Data{}
	for i, name := range [2]string{here, there} {
		for _, r := range d[cells[i]] {
			if r.Scheme == pair[i] {
				r.Scheme = name
				both[""] = append(both[""], r)
			}
		}
	}
	return both.Changes("", [2]string{here, there}, m)
}

// bestScheme is that one of several schemes whose mean in a metric is the best; "" if
// none was measured.
func (d Data) bestScheme(cell string, schemes []string, by Metric) (best string) {
	for _, s := range schemes {
		v := Summarize(d.Values(cell, s, by))
		if v.N > 0 && (best == "" || by.isBetter(v.Mean, Summarize(d.Values(cell, best, by)).Mean)) {
			best = s
		}
	}
	return best
}
