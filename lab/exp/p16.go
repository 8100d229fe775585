// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/lte"
	"mpbond/lab/radio"
	"mpbond/lab/vary"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

// recordedTurn is the length of a flow in p16. Repetitions follow one another in the recording.
const recordedTurn = 20 * time.Second

// recordedNamed is how many recordings come from the papers of other controllers.
const recordedNamed = 5

// realSuffix ends the names of cells with real packets.
const realSuffix = ", real packets"

// recordedCell is a recording of a cell's rate.
type recordedCell struct {
	name string
	file string // below the directory of recordings; "": it comes with the program
	load func(dir string) (vary.Profile, error)
}

// listRecordedCells returns the recordings of p16: five from the papers of other controllers, then hold-outs, which
// come with the program.
func listRecordedCells() (all []recordedCell) {
	for _, x := range [][2]string{{"taxi", "nyc-cellular/trace-2767958-taxi1"},
		{"Times Square", "nyc-cellular/trace-3201711-timessquare"}, {"T-Mobile", "mahimahi/TMobile-LTE-short.down"},
		{"Verizon", "mahimahi/Verizon-LTE-short.down"}, {"AT&T driving", "mahimahi/ATT-LTE-driving-2016.down"}} {
		all = append(all, recordedCell{x[0], x[1], func(dir string) (vary.Profile, error) {
			return readRecording(dir, x[1])
		}})
	}
	drives, err := lab.LoadDrives("")
	if err != nil {
		panic(err) // they are part of the program
	}
	carriers := map[string]int{"DL_1_57": 0, "DL_2_21": 0, "DL_2_34": 1, "DL_3_13": 1, "DL_3_57": 0}
	for _, d := range drives {
		carrier, is := carriers[d.Name]
		if !is {
			continue
		}
		all = append(all, recordedCell{name: fmt.Sprintf("drive %s, carrier %d", d.Name, carrier+1),
			load: func(string) (vary.Profile, error) {
				p := vary.Profile{Step: vary.FactStep}
				d.EachRate(carrier, func(_ time.Duration, r unit.Rate) { p.Rates = append(p.Rates, r) })
				return p, nil
			}})
	}
	return all
}

// rowP16Recordings returns row p16: cells with recorded rates.
func rowP16Recordings(radio.Set) Row {
	r := commonPBERow("p16", "Cells with recorded rates, in virtual time and with real packets", "none: ours",
		fmt.Sprintf("A device alone in the default cell, at 20 MHz, whose blocks carry at each time the rate that was "+
			"recorded, in steps of 100 ms, of hold-outs of 0.5 s. While the rate is under 100 kbit/s, there are no grants. "+
			"Flows of %v, %d after one another in each recording, which repeats. Capacity used is relative to what the "+
			"cell carries for a queue that is never empty. With real packets (mpbond-lab flow), the first part of each "+
			"recording once, also with the kernel's BBR and CUBIC; there the capacity is the recorded rate, of which "+
			"retransmissions take some 4 %%. Recordings: taxi and Times Square (Abbasloo and others, SIGCOMM 2020), "+
			"T-Mobile, Verizon and AT&T (Winstein and others, NSDI 2013) with --traces; and always five carriers of the "+
			"drives that come with the program (hold-outs).", recordedTurn, pbeReps))
	r.Study, r.isUnpublished = CellRows, true
	used, over := modelMetric(usedFigure, "%", true), flowMetric("delay over propagation, p95", "ms", 0, false,
		func(f lab.Flow) float64 { return f.P95 - f.Propagation })
	used.Name, over.alsoCompared = "capacity used", true
	r.Metrics = []Metric{used, over, Rate, DelayP95, Lost}
	r.Scatter = &[2]Metric{over, used}
	var names []string
	for _, x := range listRecordedCells() {
		c := pbeModelCell(x.name, nil)
		c.complete = func(c *Cell, dir string) error {
			p, err := x.load(dir)
			c.Model = recordedModel(p)
			return err
		}
		real := Cell{Name: x.name + realSuffix, Length: recordedTurn, Reps: 1,
			Schemes: append(slices.Clone(cc.Names), "kernel:bbr", "kernel:cubic")}
		real.complete = func(c *Cell, dir string) error {
			p, err := x.load(dir)
			c.Flows = func(seed uint64) *lab.Topology { return recordedNetwork(seed, p) }
			return err
		}
		c.needsTraces, real.needsTraces = x.file != "", x.file != ""
		if x.file != "" || len(names) > recordedNamed {
			c.Quick = 0
		}
		r.Cells, names = append(r.Cells, c, real), append(names, c.Name)
	}
	r.Points = []Point{
		{What: "capacity used is at least 95 %", Unit: "%", Low: 95, High: 95, PublishedText: "all (required)",
			Aim: AimAtLeast, Cases: recordedCases(names, used)},
		{What: "delay over propagation, p95, is at most 30 ms", Unit: "ms", Low: 30, High: 30,
			PublishedText: "all (required)", Aim: AimAtMost, Cases: recordedCases(names, over)},
		{What: "flows " + onFront, Unit: "%", Low: 100, High: 100, PublishedText: "all (required)", Aim: AimAtLeast,
			Cases: func(d Data) (all []Case) {
				for _, cell := range names {
					ours, ahead := d.countedResults(cell, pbe), 0
					for _, x := range ours {
						if !d.isBehindFront(cell, x) {
							ahead++
						}
					}
					if len(ours) > 0 {
						all = append(all, Case{Cell: cell, Value: 100 * float64(ahead) / float64(len(ours)),
							Text: fmt.Sprintf("%d of %d", ahead, len(ours))})
					}
				}
				return all
			}},
	}
	return r
}

// recordedCases returns a case for each recording that was measured: the mean of a metric of PBE-CC.
func recordedCases(cells []string, m Metric) func(Data) []Case {
	return func(d Data) (all []Case) {
		for _, cell := range cells {
			if v := d.Values(cell, pbe, m); len(v) > 0 {
				all = append(all, Case{Cell: cell, Value: meanOfValues(v),
					Text: fmt.Sprintf("%.1f %s", meanOfValues(v), m.Unit)})
			}
		}
		return all
	}
}

// recordedModel returns the model of a cell with a recorded rate.
func recordedModel(p vary.Profile) *model {
	if len(p.Rates) == 0 {
		return nil
	}
	r := lte.NewRecording(p.Step, p.Rates)
	return &model{makeCase: func(seed uint64) virtual.Case {
		c := virtual.Recorded(seed, r, time.Duration(seed%1000)*recordedTurn)
		c.Length = recordedTurn
		return c
	}, instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
		return func(o virtual.Outcome) map[string]float64 {
			return map[string]float64{usedFigure: 100 * float64(o.Flows[0].Rate(0, c.Length)) / float64(c.Available(0))}
		}
	}}
}

// recordedNetwork returns the network of a cell with a recorded rate: the default cell with 20 MHz.
func recordedNetwork(seed uint64, p vary.Profile) *lab.Topology {
	t := p12CellNetwork(seed)
	t.LTE["one"].Carriers[0].PRB = 100
	l := t.Link[p12Link].LTE
	l.Signal = ""
	for i, rate := range p.Rates {
		if at := time.Duration(i) * p.Step; at < 2*recordedTurn {
			l.Rates = append(l.Rates, fmt.Sprintf("%v: %d", at, int64(rate)))
		}
	}
	return t
}

// inCellsAsTheyAre returns a row whose model cells have all that real ones have, as those of p14.
func (r Row) inCellsAsTheyAre() Row {
	r.ID += "c"
	r.Title += ", in cells as they are"
	r.Setup += " In addition: what places of p14 have, around the signals of this row, drawn from the seed of each " +
		"repetition."
	r.Study, r.isUnpublished = CellRows, true
	r.Cells = slices.Clone(r.Cells)
	for i := range r.Cells {
		m := *r.Cells[i].Model
		plain := m.makeCase
		m.makeCase = func(seed uint64) virtual.Case {
			c := plain(seed)
			c.AddParts(virtual.AllParts)
			return c
		}
		if r.Cells[i].Model = &m; i > 0 {
			r.Cells[i].Quick = 0
		}
	}
	return r
}
