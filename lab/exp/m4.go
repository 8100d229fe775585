// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"mpbond/base/unit"
	"mpbond/lab/radio"
)

const m4Cell = "5/10/5, 4 MB, pipe to 1 Mbit/s at 2 s"

// rowM4Reinjection returns row m4: bytes at a helper are sent again over other subflows when its
// pipe becomes slow.
func rowM4Reinjection(radio.Set) Row {
	return Row{
		ID: "m4", Title: "Reinjection, when the pipe falls to 1 Mbit/s", Source: mpbondPaper + ", reinjection",
		Setup: commonSetup + " 4 MB at 5/10/5 Mbit/s; the pipe falls from 5 to 1 Mbit/s 2 s after the client " +
			"starts. The published bound of 4.26 s counts payload alone and no round trips; ours counts both.",
		Cells: []Cell{{Name: m4Cell, Links: "5/10/5", Size: 4 * unit.MB, At: []string{"2s:pipe1.rate=1Mbit/s"},
			Schemes: []string{Product, pams, pams + ":noreinject", mptcp, "single"}, Reps: 10, Quick: 1}},
		Metrics: []Metric{Time},
		Shown:   m4Cell,
		Points: []Point{
			{What: "time with reinjection, mpbond's own choice", Unit: "s", Low: 4.8, High: 4.8, Aim: AimAtMost,
				Of: func(d Data) []float64 {
					return d.Values(m4Cell, Product, Time)
				}},
			{What: "time with reinjection, PAMS", Unit: "s", Low: 4.8, High: 4.8, Aim: AimAtMost,
				Of: func(d Data) []float64 {
					return d.Values(m4Cell, pams, Time)
				}},
			{What: "time without, PAMS", Unit: "s", Low: 9.7, High: 9.7, Aim: AimNear, Of: func(d Data) []float64 {
				return d.Values(m4Cell, pams+":noreinject", Time)
			}},
			{What: "what reinjection changes, PAMS", Unit: "%", Low: -50.5, High: -50.5,
				PublishedText: "-50.5 % (derived)", Aim: AimReduction,
				Of: func(d Data) []float64 { return d.Changes(m4Cell, [2]string{pams, pams + ":noreinject"}, Time) }},
		},
	}
}
