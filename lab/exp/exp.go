// SPDX-License-Identifier: Apache-2.0

// Package exp reproduces published tables and figures, one file for each, and measures what mpbond
// claims (bench.go). It stands behind the lab, which makes the transfers, and before the reports
// that people read.
//
//	Row ─ Experiments ─▶ Run: lab.RunAll ─▶ Journal, Record ─▶ Evaluate ─▶ screen, HTML, CSV, Markdown
//	                     or Queue ─▶ Worker on another machine: lab.RunAll
//
// A row is one table or figure. It has cells (networks and sizes, each with the schemes that are
// compared in it, in turn), metrics, and points: published values and the measured ones, or
// claims of mpbond. Evaluation depends on results alone.
package exp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/app"
	"mpbond/lab/radio"
	"mpbond/lab/virtual"
)

// Row is one published table or figure.
type Row struct {
	ID, Title  string
	Source     string // paper, section or figure
	Setup      string // assumptions where the paper gives no details
	NotCovered string // parts of the paper's result that this row lacks
	Cells      []Cell
	// Groups are groups of cells that have so few repetitions that they are compared only together.
	// Other cells are compared alone.
	Groups  [][]string
	Metrics []Metric // the first one is compared with the baselines
	Points  []Point
	// What the report shows in detail. Shown is the cell of its timelines and energies by radio,
	// for which packets are kept. Empty: the first cell that was measured with packets of a helper.
	// Transfers of the cells in Spread are drawn as one distribution. Empty: the shown cell.
	// Samples may be nil.
	Shown   string
	Spread  []string
	Samples *Samples
	// For rows in virtual time. Judged is the scheme that is evaluated (empty: the product). Places
	// says that cells are many places: the median one of each repetition counts. Rates and delays
	// are drawn as distributions for the cells in CDFs, and over time for those in Series.
	Judged       string
	Places       bool
	CDFs, Series []string
	// Scatter are the metrics of the axes of charts with a point for each scheme, one chart for each cell; nil: none.
	Scatter *[2]Metric
	// For rows of the bench. IsClaim says that points are claims of mpbond and not published.
	// tables returns the row's own tables.
	IsClaim bool
	tables  func(Record) []Table
	// cellsOf makes the cells for the seed of a run, and pointsOf further points, if set. IsNetwork
	// says that the row is one of random networks.
	IsNetwork bool
	cellsOf   func(seed uint64) []Cell
	pointsOf  func(seed uint64) []Point
	// Study is the group of rows of the study that the row belongs to: PhoneRows, RailRows, CellRows or
	// none. isUnpublished says that nothing is published of it.
	Study         string
	isUnpublished bool
	// recounts names the rows whose transfers this one evaluates, instead of making its own: see
	// LoadRowRecord.
	recounts []string
}

// Cell is one network and transfer, with the schemes that take turns in it.
type Cell struct {
	Name  string
	Links string // spec of lab.Triangle
	// Network makes the network if it is not a triangle with steady links. The same seed makes the
	// same network, as far as the lengths of its changes allow.
	Network func(seed uint64) (*lab.Topology, error)
	// FromRecordings makes the network from recordings in a directory. Such cells run instead of
	// the row's other cells if the user names a directory.
	FromRecordings func(dir string) (*lab.Topology, error)
	Size           unit.Bytes // 0 with a Length: somewhat more than the links can carry
	Upload         bool
	Length         time.Duration // ends each transfer, as in lab.RunSpec
	Video          *lab.Video    // is played for Length instead; shorter in the short form
	Stride         time.Duration // how much further in the network's changes each repetition begins
	// Items are moved instead of one object of Size. With VirtualTime they move in virtual time,
	// over what the network's links would carry. Real transfers all have the items of the first
	// repetition.
	Items       func(seed uint64, rep int) []unit.Bytes
	VirtualTime bool
	// App is the script that transfers play instead. The short form plays its beginning.
	App  func(seed uint64, rep int) app.Script
	At   []string      // changes, as in lab.RunSpec
	Ping time.Duration // as in lab.RunSpec
	// Handshakes and Held are as in lab.RunSpec.
	Handshakes, Held bool
	Schemes          []string
	// Reports returns the reports of modems beside each transfer, as in lab.RunSpec; nil: there are none.
	Reports func(seed uint64) []lab.CellReport
	// Published is the published values of the row's first metric by scheme.
	Published map[string]float64
	Reps      int
	// RepsByScheme limits the repetitions of some schemes to fewer than Reps.
	RepsByScheme map[string]int
	// MaxReps bounds the repetitions that users can ask for, where the network lasts for as many; 0:
	// none.
	MaxReps int
	Quick   int  // repetitions in the short form; 0: not in it
	Alone   bool // runs alone except in the short form: it measures the machine
	// FillsMachine says that the cell always runs alone.
	FillsMachine bool
	Streams      int  // concurrent downloads of Size; 0 is 1
	Objects      int  // as in lab.RunSpec
	Unchecked    bool // as in lab.RunSpec
	// Drive is a recorded drive with its network, size and direction. The short form uses less of
	// it.
	Drive *lab.Drive
	// Dual is set if two users share their links instead. Rates, size, repetitions and seed are
	// those of the cell; Links is "PS/HS".
	Dual *lab.DualSpec
	// Flows makes a network with one link for bulk flows, which run for Length. Schemes are
	// controllers.
	Flows func(seed uint64) *lab.Topology
	// complete sets Model or Flows from recordings in a directory, if set. needsTraces says that the cell runs only if
	// the user names one.
	complete    func(c *Cell, dir string) error
	needsTraces bool
	// capacity is that of the link in Flows, if it is known; else 0.
	capacity unit.Rate
	// Model is set if transfers are computed in virtual time.
	Model *model
	// Compute computes the figures of a repetition instead of a transfer, if set.
	Compute func(o Options, rep int) (map[string]float64, error)
}

// limitSchemeReps returns the cell with fewer repetitions of some schemes, where a few suffice for
// the paper's figure.
func (c Cell) limitSchemeReps(reps int, schemes ...string) Cell {
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

// Metric is a value of transfers, of those that have it.
type Metric struct {
	Name, Unit   string
	Of           func(lab.Result) (v float64, ok bool)
	More         bool       // more is better
	needsPackets bool       // computed from the transfer's packets
	energySet    *radio.Set // of an energy
	alsoCompared bool       // compared with the baselines although it is not the first
}

// isBetterValue reports whether a is better than b.
func (m Metric) isBetterValue(a, b float64) bool { return a != b && (a > b) == m.More }

// Metrics of any transfer.
var (
	Time = Metric{Name: "time", Unit: "s", Of: func(r lab.Result) (float64, bool) { return r.Seconds, true }}
	// Rate is the mean rate of the payload.
	Rate = Metric{Name: "rate", Unit: "Mbit/s", More: true, Of: func(r lab.Result) (float64, bool) {
		return float64(8*payloadBytes(r)) / 1e6 / r.Seconds, r.Seconds > 0
	}}
	// Cold and Warm are the times of the first object over a connection and of the later ones.
	Cold = Metric{Name: "time, connection opened", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return objectTime(r, func(o lab.ObjectTimes) float64 { return o.Cold })
	}}
	Warm = Metric{Name: "time, connection open", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return objectTime(r, func(o lab.ObjectTimes) float64 { return o.Warm })
	}}
	// EndSpread is the time between the ends of the first and the last subflow. Only mpbond reports
	// it.
	EndSpread = Metric{Name: "subflows end apart", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return r.EndSpread, strings.HasPrefix(r.Scheme, Product)
	}}
)

// objectTime returns a time of a transfer's objects. ok is false without objects.
func objectTime(r lab.Result, f func(lab.ObjectTimes) float64) (v float64, ok bool) {
	if r.Objects == nil {
		return 0, false
	}
	return f(*r.Objects), true
}

// payloadBytes returns the payload of all streams.
func payloadBytes(r lab.Result) unit.Bytes { return r.Bytes * unit.Bytes(max(1, r.Streams)) }

// Options are the options of a run.
type Options struct {
	Quick bool
	Reps  int // of each cell; 0: the cell's own
	Seed  uint64
	Only  string // cells whose names contain this text
	// Traces is the directory of recordings, with a subdirectory for each source
	// (docs/reference/experiments.md). Empty: all networks are generated.
	Traces string
	// Drives is the directory of other drives than those of the program. Rows contain the drives
	// already; the record keeps the name.
	Drives string
}

// rowMakers make all published rows in the order of the papers.
var rowMakers = []func(radio.Set) Row{
	rowM0aCarriers,
	rowM0dMinRTT,
	rowM1FixedShares,
	rowM2Feedback,
	rowM3PADBacklog,
	rowM4Reinjection,
	rowM5SmallFiles,
	rowM5eEnergy,
	rowM6RateGrid,
	rowM7Combine,
	rowM8VaryingLinks,
	rowM9TenPlaces,
	rowM10VideoBitrate,
	rowM11Video360,
	rowM12DualMode,
	rowM13Indoors,
	rowM14CPUTime,
	rowM15SharedCell,
	rowP0OneDevice,
	rowP1FortyPlaces,
	rowP1bShortQueue,
	rowP2Distributions,
	rowP3Walk,
	rowP4Competitor,
	rowP5TwoFlows,
	rowP6Fairness,
	rowP7RTTFairness,
	rowP8MixedFairness,
	rowP9Estimates,
	rowP10Ablations,
	rowP11TwoCells,
	rowP12RealPackets,
	rowP13Long,
	rowG1Schedulers,
	rowG2HomeVideos,
	rowG3PhotoUploads,
	rowG4Clientless,
	rowG5KernelMPTCP,
}

// PublishedRows returns the published rows. Energies use the constants of a set. Another set
// evaluates the same transfers again.
func PublishedRows(set radio.Set) (all []Row) {
	for _, r := range rowMakers {
		all = append(all, r(set))
	}
	return slices.Concat(all, phoneRows(set), []Row{rowS9Counts(set), rowS10Browser(set), rowS11HoldOut(set),
		rowS12Forecasts(set), rowH0Handoffs(), rowH1SmallFiles(), rowH2MeanRates(), rowH3Handshakes(), rowH4Balance(),
		rowH5Held(), rowH6Detection(), rowH7Forecasts(), rowH8Drives(), rowH9WrongHints(), rowP14Cells(set),
		rowP15Parts(set), rowP16Recordings(set), rowP1bShortQueue(set).addCellParts(virtual.AllParts),
		rowP2Distributions(set).addCellParts(virtual.AllParts), rowP3Walk(set).addCellParts(virtual.AllParts),
		rowP5TwoFlows(set).addCellParts(virtual.AllParts), rowP8MixedFairness(set).addCellParts(airParts),
		ablationsRow(virtual.MessageAblations).addCellParts(airParts), rowP11cDetailed(set),
		rowP17LongFlows(set)})
}

// Experiments returns the experiments of a row, one for each cell, named after the cell.
func (r Row) Experiments(o Options) (all []lab.Experiment, err error) {
	r = r.withCellsForSeed(o.Seed)
	traced := o.Traces != "" && slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.FromRecordings != nil })
	for _, c := range r.Cells {
		reps := c.repetitions(o)
		if reps == 0 || (c.FromRecordings != nil) != traced || !strings.Contains(c.Name, o.Only) ||
			c.needsTraces && o.Traces == "" {
			continue
		}
		if c.complete != nil {
			if err := c.complete(&c, o.Traces); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", r.ID, c.Name, err)
			}
		}
		e, err := r.newExperiment(c, reps, o)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", r.ID, c.Name, err)
		}
		e.RunAlone = c.FillsMachine || c.Alone && !o.Quick
		all = append(all, e)
	}
	if o.Quick {
		markShortestFirst(all)
	}
	return all, nil
}

// repetitions returns the repetitions of a cell.
func (c Cell) repetitions(o Options) int {
	reps := c.Reps
	if o.Quick {
		reps = c.Quick
	}
	if reps > 0 && o.Reps > 0 {
		reps = o.Reps
	}
	if c.MaxReps > 0 {
		reps = min(reps, c.MaxReps)
	}
	return reps
}

// newExperiment returns the experiment of a cell.
func (r Row) newExperiment(c Cell, reps int, o Options) (lab.Experiment, error) {
	switch {
	case c.Compute != nil:
		return c.computedExperiment(reps, o), nil
	case c.Model != nil:
		return c.virtualExperiment(reps, o.Seed), nil
	case c.VirtualTime:
		return c.onloadExperiment(reps, o), nil
	case c.Flows != nil:
		return c.flowsExperiment(reps, o.Seed), nil
	case c.Dual != nil:
		d := *c.Dual
		d.Links, d.Size, d.Reps, d.Seed, d.Traffic = c.Links, c.Size, reps, o.Seed, r.needsPackets()
		if o.Quick {
			d.Size = min(d.Size, quickDual)
		}
		return lab.NewDualExperiment(c.Name, d)
	}
	p, err := r.buildCellRunSpec(c, o)
	if err != nil {
		return lab.Experiment{}, err
	}
	p.Reps = reps
	return lab.NewExperiment(c.Name, p)
}

// buildCellRunSpec returns the spec of a cell's transfers, without repetitions.
func (r Row) buildCellRunSpec(c Cell, o Options) (p lab.RunSpec, err error) {
	p = lab.RunSpec{Schemes: c.Schemes, Size: c.Size, Streams: max(1, c.Streams), Seed: o.Seed, At: c.At,
		Upload: c.Upload, Unchecked: c.Unchecked, Objects: c.Objects,
		Length: c.Length, Stride: c.Stride, RepsByScheme: c.RepsByScheme, Video: c.Video, Ping: c.Ping,
		Handshakes: c.Handshakes, Held: c.Held,
		Traffic: r.needsPackets() || c.Name == r.Shown}
	if c.Reports != nil {
		p.Reports = c.Reports(o.Seed)
	}
	if c.Items != nil {
		p.Streams, p.Items = 0, c.itemsOfRepetition(o, 0)
	}
	if c.App != nil {
		p.Streams, p.App = 0, func(rep int) app.Script { return c.scriptOfRepetition(o, rep) }
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
	case o.Quick:
		p.Length = min(p.Length, quickLength)
	}
	needsSize := p.Size == 0 && p.Video == nil && p.Items == nil && p.App == nil
	if p.Topology, err = c.buildCellTopology(o); err == nil && needsSize {
		p.Size, err = lab.CarriedPayload(p.Topology, p.Upload, p.Length)
		p.Size += p.Size/20 + unit.MB
	}
	return p, err
}

// markShortestFirst marks the shortest experiment in real time to start before the others. So the
// short form has something of every row even if time runs out.
func markShortestFirst(all []lab.Experiment) {
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

// Limits of the short form: the played part of a video and of a drive, the length of other transfers
// that have one, and the download of each of two users.
const (
	quickPlay   = 20 * time.Second
	quickDrive  = 10 * time.Second
	quickLength = 20 * time.Second
	quickDual   = 2 * unit.MB
)

// itemsOfRepetition returns the items of a repetition. The short form has few and small ones.
func (c Cell) itemsOfRepetition(o Options, rep int) []unit.Bytes {
	all := c.Items(o.Seed, rep)
	if o.Quick {
		all = all[:min(len(all), quickItems)]
		for i, n := range all {
			all[i] = min(n, quickItem)
		}
	}
	return all
}

// scriptOfRepetition returns the script of a repetition. The short form plays its beginning.
func (c Cell) scriptOfRepetition(o Options, rep int) app.Script {
	s := c.App(o.Seed, rep)
	if o.Quick {
		s.Requests = s.Requests[:min(len(s.Requests), quickRequests)]
		if s.Length > 0 {
			s.Length = min(s.Length, quickScript)
		}
	}
	return s
}

// Limits of the short form: requests of a script, and its length if it has one.
const (
	quickRequests = 4
	quickScript   = 5 * time.Second
)

// Limits of the short form: the number of items, and the size of one.
const (
	quickItems = 5
	quickItem  = 200 * unit.KB
)

// needsPackets reports whether the row needs the packets of all its transfers.
func (r Row) needsPackets() bool {
	return r.Samples != nil || slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.needsPackets })
}

// buildCellTopology returns the cell's network.
func (c Cell) buildCellTopology(o Options) (*lab.Topology, error) {
	switch {
	case c.FromRecordings != nil:
		return c.FromRecordings(o.Traces)
	case c.Network != nil:
		return c.Network(o.Seed)
	}
	return lab.Triangle(c.Links)
}

// Data is the transfers by cell, in order.
type Data map[string][]lab.Result

// countedResults returns the transfers of a scheme that count, by repetition.
func (d Data) countedResults(cell, scheme string) (some []lab.Result) {
	for _, r := range d[cell] {
		if r.Scheme == scheme && IsCounted(r) {
			some = append(some, r)
		}
	}
	slices.SortStableFunc(some, func(a, b lab.Result) int { return a.Rep - b.Rep })
	return some
}

// countedTransfers returns how many transfers of a cell count.
func (d Data) countedTransfers(cell string) (n int) {
	for _, r := range d[cell] {
		if IsCounted(r) {
			n++
		}
	}
	return n
}

// Values returns a metric of each transfer that counts.
func (d Data) Values(cell, scheme string, m Metric) (v []float64) {
	for _, r := range d.countedResults(cell, scheme) {
		if x, ok := m.Of(r); ok {
			v = append(v, x)
		}
	}
	return v
}

// Changes returns by how many percent a scheme differs from a base in each repetition in which both
// count. Schemes take turns, so that each pair met about the same machine.
func (d Data) Changes(cell string, pair [2]string, m Metric) (percent []float64) {
	d.forEachPair(cell, pair, m, func(_ int, ours, base float64) {
		if base > 0 {
			percent = append(percent, 100*(ours/base-1))
		}
	})
	return percent
}

// PooledChanges returns the changes of several cells, one cell after the other.
func (d Data) PooledChanges(cells []string, pair [2]string, m Metric) (percent []float64) {
	for _, c := range cells {
		percent = append(percent, d.Changes(c, pair, m)...)
	}
	return percent
}

// Differences is like Changes but returns absolute differences in the metric's unit.
func (d Data) Differences(cell string, pair [2]string, m Metric) (all []float64) {
	d.forEachPair(cell, pair, m, func(_ int, ours, base float64) { all = append(all, ours-base) })
	return all
}

// forEachPair calls f with a metric of two schemes for each repetition in which both count.
func (d Data) forEachPair(cell string, pair [2]string, m Metric, f func(rep int, ours, base float64)) {
	d.forEachResultPair(cell, pair, func(r, b lab.Result) {
		ours, ok1 := m.Of(r)
		base, ok2 := m.Of(b)
		if ok1 && ok2 {
			f(r.Rep, ours, base)
		}
	})
}

// forEachResultPair calls f with the transfers of two schemes for each repetition in which both
// count.
func (d Data) forEachResultPair(cell string, pair [2]string, f func(ours, base lab.Result)) {
	bases := d.countedResults(cell, pair[1])
	for _, r := range d.countedResults(cell, pair[0]) {
		if i := slices.IndexFunc(bases, func(b lab.Result) bool { return b.Rep == r.Rep }); i >= 0 {
			f(r, bases[i])
		}
	}
}

// cellChanges returns the changes of a scheme in one cell relative to another cell. Cells do not
// take turns: the same repetition is only about as far from the start.
func (d Data) cellChanges(cells [2]string, scheme string, m Metric) []float64 {
	return d.crossChanges(cells, [2]string{scheme, scheme}, m)
}

// crossChanges returns the changes of a scheme in one cell relative to another scheme in another
// cell.
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

// bestScheme returns the scheme with the best mean of a metric; "" if none was measured.
func (d Data) bestScheme(cell string, schemes []string, by Metric) (best string) {
	for _, s := range schemes {
		v := Summarize(d.Values(cell, s, by))
		if v.N > 0 && (best == "" || by.isBetterValue(v.Mean, Summarize(d.Values(cell, best, by)).Mean)) {
			best = s
		}
	}
	return best
}
