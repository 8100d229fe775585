// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"mpbond/base/unit"
	"mpbond/lab/radio"
)

const m2Cell = "5/10/5, 4 MB, pipe to 10 Mbit/s at 2 s"

// rowM2Feedback returns row m2: the path by which the server learns the state of the pipe.
func rowM2Feedback(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m2", Title: "Feedback about the pipe: flexible, always or on demand over the HS-path",
		Source: mpbondPaper + ", feedback",
		Setup: commonSetup + " 4 MB at 5/10/5 Mbit/s; the pipe rises from 5 to 10 Mbit/s 2 s after the client " +
			"starts. The paper gives directions without values: the result is surely less, or not. " + energySetup(set),
		Cells: []Cell{{Name: m2Cell, Links: "5/10/5", Size: 4 * unit.MB, At: []string{"2s:pipe1.rate=10Mbit/s"},
			Reps: 7, Quick: 1}},
		Metrics: []Metric{Time, active, Energy(set, "", true), Energy(set, "helper1", false),
			Energy(set, "helper1", true)},
	}
	c := &r.Cells[0]
	for _, ours := range []string{Product, pams} {
		always, demand := ours+":feedback=fixed-always", ours+":feedback=fixed-on-demand"
		c.Schemes = append(c.Schemes, ours, always, demand)
		falls := func(m Metric, other string) Point {
			return Point{What: m.Name + " of " + ours + " relative to " + other, Unit: "%", PublishedText: "less",
				Aim: AimAnyReduction,
				Of:  func(d Data) []float64 { return d.Changes(m2Cell, [2]string{ours, other}, m) }}
		}
		r.Points = append(r.Points, falls(active, always), falls(Time, demand))
	}
	return r
}
