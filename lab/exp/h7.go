// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/lab/vary"
	"mpbond/lab/virtual/network"
)

// Figures of row h7.
const (
	h7Area  = "area under the curve"
	h7Share = "of forecasts of 20 to 40 %, come true"
)

const (
	h7Rides  = 10 // of a repetition
	h7Length = 5 * time.Minute
)

// rowH7Forecasts compares forecasts of handoffs with what happens.
func rowH7Forecasts() Row {
	r := newRailRow("h7", "forecasts of handoffs", fmt.Sprintf("Computed without transfers: what mpbond forecasts from "+
		"the signals of the modems, once a second, for the next 2 s, on %d journeys of %v in each repetition. The area "+
		"under the curve is how likely a forecast before a handoff is above one without: 50 %% is chance. The models were "+
		"fitted to other journeys of the same kind.", h7Rides, h7Length))
	r.Judged = h0Scheme
	r.Metrics = []Metric{modelMetric(h7Area, "%", true), modelMetric(h7Share, "%", false)}
	for _, x := range []struct {
		name   string
		travel vary.Travel
		how    string
	}{{"train, 300 km/h", vary.HighSpeedTrain, ""}, {"car, about 70 km/h", vary.Car, ""},
		{"train, without neighbours", vary.HighSpeedTrain, "no neighbour"}} {
		r.Cells = append(r.Cells, Cell{Name: x.name, Schemes: []string{h0Scheme}, Reps: 5, MaxReps: 5, Quick: 1,
			Compute: func(o Options, rep int) (map[string]float64, error) {
				var all []network.ForecastOutcome
				for i := range h7Rides {
					// The models were fitted to journeys of small seeds.
					train := network.NewTrain((o.Seed+1)*1_000_000+uint64(rep*h7Rides+i), x.travel, h7Length)
					train.Distort(x.how)
					all = append(all, train.Outcomes()...)
				}
				return map[string]float64{h7Area: 100 * network.AreaUnderCurve(all),
					h7Share: 100 * network.ShareWithHandoff(all, 0.2, 0.4)}, nil
			}})
	}
	figure := func(cell, name string) func(Data) []float64 {
		return func(d Data) []float64 { return d.Values(cell, h0Scheme, modelMetric(name, "%", true)) }
	}
	train := r.Cells[0].Name
	r.Points = []Point{
		railLimit(train+": "+h7Area, "%", 80, AimAtLeast, figure(train, h7Area)),
		railLimit(train+": "+h7Area+", or journeys are too easy", "%", 90, AimAtMost, figure(train, h7Area)),
		railLimit(train+": "+h7Share, "%", 20, AimAtLeast, figure(train, h7Share)),
		railLimit(train+": "+h7Share+" at most", "%", 40, AimAtMost, figure(train, h7Share)),
	}
	return r
}
