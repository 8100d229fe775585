// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/app"
	"mpbond/lab/vary"
)

const (
	h1Reps         = 3
	h1Starts       = 50              // of a repetition
	h1StaticStarts = 17              // the same at rest, where nothing happens
	h1Interval     = 3 * time.Second // between two starts, on average
	h1Stride       = h1Starts * h1Interval
	// h1Connections is how many downloads may be open at once, so that one that is stuck delays none.
	h1Connections = 8
)

// h1Sizes are the sizes of files. The limits are those of mpbond's quantiles relative to the better
// carrier alone.
var h1Sizes = []struct {
	size     unit.Bytes
	p95, p99 float64
}{{16 * unit.KB, 0.5, 0.25}, {128 * unit.KB, 0.5, 0.25}, {512 * unit.KB, 0.5, 0.25}, {1000 * unit.KB, 0.7, 0.35}}

// handoffClasses say on which carriers a handoff overlaps a download.
var handoffClasses = []string{"none", "on M", "on U", "on both"}

// h1Cell is a cell of row h1.
type h1Cell struct {
	name   string
	size   unit.Bytes
	travel vary.Travel
	quick  int
}

// h1Cells returns the cells at each speed by size.
func h1Cells() (all []h1Cell) {
	for _, at := range railTravels {
		for i, s := range h1Sizes {
			c := h1Cell{name: fmt.Sprintf("%s, %v", at.name, s.size), size: s.size, travel: at.travel}
			if i == 1 {
				c.quick = at.quick
			}
			all = append(all, c)
		}
	}
	return all
}

// isAtSpeed reports whether the device moves.
func (c h1Cell) isAtSpeed() bool { return strings.HasPrefix(c.name, atSpeed) }

// startsPerRepetition returns the downloads of a repetition.
func (c h1Cell) startsPerRepetition() int {
	if c.isAtSpeed() {
		return h1Starts
	}
	return h1StaticStarts
}

// drawCellRides draws the rides of the cell.
func (c h1Cell) drawCellRides(seed uint64) railRides {
	return drawRides(seed, "h1/"+c.name, c.travel, h1Reps*h1Stride+time.Minute)
}

// downloadScript returns the downloads of a repetition, the same for all schemes.
func (c h1Cell) downloadScript(seed uint64, rep int) app.Script {
	random := rand.New(rand.NewPCG(seed, 2300+uint64(rep)))
	s := app.Script{App: "small files", Connections: h1Connections, IsCold: true}
	for i := range c.startsPerRepetition() {
		at := time.Duration(i)*h1Interval + time.Duration(random.Float64()*float64(h1Interval)*2/3)
		s.Requests = append(s.Requests, app.Request{Down: c.size, At: at})
	}
	return s
}

// classes returns the handoff class of each download by repetition: by the handoffs from its start
// until the slower carrier would have carried it without one. So it does not depend on a scheme.
func (c h1Cell) classes(seed uint64) (all [][]int) {
	rides := c.drawCellRides(seed)
	for rep := range h1Reps {
		all = append(all, c.classesIn(rides, seed, rep))
	}
	return all
}

// classesIn returns the classes of one repetition.
func (c h1Cell) classesIn(rides railRides, seed uint64, rep int) (all []int) {
	slowest := slices.Min(c.travel.Down[:])
	takes := slowest.Time(c.size) + 4*slices.Max(railDelays[:])
	for _, r := range c.downloadScript(seed, rep).Requests {
		from := time.Duration(rep)*h1Stride + r.At
		class := 0
		for carrier := range vary.Carriers {
			if rides.countHandoffs(carrier, from, from+takes) > 0 {
				class |= 1 << carrier
			}
		}
		all = append(all, class)
	}
	return all
}

// rowH1SmallFiles returns row h1: completion times of small files.
func rowH1SmallFiles() Row {
	r := newRailRow("h1", "completion of small files", fmt.Sprintf("%d downloads of each size at 300 km/h, %d at rest, "+
		"each over a connection of its own, about %v apart. One session of a scheme carries them; mpbond's subflows stay "+
		"up between them. A download has a handoff if one overlaps the time that the slower carrier needs without it. "+
		"Changes are 100 times the logarithm of the ratio to the same download of the other scheme. The better carrier "+
		"is that of the least median; for quantiles, of the least quantile.",
		h1Reps*h1Starts, h1Reps*h1StaticStarts, h1Interval))
	r.Metrics = []Metric{quantileMetric("median", 0.5), quantileMetric("95 % point", 0.95), quantileMetric("longest", 1)}
	r.cellsOf = func(seed uint64) (all []Cell) {
		for _, c := range h1Cells() {
			all = append(all, Cell{Name: c.name, Schemes: smallFileSchemes, Reps: h1Reps, MaxReps: h1Reps, Stride: h1Stride,
				Quick:   c.quick,
				Network: func(seed uint64) (*lab.Topology, error) { return c.drawCellRides(seed).buildTopology() },
				Reports: func(seed uint64) []lab.CellReport { return c.drawCellRides(seed).cellReports() },
				App:     c.downloadScript})
		}
		return all
	}
	r.pointsOf = func(seed uint64) (all []Point) {
		for i, s := range h1Sizes {
			all = append(all, h1Cells()[i].sizePoints(seed, s.p95, s.p99)...)
		}
		return all
	}
	r.tables = h1Tables
	return r
}

// quantileMetric returns the metric of a quantile of a script's requests.
func quantileMetric(name string, share float64) Metric {
	return Metric{Name: name, Unit: "s", Of: func(r lab.Result) (float64, bool) {
		if r.App == nil || len(r.App.RequestTimes()) == 0 {
			return 0, false
		}
		return percentile{share: share}.quantileOfSamples(r.App.RequestTimes()), true
	}}
}

// classTimes returns the times of a scheme's downloads of some handoff classes, or of all. by holds
// the class of each download by repetition.
func (c h1Cell) classTimes(d Data, by [][]int, scheme string, classes ...int) (all []float64) {
	for _, r := range d.countedResults(c.name, scheme) {
		if r.Rep >= len(by) {
			continue // more repetitions than the row has
		}
		for i, v := range c.downloadTimes(r) {
			if v > 0 && (len(classes) == 0 || slices.Contains(classes, by[r.Rep][i])) {
				all = append(all, v)
			}
		}
	}
	return all
}

// timeChanges compares each download of a scheme with the same one of the best of other schemes, which
// has the least median: 100 times the logarithm of the ratio of their times, so that twice and half as
// long weigh the same. Near 0 that is the change in percent.
func (c h1Cell) timeChanges(d Data, by [][]int, scheme string, others []string, classes ...int) (all []float64) {
	best, least := "", math.Inf(1)
	for _, s := range others {
		v := c.classTimes(d, by, s, classes...)
		if len(v) == 0 {
			return nil
		}
		if m := medianOfValues(v); m < least {
			best, least = s, m
		}
	}
	for _, r := range d.countedResults(c.name, scheme) {
		o, ok := d.resultOfRepetition(c.name, best, r.Rep)
		if !ok || r.Rep >= len(by) {
			continue
		}
		ours, base := c.downloadTimes(r), c.downloadTimes(o)
		for i := range min(len(ours), len(base)) {
			if ours[i] > 0 && base[i] > 0 && (len(classes) == 0 || slices.Contains(classes, by[r.Rep][i])) {
				all = append(all, 100*math.Log(ours[i]/base[i]))
			}
		}
	}
	return all
}

// downloadTimes returns the time of each download of a session, 0 of those that were not complete.
func (c h1Cell) downloadTimes(r lab.Result) (all []float64) {
	if r.App == nil || len(r.App.Requests) > c.startsPerRepetition() {
		return nil
	}
	for _, o := range r.App.Requests {
		all = append(all, max(0, o.End-o.Start))
	}
	return all
}

// sizePoints returns the published points of a size at speed, and mpbond's limits. A handoff on one carrier
// makes it slower, so MPTCP is compared with it.
func (c h1Cell) sizePoints(seed uint64, p95, p99 float64) (all []Point) {
	by := sync.OnceValue(func() [][]int { return c.classes(seed) })
	for _, scheme := range railPublished {
		for carrier, link := range []string{railM, railU} {
			all = append(all, railSignPoint(fmt.Sprintf("%s, handoff %s: time of %s relative to that carrier", c.name,
				handoffClasses[1+carrier], scheme), -1, "less", func(d Data) []float64 {
				return c.timeChanges(d, by(), scheme, []string{link}, 1<<carrier)
			}))
		}
		all = append(all, Point{What: fmt.Sprintf("%s: time of %s relative to the better carrier", c.name, scheme), Unit: "%",
			PublishedText: "not less", Aim: AimNotLess, Of: func(d Data) []float64 {
				return c.timeChanges(d, by(), scheme, []string{railM, railU})
			}})
	}
	for _, x := range []struct {
		what         string
		share, limit float64
	}{{"median", 0.5, 1}, {"95 % point", 0.95, p95}, {"99 % point", 0.99, p99}} {
		all = append(all, railLimit(fmt.Sprintf("%s: %s of %s relative to the better carrier's", c.name, x.what, Product),
			"times", x.limit, AimAtMost, func(d Data) []float64 {
				quantile := func(scheme string) float64 {
					return percentile{share: x.share}.quantileOfSamples(c.classTimes(d, by(), scheme))
				}
				ours, best := quantile(railOurs), min(quantile(railM), quantile(railU))
				if ours == 0 || best == 0 {
					return nil
				}
				return []float64{ours / best}
			}))
	}
	return all
}

// h1Tables returns the quantiles of all schemes by cell and handoff class.
func h1Tables(rec Record) []Table {
	t := Table{Title: "Completion of downloads by where a handoff fell", Head: []string{"cell", "handoff", "scheme",
		"downloads", "median", "95 % point", "99 % point"}}
	for _, c := range h1Cells() {
		by := c.classes(rec.Seed)
		for _, classes := range [][]int{{0, 1, 2, 3}, {0}, {1}, {2}, {3}} {
			name := "all"
			if len(classes) == 1 {
				name = handoffClasses[classes[0]]
			}
			if len(classes) == 1 && !c.isAtSpeed() {
				continue
			}
			for _, scheme := range smallFileSchemes {
				v := c.classTimes(rec.Results, by, scheme, classes...)
				if len(v) == 0 {
					continue
				}
				at := func(share float64) string { return formatSeconds(percentile{share: share}.quantileOfSamples(v)) }
				t.Add(c.name, name, scheme, fmt.Sprint(len(v)), at(0.5), at(0.95), at(0.99))
			}
		}
	}
	return []Table{t}
}
