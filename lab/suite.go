package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
)

// Experiment is one question that the suite answers: Run its plan and Summarize
// the results.
type Experiment struct {
	Name  string // for people
	Group Group
	Cell  Cell // in the groups Grid and Alone
	Plan  Plan
	// Dual, in that group, is what is measured instead. Plan's schemes are then
	// cases of it, with a user each (DualScheme).
	Dual *DualPlan
	// Expected is how long it takes if nothing is disturbed, by itself.
	Expected time.Duration
	// First has it begin before others of its kind, however long these take: for a run
	// that may be ended before all have begun.
	First bool

	compute func(scheme string, rep int) Result // of the group Computed
	flows   func(rep int) (FlowPlan, error)     // of bulk flows over one link

	work float64 // seconds of a processor that it takes
	// What a transfer of a scheme takes: processors, and time with all around it.
	need  map[string]float64
	takes map[string]time.Duration
}

// Group is what experiments have in common, and what is claimed of them.
type Group string

// Groups.
const (
	Grid    Group = "grid"    // stable links, sizes and directions
	Alone   Group = "alone"   // cells of the grid again, with nothing beside them
	Stable  Group = "stable"  // other transfers over links that do not change
	Drop    Group = "drop"    // the published drop of a pipe
	Fall    Group = "fall"    // a link becomes slower
	Silent  Group = "silent"  // a link falls silent
	Fault   Group = "fault"   // other faults
	Ride    Group = "ride"    // recorded drives
	Dual    Group = "dual"    // two users who lend each other their links
	Machine Group = "machine" // what the machine can do: nothing runs beside it
	// Computed are those in virtual time: they run beside each other only, one for
	// each processor.
	Computed Group = "computed"
)

// Cell is a place in the grid.
type Cell struct {
	House  string
	Size   unit.Bytes
	Upload bool
}

func (c Cell) String() string {
	if c.Upload {
		return fmt.Sprintf("%s, %v, up", c.House, c.Size)
	}
	return fmt.Sprintf("%s, %v, down", c.House, c.Size)
}

// experiment is one line of the suite.
type experiment struct {
	name    string
	group   Group
	house   string
	size    unit.Bytes
	schemes string
	reps    int
	quick   int    // repetitions in the short form; 0: not in it
	at      string // a change or fault, or nothing
	streams int
	upload  bool
}

// The grid. Schemes other than mpbond's own choice are what it must not be
// slower than. The helper's link alone is one where it is no slower than the
// direct path.
var (
	gridHouses = []string{"8/10/5", "5/10/5", "1/18/5", "14/10/5"}
	gridSizes  = []unit.Bytes{64 * unit.KB, 512 * unit.KB, 2 * unit.MB, 10 * unit.MB}
)

const (
	gridSchemes = "mpbond,mpbond:pams,mpbond:minrtt:noreinject,kibbutz,single"
	gridReps    = 10
	gridQuick   = 2 * unit.MB // the largest size in the short form
	gridHelped  = "single:helper1"
)

// houses in which the helper's link alone is the better single path, or as good.
var helpedHouses = []string{"5/10/5", "1/18/5"}

// A scheme whose transfer takes longer than slowTransfer makes slowReps: one
// link alone, of which every transfer is like the other.
const (
	slowTransfer = 30 * time.Second
	slowReps     = 3
)

// How long a drive's transfers take.
const (
	rideLength = 30 * time.Second
	rideQuick  = 10 * time.Second
	rideReps   = 1 // of each drive, which is always the same
)

const rideSchemes = "mpbond,single,single:helper1,kibbutz"

// suite is all experiments but those of the grid and the drives.
var suite = []experiment{
	{name: "4 MB, 5/10/5, pipe falls from 5 to 1 Mbit/s at 2 s", group: Drop, house: "5/10/5", size: 4 * unit.MB, schemes: "mpbond,mpbond:pams,mpbond:noreinject,mpbond:pams:noreinject,kibbutz,single", reps: 10, quick: 1, at: "2s:pipe1.rate=1Mbit/s"},
	{name: "4 MB, 8/10/5, HS-path falls from 10 to 1 Mbit/s at 2 s", group: Fall, house: "8/10/5", size: 4 * unit.MB, schemes: "mpbond,mpbond:pams,kibbutz,single", reps: 10, quick: 1, at: "2s:hs1.rate=1Mbit/s"},
	{name: "4 MB, 8/10/5, pipe falls from 5 to 1 Mbit/s at 2 s", group: Fall, house: "8/10/5", size: 4 * unit.MB, schemes: "mpbond,mpbond:pams,kibbutz,single", reps: 10, quick: 1, at: "2s:pipe1.rate=1Mbit/s"},
	{name: "4 MB, 8/10/5", group: Stable, house: "8/10/5", size: 4 * unit.MB, schemes: "mpbond,mpbond:pams,kibbutz,single", reps: 10},
	{name: "20 MB, two helpers", group: Stable, house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz,single", reps: 3},
	{name: "20 MB, two helpers, a pipe falls silent at 3 s", group: Silent, house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz", reps: 10, quick: 1, at: "3s:pipe1.outage=on"},
	{name: "20 MB, two helpers, an HS-path falls silent at 3 s", group: Silent, house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz", reps: 10, quick: 1, at: "3s:hs1.outage=on"},
	{name: "20 MB, two helpers, the PS-path falls silent at 3 s", group: Silent, house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz", reps: 10, quick: 1, at: "3s:ps.outage=on"},
	{name: "20 MB, two helpers, one is killed at 3 s", group: Fault, house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond", reps: 10, quick: 1, at: "3s:kill=helper1"},
	{name: "8/10/5, 64 KB, down, nothing beside it", group: Alone, house: "8/10/5", size: 64 * unit.KB, schemes: gridSchemes, reps: 10},
	{name: "8/10/5, 2 MB, down, nothing beside it", group: Alone, house: "8/10/5", size: 2 * unit.MB, schemes: gridSchemes, reps: 5},
	{name: "1000 streams of 100 KB at once, two helpers", group: Machine, house: "40/50/25,50/25", size: 100 * unit.KB, schemes: "mpbond", reps: 3, quick: 1, streams: 1000},
	{name: "1 GB, links not limited, all on one machine", group: Machine, house: "-/-/-", size: unit.GB, schemes: "mpbond:direct,mpbond:direct:subflows=2,mpbond,kibbutz:direct,kibbutz:direct:subflows=2,relay,relay:copy,single", reps: 7, quick: 1},
}

// Suite lists the experiments of "mpbond-lab bench". Recordings of drives are
// read from a directory, or are those that come with the program.
func Suite(quick bool, seed uint64, driveDir string) (all []Experiment, err error) {
	lines := gridLines()
	for _, x := range append(lines, suite...) {
		if quick {
			x.reps = x.quick
		}
		if x.reps == 0 {
			continue
		}
		e := Experiment{Name: x.name, Group: x.group, Plan: Plan{Schemes: strings.Split(x.schemes, ","), Size: x.size, Streams: x.streams, Upload: x.upload, Reps: x.reps}}
		if x.group == Grid || x.group == Alone {
			e.Cell = Cell{x.house, x.size, x.upload}
		}
		if e.Plan.Topology, err = House(x.house); err != nil {
			return nil, err
		}
		if x.at != "" {
			e.Plan.At = []string{x.at}
		}
		e.Plan.Unchecked = !e.Plan.Topology.shaped()
		all = append(all, e)
	}
	rides, err := rides(quick, driveDir)
	if err != nil {
		return nil, err
	}
	all = append(all, rides...)
	duals, err := duals(quick)
	if err != nil {
		return nil, err
	}
	all = append(all, duals...)
	for i := range all {
		all[i].Plan.Seed = seed
		if err := all[i].estimate(); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].Name, err)
		}
	}
	return all, nil
}

// gridLines are the grid's, by house, then size, then direction.
func gridLines() (lines []experiment) {
	for _, house := range gridHouses {
		for _, size := range gridSizes {
			for _, upload := range []bool{false, true} {
				x := experiment{group: Grid, house: house, size: size, schemes: gridSchemes, reps: gridReps, upload: upload}
				x.name = Cell{house, size, upload}.String()
				if slices.Contains(helpedHouses, house) {
					x.schemes += "," + gridHelped
				}
				if size <= gridQuick {
					x.quick = 1
				}
				lines = append(lines, x)
			}
		}
	}
	return lines
}

// rides are the experiments with recorded drives: all, or in the short form one
// of each direction.
func rides(quick bool, dir string) (all []Experiment, err error) {
	recorded, err := Drives(dir)
	if err != nil {
		return nil, err
	}
	length := rideLength
	seen := map[bool]bool{}
	for _, d := range recorded {
		if quick {
			length = rideQuick
			if seen[d.Upload] {
				continue
			}
			seen[d.Upload] = true
		}
		p, err := d.Plan(length)
		if err != nil {
			return nil, fmt.Errorf("drive %s: %w", d.Name, err)
		}
		p.Schemes, p.Reps = strings.Split(rideSchemes, ","), rideReps
		all = append(all, Experiment{Name: "drive " + d.Name, Group: Ride, Plan: p})
	}
	return all, nil
}

// Two users at once, by the rates of their links.
const (
	dualSize  = 8 * unit.MB
	dualQuick = 2 * unit.MB
	dualReps  = 10
)

var dualLinks = []string{"10/3", "10/10", "5/10"}

func duals(quick bool) (all []Experiment, err error) {
	for i, links := range dualLinks {
		d := DualPlan{Links: links, Size: dualSize, Reps: dualReps}
		if quick {
			if d.Size, d.Reps = dualQuick, 1; i > 0 {
				continue
			}
		}
		e := Experiment{Name: fmt.Sprintf("two users, links of %s Mbit/s, %v each", strings.ReplaceAll(links, "/", " and "), d.Size), Group: Dual, Dual: &d}
		e.Plan = Plan{Schemes: d.schemes(), Size: d.Size, Reps: d.Reps}
		if e.Plan.Topology, err = d.topology(); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Check says why the experiment cannot be made, on this machine or at all.
func (e Experiment) Check() error {
	switch {
	case e.compute != nil:
		return nil
	case e.Dual != nil, e.flows != nil:
		return requirements(nil)
	}
	return e.Plan.Check()
}

// Takes is how long a transfer of a scheme takes, about.
func (e Experiment) Takes(scheme string) time.Duration { return e.takes[scheme] }

// What a transfer takes besides the time of its data.
const (
	transferExtra   = 600 * time.Millisecond // starting and stopping programs
	experimentExtra = 2 * time.Second        // making the lab, its keys and files
	unshapedRate    = 4000 * unit.Mbps       // about, for guesses
	unknownTransfer = 2 * time.Minute        // what no bound is known of
)

// estimate fills in what is known of the time that the experiment takes.
func (e *Experiment) estimate() error {
	fewer := map[string]int{}
	maps.Copy(fewer, e.Plan.Fewer)
	e.Plan.Fewer, e.need, e.takes = fewer, map[string]float64{}, map[string]time.Duration{}
	e.Expected, e.work = experimentExtra, experimentExtra.Seconds()/2
	for _, s := range e.Plan.Schemes {
		each, err := e.expected(s)
		if err != nil {
			return err
		}
		if each > slowTransfer && e.Plan.Length == 0 && s == "single" {
			e.Plan.Fewer[s] = slowReps
		}
		e.takes[s] = each + transferExtra
		all := time.Duration(e.Plan.RepsOf(s)) * e.takes[s]
		e.need[s] = e.Plan.cores(s, each)
		e.Expected += all
		e.work += e.need[s] * all.Seconds()
	}
	return nil
}

// expected is how long a transfer of a scheme takes, about, once its programs
// run; of two users' the time of the case it belongs to is shared by both.
func (e *Experiment) expected(scheme string) (time.Duration, error) {
	if e.Dual != nil {
		return e.Dual.expected(scheme), nil
	}
	return e.Plan.expected(scheme)
}

// expected is the one of a plan.
func (p Plan) expected(scheme string) (time.Duration, error) {
	n := p.bytes()
	switch {
	case p.Length > 0 && p.Video == nil:
		return p.Length, nil
	case !p.Topology.shaped():
		return unshapedRate.Time(n), nil
	}
	t, kills, err := p.split()
	if err != nil {
		return 0, err
	}
	if t, err = t.reduced(participants(t, scheme)); err != nil {
		return 0, err
	}
	if p.Video != nil {
		return p.expectedPlayback(t)
	}
	d, err := p.bound(t, kills)
	if err != nil {
		return unknownTransfer, nil // no way is left: it will fail, or wait for it to come back
	}
	if strings.Contains(scheme, "noreinject") {
		return d * 13 / 10, nil
	}
	return d * 104 / 100, nil
}

// reduced is the topology with some of the helpers, and with the direct links or without.
func (t *Topology) reduced(helpers []string, direct bool) (*Topology, error) {
	c, err := t.clone()
	if err != nil {
		return nil, err
	}
	for _, h := range t.Helpers() {
		if !slices.Contains(helpers, h) {
			delete(c.Node, h)
		}
	}
	for name, l := range t.Link {
		gone := slices.ContainsFunc(l.Ends[:], func(n string) bool { return c.Node[n] == nil })
		if gone || !direct && slices.Contains(t.allBetween("primary", "server"), name) {
			delete(c.Link, name)
		}
	}
	return c, nil
}

// Processor time that a transfer takes: to start and stop its programs, in
// seconds; in each second; and for each bit. Measured on a two-core machine
// (series of 34 to 378 transfers; 40/50/100: mpbond 0.75 processors).
const (
	startBonded = 0.2
	startOther  = 0.1
	coresBonded = 0.05
	coresOther  = 0.03
	coresPerBit = 0.007 / 1e6
)

// cores is how many processors a transfer of a scheme keeps busy, about, if it
// takes so long.
func (p Plan) cores(scheme string, took time.Duration) float64 {
	start, base := startOther, coresOther
	if strings.HasPrefix(scheme, "mpbond") || onloads(scheme) || strings.HasPrefix(scheme, DualBoth) || strings.HasPrefix(scheme, DualIdle) {
		start, base = startBonded, coresBonded
	}
	base += start / (took + transferExtra).Seconds()
	n := p.bytes()
	switch {
	case p.Video != nil:
		n = p.playbackBytes(took)
	case p.Length > 0 && strings.HasPrefix(scheme, "single"):
		n /= 2 // of both carriers
	}
	return base + coresPerBit*float64(8*n)/max(took.Seconds(), .1)
}

// shaped tells whether any link is emulated.
func (t *Topology) shaped() bool {
	for _, l := range t.Link {
		if l.Shaped() {
			return true
		}
	}
	return false
}

// phase is which experiments may run beside one another.
type phase int

const (
	lonely   phase = iota // nothing
	computed              // as many as there are processors, of the same phase
	shared                // as many as the processors can bear
)

func (e Experiment) phase() phase {
	switch e.Group {
	case Machine, Alone:
		return lonely
	case Computed:
		return computed
	}
	return shared
}
