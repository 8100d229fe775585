// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"mpbond/base/unit"
	"mpbond/lab/radio"
)

const m3Cell = "5/10/5, 4 MB"

// measuredPAMS is PAMS with the last measured delay at the helper instead of an estimate.
const measuredPAMS = pams + "-measured"

// rowM3PADBacklog returns row m3: the gain of estimating PAD from the backlog at the helper.
func rowM3PADBacklog(radio.Set) Row {
	return Row{
		ID: "m3", Title: "PAD estimated from the backlog, or from the measured buffering delay", Source: mpbondPaper +
			", pipe-aware delay",
		Setup: commonSetup + " 4 MB at 5/10/5 Mbit/s. The published bound of 3.36 s counts payload alone and no " +
			"round trips; ours counts both, so that 3.6 s is all but the bound here. We do not know whether the " +
			"paper reinjected bytes: the published 4.4 s is compared with PAMS without reinjection.",
		Cells: []Cell{{Name: m3Cell, Links: "5/10/5", Size: 4 * unit.MB,
			Schemes: []string{Product, pams, pams + ":noreinject", measuredPAMS, measuredPAMS + ":noreinject", mptcp,
				"single"}, Reps: 6, Quick: 1}},
		Metrics: []Metric{Time, EndSpread},
		Points: []Point{
			{What: "time, mpbond's own choice", Unit: "s", Low: 3.6, High: 3.6, Aim: AimAtMost,
				Of: func(d Data) []float64 {
					return d.Values(m3Cell, Product, Time)
				}},
			{What: "time, PAD from the backlog", Unit: "s", Low: 3.6, High: 3.6, Aim: AimAtMost,
				Of: func(d Data) []float64 {
					return d.Values(m3Cell, pams, Time)
				}},
			{What: "time, PAD from the measured delay", Unit: "s", Low: 4.4, High: 4.4, Aim: AimNear,
				Of: func(d Data) []float64 {
					return d.Values(m3Cell, measuredPAMS+":noreinject", Time)
				}},
			{What: "what the backlog changes", Unit: "%", Low: -18.2, High: -18.2, PublishedText: "-18.2 % (derived)",
				Aim: AimReduction,
				Of:  func(d Data) []float64 { return d.Changes(m3Cell, [2]string{pams, measuredPAMS}, Time) }},
			{What: "what the backlog changes, without reinjection", Unit: "%", Low: -18.2, High: -18.2,
				PublishedText: "-18.2 % (derived)", Aim: AimReduction,
				Of: func(d Data) []float64 {
					return d.Changes(m3Cell, [2]string{pams + ":noreinject", measuredPAMS + ":noreinject"}, Time)
				}},
		},
	}
}
