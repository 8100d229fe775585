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
	onePhone    = onloads + ":helpers=1"
	onePhoneGRD = onloadGRD + ":helpers=1"
)

// phonesAlone are those of each phone alone.
var phonesAlone = []string{"single:helper1", "single:helper2"}

// g2Shares are pre-buffers: shares of the video that must be there before it is played.
var g2Shares = []float64{0.2, 0.4, 0.6, 0.8}

// prebuffer is a metric: when a share of the items is there, from the first on without a gap.
func prebuffer(share float64) Metric {
	return Metric{Name: fmt.Sprintf("pre-buffer of %g %%", 100*share), Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return r.Until(int(math.Ceil(share*float64(len(r.Items)) - 1e-9)))
	}}
}

// byPhones is what helpers brought.
var byPhones = Metric{Name: "by phones", Unit: "Mbit/s", More: true, Of: func(r lab.Result) (rate float64, told bool) {
	for device, n := range r.Devices {
		if device != "primary" {
			rate += lab.Payload * float64(8*n) / 1e6 / r.Seconds
		}
	}
	return rate, r.Seconds > 0
}}

func g2Cell(home int, how string) string {
	return fmt.Sprintf("home %d (%g/%g), %s", home+1, g2Homes[home][0], g2Homes[home][1], how)
}

// g2: videos at five homes.
func g2(radio.Set) Row {
	r := Row{
		ID: "g2", Title: "A video over home lines and phones: download and pre-buffer", Source: threeGOL + ", in the wild", Ours: onloads,
		Setup: fmt.Sprintf("20 segments of a video of 200 s and %d kbit/s, all of one size, over the published rates of five homes' ADSL and one or two phones in WLANs of 20 Mbit/s; 40 ms there and back for ADSL, 100 ms for phones. What phones had is not told: they have 1.5 to 2.5 Mbit/s each on average, as in g1, which is an assumption, and with --traces those 3G recordings; the same in all homes (measured alone at the first one), and other ones in each repetition. Idle phones' radios need %v to wake (lab/radio's 3G). The home line and a phone alone, kernel MPTCP and mpbond's bond fetch segment after segment over one kept connection, as players do (curl); onloading is told all URLs. Changes of %s are those of 3GOL's scheduler, of %s of what users get. What perfect links could do bounds each: home / (home + phones). So it is measured beside, what both phones bring alone, and in virtual time, with phones just as quick as a published change needs, whether it is reached.",
			g2Kbps, g3G().Promotion.Time, onloadGRD, onloads),
		Lacks:   "what the phones had, which is not told; players",
		Metrics: []Metric{Time, Rate, Efficient, byPhones, Wasted},
	}
	for _, share := range g2Shares {
		r.Metrics = append(r.Metrics, prebuffer(share))
	}
	few := []string{mptcp, Product, onePhoneGRD}
	var connected, idle []string
	for i, home := range g2Homes {
		for _, sleeps := range []bool{false, true} {
			c := Cell{Name: g2Cell(i, "phones connected"), Items: g2Video(g2Kbps), Reps: g2Reps, Stride: g1Stride,
				Schemes: append([]string{onloads, onloadGRD, onePhone, "single"}, few...)}.fewer(1, few...)
			if i == 0 {
				c.Quick, c.Schemes = 1, append(c.Schemes, phonesAlone...)
			}
			if sleeps {
				c.Name, c.Schemes, c.Fewer, c.Reps, c.Quick = g2Cell(i, "phones idle"), []string{onloads, onloadGRD}, nil, 2, 0
				idle = append(idle, c.Name)
			} else {
				connected = append(connected, c.Name)
			}
			r.Cells = append(r.Cells, c.over3G(home, sleeps)...)
		}
		for _, s := range []string{onloadGRD, onloads} {
			r.Points = append(r.Points, Point{What: connected[i] + ": time of " + s + " beside the home line", Unit: "%", Low: -72, High: -38, Aim: Change,
				Of: func(d Data) []float64 { return d.both(connected[i], [2]string{s, "single"}, Time) }})
		}
		need := home[0] * (1/0.62 - 1)
		r.Points = append(r.Points, Point{What: fmt.Sprintf("%s: what both phones bring alone, beside what a change by -38 %% needs at least", connected[i]), Unit: "Mbit/s", Low: math.Round(100*need) / 100, High: math.Round(100*need) / 100, Aim: More,
			Of: func(d Data) []float64 { return d.added(connected[0], phonesAlone, Rate) }})
	}
	r.Points = append(r.Points,
		Point{What: "all homes: time with a second phone beside one", Unit: "%", Low: -26, High: -5.9, Aim: Change,
			Of: func(d Data) []float64 { return d.pooled(connected, [2]string{onloads, onePhone}, []Metric{Time}) }},
		Point{What: "all homes, phones idle: time of onload beside the home line", Unit: "%", Low: -72, High: -38, Aim: Change,
			Of: func(d Data) (all []float64) {
				for i := range idle {
					for _, of := range sources {
						all = append(all, d.across([2]string{idle[i] + of, connected[i] + of}, [2]string{onloads, "single"}, Time)...)
					}
				}
				return all
			}})
	var pre []Metric
	for _, share := range g2Shares {
		pre = append(pre, prebuffer(share))
	}
	for _, s := range []string{onloadGRD, onloads} {
		changes := func(d Data) []float64 { return d.pooled(connected, [2]string{s, "single"}, pre) }
		r.Points = append(r.Points,
			Point{What: s + ": pre-buffers of 20 to 80 %, all homes, beside the home line", Unit: "%", Low: -47, High: -47, Aim: Change, Of: changes},
			Point{What: s + ": how many times as quick, in the mean", Unit: "times", Low: 2.1, High: 2.1, Aim: Times, Of: func(d Data) []float64 { return quicker(changes(d)) }},
			Point{What: s + ": how many times as quick, at most", Unit: "times", Low: 3.8, High: 3.8, Aim: Times, Of: func(d Data) []float64 {
				return d.most(connected, [2]string{s, "single"}, pre)
			}})
	}
	r.g2Needed()
	return r
}

// g2Needed adds cells whose phones are as quick as published changes need, in virtual time,
// and one with real packets.
func (r *Row) g2Needed() {
	for i, home := range g2Homes {
		for _, change := range []float64{-38, -72} {
			times := 1 / (1 + change/100)
			phone := math.Ceil(100*home[0]*(times-1)/2) / 100
			how := fmt.Sprintf("phones of %g each, for %g %%", phone, change)
			c := Cell{Name: g2Cell(i, how), Items: g2Video(g2Kbps), Reps: 1, Virtual: true, Schemes: []string{onloads, onloadGRD, "single"},
				Net: func(uint64) (*lab.Topology, error) { return steady3G(home, phone) }}
			cells := []Cell{c}
			if i == 0 && change == -72 {
				c.Name, c.Virtual, c.Reps, c.Schemes = g2Cell(i, how+", real packets"), false, 2, append(c.Schemes, mptcp, Product)
				cells = append(cells, c)
			}
			for _, c := range cells {
				r.Cells = append(r.Cells, c)
				r.Points = append(r.Points, Point{What: c.Name + ": how many times as quick as the home line " + onloads + " is", Unit: "times", Low: math.Round(100*times) / 100, High: math.Round(100*times) / 100, Aim: Near,
					Of: func(d Data) []float64 { return quicker(d.Changes(c.Name, [2]string{onloads, "single"}, Time)) }})
			}
		}
	}
}

// g2Video are segments of 10 s of one size.
func g2Video(kbps int) func(uint64, int) []unit.Bytes {
	return func(uint64, int) (all []unit.Bytes) {
		for range g1Segments {
			all = append(all, (unit.Rate(kbps) * unit.Kbps).Bytes(g1Segment))
		}
		return all
	}
}

// g3G is the radio of phones.
func g3G() radio.Model {
	m, _ := radio.Sets[0].Model(radio.UMTS) // which has it
	return m
}

// over3G is the cell at a home with two phones of 3G, whose radios sleep or not: with
// rates from lab/vary, and recorded ones.
func (c Cell) over3G(home [2]float64, sleeps bool) []Cell {
	return g1Kinds[0].both(c, g1Case{of: "3G", down: fmt.Sprintf("%g", home[0]), up: fmt.Sprintf("%gMbit/s", home[1]),
		phones: len(phonesAlone), reps: c.Reps, idle: sleeps})
}

// steady3G is a home with two phones of one rate each.
func steady3G(home [2]float64, phone float64) (*lab.Topology, error) {
	t, err := lab.House(fmt.Sprintf("%g", home[0]) + strings.Repeat(fmt.Sprintf(",%g/50", phone), len(phonesAlone)))
	if err != nil {
		return nil, err
	}
	return t, onloadHome(t, fmt.Sprintf("%gMbit/s", home[1]))
}

// sources are what follows a cell's name: phones' rates are made, or recorded.
var sources = []string{"", recordedMark}

// both are the changes in a cell, or in that of recordings, whichever was run.
func (d Data) both(cell string, pair [2]string, m Metric) (all []float64) {
	for _, of := range sources {
		all = append(all, d.Changes(cell+of, pair, m)...)
	}
	return all
}

// most is by how many times a scheme is as quick as another one at most, in each
// repetition.
func (d Data) most(cells []string, pair [2]string, metrics []Metric) (times []float64) {
	for _, m := range metrics {
		for _, c := range cells {
			for _, of := range sources {
				d.each(c+of, pair, m, func(rep int, ours, base float64) {
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

// pooled are changes in several metrics and cells.
func (d Data) pooled(cells []string, pair [2]string, metrics []Metric) (all []float64) {
	for _, m := range metrics {
		for _, c := range cells {
			all = append(all, d.both(c, pair, m)...)
		}
	}
	return all
}

// added is what several schemes have together in a metric, by repetition.
func (d Data) added(cell string, schemes []string, m Metric) (sums []float64) {
	for _, of := range sources {
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

// quicker are changes of times as by how many times one is as quick.
func quicker(percent []float64) (times []float64) {
	for _, v := range percent {
		times = append(times, 1/(1+v/100))
	}
	return times
}
