package exp

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

// What the rows of PBE-CC have in common.
const (
	pbe      = "pbe"
	pbeTheir = pbe + asPaper
	pbePaper = "PBE-CC: Xie, Yi, Jamieson, SIGCOMM 2020"
	// pbeReps is how often the paper's flows ran.
	pbeReps   = 5
	pbeLength = 20 * time.Second
	pbeSetup  = "In virtual time, over the model cells of lab/lte (docs/pbe.md says what these leave out): the same seed makes the same figures. Delays are one way and of packets; those of a flow that is judged from later on are too. Absolute figures are the model's; what can be compared are orders and ratios. pbe:paper is PBE-CC whose device estimates its capacity, and where the bottleneck is, as the paper has it; docs/pbe.md tells what pbe has otherwise."
)

// pbeRow begins one.
func pbeRow(id, title, section, setup string) Row {
	return Row{ID: id, Title: title, Source: pbePaper + ", " + section, Setup: pbeSetup + " " + setup, Ours: pbe, Metrics: []Metric{Rate, LateP95, LateMean, Lost}}
}

// pbeCell is a cell with all schemes.
func pbeCell(name string, m *model) Cell {
	return Cell{Name: name, Model: m, Schemes: append(slices.Clone(cc.Names), pbeTheir), Reps: pbeReps, Quick: 1}
}

// times is a point: how many times as much of a metric ours has, at least, and
// part which part of it, at most. told, if not empty, is what is published.
func (r Row) times(cells []string, other string, m Metric, low float64, told string) Point {
	return r.ratio(cells, other, m, Point{Low: low, High: low, Told: told, Aim: Times})
}

func (r Row) part(cells []string, other string, m Metric, high float64, told string) Point {
	return r.ratio(cells, other, m, Point{Low: high, High: high, Told: told, Aim: Share})
}

func (r Row) ratio(cells []string, other string, m Metric, p Point) Point {
	where := ""
	if len(r.Cells) > 1 && !r.Places {
		where = cells[0] + ": "
	}
	p.What, p.Unit = fmt.Sprintf("%s%s beside %s's", where, m.Name, other), "times"
	p.Of = func(d Data) []float64 { return d.medianRatio(cells, [2]string{pbe, other}, m) }
	return p
}

// ofPBE is a point of a figure of PBE-CC in one cell.
func ofPBE(cell string, m Metric, p Point) Point {
	p.What, p.Unit = cell+": "+m.Name, m.Unit
	p.Of = func(d Data) []float64 { return d.Values(cell, pbe, m) }
	return p
}

// p0: what is asked of PBE-CC in one cell.
func p0(radio.Set) Row {
	r := pbeRow("p0", "One device alone in a cell", "section 6.1, and what we ask", "The default cell: 10 MHz, two layers, 18 dB, p = 2·10⁻⁶, control traffic, a queue of 750 KB, 50 ms there and back; 10 s. Used: of what the same cell carries for a queue that is never empty, from the first packet on.")
	used, over := figure("used", "%", true), flowMetric("delay over propagation, p95", "ms", 0, false, func(f lab.Flow) float64 { return f.P95 - f.Prop })
	over.beside = true
	r.Metrics = []Metric{used, over, Rate, LateMean, Elsewhere, Lost}
	for _, v := range virtual.Variants {
		c := pbeCell(v.Name, &model{of: v.Case, tell: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
			return func(o virtual.Outcome) map[string]float64 {
				return map[string]float64{used.Name: 100 * float64(o.Flows[0].Rate(0, c.Length)) / float64(c.Available(0))}
			}
		}})
		if v.Name != virtual.Variants[0].Name {
			c.Schemes, c.Quick = []string{pbe, pbeTheir, "bbr", "cubic"}, 0
		}
		r.Cells = append(r.Cells, c)
	}
	first := r.Cells[0].Name
	r.Points = []Point{
		ofPBE(first, used, Point{Low: 95, High: 95, Told: "95 % (asked)", Aim: More}),
		ofPBE(first, over, Point{Low: 30, High: 30, Told: "30 ms (asked)", Aim: Less}),
	}
	return r
}

// places of the paper, and of the short form.
const (
	pbePlaces = 40
	pbeQuick  = 2
)

// p1: forty places.
func p1(radio.Set) Row {
	r := pbePlacesRow("p1", "2 MB", 2*unit.MB, 3)
	r.Setup += " Row p1b has the same with 500 KB."
	return r
}

// p1b: likewise with a short queue.
func p1b(radio.Set) Row { return pbePlacesRow("p1b", "500 KB", 500*unit.KB, 2) }

func pbePlacesRow(id, text string, queue unit.Bytes, reps int) Row {
	r := pbeRow(id, "Forty places, queue of "+text, "section 6.3.1", fmt.Sprintf("%d places of %v: 5 to 20 MHz, one or two layers, a second cell at two of three, signals from 6 to 22 dB that wander, p of 1 to 4·10⁻⁶, up to three other devices that come and go, 20 to 80 ms there and back. The device's queue is %s: it decides the delays of those who fill it (CUBIC, Verus, Allegro, BBR in part). Ratios are of each place, and then of the median one of a repetition.", pbePlaces, pbeLength, text))
	r.Metrics = append(r.Metrics, Elsewhere, Carriers)
	r.Places = true
	var all, two, busy, idle []string
	for n := range uint64(pbePlaces) {
		c := pbeCell(fmt.Sprintf("place %d", n+1), &model{of: func(seed uint64) virtual.Case {
			c := virtual.Place(n, seed)
			c.Length, c.Network.Users[0].Buffer = pbeLength, queue
			return c
		}})
		if c.Reps = reps; n >= pbeQuick || id != "p1" {
			c.Quick = 0
		}
		if id != "p1" && n == 0 {
			c.Quick = 1
		}
		r.Cells = append(r.Cells, c)
		all = append(all, c.Name)
		network := virtual.Place(n, 0).Network
		if len(network.Cells) > 1 {
			two = append(two, c.Name)
		}
		if len(network.Users) > 1 {
			busy = append(busy, c.Name)
		} else {
			idle = append(idle, c.Name)
		}
	}
	r.Together = [][]string{all}
	for _, x := range []struct {
		scheme string
		least  float64
		told   string
	}{{"bbr", 1.06, ""}, {"cubic", 2.3, ""}, {"verus", 1.6, ""}, {"copa", 11, ""}, {"allegro", 1, "more"}, {"vivace", 1, "more"}, {"sprout", 1, "more"}} {
		r.Points = append(r.Points, r.times(all, x.scheme, Rate, x.least, x.told))
	}
	r.Points = append(r.Points, r.part(all, "bbr", LateP95, 1/1.8, "1/1.8"), r.part(all, "cubic", LateP95, 1/1.8, "1/1.8"), r.part(all, "verus", LateP95, 1/3.6, "1/3.6"))
	r.Points = append(r.Points,
		Point{What: "places with two cells where the second was activated", Unit: "%", Low: 100, High: 100, Aim: More, Of: d1(two, func(v []float64) float64 {
			n := 0
			for _, x := range v {
				if x > 1 {
					n++
				}
			}
			return 100 * float64(n) / float64(len(v))
		}, Carriers)},
		Point{What: "time in drain and internet, mean of places with other devices", Unit: "%", Low: 18, High: 18, Aim: Near, Of: d1(busy, mean, Elsewhere)},
		Point{What: "time in drain and internet, mean of places without", Unit: "%", Low: 4, High: 4, Aim: Near, Of: d1(idle, mean, Elsewhere)})
	return r
}

// d1 makes one figure, of all cells, of each repetition of PBE-CC.
func d1(cells []string, of func([]float64) float64, m Metric) func(Data) []float64 {
	return func(d Data) (all []float64) {
		var by byRep
		for _, c := range cells {
			for _, r := range d.counted(c, pbe) {
				if v, ok := m.Of(r); ok {
					by.add(r.Rep, v)
				}
			}
		}
		for _, v := range by {
			if len(v) > 0 {
				all = append(all, of(v))
			}
		}
		return all
	}
}

func mean(v []float64) float64 { return Summarize(v).Mean }

// p2: distributions at six of the places: with one cell and with two, without other
// devices, with one and with three.
func p2(radio.Set) Row {
	r := pbeRow("p2", "Distributions of rate and delay at six places", "figures 13 and 14", fmt.Sprintf("Of the places of p1 the first ones with one cell and with two, without other devices, with one and with three; %v.", pbeLength))
	for _, cells := range []int{1, 2} {
		for _, others := range []int{0, 1, 3} {
			n := uint64(0)
			for x := virtual.Place(n, 0).Network; len(x.Cells) != cells || len(x.Users) != others+1; x = virtual.Place(n, 0).Network {
				n++
			}
			c := pbeCell(fmt.Sprintf("place %d: %s, %s", n+1, []string{"one cell", "two cells"}[cells-1], map[int]string{0: "alone", 1: "one other device", 3: "three other devices"}[others]), &model{keep: true, of: func(seed uint64) virtual.Case {
				c := virtual.Place(n, seed)
				c.Length = pbeLength
				return c
			}})
			if len(r.Cells) > 0 {
				c.Quick = 0
			}
			r.Cells = append(r.Cells, c)
		}
	}
	r.CDFs = names(r.Cells)
	const same, shorter = 0.99, 1 // Mbit/s times, ms
	r.Points = []Point{{What: "places where no other scheme has as much rate (within 1 %) and a p95 of the delay that is 1 ms shorter", Unit: "%", Low: 100, High: 100, Told: "100 % (asked)", Aim: More, Of: func(d Data) []float64 {
		var by byRep
		for _, c := range r.Cells {
			for _, ours := range d.counted(c.Name, pbe) {
				good := 100.0
				for _, x := range d[c.Name] {
					if x.Rep == ours.Rep && x.Virtual.Flows[0].Rate >= same*ours.Virtual.Flows[0].Rate && x.Virtual.Flows[0].P95 < ours.Virtual.Flows[0].P95-shorter {
						good = 0
					}
				}
				by.add(ours.Rep, good)
			}
		}
		var all []float64
		for _, v := range by {
			if len(v) > 0 {
				all = append(all, mean(v))
			}
		}
		return all
	}}}
	return r
}

// p3: a walk.
func p3(radio.Set) Row {
	const length = 40 * time.Second
	r := pbeRow("p3", "A walk from −85 to −105 dBm and back", "section 6.3.2", fmt.Sprintf("Alone in the default cell for %v: 7 s at −85 dBm, 21 s out, 4 s back, 8 s at −85 dBm (the times are ours).", length))
	r.Cells = []Cell{pbeCell("walk", &model{keep: true, of: func(seed uint64) virtual.Case { return virtual.Walk(seed, length) }})}
	r.Series, r.CDFs = []string{"walk"}, []string{"walk"}
	at := names(r.Cells)
	r.Points = []Point{
		r.times(at, "bbr", Rate, 1, "55 and 55 Mbit/s: 1 times"), r.times(at, "cubic", Rate, 55./38, "55 and 38 Mbit/s: 1.45 times"), r.times(at, "verus", Rate, 55./41, "55 and 41 Mbit/s: 1.34 times"),
		r.part(at, "bbr", LateP95, 64./156, "64 and 156 ms: 0.41 times"), r.part(at, "cubic", LateP95, 64./296, "64 and 296 ms: 0.22 times"), r.part(at, "verus", LateP95, 64./467, "64 and 467 ms: 0.14 times"),
	}
	return r
}

// p4: a competitor who comes and goes.
func p4(radio.Set) Row {
	const length = 40 * time.Second
	r := pbeRow("p4", "Beside 60 Mbit/s for 4 s of each 8", "section 6.3.3", fmt.Sprintf("Two devices at 22 dB in the default cell, %v.", length))
	r.Cells = []Cell{pbeCell("competitor", &model{keep: true, of: func(seed uint64) virtual.Case { return virtual.Competitor(seed, length, 4*time.Second) }})}
	r.Series, r.CDFs = []string{"competitor"}, []string{"competitor"}
	at := names(r.Cells)
	for _, x := range []struct {
		scheme          string
		rate, mean, p95 float64
	}{{"bbr", 62, 147, 227}, {"cubic", 58, 252, 416}, {"verus", 56, 263, 403}} {
		r.Points = append(r.Points, r.times(at, x.scheme, Rate, 57/x.rate, fmt.Sprintf("57 and %g Mbit/s: %.2f times", x.rate, 57/x.rate)),
			r.part(at, x.scheme, LateP95, 71/x.p95, fmt.Sprintf("71 and %g ms: %.2f times", x.p95, 71/x.p95)),
			r.part(at, x.scheme, LateMean, 61/x.mean, fmt.Sprintf("61 and %g ms: %.2f times", x.mean, 61/x.mean)))
	}
	return r
}

// p5: two flows of one device.
func p5(radio.Set) Row {
	r := pbeRow("p5", "Two flows of one device", "section 6.3.4", fmt.Sprintf("The default cell, %v; the second begins after 2 s. Judged from 4 s on. The paper's flows are to two servers with round trips that it does not tell; ours have the same.", pbeLength))
	smaller := Metric{Name: "smaller flow's part", Unit: "%", More: true, Of: func(x lab.Result) (float64, bool) {
		if x.Virtual == nil || len(x.Virtual.Flows) < 2 {
			return 0, false
		}
		a, b := x.Virtual.Flows[0].Rate, x.Virtual.Flows[1].Rate
		return 100 * min(a, b) / (a + b), true
	}}
	r.Metrics = []Metric{smaller, LateP95, Rate, flowMetric("rate of the second", "Mbit/s", 1, true, func(f lab.Flow) float64 { return f.Rate })}
	r.Cells = []Cell{pbeCell("two flows", &model{keep: true, from: 4 * time.Second, of: func(seed uint64) virtual.Case { return virtual.OneDevice(seed, pbeLength, pbeLength) }})}
	r.Series = []string{"two flows"}
	r.Points = []Point{
		ofPBE("two flows", smaller, Point{Low: 100 * 26. / 54, High: 100 * 26. / 54, Told: "26 and 28 Mbit/s: 48 %", Aim: More}),
		{What: "two flows of BBR: " + smaller.Name, Unit: "%", Low: 100 * 10. / 45, High: 100 * 10. / 45, Told: "10 and 35 Mbit/s: 22 %", Aim: Near,
			Of: func(d Data) []float64 { return d.Values("two flows", "bbr", smaller) }},
	}
	return r
}

// pbeTurn is how long each number of flows lasts in p6 to p8, pbeSettle what of it
// is not judged.
const (
	pbeTurn   = 10 * time.Second
	pbeSettle = 2 * time.Second
)

// fair is a cell in which three devices begin and end in turns, and what their
// fairness is while there are two of them, and three.
func fair(name string, with func(string) []string, rtts ...time.Duration) Cell {
	return pbeCell(name, &model{keep: true, with: with, of: func(seed uint64) virtual.Case { return virtual.Staggered(seed, pbeTurn, rtts...) },
		tell: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
			return func(o virtual.Outcome) map[string]float64 {
				jain := func(flows int, at ...time.Duration) float64 {
					rates := make([]float64, flows)
					for i := range rates {
						for j := 0; j < len(at); j += 2 {
							rates[i] += float64(o.Flows[i].Rate(at[j]+pbeSettle, at[j+1]).Bytes(at[j+1] - at[j] - pbeSettle))
						}
					}
					return 100 * virtual.Jain(rates...)
				}
				late := 0.0
				for i, x := range o.Flows {
					if o.PBE[i] != nil {
						late = max(late, inMS(x.Delay(0, c.Length, 0.95)-c.Flows[i].Before-c.Flows[i].After))
					}
				}
				all := map[string]float64{jainTwo.Name: jain(2, pbeTurn, 2*pbeTurn, 4*pbeTurn, 5*pbeTurn), jainThree.Name: jain(3, 2*pbeTurn, 4*pbeTurn)}
				if late > 0 {
					all[queueMost.Name] = late
				}
				return all
			}
		}})
}

// Metrics of fairness.
var (
	jainTwo   = figure("Jain of two", "of 100", true)
	jainThree = figure("Jain of three", "of 100", true)
	queueMost = figure("delay over propagation, p95, the worst flow of PBE-CC", "ms", false)
)

// fairSetup is for p6 to p8.
var fairSetup = fmt.Sprintf("Three devices of the default cell, which begin %v after one another and end in the other order, so that there are one, two, three, three, two, one. Jain's index of what they were sent while there were two (twice), and three, without the first %v of each.", pbeTurn, pbeSettle)

func fairRow(id, title, section, setup string, cells ...Cell) Row {
	r := pbeRow(id, title, section, fairSetup+" "+setup)
	r.Metrics = []Metric{jainTwo, jainThree, queueMost}
	r.Cells, r.Series = cells, names(cells)
	return r
}

func fairPoints(cell string, two, three float64) []Point {
	return []Point{ofPBE(cell, jainTwo, Point{Low: two, High: two, Aim: More}), ofPBE(cell, jainThree, Point{Low: three, High: three, Aim: More})}
}

const ms = time.Millisecond

// p6: fairness among PBE-CC flows.
func p6(radio.Set) Row {
	c := fair("50 ms", nil, 50*ms, 50*ms, 50*ms)
	c.Schemes = []string{pbe, pbeTheir, "bbr", "cubic", "copa"}
	r := fairRow("p6", "Devices share a cell", "section 6.4.1", "All have the same scheme.", c)
	r.Points = fairPoints(c.Name, 99.97, 98.73)
	return r
}

// p7: likewise with round trips of their own.
func p7(radio.Set) Row {
	c := fair("52, 64, 297 ms", nil, 52*ms, 64*ms, 297*ms)
	c.Schemes = []string{pbe, pbeTheir, "bbr", "cubic", "copa"}
	r := fairRow("p7", "Devices with round trips of 52, 64 and 297 ms share a cell", "section 6.4.2", "All have the same scheme.", c)
	r.Points = fairPoints(c.Name, 99.74, 99.45)
	return r
}

// p8: beside others.
func p8(radio.Set) Row {
	var cells []Cell
	for _, other := range []string{"bbr", "cubic"} {
		c := fair("the second has "+other, func(scheme string) []string { return []string{scheme, other, scheme} }, 50*ms, 50*ms, 50*ms)
		c.Schemes = []string{pbe, pbeTheir, other}
		cells = append(cells, c)
	}
	r := fairRow("p8", "Devices with BBR or CUBIC among them share a cell", "section 6.4.3", "The second device has BBR, or CUBIC, the others the scheme.", cells...)
	r.Points = slices.Concat(fairPoints(cells[0].Name, 99.96, 98.52), fairPoints(cells[1].Name, 99.95, 98.34))
	return r
}

// p9: how wrong capacities are.
func p9(radio.Set) Row {
	r := pbeRow("p9", "Estimates of capacity against the truth", "section 4.2", "A device of the default cell beside another one, 20 s: what its monitor says each 20 ms from 1 s on, against the mean of the last 50 subframes as the model knows it. C_p is the capacity, C_f the fair share.")
	var all [4]Metric
	for i, name := range []string{"C_p, median error", "C_p, p95 of the error", "C_f, median error", "C_f, p95 of the error"} {
		all[i] = figure(name, "%", false)
	}
	r.Metrics = all[:]
	for _, b := range virtual.Neighbours {
		c := pbeCell(b.Name, &model{of: func(seed uint64) virtual.Case {
			c := b.Case(seed)
			c.Length = pbeLength
			return c
		}, tell: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
			e := c.Errors(0, time.Second)
			return func(virtual.Outcome) map[string]float64 {
				told := map[string]float64{}
				for i, v := range [][]float64{e.Physical, e.Fair} {
					slices.Sort(v)
					told[all[2*i].Name], told[all[2*i+1].Name] = 100*v[len(v)/2], 100*v[len(v)*95/100]
				}
				return told
			}
		}})
		c.Schemes = []string{pbe, pbeTheir}
		r.Cells = append(r.Cells, c)
		r.Points = append(r.Points, ofPBE(c.Name, all[0], Point{Low: 5, High: 5, Told: "no figure (5 % asked)", Aim: Less}),
			ofPBE(c.Name, all[1], Point{Low: 10, High: 10, Told: "no figure (10 % asked)", Aim: Less}))
	}
	return r
}

// p10: what the model gives to PBE-CC is taken away.
func p10(radio.Set) Row {
	r := pbeRow("p10", "What the model gives to PBE-CC, taken away one by one", "none: ours", "Beside a device that is always sent 60 Mbit/s, 10 s. A fair share is what the same cell carries for each of two who always have data. The paper has no figures of it: what has to hold is that queues stay shorter than BBR's, and that it has 95 % of its share.")
	share := figure("of a fair share", "%", true)
	r.Metrics = []Metric{share, LateP95, Rate, LateMean}
	for _, a := range virtual.Ablations {
		c := pbeCell(a.Name, &model{of: a.Case, tell: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
			return func(o virtual.Outcome) map[string]float64 {
				return map[string]float64{share.Name: 100 * float64(o.Flows[0].Rate(0, c.Length)) / float64(c.Share(0))}
			}
		}})
		c.Schemes = []string{pbe, pbeTheir, "bbr"}
		r.Cells = append(r.Cells, c)
	}
	for _, c := range r.Cells {
		r.Points = append(r.Points, r.part([]string{c.Name}, "bbr", LateP95, 1, "shorter (asked)"),
			ofPBE(c.Name, share, Point{Low: 95, High: 95, Told: "95 % (asked)", Aim: More}))
	}
	return r
}
