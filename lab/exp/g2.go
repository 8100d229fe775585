// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// g2Homes are rates of home lines in Mbit/s, down and up.
var g2Homes = [][2]float64{{6.48, 0.83}, {21.64, 2.77}, {8.67, 0.62}, {6.20, 0.65}, {6.82, 0.58}}

const (
	g2Kbps = 738 // of the video: the largest of g1Rates
	g2Reps = 3
)

// Schemes of onloading over one phone.
const (
	onePhone    = onloadScheme + ":helpers=1"
	onePhoneGRD = onloadGRD + ":helpers=1"
)

// phonesAlone are the schemes of each phone alone.
var phonesAlone = []string{"single:helper1", "single:helper2"}

// g2Shares are pre-buffers: shares of the video to fetch before playing.
var g2Shares = []float64{0.2, 0.4, 0.6, 0.8}

// prebufferMetric returns the metric of when a share of the items is complete, from the first on
// without a gap.
func prebufferMetric(share float64) Metric {
	return Metric{Name: fmt.Sprintf("pre-buffer of %g %%", 100*share), Unit: "s", Of: func(r lab.Result) (float64,
		bool) {
		return r.ItemsDone(int(math.Ceil(share*float64(len(r.Items)) - 1e-9)))
	}}
}

// helperRate is the rate through helpers.
var helperRate = Metric{Name: "by phones", Unit: "Mbit/s", More: true, Of: func(r lab.Result) (rate float64, ok bool) {
	for device, n := range r.Devices {
		if device != "primary" {
			rate += lab.PayloadShare * float64(8*n) / 1e6 / r.Seconds
		}
	}
	return rate, r.Seconds > 0
}}

func g2CellName(home int, how string) string {
	return fmt.Sprintf("home %d (%g/%g), %s", home+1, g2Homes[home][0], g2Homes[home][1], how)
}

// rowG2HomeVideos returns row g2: videos at five homes.
func rowG2HomeVideos(radio.Set) Row {
	r := Row{
		ID: "g2", Title: "A video over home lines and phones: download and pre-buffer", Source: golPaper +
			", in the wild", Judged: onloadScheme,
		Setup: fmt.Sprintf("20 segments of a video of 200 s and %d kbit/s, all of one size, over the published "+
			"rates of five homes' ADSL and one or two phones in WLANs of 20 Mbit/s; 40 ms there and back for "+
			"ADSL, 100 ms for phones. The paper does not give the phones' rates: they have 1.5 to 2.5 Mbit/s each "+
			"on average, as in g1, which is an assumption, or with --traces those 3G recordings. They are the "+
			"same in all homes (measured alone at the first one) and differ between repetitions. Idle phones' "+
			"radios need %v to wake (lab/radio's 3G). The home line and a phone alone, kernel MPTCP and mpbond's "+
			"bond fetch segment after segment over one kept connection, as players do (curl); onloading knows all "+
			"URLs. Changes of %s are those of 3GOL's scheduler, changes of %s those of mpbond's default. Perfect "+
			"links bound each change: home / (home + phones). Therefore the rate of both phones alone is measured "+
			"too, and cells in virtual time have phones just as fast as a published change needs, to see whether "+
			"it is reached.",
			g2Kbps, phoneRadio().Promotion.Time, onloadGRD, onloadScheme),
		NotCovered: "the phones' rates, which the paper does not give; players",
		Metrics:    []Metric{Time, Rate, BoundShare, helperRate, Wasted},
	}
	for _, share := range g2Shares {
		r.Metrics = append(r.Metrics, prebufferMetric(share))
	}
	few := []string{mptcp, Product, onePhoneGRD}
	var connected, idle []string
	for i, home := range g2Homes {
		for _, sleeps := range []bool{false, true} {
			c := Cell{Name: g2CellName(i, "phones connected"), Items: g2SegmentSizes(g2Kbps), Reps: g2Reps, Stride: g1Stride,
				Schemes: append([]string{onloadScheme, onloadGRD, onePhone, "single"}, few...)}.limitSchemeReps(1, few...)
			if i == 0 {
				c.Quick, c.Schemes = 1, append(c.Schemes, phonesAlone...)
			}
			if sleeps {
				c.Name, c.Schemes, c.RepsByScheme, c.Reps, c.Quick = g2CellName(i, "phones idle"),
					[]string{onloadScheme, onloadGRD}, nil, 2, 0
				idle = append(idle, c.Name)
			} else {
				connected = append(connected, c.Name)
			}
			r.Cells = append(r.Cells, c.withPhones3G(home, sleeps)...)
		}
		for _, s := range []string{onloadGRD, onloadScheme} {
			r.Points = append(r.Points, Point{What: connected[i] + ": time of " + s + " relative to the home line",
				Unit: "%", Low: -72, High: -38, Aim: AimReduction,
				Of: func(d Data) []float64 { return d.sourceChanges(connected[i], [2]string{s, "single"}, Time) }})
		}
		need := home[0] * (1/0.62 - 1)
		r.Points = append(r.Points, Point{What: fmt.Sprintf("%s: rate of both phones alone, and the least that a "+
			"change by -38 %% needs", connected[i]), Unit: "Mbit/s", Low: math.Round(100*need) / 100,
			High: math.Round(100*need) / 100, Aim: AimAtLeast, IsLimit: true,
			Of: func(d Data) []float64 { return d.sumOfSchemes(connected[0], phonesAlone, Rate) }})
	}
	r.Points = append(r.Points,
		Point{What: "all homes: time with a second phone relative to one", Unit: "%", Low: -26, High: -5.9,
			Aim: AimReduction,
			Of: func(d Data) []float64 {
				return d.metricChanges(connected, [2]string{onloadScheme, onePhone}, []Metric{Time})
			}},
		Point{What: "all homes, phones idle: time of onload relative to the home line", Unit: "%", Low: -72, High: -38,
			Aim: AimReduction,
			Of: func(d Data) (all []float64) {
				for i := range idle {
					for _, of := range sourceSuffixes {
						all = append(all, d.crossChanges([2]string{idle[i] + of, connected[i] + of},
							[2]string{onloadScheme, "single"}, Time)...)
					}
				}
				return all
			}})
	var pre []Metric
	for _, share := range g2Shares {
		pre = append(pre, prebufferMetric(share))
	}
	for _, s := range []string{onloadGRD, onloadScheme} {
		changes := func(d Data) []float64 { return d.metricChanges(connected, [2]string{s, "single"}, pre) }
		r.Points = append(r.Points,
			Point{What: s + ": pre-buffers of 20 to 80 %, all homes, relative to the home line", Unit: "%", Low: -47,
				High: -47, Aim: AimReduction, Of: changes},
			Point{What: s + ": mean speedup", Unit: "times", Low: 2.1, High: 2.1, Aim: AimFactor,
				Of: func(d Data) []float64 {
					return changesToSpeedups(changes(d))
				}},
			Point{What: s + ": largest speedup", Unit: "times", Low: 3.8, High: 3.8, Aim: AimFactor,
				Of: func(d Data) []float64 {
					return d.maxSpeedups(connected, [2]string{s, "single"}, pre)
				}})
	}
	r.addG2Needed()
	return r
}

// addG2Needed adds cells with phones as fast as published changes need, in virtual time, and one
// with real packets.
func (r *Row) addG2Needed() {
	for i, home := range g2Homes {
		for _, change := range []float64{-38, -72} {
			times := 1 / (1 + change/100)
			phone := math.Ceil(100*home[0]*(times-1)/2) / 100
			how := fmt.Sprintf("phones of %g each, for %g %%", phone, change)
			c := Cell{Name: g2CellName(i, how), Items: g2SegmentSizes(g2Kbps), Reps: 1, VirtualTime: true,
				Schemes: []string{onloadScheme, onloadGRD, "single"},
				Network: func(uint64) (*lab.Topology, error) { return steady3GTopology(home, phone) }}
			cells := []Cell{c}
			if i == 0 && change == -72 {
				c.Name, c.VirtualTime, c.Reps, c.Schemes = g2CellName(i, how+", real packets"), false, 2,
					append(c.Schemes, mptcp, Product)
				cells = append(cells, c)
			}
			for _, c := range cells {
				r.Cells = append(r.Cells, c)
				r.Points = append(r.Points, Point{What: c.Name + ": speedup of " + onloadScheme + " over the home line",
					Unit: "times", Low: math.Round(100*times) / 100, High: math.Round(100*times) / 100, Aim: AimNear,
					IsFitted: true,
					Of: func(d Data) []float64 {
						return changesToSpeedups(d.Changes(c.Name, [2]string{onloadScheme, "single"}, Time))
					}})
			}
		}
	}
}

// g2SegmentSizes returns segments of 10 s of one size.
func g2SegmentSizes(kbps int) func(uint64, int) []unit.Bytes {
	return func(uint64, int) (all []unit.Bytes) {
		for range g1Segments {
			all = append(all, (unit.Rate(kbps) * unit.Kbps).Bytes(g1Segment))
		}
		return all
	}
}

// phoneRadio returns the radio of phones.
func phoneRadio() radio.Model {
	m, _ := radio.Sets[0].Model(radio.UMTS) // it has one
	return m
}

// withPhones3G returns the cell at a home with two 3G phones, whose radios sleep or not: with
// generated and with recorded rates.
func (c Cell) withPhones3G(home [2]float64, sleeps bool) []Cell {
	return g1Kinds[0].withRecordings(c, g1Case{drawName: "3G", down: fmt.Sprintf("%g", home[0]),
		up:     fmt.Sprintf("%gMbit/s", home[1]),
		phones: len(phonesAlone), reps: c.Reps, idle: sleeps})
}

// steady3GTopology returns a home with two phones of one rate.
func steady3GTopology(home [2]float64, phone float64) (*lab.Topology, error) {
	t, err := lab.Triangle(fmt.Sprintf("%g", home[0]) + strings.Repeat(fmt.Sprintf(",%g/50", phone), len(phonesAlone)))
	if err != nil {
		return nil, err
	}
	return t, setHomeLinks(t, fmt.Sprintf("%gMbit/s", home[1]))
}

// sourceSuffixes end the names of cells by the source of phones' rates: generated or recorded.
var sourceSuffixes = []string{"", recordedMark}

// sourceChanges returns the changes in a cell, or in its recorded variant, whichever was run.
func (d Data) sourceChanges(cell string, pair [2]string, m Metric) (all []float64) {
	for _, of := range sourceSuffixes {
		all = append(all, d.Changes(cell+of, pair, m)...)
	}
	return all
}

// maxSpeedups returns the largest speedup of a scheme over another one in each repetition.
func (d Data) maxSpeedups(cells []string, pair [2]string, metrics []Metric) (times []float64) {
	for _, m := range metrics {
		for _, c := range cells {
			for _, of := range sourceSuffixes {
				d.forEachPair(c+of, pair, m, func(rep int, ours, base float64) {
					for len(times) <= rep {
						times = append(times, 0)
					}
					if ours > 0 {
						times[rep] = max(times[rep], base/ours)
					}
				})
			}
		}
	}
	return slices.DeleteFunc(times, func(v float64) bool { return v == 0 })
}

// metricChanges returns the changes in several metrics and cells.
func (d Data) metricChanges(cells []string, pair [2]string, metrics []Metric) (all []float64) {
	for _, m := range metrics {
		for _, c := range cells {
			all = append(all, d.sourceChanges(c, pair, m)...)
		}
	}
	return all
}

// sumOfSchemes returns the sum of several schemes' values of a metric, by repetition.
func (d Data) sumOfSchemes(cell string, schemes []string, m Metric) (sums []float64) {
	for _, of := range sourceSuffixes {
		c := cell + of
		var columns [][]float64
		least := math.MaxInt
		for _, s := range schemes {
			columns = append(columns, d.Values(c, s, m))
			least = min(least, len(columns[len(columns)-1]))
		}
		for i := range least {
			sum := 0.0
			for _, column := range columns {
				sum += column[i]
			}
			sums = append(sums, sum)
		}
	}
	return sums
}

// changesToSpeedups converts changes of times in percent into speedups.
func changesToSpeedups(percent []float64) (times []float64) {
	for _, v := range percent {
		times = append(times, 1/(1+v/100))
	}
	return times
}
