// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"mpbond/lab"
	"mpbond/lab/vary"
)

const (
	h0Scheme = "computed"
	h0Length = 20 * time.Minute // of each ride
)

// Figures of row h0.
const (
	h0Interval    = "time for each handoff"
	h0Coincide    = "within 1 s of one of the other carrier"
	h0Independent = "within 1 s, if independent"
	h0Dip         = "rate at a handoff relative to before"
)

// rowH0Handoffs compares the times of two carriers' handoffs, generated and recorded, with
// independent ones.
func rowH0Handoffs() Row {
	r := newRailRow("h0", "handoffs of two carriers", fmt.Sprintf("Computed without transfers: handoffs of a train and "+
		"of a car, %v in each repetition, and those of the recorded drives. Independent means the other carrier's "+
		"handoffs half of the time later. --traces takes all recorded drives in DIR/twocarrier-drive/handovers, if there "+
		"are any.", h0Length))
	r.Judged = h0Scheme
	r.Metrics = []Metric{modelMetric(h0Interval, "s", false), modelMetric(h0Coincide, "%", false),
		modelMetric(h0Independent, "%", false), modelMetric(h0Dip, "%", true)}
	add := func(name string, reps int, compute func(o Options, rep int) (vary.Facts, error)) {
		r.Cells = append(r.Cells, Cell{Name: name, Schemes: []string{h0Scheme}, Reps: reps, MaxReps: reps, Quick: 1,
			Compute: func(o Options, rep int) (map[string]float64, error) {
				f, err := compute(o, rep)
				return map[string]float64{h0Interval: f.Interval.Seconds(), h0Coincide: 100 * f.Coincide[1],
					h0Independent: 100 * f.Independent[1], h0Dip: 100 * f.Around[4]}, err
			}})
	}
	for _, x := range []struct {
		name   string
		travel vary.Travel
	}{{"train, 300 km/h", vary.HighSpeedTrain}, {"car, about 70 km/h", vary.Car}} {
		add(x.name, 5, func(o Options, rep int) (vary.Facts, error) {
			rides := drawRides(o.Seed*1000+uint64(rep), "h0/"+x.name, x.travel, h0Length)
			return vary.FactsOf([][vary.Carriers]vary.Record{{rides[0].Record(), rides[1].Record()}}), nil
		})
	}
	add("recorded drives", 1, func(o Options, _ int) (vary.Facts, error) {
		pairs, err := readHandoverRuns(o.Traces)
		if o.Traces == "" || errors.Is(err, fs.ErrNotExist) {
			pairs, err = bundledDriveRecords()
		}
		return vary.FactsOf(pairs), err
	})
	for _, c := range r.Cells {
		r.Points = append(r.Points, Point{What: c.Name + ": handoffs that coincide, relative to independent ones", Unit: "%",
			Low: 0, High: 0, PublishedText: "they rarely coincide", Aim: AimNotMore, Of: func(d Data) []float64 {
				var all []float64
				for _, x := range d.countedResults(c.Name, h0Scheme) {
					if f := x.Virtual.Figures; f[h0Independent] > 0 {
						all = append(all, 100*(f[h0Coincide]/f[h0Independent]-1))
					}
				}
				return all
			}})
	}
	return r
}

// bundledDriveRecords returns the records of the drives that come with the program.
func bundledDriveRecords() (pairs [][vary.Carriers]vary.Record, err error) {
	drives, err := lab.LoadDrives("")
	if err != nil {
		return nil, err
	}
	for _, d := range drives {
		pairs = append(pairs, driveRecords(d))
	}
	return pairs, nil
}
