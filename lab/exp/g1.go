// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/vary"
)

// The video of g1.
const (
	g1Segments   = 20
	g1Segment    = 10 * time.Second
	g1SizeSpread = 0.3 // of segments' sizes, which the paper does not give
	g1Reps       = 30
	// g1Stride is the distance between the starts of repetitions in the phones' profiles.
	g1Stride   = 2 * time.Minute
	g1HomeRate = 2 * unit.Mbps
	// g1StepsPerRate is how many steps of 100 ms one rate of a phone covers: half a second.
	g1StepsPerRate = 5
)

var g1Rates = []int{200, 311, 484, 738} // kbit/s

// g1Phones is the mean rate of phones' downlinks in a repetition, as a share of the home line's
// rate. The paper does not give those of its phones.
type g1Phones struct {
	name         string
	low, high    float64
	rates        []int
	hasPublished bool // the published order is expected
}

var g1Kinds = []g1Phones{
	{low: 0.75, high: 1.25, rates: g1Rates, hasPublished: true},
	{name: "the home's rate", low: 1, high: 1, rates: g1Rates[3:], hasPublished: true},
	{name: "half the home's rate", low: 0.4, high: 0.6, rates: g1Rates[3:]},
}

// rowG1Schedulers returns row g1: schedulers of items.
func rowG1Schedulers(radio.Set) Row {
	r := Row{
		ID: "g1", Title: "Item schedulers: segments of a video over ADSL and phones", Source: golPaper + ", schedulers",
		Judged: onloadScheme,
		Setup: fmt.Sprintf("%d segments of a video, of %v each and sizes that vary by ±%.0f %%, over ADSL of "+
			"2/0.512 Mbit/s and one or two phones in the home's WLAN of 20 Mbit/s; 40 ms there and back for ADSL, "+
			"100 ms for phones, whose radio takes %v to wake (idle; lab/radio's 3G), or is awake (connected). In "+
			"virtual time: onload/simulate over what the links of the lab's network would carry, without TCP's "+
			"start-up; the same seed gives the same values. Some cells also run with real packets (mpbond get "+
			"--onload, nginx), with the first repetitions of the same phones, and over kernel MPTCP, mpbond's bond "+
			"and each line alone; virtual time should agree with them within 15 %%. Each repetition has a "+
			"different profile of %v for each phone: rates that lab/vary generates, about a mean drawn from 1.5 "+
			"to 2.5 Mbit/s, which is an assumption. With --traces they are parts of 3G recordings (UMTS, EVDO, "+
			"HSDPA), unscaled, or scaled in cells that name a rate. Orders are those of the mean over bitrates, "+
			"by repetition. The order of RR and MIN depends on the phones' speed relative to the home line: RR "+
			"gives each device the same number of segments, MIN decides all by its first sample of each. Further "+
			"cells have phones exactly as fast, or half as fast, to show that.",
			g1Segments, g1Segment, 100*g1SizeSpread, phoneRadio().Promotion.Time, g1Stride),
		Metrics: []Metric{Time, Wasted, EndApart},
	}
	order := func(where string, cells []string) {
		for _, pair := range [][2]string{{onloadGRD, onloadRR}, {onloadRR, onloadMIN}} {
			r.Points = append(r.Points, Point{What: fmt.Sprintf("%s: time of %s relative to %s", where, pair[0],
				pair[1]), Unit: "%", PublishedText: "less", Aim: AimAnyReduction,
				Of: func(d Data) []float64 { return d.mergeRecorded().orderChanges(cells, pair) }})
		}
	}
	var real []string
	for _, kind := range g1Kinds {
		for phones := 1; phones <= 2; phones++ {
			for _, idle := range []bool{true, false} {
				if !idle && kind.name != "" {
					continue
				}
				where := g1CellSuffix(kind, phones, idle)
				var cells []string
				for _, kbps := range kind.rates {
					c := Cell{Name: fmt.Sprintf("%d kbit/s, %s", kbps, where), Stride: g1Stride, VirtualTime: true,
						Reps: g1Reps, Quick: 1,
						Schemes: []string{onloadScheme, onloadGRD, onloadRR, onloadMIN, onloadQueue},
						Items:   func(seed uint64, _ int) []unit.Bytes { return g1SegmentSizes(seed, kbps) }}
					r.Cells, cells = append(r.Cells, kind.withRecordings(c, g1ADSLCase(phones, g1Reps, idle))...),
						append(cells, c.Name)
					r.Points = append(r.Points, bestSchedulerPoint(c))
					if kind.name == "" && idle && (kbps == g1Rates[1] || kbps == g1Rates[3]) {
						x := g1RealCell(c, phones)
						r.Cells, real = append(r.Cells,
							kind.withRecordings(x, g1ADSLCase(phones, g1RealReps, idle))...), append(real, x.Name)
					}
				}
				if kind.hasPublished {
					order(where, cells)
				}
			}
		}
	}
	for _, s := range g1RealSchemes {
		r.Points = append(r.Points, agreementPoint(r.Cells, s, s))
	}
	r.Groups = [][]string{real}
	r.Spread = []string{fmt.Sprintf("%d kbit/s, %s", g1Rates[3], g1CellSuffix(g1Kinds[0], 2, true))}
	return r
}

// g1RealReps is the number of real transfers. Some take over a minute.
const g1RealReps = 2

// g1RealSchemes are compared with virtual time.
var g1RealSchemes = []string{onloadScheme, onloadGRD, onloadRR, onloadMIN}

// withRecordings returns the cell with generated rates of phones (lab/vary), and with recorded
// ones.
func (k g1Phones) withRecordings(c Cell, of g1Case) []Cell {
	c.Network = func(seed uint64) (*lab.Topology, error) { return k.buildHomeTopology(seed, "", of) }
	traced := c
	traced.Name += recordedMark
	traced.Network, traced.FromRecordings = nil, func(dir string) (*lab.Topology, error) {
		return k.buildHomeTopology(0, dir, of)
	}
	return []Cell{c, traced}
}

// g1RealCell returns the same cell with real packets and further schemes.
func g1RealCell(c Cell, phones int) Cell {
	c.Name += realPackets
	c.VirtualTime, c.Reps, c.Quick = false, g1RealReps, 0
	if phones == 1 {
		c.Quick = 1
	}
	c.Schemes = append(slices.Clone(g1RealSchemes), mptcp, Product, "single")
	for i := range phones {
		c.Schemes = append(c.Schemes, fmt.Sprint("single:helper", i+1))
	}
	return c.limitSchemeReps(1, c.Schemes[len(g1RealSchemes)+2:]...)
}

// g1Case is a home line with a number of phones and repetitions. idle says that the phones' radios
// sleep at first.
type g1Case struct {
	drawName     string // seeds the draws
	down, up     string // of the home line; down in Mbit/s
	phones, reps int
	idle         bool
}

// g1ADSLCase returns a case with g1's own home line.
func g1ADSLCase(phones, reps int, idle bool) g1Case {
	return g1Case{"g1", "2", "512kbit/s", phones, reps, idle}
}

// g1CellSuffix returns the part of a cell's name that describes the phones.
func g1CellSuffix(kind g1Phones, phones int, idle bool) string {
	text := fmt.Sprintf("%d phone", phones)
	if phones > 1 {
		text += "s"
	}
	if idle {
		text += ", idle"
	} else {
		text += ", connected"
	}
	if kind.name != "" {
		text += ", " + kind.name
	}
	return text
}

// g1SegmentSizes returns the sizes of the segments.
func g1SegmentSizes(seed uint64, kbps int) (all []unit.Bytes) {
	rng := vary.Rand(seed, "g1/video")
	size := float64((unit.Rate(kbps) * unit.Kbps).Bytes(g1Segment))
	for range g1Segments {
		all = append(all, unit.Bytes(size*(1+g1SizeSpread*(2*rng.Float64()-1))))
	}
	return all
}

// buildHomeTopology returns the home's network. Each phone has an independently drawn profile for
// each repetition.
func (k g1Phones) buildHomeTopology(seed uint64, dir string, c g1Case) (*lab.Topology, error) {
	v := linkProfiles{}
	for phone := 1; phone <= c.phones; phone++ {
		all := vary.Profile{Step: vary.Step}
		for i := range c.reps {
			p, err := k.drawProfile(seed, dir, fmt.Sprintf("%s/phone %d/%d", c.drawName, phone, i))
			if err != nil {
				return nil, err
			}
			all.Rates = append(all.Rates, p.Rates...)
		}
		v[fmt.Sprint("hs", phone)] = all.Downsampled(g1StepsPerRate)
	}
	t, err := v.applyToTriangle(c.down+strings.Repeat(",1/20", c.phones), time.Duration(c.reps)*g1Stride)
	if err != nil {
		return nil, err
	}
	for name := range v {
		if c.idle {
			t.Link[name].SetRadio(phoneRadio())
		}
	}
	return t, setHomeLinks(t, c.up)
}

// drawProfile returns one profile of a phone. name seeds the draw.
func (k g1Phones) drawProfile(seed uint64, dir, name string) (vary.Profile, error) {
	rng := vary.Rand(seed, name)
	mean := unit.Rate(float64(g1HomeRate) * (k.low + rng.Float64()*(k.high-k.low)))
	if dir == "" {
		return vary.LTE(rng, mean, g1Stride), nil
	}
	of := g1Recordings[rng.IntN(len(g1Recordings))]
	p, err := readRecording(dir, of[rng.IntN(len(of))])
	if err != nil {
		return p, err
	}
	p = p.Rotated(rng.IntN(len(p.Rates)), g1Stride)
	if k.name != "" {
		p = p.Scaled(mean)
	}
	return p, nil
}

// g1Recordings are recordings of 3G by technology: UMTS, EVDO and HSDPA.
var g1Recordings = [][]string{
	{"mahimahi/TMobile-UMTS-driving.down"}, {"mahimahi/Verizon-EVDO-driving.down"},
	{"norway3g/norway_bus_1", "norway3g/norway_car_2", "norway3g/norway_ferry_2", "norway3g/norway_metro_10",
		"norway3g/norway_metro_2", "norway3g/norway_metro_3",
		"norway3g/norway_train_1", "norway3g/norway_train_12", "norway3g/norway_train_13", "norway3g/norway_train_14",
		"norway3g/norway_train_16"},
}
