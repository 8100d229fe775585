// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"mpbond/base/unit"
	"mpbond/lab/radio"
)

const (
	pams        = "mpbond:pams"
	naive       = "mpbond:minrtt:noreinject"
	mptcp       = "mptcp"
	mpbondPaper = "MPBond, MobiSys 2020"
	// commonSetup holds for all rows of that paper.
	commonSetup = "Round trips 50 ms (PS), 70 ms (HS), 5 ms (pipe), queues of 100 ms, CUBIC. Each transfer begins " +
		"over idle links; mpbond's subflows are up before it, as they stay up between transfers, and other " +
		"schemes connect when it begins."
)

// rowM0dMinRTT returns row m0d: a scheduler that knows only round trips gives the helper's subflow
// more than it can deliver in time.
func rowM0dMinRTT(radio.Set) Row {
	return Row{
		ID: "m0d", Title: "Minimum-RTT scheduling over a helper: one subflow ends late", Source: mpbondPaper +
			", motivation",
		Setup: commonSetup + " 10 MB at 8/10/5 Mbit/s.",
		Cells: []Cell{{Name: "8/10/5, 10 MB", Links: "8/10/5", Size: 10 * unit.MB, Schemes: []string{Product, pams,
			naive, mptcp}, Reps: 6, Quick: 1}},
		Metrics: []Metric{Time, EndSpread},
		Shown:   "8/10/5, 10 MB",
		Points: []Point{
			{What: "minRTT: the helped subflow ends after the direct one", Unit: "s", Low: 4.5, High: 4.5, Aim: AimNear,
				Of: func(d Data) []float64 { return d.Values("8/10/5, 10 MB", naive, EndSpread) }},
			{What: "PAMS: subflows end together (we take that as 0.1 s)", Unit: "s", High: 0.1, Aim: AimAtMost,
				IsLimit: true,
				Of:      func(d Data) []float64 { return d.Values("8/10/5, 10 MB", pams, EndSpread) }},
			{What: "mpbond's own choice: likewise", Unit: "s", High: 0.1, Aim: AimAtMost,
				IsLimit: true,
				Of:      func(d Data) []float64 { return d.Values("8/10/5, 10 MB", Product, EndSpread) }},
		},
	}
}
