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

// recordedFlowLength is the length of a flow in p16. Repetitions use the recording one part after another.
const recordedFlowLength = 20 * time.Second

// publishedRecordings is how many recordings come from the papers of other controllers.
const publishedRecordings = 5

// Ends of the names of cells.
const (
	realSuffix    = ", real packets"
	virtualSuffix = ", virtual time"
)

// Repetitions of p16: recordings of papers last 100 s at least, drives of the program 60 s.
const (
	recordingReps = 5
	driveReps     = 3
)

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
			"recorded, in steps of 100 ms. While the rate is under 100 kbit/s, nothing new is sent. Flows of %v, one "+
			"after another in each recording, without repetition. Capacity used is relative to what the cell carries for "+
			"a queue that is never empty. With real packets (mpbond-lab flow), the first part of each recording once, "+
			"also with the kernel's BBR and CUBIC; only virtual time is judged. Recordings: taxi and Times Square "+
			"(Abbasloo and others, SIGCOMM 2020), T-Mobile, Verizon and AT&T (Winstein and others, NSDI 2013) with "+
			"--traces; and always hold-outs: five carriers of the drives that come with the program, in steps of 0.5 s. "+
			"There, rates over 40 Mbit/s count as 40.", recordedFlowLength))
	r.Study, r.isUnpublished = CellRows, true
	used, over := modelMetric(usedFigure, "%", true), flowMetric("delay over propagation, p95", "ms", 0, false,
		func(f lab.Flow) float64 { return f.P95 - f.Propagation })
	used.Name, over.alsoCompared = "capacity used", true
	r.Metrics = []Metric{used, over, Rate, DelayP95, Lost}
	r.Scatter = &[2]Metric{over, used}
	recordings := listRecordedCells()
	for i, x := range recordings {
		c := pbeModelCell(x.name+virtualSuffix, nil)
		c.complete = func(c *Cell, dir string) error {
			p, err := x.load(dir)
			if needs := time.Duration(c.Reps) * recordedFlowLength; err == nil && time.Duration(len(p.Rates))*p.Step < needs {
				err = fmt.Errorf("%s is shorter than %v", x.file, needs)
			}
			if err == nil {
				c.Model = recordedModel(p)
			}
			return err
		}
		packets := Cell{Name: x.name + realSuffix, Length: recordedFlowLength, Reps: 1,
			Schemes: append(slices.Clone(cc.Names), "kernel:bbr", "kernel:cubic")}
		packets.complete = func(c *Cell, dir string) error {
			p, err := x.load(dir)
			if err == nil {
				c.Flows = func(seed uint64) *lab.Topology { return recordedNetwork(seed, p) }
				c.capacity = recordedModel(p).makeCase(0).Available(0)
			}
			return err
		}
		c.needsTraces, packets.needsTraces = x.file != "", x.file != ""
		if c.Reps = recordingReps; x.file == "" {
			c.Reps = driveReps
		}
		if c.MaxReps = c.Reps; i != publishedRecordings {
			c.Quick = 0
		}
		r.Cells = append(r.Cells, c, packets)
	}
	r.Points = []Point{
		{What: "capacity used is at least 95 %", Unit: "%", Low: 95, High: 95, PublishedText: "all (required)",
			Aim: AimAtLeast, Cases: recordedCases(recordings, func(d Data, cell string) (float64, string, bool) {
				return d.meanOfMetric(cell, used)
			})},
		{What: "delay over propagation, p95, is at most 30 ms", Unit: "ms", Low: 30, High: 30,
			PublishedText: "all (required)", Aim: AimAtMost,
			Cases: recordedCases(recordings, func(d Data, cell string) (float64, string, bool) {
				return d.meanOfMetric(cell, over)
			})},
		{What: "flows " + onFront, Unit: "%", Low: 100, High: 100, PublishedText: "all (required)", Aim: AimAtLeast,
			Cases: recordedCases(recordings, func(d Data, cell string) (float64, string, bool) {
				ours, ahead := d.countedResults(cell, pbe), 0
				for _, x := range ours {
					if !d.isBehindFront(cell, x) {
						ahead++
					}
				}
				return 100 * float64(ahead) / float64(max(len(ours), 1)), fmt.Sprintf("%d of %d", ahead, len(ours)), len(ours) > 0
			})},
	}
	return r
}

// meanOfMetric returns the mean of a metric of PBE-CC in a cell, also as text.
func (d Data) meanOfMetric(cell string, m Metric) (v float64, text string, ok bool) {
	all := d.Values(cell, pbe, m)
	if len(all) == 0 {
		return 0, "", false
	}
	return meanOfValues(all), fmt.Sprintf("%.1f %s", meanOfValues(all), m.Unit), true
}

// recordedCases returns a case for each recording, in virtual time. Those of papers are left out of a run without them.
func recordedCases(recordings []recordedCell, of func(Data, string) (float64, string, bool)) func(Data) []Case {
	return func(d Data) (all []Case) {
		traced := slices.ContainsFunc(recordings, func(x recordedCell) bool {
			return x.file != "" && len(d[x.name+virtualSuffix]) > 0
		})
		for _, x := range recordings {
			if x.file == "" || traced {
				v, text, ok := of(d, x.name+virtualSuffix)
				all = append(all, Case{Cell: x.name, Value: v, Text: text, Missing: !ok})
			}
		}
		return all
	}
}

// recordedModel returns the model of a cell with a recorded rate.
func recordedModel(p vary.Profile) *model {
	r := lte.NewRecording(p.Step, p.Rates)
	return &model{makeCase: func(seed uint64) virtual.Case {
		c := virtual.Recorded(seed, r, time.Duration(seed%1000)*recordedFlowLength)
		c.Length = recordedFlowLength
		return c
	}, instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
		return func(o virtual.Outcome) map[string]float64 {
			available := c.Available(0)
			if available == 0 {
				return nil // an outage
			}
			return map[string]float64{usedFigure: 100 * float64(o.Flows[0].Rate(0, c.Length)) / float64(available)}
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
		if at := time.Duration(i) * p.Step; at < 2*recordedFlowLength {
			l.Rates = append(l.Rates, fmt.Sprintf("%v: %d", at, int64(rate)))
		}
	}
	return t
}

// addCellParts returns a row whose model cells have parts of real ones.
func (r Row) addCellParts(has virtual.Parts) Row {
	r.ID += "c"
	r.Title += ", in cells as they are"
	r.Setup += " In addition: what places of p14 have, around the signals of this row, drawn from the seed of each " +
		"repetition."
	if !has.Wire {
		r.Setup += " Without handovers, the wired part and loss, which would not be the same for all devices."
	}
	r.Study, r.isUnpublished = CellRows, true
	r.Cells = slices.Clone(r.Cells)
	for i := range r.Cells {
		m := *r.Cells[i].Model
		plain := m.makeCase
		m.makeCase = func(seed uint64) virtual.Case {
			c := plain(seed)
			c.AddParts(has)
			return c
		}
		if r.Cells[i].Model = &m; i > 0 {
			r.Cells[i].Quick = 0
		}
	}
	return r
}

// airParts are the parts that all devices of a cell have alike.
var airParts = virtual.Parts{Uplink: true, Blocks: true, Carriers: true}
