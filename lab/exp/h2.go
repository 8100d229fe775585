// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/vary"
)

const (
	h2Length     = 100 * time.Second
	h2Reps       = 8
	h2StaticReps = 3
	h2Headroom   = 2 // times the bytes that the links carry on average
)

// h2Group is a group of repetitions by the mean number of handoffs of a carrier.
type h2Group struct {
	name string
	most int
}

var h2Groups = []h2Group{{"0", 0}, {"1–3", 3}, {"4–6", 6}, {"7–9", 9}, {"≥ 10", math.MaxInt}}

// h2Cell is a cell of row h2.
type h2Cell struct {
	name   string
	travel vary.Travel
	reps   int
	quick  int
}

// h2Cells returns the cells by speed.
func h2Cells() (all []h2Cell) {
	for _, at := range railTravels {
		c := h2Cell{at.name, at.travel, h2Reps, at.quick}
		if at.name != atSpeed {
			c.reps = h2StaticReps
		}
		all = append(all, c)
	}
	return all
}

// drawCellRides draws the rides of the cell.
func (c h2Cell) drawCellRides(seed uint64) railRides {
	return drawRides(seed, "h2/"+c.name, c.travel, time.Duration(c.reps)*h2Length+time.Minute)
}

// handoffGroups returns the index of the group of each repetition.
func (c h2Cell) handoffGroups(seed uint64) (all []int) {
	rides := c.drawCellRides(seed)
	for rep := range c.reps {
		from, n := time.Duration(rep)*h2Length, 0
		for carrier := range vary.Carriers {
			n += rides.countHandoffs(carrier, from, from+h2Length)
		}
		mean := (n + 1) / vary.Carriers // rounded
		all = append(all, slices.IndexFunc(h2Groups, func(g h2Group) bool { return mean <= g.most }))
	}
	return all
}

// railRatios are the rate of a scheme relative to those of the carriers alone.
type railRatios struct{ poorer, better, total float64 }

// ratioKinds name the ratios. published is the sign of the published ones less 1.
var ratioKinds = []struct {
	name, published string
	sign            float64
	of              func(railRatios) float64
}{
	{"R_poorer", "above 1", 1, func(r railRatios) float64 { return r.poorer }},
	{"R_better", "below 1", -1, func(r railRatios) float64 { return r.better }},
	{"R_total", "below 1", -1, func(r railRatios) float64 { return r.total }},
}

// railRatiosOf returns the ratios of a scheme's repetitions that are complete, by repetition.
func (d Data) railRatiosOf(cell, scheme string) map[int]railRatios {
	all := map[int]railRatios{}
	for _, r := range d.countedResults(cell, scheme) {
		m, ok1 := d.resultOfRepetition(cell, railM, r.Rep)
		u, ok2 := d.resultOfRepetition(cell, railU, r.Rep)
		ours, _ := Rate.Of(r)
		a, _ := Rate.Of(m)
		b, _ := Rate.Of(u)
		if ok1 && ok2 && a > 0 && b > 0 {
			all[r.Rep] = railRatios{ours / min(a, b), ours / max(a, b), ours / (a + b)}
		}
	}
	return all
}

// ratioValues returns a ratio of a scheme for each repetition that a test accepts.
func (d Data) ratioValues(cell, scheme string, of func(railRatios) float64, among func(rep int) bool) (all []float64) {
	ratios := d.railRatiosOf(cell, scheme)
	for rep := range h2Reps {
		if r, ok := ratios[rep]; ok && among(rep) {
			all = append(all, of(r))
		}
	}
	return all
}

// anyRepetition accepts all repetitions.
func anyRepetition(int) bool { return true }

// rowH2MeanRates returns row h2: mean rates of long downloads.
func rowH2MeanRates() Row {
	r := newRailRow("h2", "mean rates of long downloads", fmt.Sprintf("Downloads of %v, %d at 300 km/h and %d at rest. "+
		"R_poorer, R_better and R_total are the rate of a scheme relative to the poorer carrier alone, the better one, "+
		"and the sum of both, in the same %v.", h2Length, h2Reps, h2StaticReps, h2Length))
	r.Metrics = []Metric{Rate, LongestGap, LinkShare(railLinkM)}
	for _, c := range h2Cells() {
		mean := c.travel.Down[0] + c.travel.Down[1]
		r.Cells = append(r.Cells, Cell{Name: c.name, Schemes: railSchemes, Reps: c.reps, MaxReps: c.reps, Quick: c.quick,
			Stride: h2Length, Length: h2Length, Size: h2Headroom * mean.Bytes(h2Length),
			Reports: func(seed uint64) []lab.CellReport { return c.drawCellRides(seed).cellReports() },
			Network: func(seed uint64) (*lab.Topology, error) { return c.drawCellRides(seed).buildTopology() }})
		for _, scheme := range railPublished {
			for _, k := range ratioKinds {
				r.Points = append(r.Points, railSignPoint(fmt.Sprintf("%s: %s of %s, less 1", c.name, k.name, scheme), k.sign,
					k.published, func(d Data) (all []float64) {
						for _, v := range d.ratioValues(c.name, scheme, k.of, anyRepetition) {
							all = append(all, 100*(v-1))
						}
						return all
					}))
			}
		}
	}
	total := ratioKinds[2].of
	for _, c := range h2Cells() {
		r.Points = append(r.Points, railLimit(c.name+": R_total of "+railOurs, "times", 0.97, AimAtLeast,
			func(d Data) []float64 { return d.ratioValues(c.name, railOurs, total, anyRepetition) }))
	}
	r.Points = append(r.Points, railLimit(atSpeed+": R_total of "+railOursUDP, "times", 1, AimAtLeast,
		func(d Data) []float64 { return d.ratioValues(atSpeed, railOursUDP, total, anyRepetition) }))
	for _, other := range []string{railLIA, railOLIA, railUncoupled} {
		r.Points = append(r.Points, railLimit(fmt.Sprintf("%s: rate of %s relative to %s", atSpeed, railOurs, other), "%", 0,
			AimAtLeast, func(d Data) []float64 { return d.Changes(atSpeed, [2]string{railOurs, other}, Rate) }))
	}
	r.pointsOf = func(seed uint64) []Point {
		return []Point{{What: "R_better of mpbond is surely above 1 in each group of at least two downloads", Unit: "times",
			Low: 1, High: 1, PublishedText: "all (claimed)", Aim: AimAtLeast,
			Cases: func(d Data) []Case { return h2Cells()[0].betterCases(d, seed) }}}
	}
	r.tables = h2Tables
	return r
}

// betterCases returns a case for each group: the lower end of the interval of R_better.
func (c h2Cell) betterCases(d Data, seed uint64) (all []Case) {
	if len(d.railRatiosOf(c.name, railOurs)) == 0 {
		return []Case{{Cell: c.name, Missing: true}}
	}
	groups := c.handoffGroups(seed)
	for i, g := range h2Groups {
		s := Summarize(d.ratioValues(c.name, railOurs, ratioKinds[1].of, func(rep int) bool {
			return rep < c.reps && groups[rep] == i
		}))
		if s.N < 2 {
			continue // it has no interval
		}
		low, _ := s.confidenceInterval()
		all = append(all, Case{Cell: c.name, Name: g.name + " handoffs", Value: low, Text: s.Text("times")})
	}
	return all
}

// h2Tables returns the ratios of all schemes by group of handoffs.
func h2Tables(rec Record) []Table {
	t := Table{Title: "Mean rates by the number of handoffs of a carrier", Head: []string{"cell", "handoffs", "scheme",
		"downloads", "Mbit/s", "R_poorer", "R_better", "R_total"}}
	for _, c := range h2Cells() {
		groups := c.handoffGroups(rec.Seed)
		for i, g := range h2Groups {
			in := func(rep int) bool { return rep < c.reps && groups[rep] == i }
			for _, scheme := range railSchemes {
				var rates []float64
				for _, r := range rec.Results.countedResults(c.name, scheme) {
					if v, ok := Rate.Of(r); ok && in(r.Rep) {
						rates = append(rates, v)
					}
				}
				if len(rates) == 0 {
					continue
				}
				row := []string{c.name, g.name, scheme, fmt.Sprint(len(rates)), Summarize(rates).Text("")}
				for _, k := range ratioKinds {
					row = append(row, Summarize(rec.Results.ratioValues(c.name, scheme, k.of, in)).Text(""))
				}
				t.Add(row...)
			}
		}
	}
	return []Table{t}
}

// rowH4Balance returns row h4: how the subflows of row h2 share the bytes.
func rowH4Balance() Row {
	r := newRailRow("h4", "balance of subflows", "Computed from the transfers of row h2. D_balance is the share of the "+
		"bytes that the busier carrier has. The links' own ratio is that of the carriers' rates alone.")
	r.recounts, r.Metrics = []string{"h2"}, []Metric{balance}
	cell := recountedCell("h2", atSpeed)
	for _, scheme := range railPublished {
		r.Points = append(r.Points, Point{What: atSpeed + ": D_balance of " + scheme, Unit: "%", Low: 100, High: 100,
			PublishedText: "about 1", Aim: AimNear, Of: func(d Data) []float64 { return d.Values(cell, scheme, balance) }})
	}
	r.Points = append(r.Points, railLimit(atSpeed+": share of M with "+railOurs+", away from the links' own ratio", "%",
		10, AimAtMost, func(d Data) (all []float64) {
			for _, x := range d.countedResults(cell, railOurs) {
				if v, ok := d.awayFromLinks(cell, x); ok {
					all = append(all, v)
				}
			}
			return all
		}))
	r.tables = func(rec Record) []Table {
		t := Table{Title: "Share of the busier carrier", Head: []string{"cell", "scheme", "downloads", "D_balance"}}
		for _, c := range h2Cells() {
			for _, scheme := range railSchemes {
				if v := rec.Results.Values(recountedCell("h2", c.name), scheme, balance); len(v) > 0 &&
					!slices.Contains([]string{railM, railU}, scheme) {
					t.Add(c.name, scheme, fmt.Sprint(len(v)), Summarize(v).Text("%"))
				}
			}
		}
		return []Table{t}
	}
	return r
}

// balance is the share of the bytes that the busier carrier has.
var balance = Metric{Name: "D_balance", Unit: "%", Of: func(r lab.Result) (float64, bool) {
	most, all := unit.Bytes(0), unit.Bytes(0)
	for _, n := range r.Links {
		most, all = max(most, n), all+n
	}
	return 100 * float64(most) / float64(max(all, 1)), all > 0
}}

// awayFromLinks returns by how many percent the share of M in a transfer differs from the one that the
// carriers' rates alone suggest.
func (d Data) awayFromLinks(cell string, x lab.Result) (percent float64, ok bool) {
	m, ok1 := d.resultOfRepetition(cell, railM, x.Rep)
	u, ok2 := d.resultOfRepetition(cell, railU, x.Rep)
	share, ok3 := LinkShare(railLinkM).Of(x)
	a, _ := Rate.Of(m)
	b, _ := Rate.Of(u)
	if !ok1 || !ok2 || !ok3 || a <= 0 || b <= 0 {
		return 0, false
	}
	return 100 * math.Abs(share/(100*a/(a+b))-1), true
}
