// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/app"
	"mpbond/lab/radio"
)

// heldOutPlaces is the number of places of row s11.
const heldOutPlaces = 15

// Promises of mpbond at places that nothing was tuned on, in percent behind the better single link.
const (
	heldOutLoss    = 5.0
	heldOutShare   = 97.0 // percent of scenarios within heldOutLoss
	maxHeldOutLoss = 15.0
)

// heldOutSchemes are compared at held-out places.
var heldOutSchemes = []string{phoneWiFi, phoneLTE, phoneMPTCPWiFi, phoneOurs}

// drawPhonePlace draws a place: rates from 1 to 60 Mbit/s, evenly over their logarithms; round
// trips of WiFi from 8 to 80 ms, of LTE from 35 to 120 ms; up to 2 % of lost packets on WiFi. Half
// of the WiFi networks lose none. The uplink of LTE has two fifths of its rate.
func drawPhonePlace(seed uint64, i int) phonePlace {
	random := rand.New(rand.NewPCG(seed, 1100+uint64(i)))
	between := func(least, most float64) float64 { return least + random.Float64()*(most-least) }
	rate := func() float64 { return math.Round(10*math.Exp(between(0, math.Log(60)))) / 10 }
	delay := func(leastRTT, mostRTT float64) string { return fmt.Sprintf("%.1fms", between(leastRTT, mostRTT)/2) }
	wifi := phoneLink{down: rate(), delay: delay(8, 80)}
	if random.IntN(2) == 1 {
		wifi.loss = fmt.Sprintf("%.2f%%", between(0.05, 2))
	}
	wifi.up = wifi.down
	lte := phoneLink{down: rate(), delay: delay(35, 120)}
	lte.up = math.Round(10*max(1, 0.4*lte.down)) / 10
	wifi.bad, lte.bad = wifi.up < slowUplink, lte.up < slowUplink
	return phonePlace{fmt.Sprintf("place %d", i+1), wifi, lte}
}

// slowUplink is the rate, in Mbit/s, below which an uplink counts as bad: uploads are shorter then.
const slowUplink = 5

// rowS11HoldOut plays each app once at places that are drawn from the seed of the run, or over
// recorded pairs of WiFi and a cellular network instead.
func rowS11HoldOut(set radio.Set) Row {
	goodput := Goodput
	r := Row{ID: "s11", Title: "Smartphone, WiFi and LTE: places that nothing was tuned on", Source: phonePaper,
		Judged: phoneOurs, Study: PhoneRows, isUnpublished: true,
		Setup: fmt.Sprintf("%d places drawn from the seed: WiFi 1 to 60 Mbit/s, round trips of 8 to 80 ms, up to 2 %% "+
			"loss; LTE 1 to 60 Mbit/s, 35 to 120 ms. With --traces recorded pairs of WiFi and a cellular network instead, "+
			"without uploads. Each app of rows s1 to s8 once. Goodput counts the time in which a request is open, "+
			"so it compares pages and requests too. ", heldOutPlaces) + energySetup(set),
		NotCovered: "the study has no such places: the limits are our requirements",
		Metrics: []Metric{goodput, Energy(set, "primary", true), CPUEnergy(set, "primary"), LinkShare("wlan0"),
			Promotions(set, radio.LTE)},
	}
	r.cellsOf, r.tables = heldOutCells, heldOutTables
	r.Points = []Point{
		{What: "scenarios at most 5 % behind the better single link", Unit: "%", Low: heldOutShare, High: heldOutShare,
			Aim: AimAtLeast, IsLimit: true, Of: func(d Data) []float64 {
				n, within := 0.0, 0.0
				for cell := range d {
					if behind, ok := d.percentBehindLinks(cell, goodput); ok {
						if n++; behind <= heldOutLoss {
							within++
						}
					}
				}
				if n == 0 {
					return nil
				}
				return []float64{100 * within / n}
			}},
		{What: "no scenario over 15 % behind the better single link", Unit: "%", Low: maxHeldOutLoss,
			High: maxHeldOutLoss, PublishedText: "none (claimed)", Aim: AimAtMost,
			Cases: func(d Data) (all []Case) {
				for _, cell := range sortedCells(d) {
					behind, ok := d.percentBehindLinks(cell, goodput)
					all = append(all, Case{Cell: cell, Value: behind, Text: fmt.Sprintf("%.1f %% behind", behind), Missing: !ok})
				}
				return all
			}},
	}
	return r
}

// heldOutTables returns the table of all scenarios, the worst first.
func heldOutTables(rec Record) []Table {
	t := Table{Title: "Goodput of mpbond and of the better single link, the worst scenario first",
		Head: []string{"scenario", "better link", Product, "behind", "bytes by WiFi"}}
	type scenario struct {
		cell   string
		behind float64
	}
	var all []scenario
	for _, cell := range sortedCells(rec.Results) {
		if behind, ok := rec.Results.percentBehindLinks(cell, Goodput); ok {
			all = append(all, scenario{cell, behind})
		}
	}
	slices.SortStableFunc(all, func(a, b scenario) int { return cmp.Compare(b.behind, a.behind) })
	for _, x := range all {
		d := rec.Results
		best, _ := d.phoneValue(x.cell, d.bestScheme(x.cell, []string{phoneWiFi, phoneLTE}, Goodput), Goodput)
		ours, _ := d.phoneValue(x.cell, phoneOurs, Goodput)
		share, _ := d.phoneValue(x.cell, phoneOurs, LinkShare("wlan0"))
		t.Add(x.cell, fmt.Sprintf("%.1f Mbit/s", best), fmt.Sprintf("%.1f Mbit/s", ours), fmt.Sprintf("%.1f %%", x.behind),
			fmt.Sprintf("%.0f %%", share))
	}
	return []Table{t}
}

// percentBehindLinks returns by how many percent mpbond is behind the better single link.
func (d Data) percentBehindLinks(cell string, m Metric) (behind float64, ok bool) {
	s := Summarize(d.gainOverLinks(cell, phoneOurs, m))
	return -s.Mean, s.N > 0
}

// heldOutCells returns the scenarios for the seed of a run, and those over recordings.
func heldOutCells(seed uint64) (all []Cell) {
	for i := range heldOutPlaces {
		p := drawPhonePlace(seed, i)
		all = append(all, p.cellsOfApps(i, p.buildPhoneTopology)...)
	}
	for i, name := range recordedPairs {
		p := phonePlace{name: name, wifi: phoneLink{bad: true}, lte: phoneLink{bad: true}} // its uploads are short
		for _, c := range p.cellsOfApps(heldOutPlaces+i, nil) {
			if c.Upload {
				continue // downloads were recorded
			}
			c.FromRecordings = func(dir string) (*lab.Topology, error) { return buildPairTopology(dir, name) }
			all = append(all, c)
		}
	}
	return all
}

// cellsOfApps returns a cell for each app at the place of a number, which has scripts of its own.
func (p phonePlace) cellsOfApps(number int, network func(uint64) (*lab.Topology, error)) (all []Cell) {
	for _, a := range phoneApps() {
		c := Cell{Name: p.name + ", " + a.name, Network: network, Upload: a.upload, Schemes: heldOutSchemes, Reps: 1,
			App: func(seed uint64, rep int) app.Script { return a.script(p, seed*100+uint64(number), rep) }}
		if number == 0 || number == heldOutPlaces {
			c.Quick = 1
		}
		all = append(all, c)
	}
	return all
}

// recordedPairs are walks with WiFi and a cellular network at once (docs/reference/experiments.md):
// WiFi fades, WiFi grows, the cellular network fades, and it is poor.
var recordedPairs = []string{"7_1", "8_1", "12_1", "13_1", "22_1"}

// pairLength is the part of a recorded pair that repeats.
const pairLength = time.Minute

// buildPairTopology returns the network of a recorded pair: downlinks follow the recording, uplinks
// have two fifths of its mean rate.
func buildPairTopology(dir, name string) (*lab.Topology, error) {
	p := phonePlace{name: name, wifi: phoneLink{down: 10, up: 10, delay: "10ms"},
		lte: phoneLink{down: 10, up: 10, delay: "27.5ms"}}
	t, err := p.buildPhoneTopology(0)
	if err != nil {
		return nil, err
	}
	for link, kind := range map[string]string{"wlan0": "wifi", "wwan0": "cellular"} {
		v, err := loadRecording(dir, filepath.Join("wifi-cellular-pairs", name+"_"+kind+".csv"), pairLength)
		if err != nil {
			return nil, err
		}
		l := t.Link[link]
		delay, err := time.ParseDuration(l.Delay)
		if err != nil {
			return nil, err
		}
		mean := max(v.Mean(pairLength), unit.Mbps/2)
		l.Up.Rate = fmt.Sprint(int64(mean) * 2 / 5)
		l.Down = &lab.LinkSettings{Rate: fmt.Sprint(int64(mean)), Schedule: v.Schedule(delay), Outages: v.Outages(),
			Loop: pairLength.String()}
	}
	return t, t.Check()
}
