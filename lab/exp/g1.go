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
	g1Segments = 20
	g1Segment  = 10 * time.Second
	g1Spread   = 0.3 // of segments' sizes, which the paper does not tell
	g1Reps     = 30
	// g1Stride is how far apart repetitions begin in what happens to the phones.
	g1Stride = 2 * time.Minute
	g1Home   = 2 * unit.Mbps
	// g1Coarser is of how many steps phones' rates are the mean: half a second.
	g1Coarser = 5
)

var g1Rates = []int{200, 311, 484, 738} // kbit/s

// g1Phones are phones' downlinks: what these have on average in a repetition, as a
// share of the home line's rate. Those of 3GOL's phones are not told.
type g1Phones struct {
	name      string
	low, high float64
	rates     []int
	told      bool // the published order is asked of it
}

var g1Kinds = []g1Phones{
	{low: 0.75, high: 1.25, rates: g1Rates, told: true},
	{name: "the home's rate", low: 1, high: 1, rates: g1Rates[3:], told: true},
	{name: "half the home's rate", low: 0.4, high: 0.6, rates: g1Rates[3:]},
}

// g1: schedulers.
func g1(radio.Set) Row {
	r := Row{
		ID: "g1", Title: "Item schedulers: segments of a video over ADSL and phones", Source: threeGOL + ", schedulers", Ours: onloads,
		Setup: fmt.Sprintf("%d segments of a video, of %v each and sizes that vary by ±%.0f %%, over ADSL of 2/0.512 Mbit/s and one or two phones in the home's WLAN of 20 Mbit/s; 40 ms there and back for ADSL, 100 ms for phones, whose radio takes %v to wake (idle; lab/radio's 3G), or is awake (connected). In virtual time: onload/simulate over what the links of the lab's network would carry, without what TCP takes to begin; the same seed makes the same figures. Some cells are made with real packets too (mpbond get --onload, nginx), with the first repetitions of the same phones, beside kernel MPTCP, mpbond's bond and each line alone; virtual time is to agree with them within 15 %%. Each repetition has another piece of %v of each phone's time: rates that vary as lab/vary makes them, about a mean that is drawn from 1.5 to 2.5 Mbit/s, which is an assumption; with --traces pieces of 3G recordings (UMTS, EVDO, HSDPA), as they are, or, in cells that name a rate, scaled to it. Orders are in the mean of the bitrates, repetition by repetition. How RR and MIN stand to each other is decided by how quick phones are beside the home line: RR gives each device as many segments, MIN all by its first sample of each. Cells in which they are exactly as quick, or half as quick, are there to show it.",
			g1Segments, g1Segment, 100*g1Spread, g3G().Promotion.Time, g1Stride),
		Metrics: []Metric{Time, Wasted, EndApart},
	}
	order := func(where string, cells []string) {
		for _, pair := range [][2]string{{onloadGRD, onloadRR}, {onloadRR, onloadMIN}} {
			r.Points = append(r.Points, Point{What: fmt.Sprintf("%s: time of %s beside %s", where, pair[0], pair[1]), Unit: "%", Told: "less", Aim: Falls,
				Of: func(d Data) []float64 { return d.plain().order(cells, pair) }})
		}
	}
	var real []string
	for _, kind := range g1Kinds {
		for phones := 1; phones <= 2; phones++ {
			for _, idle := range []bool{true, false} {
				if !idle && kind.name != "" {
					continue
				}
				where := g1Where(kind, phones, idle)
				var cells []string
				for _, kbps := range kind.rates {
					c := Cell{Name: fmt.Sprintf("%d kbit/s, %s", kbps, where), Stride: g1Stride, Virtual: true, Reps: g1Reps, Quick: 1,
						Schemes: []string{onloads, onloadGRD, onloadRR, onloadMIN, onloadQueue},
						Items:   func(seed uint64, _ int) []unit.Bytes { return g1Video(seed, kbps) }}
					r.Cells, cells = append(r.Cells, kind.both(c, g1Line(phones, g1Reps, idle))...), append(cells, c.Name)
					r.Points = append(r.Points, besideBestOf(c))
					if kind.name == "" && idle && (kbps == g1Rates[1] || kbps == g1Rates[3]) {
						x := g1Real(c, phones)
						r.Cells, real = append(r.Cells, kind.both(x, g1Line(phones, g1RealReps, idle))...), append(real, x.Name)
					}
				}
				if kind.told {
					order(where, cells)
				}
			}
		}
	}
	for _, s := range g1RealSchemes {
		r.Points = append(r.Points, agree(r.Cells, s, s))
	}
	r.Together = [][]string{real}
	r.Spread = []string{fmt.Sprintf("%d kbit/s, %s", g1Rates[3], g1Where(g1Kinds[0], 2, true))}
	return r
}

// g1RealReps is how often real transfers are made, of which some take over a minute.
const g1RealReps = 2

// g1RealSchemes are those that are compared with virtual time.
var g1RealSchemes = []string{onloads, onloadGRD, onloadRR, onloadMIN}

// both are the cell with phones' rates as lab/vary makes them, and recorded ones.
func (k g1Phones) both(c Cell, of g1Case) []Cell {
	c.Net = func(seed uint64) (*lab.Topology, error) { return k.network(seed, "", of) }
	traced := c
	traced.Name += recordedMark
	traced.Net, traced.Traced = nil, func(dir string) (*lab.Topology, error) { return k.network(0, dir, of) }
	return []Cell{c, traced}
}

// g1Real is the same cell with real packets, beside others than onloading.
func g1Real(c Cell, phones int) Cell {
	c.Name += realPackets
	c.Virtual, c.Reps, c.Quick = false, g1RealReps, 0
	if phones == 1 {
		c.Quick = 1
	}
	c.Schemes = append(slices.Clone(g1RealSchemes), mptcp, Product, "single")
	for i := range phones {
		c.Schemes = append(c.Schemes, fmt.Sprint("single:helper", i+1))
	}
	return c.fewer(1, c.Schemes[len(g1RealSchemes)+2:]...)
}

// g1Case is a home line, how many phones there are, for how many repetitions, and whether
// their radios sleep at first.
type g1Case struct {
	of           string // whose draws they are
	down, up     string // of the home line; down in Mbit/s
	phones, reps int
	idle         bool
}

// g1Line is a case of g1's own home line.
func g1Line(phones, reps int, idle bool) g1Case {
	return g1Case{"g1", "2", "512kbit/s", phones, reps, idle}
}

func g1Where(kind g1Phones, phones int, idle bool) string {
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

// g1Video are the segments.
func g1Video(seed uint64, kbps int) (all []unit.Bytes) {
	rng := vary.Rand(seed, "g1/video")
	size := float64((unit.Rate(kbps) * unit.Kbps).Bytes(g1Segment))
	for range g1Segments {
		all = append(all, unit.Bytes(size*(1+g1Spread*(2*rng.Float64()-1))))
	}
	return all
}

// network is the home, for so many repetitions: of each phone's time each piece is drawn
// for itself.
func (k g1Phones) network(seed uint64, dir string, c g1Case) (*lab.Topology, error) {
	v := varying{}
	for phone := 1; phone <= c.phones; phone++ {
		all := vary.Profile{Step: vary.Step}
		for i := range c.reps {
			p, err := k.piece(seed, dir, fmt.Sprintf("%s/phone %d/%d", c.of, phone, i))
			if err != nil {
				return nil, err
			}
			all.Rates = append(all.Rates, p.Rates...)
		}
		v[fmt.Sprint("hs", phone)] = all.Coarser(g1Coarser)
	}
	t, err := v.house(c.down+strings.Repeat(",1/20", c.phones), time.Duration(c.reps)*g1Stride)
	if err != nil {
		return nil, err
	}
	for name := range v {
		if c.idle {
			t.Link[name].Sleeps(g3G())
		}
	}
	return t, onloadHome(t, c.up)
}

// piece is one of a phone's time, of a name.
func (k g1Phones) piece(seed uint64, dir, name string) (vary.Profile, error) {
	rng := vary.Rand(seed, name)
	mean := unit.Rate(float64(g1Home) * (k.low + rng.Float64()*(k.high-k.low)))
	if dir == "" {
		return vary.LTE(rng, mean, g1Stride), nil
	}
	of := g1Recordings[rng.IntN(len(g1Recordings))]
	p, err := readRecording(dir, of[rng.IntN(len(of))])
	if err != nil {
		return p, err
	}
	p = p.Turned(rng.IntN(len(p.Rates)), g1Stride)
	if k.name != "" {
		p = p.Scaled(mean)
	}
	return p, nil
}

// g1Recordings are those of 3G, by what it is: UMTS, EVDO and HSDPA.
var g1Recordings = [][]string{
	{"mahimahi/TMobile-UMTS-driving.down"}, {"mahimahi/Verizon-EVDO-driving.down"},
	{"norway3g/norway_bus_1", "norway3g/norway_car_2", "norway3g/norway_ferry_2", "norway3g/norway_metro_10", "norway3g/norway_metro_2", "norway3g/norway_metro_3",
		"norway3g/norway_train_1", "norway3g/norway_train_12", "norway3g/norway_train_13", "norway3g/norway_train_14", "norway3g/norway_train_16"},
}
