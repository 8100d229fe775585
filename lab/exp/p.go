// SPDX-License-Identifier: Apache-2.0

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

// Common parts of the rows of PBE-CC.
const (
	pbe        = "pbe"
	pbeAsPaper = pbe + paperSuffix
	pbePaper   = "PBE-CC: Xie, Yi, Jamieson, SIGCOMM 2020"
	// pbeReps is how often the paper's flows ran.
	pbeReps   = 5
	pbeLength = 20 * time.Second
	pbeSetup  = "In virtual time, over the model cells of lab/lte (docs/explanation/pbe.md lists their limits): " +
		"the same seed " +
		"gives the same values. Delays are one way, of packets, within the evaluated time. Absolute values are " +
		"those of the model; only orders and ratios can be compared. pbe:paper is PBE-CC whose device estimates " +
		"its capacity and the place of the bottleneck as the paper describes; docs/explanation/pbe.md lists the " +
		"differences of pbe."
)

// commonPBERow returns a row with the common parts.
func commonPBERow(id, title, section, setup string) Row {
	return Row{ID: id, Title: title, Source: pbePaper + ", " + section, Setup: pbeSetup + " " + setup, Judged: pbe,
		Metrics: []Metric{Rate, DelayP95, DelayMean, Lost}}
}

// pbeModelCell returns a cell with all schemes.
func pbeModelCell(name string, m *model) Cell {
	return Cell{Name: name, Model: m, Schemes: append(slices.Clone(cc.Names), pbeAsPaper), Reps: pbeReps, Quick: 1}
}

// factorPoint returns a point: how many times as much of a metric pbe has, at least. published, if
// not empty, is the published text.
func (r Row) factorPoint(cells []string, other string, m Metric, low float64, published string) Point {
	return r.ratioPoint(cells, other, m, Point{Low: low, High: low, PublishedText: published, Aim: AimFactor,
		IsLimit: low == AimFactor.noEffect()})
}

// fractionPoint returns a point: which fraction of a metric pbe has, at most.
func (r Row) fractionPoint(cells []string, other string, m Metric, high float64, published string) Point {
	return r.ratioPoint(cells, other, m, Point{Low: high, High: high, PublishedText: published, Aim: AimFraction,
		IsLimit: high == AimFraction.noEffect()})
}

// ratioPoint returns a point of a ratio of pbe to another scheme.
func (r Row) ratioPoint(cells []string, other string, m Metric, p Point) Point {
	where := ""
	if len(r.Cells) > 1 && !r.Places {
		where = cells[0] + ": "
	}
	p.What, p.Unit = fmt.Sprintf("%s%s relative to %s's", where, m.Name, other), "times"
	p.Of = func(d Data) []float64 { return d.medianRatios(cells, [2]string{pbe, other}, m) }
	return p
}

// pbeMetricPoint returns a point of pbe's metric in one cell.
func pbeMetricPoint(cell string, m Metric, p Point) Point {
	p.What, p.Unit = cell+": "+m.Name, m.Unit
	p.Of = func(d Data) []float64 { return d.Values(cell, pbe, m) }
	return p
}

// Names of figures in recorded results.
const (
	usedFigure  = lab.UsedFigure
	shareFigure = "of a fair share"
)

// rowP0OneDevice returns row p0: requirements for PBE-CC in one cell.
func rowP0OneDevice(radio.Set) Row {
	r := commonPBERow("p0", "One device alone in a cell", "section 6.1, and our requirements", "The default cell: 10 "+
		"MHz, two layers, 18 dB, p = 2·10⁻⁶, control traffic, a queue of 750 KB, 50 ms there and back; 10 s. The "+
		"capacity used is relative to what the same cell carries for a queue that is never empty, from the first "+
		"packet on.")
	used, over := modelMetric(usedFigure, "%", true), flowMetric("delay over propagation, p95", "ms", 0, false,
		func(f lab.Flow) float64 {
			return f.P95 - f.Propagation
		})
	used.Name, over.alsoCompared = "capacity used", true
	r.Metrics = []Metric{used, over, Rate, DelayMean, DrainTime, Lost}
	for _, v := range virtual.Variants {
		c := pbeModelCell(v.Name, &model{makeCase: v.Case,
			instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
				return func(o virtual.Outcome) map[string]float64 {
					return map[string]float64{usedFigure: 100 * float64(o.Flows[0].Rate(0,
						c.Length)) / float64(c.Available(0))}
				}
			}})
		if v.Name != virtual.Variants[0].Name {
			c.Schemes, c.Quick = []string{pbe, pbeAsPaper, "bbr", "cubic"}, 0
		}
		r.Cells = append(r.Cells, c)
	}
	first := r.Cells[0].Name
	r.Points = []Point{
		pbeMetricPoint(first, used, Point{Low: 95, High: 95, PublishedText: "95 % (required)", Aim: AimAtLeast,
			IsLimit: true}),
		pbeMetricPoint(first, over, Point{Low: 30, High: 30, PublishedText: "30 ms (required)", Aim: AimAtMost,
			IsLimit: true}),
	}
	return r
}

// Places of the paper, and of the short form.
const (
	pbePlaces = 40
	pbeQuick  = 2
)

// rowP1FortyPlaces returns row p1: forty places.
func rowP1FortyPlaces(radio.Set) Row {
	r := pbePlacesRow("p1", "2 MB", 2*unit.MB, 3)
	r.Setup += " Row p1b has the same with 500 KB."
	return r
}

// rowP1bShortQueue returns row p1b: the same with a short queue.
func rowP1bShortQueue(radio.Set) Row { return pbePlacesRow("p1b", "500 KB", 500*unit.KB, 2) }

// pbePlacesRow returns a row of forty places.
func pbePlacesRow(id, text string, queue unit.Bytes, reps int) Row {
	r := commonPBERow(id, "Forty places, queue of "+text, "section 6.3.1", fmt.Sprintf("%d places of %v: 5 to 20 MHz, "+
		"one or two layers, a second cell at two of three, signals from 6 to 22 dB that wander, p of 1 to 4·10⁻⁶, "+
		"up to three other devices that come and go, 20 to 80 ms there and back. The device's queue is %s: it "+
		"decides the delays of controllers that fill it (CUBIC, Verus, Allegro, BBR in part). Ratios are computed "+
		"for each place; the median place of a repetition counts.", pbePlaces, pbeLength, text))
	r.Metrics = append(r.Metrics, DrainTime, Carriers)
	r.Places = true
	var all, two, busy, idle []string
	for n := range uint64(pbePlaces) {
		c := pbeModelCell(fmt.Sprintf("place %d", n+1), &model{makeCase: func(seed uint64) virtual.Case {
			c := virtual.Location(n, seed)
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
		network := virtual.Location(n, 0).Network
		if len(network.Cells) > 1 {
			two = append(two, c.Name)
		}
		if len(network.Users) > 1 {
			busy = append(busy, c.Name)
		} else {
			idle = append(idle, c.Name)
		}
	}
	r.Groups = [][]string{all}
	r.addPlacePoints(all, two, busy, idle)
	return r
}

// addPlacePoints adds the points of the paper's section 6.3.1: of all places, of those with two cells, of those with
// other devices, and of those without.
func (r *Row) addPlacePoints(all, two, busy, idle []string) {
	for _, x := range []struct {
		scheme    string
		least     float64
		published string
	}{{"bbr", 1.06, ""}, {"cubic", 2.3, ""}, {"verus", 1.6, ""}, {"copa", 11, ""}, {"allegro", 1, "more"},
		{"vivace", 1, "more"}, {"sprout", 1, "more"}} {
		r.Points = append(r.Points, r.factorPoint(all, x.scheme, Rate, x.least, x.published))
	}
	r.Points = append(r.Points, r.fractionPoint(all, "bbr", DelayP95, 1/1.8, "1/1.8"), r.fractionPoint(all, "cubic",
		DelayP95, 1/1.8, "1/1.8"), r.fractionPoint(all, "verus", DelayP95, 1/3.6, "1/3.6"))
	r.Points = append(r.Points,
		Point{What: "places with two cells where the second was activated", Unit: "%", Low: 100, High: 100,
			Aim: AimAtLeast, Of: perRepValues(two, func(v []float64) float64 {
				n := 0
				for _, x := range v {
					if x > 1 {
						n++
					}
				}
				return 100 * float64(n) / float64(len(v))
			}, Carriers)},
		Point{What: "time in drain and internet, mean of places with other devices", Unit: "%", Low: 18, High: 18,
			Aim: AimNear, Of: perRepValues(busy, meanOfValues, DrainTime)},
		Point{What: "time in drain and internet, mean of places without", Unit: "%", Low: 4, High: 4, Aim: AimNear,
			Of: perRepValues(idle, meanOfValues, DrainTime)})
}

// perRepValues returns a function that makes one value of all cells for each repetition of PBE-CC.
func perRepValues(cells []string, of func([]float64) float64, m Metric) func(Data) []float64 {
	return func(d Data) (all []float64) {
		var by byRep
		for _, c := range cells {
			for _, r := range d.countedResults(c, pbe) {
				if v, ok := m.Of(r); ok {
					by.addRepValue(r.Rep, v)
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

// meanOfValues returns the mean of values.
func meanOfValues(v []float64) float64 { return Summarize(v).Mean }

// rowP2Distributions returns row p2: distributions at six of the places: with one cell and with
// two; without other devices, with one and with three.
func rowP2Distributions(radio.Set) Row {
	r := commonPBERow("p2", "Distributions of rate and delay at six places", "figures 13 and 14",
		fmt.Sprintf("Of the places of p1 the first ones with one cell and with two, without other devices, with "+
			"one and with three; %v.", pbeLength))
	for _, cells := range []int{1, 2} {
		for _, others := range []int{0, 1, 3} {
			n := uint64(0)
			for x := virtual.Location(n, 0).Network; len(x.Cells) != cells ||
				len(x.Users) != others+1; x = virtual.Location(n, 0).Network {
				n++
			}
			c := pbeModelCell(fmt.Sprintf("place %d: %s, %s", n+1, []string{"one cell", "two cells"}[cells-1],
				map[int]string{0: "alone", 1: "one other device", 3: "three other devices"}[others]),
				&model{keepSeries: true, makeCase: func(seed uint64) virtual.Case {
					c := virtual.Location(n, seed)
					c.Length = pbeLength
					return c
				}})
			if len(r.Cells) > 0 {
				c.Quick = 0
			}
			r.Cells = append(r.Cells, c)
		}
	}
	r.CDFs = listCellNames(r.Cells)
	r.Points = []Point{{What: "places " + onFront, Unit: "%", Low: 100, High: 100, PublishedText: "100 % (required)",
		Aim: AimAtLeast, IsLimit: true,
		Of: func(d Data) []float64 {
			var by byRep
			for _, c := range r.Cells {
				for _, ours := range d.countedResults(c.Name, pbe) {
					good := 100.0
					if d.isBehindFront(c.Name, ours) {
						good = 0
					}
					by.addRepValue(ours.Rep, good)
				}
			}
			var all []float64
			for _, v := range by {
				if len(v) > 0 {
					all = append(all, meanOfValues(v))
				}
			}
			return all
		}}}
	return r
}

// onFront says what isBehindFront denies.
const onFront = "where no other scheme has as much rate (within 1 %) and a p95 of the delay that is 1 ms shorter"

// isBehindFront reports whether another scheme has as much rate as PBE-CC in the same repetition, and less delay.
func (d Data) isBehindFront(cell string, ours lab.Result) bool {
	const same, shorter = 0.99, 1 // factor of the rate, and ms
	return slices.ContainsFunc(d[cell], func(x lab.Result) bool {
		return x.Rep == ours.Rep && IsCounted(x) && x.Virtual != nil && ours.Virtual != nil &&
			x.Virtual.Flows[0].Rate >= same*ours.Virtual.Flows[0].Rate &&
			x.Virtual.Flows[0].P95 < ours.Virtual.Flows[0].P95-shorter
	})
}

// rowP3Walk returns row p3: a walk.
func rowP3Walk(radio.Set) Row {
	const length = 40 * time.Second
	r := commonPBERow("p3", "A walk from −85 to −105 dBm and back", "section 6.3.2",
		fmt.Sprintf("Alone in the default cell for %v: 7 s at −85 dBm, 21 s out, 4 s back, 8 s at −85 dBm (the "+
			"times are ours).", length))
	r.Cells = []Cell{pbeModelCell("walk", &model{keepSeries: true, makeCase: func(seed uint64) virtual.Case {
		return virtual.Walk(seed, length)
	}})}
	r.Series, r.CDFs = []string{"walk"}, []string{"walk"}
	at := listCellNames(r.Cells)
	r.Points = []Point{
		r.factorPoint(at, "bbr", Rate, 1, "55 and 55 Mbit/s: 1 times"), r.factorPoint(at, "cubic", Rate, 55./38,
			"55 and 38 Mbit/s: 1.45 times"), r.factorPoint(at, "verus", Rate, 55./41, "55 and 41 Mbit/s: 1.34 times"),
		r.fractionPoint(at, "bbr", DelayP95, 64./156, "64 and 156 ms: 0.41 times"), r.fractionPoint(at, "cubic",
			DelayP95, 64./296, "64 and 296 ms: 0.22 times"), r.fractionPoint(at, "verus", DelayP95, 64./467,
			"64 and 467 ms: 0.14 times"),
	}
	return r
}

// rowP4Competitor returns row p4: a competitor that comes and goes.
func rowP4Competitor(radio.Set) Row {
	const length = 40 * time.Second
	r := commonPBERow("p4", "A competitor of 60 Mbit/s for 4 s of each 8", "section 6.3.3",
		fmt.Sprintf("Two devices at 22 dB "+
			"in the default cell, %v.", length))
	r.Cells = []Cell{pbeModelCell("competitor", &model{keepSeries: true, makeCase: func(seed uint64) virtual.Case {
		return virtual.Competitor(seed, length, 4*time.Second)
	}})}
	r.Series, r.CDFs = []string{"competitor"}, []string{"competitor"}
	at := listCellNames(r.Cells)
	for _, x := range []struct {
		scheme          string
		rate, mean, p95 float64
	}{{"bbr", 62, 147, 227}, {"cubic", 58, 252, 416}, {"verus", 56, 263, 403}} {
		r.Points = append(r.Points, r.factorPoint(at, x.scheme, Rate, 57/x.rate,
			fmt.Sprintf("57 and %g Mbit/s: %.2f times", x.rate, 57/x.rate)),
			r.fractionPoint(at, x.scheme, DelayP95, 71/x.p95, fmt.Sprintf("71 and %g ms: %.2f times", x.p95, 71/x.p95)),
			r.fractionPoint(at, x.scheme, DelayMean, 61/x.mean, fmt.Sprintf("61 and %g ms: %.2f times", x.mean,
				61/x.mean)))
	}
	return r
}

// rowP5TwoFlows returns row p5: two flows of one device.
func rowP5TwoFlows(radio.Set) Row {
	r := commonPBERow("p5", "Two flows of one device", "section 6.3.4", fmt.Sprintf("The default cell, %v; the second "+
		"begins after 2 s. Evaluated from 4 s on. The paper's flows come from two servers with unknown round "+
		"trips; ours have equal ones.", pbeLength))
	smaller := Metric{Name: "smaller flow's part", Unit: "%", More: true, Of: func(x lab.Result) (float64, bool) {
		if x.Virtual == nil || len(x.Virtual.Flows) < 2 {
			return 0, false
		}
		a, b := x.Virtual.Flows[0].Rate, x.Virtual.Flows[1].Rate
		return 100 * min(a, b) / (a + b), true
	}}
	r.Metrics = []Metric{smaller, DelayP95, Rate, flowMetric("rate of the second", "Mbit/s", 1, true,
		func(f lab.Flow) float64 {
			return f.Rate
		})}
	r.Cells = []Cell{pbeModelCell("two flows", &model{keepSeries: true, evaluateFrom: 4 * time.Second,
		makeCase: func(seed uint64) virtual.Case {
			return virtual.OneDevice(seed, pbeLength, pbeLength)
		}})}
	r.Series = []string{"two flows"}
	r.Points = []Point{
		pbeMetricPoint("two flows", smaller, Point{Low: 100 * 26. / 54, High: 100 * 26. / 54,
			PublishedText: "26 and 28 Mbit/s: 48 %", Aim: AimAtLeast}),
		{What: "two flows of BBR: " + smaller.Name, Unit: "%", Low: 100 * 10. / 45, High: 100 * 10. / 45,
			PublishedText: "10 and 35 Mbit/s: 22 %", Aim: AimNear,
			Of: func(d Data) []float64 { return d.Values("two flows", "bbr", smaller) }},
	}
	return r
}

// pbeTurn is how long each number of flows lasts in p6 to p8. The first pbeSettle of it is not
// evaluated.
const (
	pbeTurn   = 10 * time.Second
	pbeSettle = 2 * time.Second
)

// fairnessCell returns a cell in which three devices begin and end in turn, with their fairness
// while there are two of them and three.
func fairnessCell(name string, with func(string) []string, rtts ...time.Duration) Cell {
	return pbeModelCell(name, &model{keepSeries: true, controllers: with, makeCase: func(seed uint64) virtual.Case {
		return virtual.Staggered(seed, pbeTurn, rtts...)
	},
		instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
			return func(o virtual.Outcome) map[string]float64 {
				jain := func(flows int, at ...time.Duration) float64 {
					rates := make([]float64, flows)
					for i := range rates {
						for j := 0; j < len(at); j += 2 {
							rates[i] += float64(o.Flows[i].Rate(at[j]+pbeSettle,
								at[j+1]).Bytes(at[j+1] - at[j] - pbeSettle))
						}
					}
					return 100 * virtual.Jain(rates...)
				}
				late := 0.0
				for i, x := range o.Flows {
					if o.PBE[i] != nil {
						late = max(late, floatMilliseconds(x.Delay(0, c.Length,
							0.95)-c.Flows[i].DelayToLink-c.Flows[i].DelayFromLink))
					}
				}
				all := map[string]float64{jainTwo.Name: jain(2, pbeTurn, 2*pbeTurn, 4*pbeTurn, 5*pbeTurn),
					jainThree.Name: jain(3, 2*pbeTurn, 4*pbeTurn)}
				if late > 0 {
					all[queueMost.Name] = late
				}
				return all
			}
		}})
}

// Metrics of fairness.
var (
	jainTwo   = modelMetric("Jain of two", "of 100", true)
	jainThree = modelMetric("Jain of three", "of 100", true)
	queueMost = modelMetric("delay over propagation, p95, the worst flow of PBE-CC", "ms", false)
)

// fairnessSetup holds for p6 to p8.
var fairnessSetup = fmt.Sprintf("Three devices of the default cell, which begin %v after one another and end in "+
	"the other order, so that there are one, two, three, three, two, one. Jain's index of what they were sent "+
	"while there were two (twice), and three, without the first %v of each.", pbeTurn, pbeSettle)

func fairnessRow(id, title, section, setup string, cells ...Cell) Row {
	r := commonPBERow(id, title, section, fairnessSetup+" "+setup)
	r.Metrics = []Metric{jainTwo, jainThree, queueMost}
	r.Cells, r.Series = cells, listCellNames(cells)
	return r
}

func fairnessPoints(cell string, two, three float64) []Point {
	return []Point{pbeMetricPoint(cell, jainTwo, Point{Low: two, High: two, Aim: AimAtLeast}),
		pbeMetricPoint(cell, jainThree, Point{Low: three, High: three, Aim: AimAtLeast})}
}

const ms = time.Millisecond

// rowP6Fairness returns row p6: fairness among PBE-CC flows.
func rowP6Fairness(radio.Set) Row {
	c := fairnessCell("50 ms", nil, 50*ms, 50*ms, 50*ms)
	c.Schemes = []string{pbe, pbeAsPaper, "bbr", "cubic", "copa"}
	r := fairnessRow("p6", "Devices share a cell", "section 6.4.1", "All have the same scheme.", c)
	r.Points = fairnessPoints(c.Name, 99.97, 98.73)
	return r
}

// rowP7RTTFairness returns row p7: fairness with different round trips.
func rowP7RTTFairness(radio.Set) Row {
	c := fairnessCell("52, 64, 297 ms", nil, 52*ms, 64*ms, 297*ms)
	c.Schemes = []string{pbe, pbeAsPaper, "bbr", "cubic", "copa"}
	r := fairnessRow("p7", "Devices with round trips of 52, 64 and 297 ms share a cell", "section 6.4.2",
		"All have the same scheme.", c)
	r.Points = fairnessPoints(c.Name, 99.74, 99.45)
	return r
}

// rowP8MixedFairness returns row p8: fairness between PBE-CC and other controllers.
func rowP8MixedFairness(radio.Set) Row {
	var cells []Cell
	for _, other := range []string{"bbr", "cubic"} {
		c := fairnessCell("the second has "+other, func(scheme string) []string {
			return []string{scheme, other, scheme}
		}, 50*ms, 50*ms, 50*ms)
		c.Schemes = []string{pbe, pbeAsPaper, other}
		cells = append(cells, c)
	}
	r := fairnessRow("p8", "Devices share a cell with one that uses BBR or CUBIC", "section 6.4.3",
		"The second device has BBR, or CUBIC, the others the scheme.", cells...)
	r.Points = slices.Concat(fairnessPoints(cells[0].Name, 99.96, 98.52), fairnessPoints(cells[1].Name, 99.95, 98.34))
	return r
}

// rowP9Estimates returns row p9: errors of capacity estimates.
func rowP9Estimates(radio.Set) Row {
	r := commonPBERow("p9", "Estimates of capacity against the truth", "section 4.2", "A device of the default cell "+
		"that competes with another one, 20 s: what its monitor reports each 20 ms from 1 s on, against the mean of "+
		"the last 50 subframes as the model knows it. C_p is the capacity, C_f the fair share.")
	var all [4]Metric
	for i, name := range []string{"C_p, median error", "C_p, p95 of the error", "C_f, median error",
		"C_f, p95 of the error"} {
		all[i] = modelMetric(name, "%", false)
	}
	r.Metrics = all[:]
	for _, b := range virtual.Neighbours {
		c := pbeModelCell(b.Name, &model{makeCase: func(seed uint64) virtual.Case {
			c := b.Case(seed)
			c.Length = pbeLength
			return c
		}, instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
			e := c.CompareEstimates(0, time.Second)
			return func(virtual.Outcome) map[string]float64 {
				errors := map[string]float64{}
				for i, v := range [][]float64{e.Physical, e.Fair} {
					slices.Sort(v)
					errors[all[2*i].Name], errors[all[2*i+1].Name] = 100*v[len(v)/2], 100*v[len(v)*95/100]
				}
				return errors
			}
		}})
		c.Schemes = []string{pbe, pbeAsPaper}
		r.Cells = append(r.Cells, c)
		r.Points = append(r.Points, pbeMetricPoint(c.Name, all[0],
			Point{Low: 5, High: 5, PublishedText: "no value (5 % required)", Aim: AimAtMost, IsLimit: true}),
			pbeMetricPoint(c.Name, all[1], Point{Low: 10, High: 10, PublishedText: "no value (10 % required)",
				Aim: AimAtMost, IsLimit: true}))
	}
	return r
}

// rowP10Ablations returns row p10: advantages of the model for PBE-CC are removed.
func rowP10Ablations(radio.Set) Row { return ablationsRow(virtual.Ablations) }

// ablationsRow returns row p10 with some ablations.
func ablationsRow(ablations []virtual.NamedCase) Row {
	r := commonPBERow("p10", "Advantages of the model for PBE-CC, removed one by one", "none: ours",
		"Competing with a device that is always sent 60 Mbit/s, 10 s. A fair share is what the same cell carries for each "+
			"of two who always have data. The paper has no values of it. We require that queues stay shorter than "+
			"BBR's, and that pbe gets 95 % of its share.")
	share := modelMetric(shareFigure, "%", true)
	share.Name = "part of a fair share"
	r.Metrics = []Metric{share, DelayP95, Rate, DelayMean}
	for _, a := range ablations {
		c := pbeModelCell(a.Name, &model{makeCase: a.Case,
			instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
				return func(o virtual.Outcome) map[string]float64 {
					return map[string]float64{shareFigure: 100 * float64(o.Flows[0].Rate(0,
						c.Length)) / float64(c.Share(0))}
				}
			}})
		c.Schemes = []string{pbe, pbeAsPaper, "bbr"}
		r.Cells = append(r.Cells, c)
	}
	for _, c := range r.Cells {
		r.Points = append(r.Points, r.fractionPoint([]string{c.Name}, "bbr", DelayP95, 1, "shorter (required)"),
			pbeMetricPoint(c.Name, share, Point{Low: 95, High: 95, PublishedText: "95 % (required)", Aim: AimAtLeast,
				IsLimit: true}))
	}
	return r
}
