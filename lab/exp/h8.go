// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/vary"
)

const (
	h8Length = time.Minute
	h8Reps   = 1
)

// rowH8Drives returns row h8: recorded drives with two carriers.
func rowH8Drives() Row {
	r := newRailRow("h8", "recorded drives", "")
	r.Setup = fmt.Sprintf("%v of each drive that comes with the program, by the rates of both carriers that were "+
		"recorded in a car, at most 40 Mbit/s. They contain the handoffs. The other direction has a tenth of the mean "+
		"rate, at least 1 Mbit/s. Round trips are 60 and 80 ms.", h8Length)
	r.NotCovered = "nothing is published of these drives: the limits are our requirements"
	r.isUnpublished = true
	r.Metrics = []Metric{Rate, BoundShare, LongestGap}
	drives, err := lab.LoadDrives("")
	if err != nil {
		panic(err) // they are part of the program
	}
	var cells []string
	for i, d := range drives {
		c := Cell{Name: d.Name, Schemes: railSchemes, Reps: h8Reps, Upload: d.Upload, Length: h8Length,
			Network: func(uint64) (*lab.Topology, error) { return driveNetwork(d) }}
		if i == 0 {
			c.Quick = 1
		}
		r.Cells, cells = append(r.Cells, c), append(cells, c.Name)
	}
	ratio := func(of func(railRatios) float64) func(Data) []float64 {
		return func(d Data) (all []float64) {
			for _, cell := range cells {
				all = append(all, d.ratioValues(cell, railOurs, of, anyRepetition)...)
			}
			return all
		}
	}
	r.Points = []Point{
		{What: "R_better of mpbond is above 1 in each drive", Unit: "times", Low: 1, High: 1, PublishedText: "all (claimed)",
			Aim: AimAtLeast, Cases: driveCases(cells, ratioKinds[1].of)},
		railLimit("R_total of "+railOurs, "times", 0.95, AimAtLeast, ratio(ratioKinds[2].of)),
		{What: "R_total of mpbond is at least 0.90 in each drive", Unit: "times", Low: 0.9, High: 0.9,
			PublishedText: "all (claimed)", Aim: AimAtLeast, Cases: driveCases(cells, ratioKinds[2].of)},
		railLimit("share of the bound with "+railOurs, "%", 93, AimAtLeast, func(d Data) (all []float64) {
			for _, cell := range cells {
				all = append(all, d.Values(cell, railOurs, BoundShare)...)
			}
			return all
		}),
	}
	r.tables = func(rec Record) []Table { return driveTables(rec, drives) }
	return r
}

// driveCases returns a case for each drive: a ratio of mpbond.
func driveCases(cells []string, of func(railRatios) float64) func(Data) []Case {
	return func(d Data) (all []Case) {
		for _, cell := range cells {
			v := d.ratioValues(cell, railOurs, of, anyRepetition)
			c := Case{Cell: cell, Missing: len(v) == 0}
			if len(v) > 0 {
				c.Value, c.Text = meanOfValues(v), fmt.Sprintf("%.2f", meanOfValues(v))
			}
			all = append(all, c)
		}
		return all
	}
}

// driveNetwork returns the network of a drive: its first carrier is M, the second U.
func driveNetwork(d lab.Drive) (*lab.Topology, error) {
	recorded := lab.Downlink
	if d.Upload {
		recorded = lab.Uplink
	}
	return twoCarriers(func(carrier int, dir lab.Direction) vary.Profile {
		p := vary.Profile{Step: vary.FactStep}
		d.EachRate(carrier, func(at time.Duration, r unit.Rate) {
			if at < h8Length {
				p.Rates = append(p.Rates, r)
			}
		})
		if dir != recorded {
			p.Rates = []unit.Rate{max(unit.Mbps, p.Mean(h8Length)/10)}
		}
		return p
	})
}

// driveTables returns a table of the drives.
func driveTables(rec Record, drives []lab.Drive) []Table {
	t := Table{Title: "Recorded drives", Head: []string{"drive", "technology", "handoffs", "scheme", "Mbit/s", "R_better",
		"R_total"}}
	for _, d := range drives {
		for _, scheme := range railSchemes {
			v := rec.Results.Values(d.Name, scheme, Rate)
			if len(v) == 0 {
				continue
			}
			row := []string{d.Name, d.Technology[0] + " and " + d.Technology[1],
				fmt.Sprintf("%d and %d", len(d.Handoffs[0]), len(d.Handoffs[1])), scheme, fmt.Sprintf("%.1f", meanOfValues(v))}
			for _, k := range ratioKinds[1:] {
				row = append(row, Summarize(rec.Results.ratioValues(d.Name, scheme, k.of, anyRepetition)).Text(""))
			}
			t.Add(row...)
		}
	}
	return []Table{t}
}
