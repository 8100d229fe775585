// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

const m12Cell = "5 and 5, 1 MB chunks"

// m12Chunks is our choice: the paper does not give the number of chunks.
const m12Chunks = 5

// rowM12DualMode returns row m12: two users who share their links.
func rowM12DualMode(set radio.Set) Row {
	r := Row{
		ID: "m12", Title: "Dual mode: two users share their links", Source: mpbondPaper + ", dual mode",
		Setup: fmt.Sprintf("LTE of 5 Mbit/s each, round trips 50 and 70 ms, the pipe between the two 100 Mbit/s. "+
			"Each fetches %d chunks of 1 MB with pauses of 1 to 5 s. The pauses are the same with mpbond and "+
			"without; without it, both use their own links alone. A user's time is the mean of a chunk. mpbond's "+
			"processes stay up throughout. Energy is that of a user's own device, for both users' bytes, until "+
			"the later one has finished; the paper gives none. ", m12Chunks) + energySetup(set),
		Cells: []Cell{{Name: m12Cell, Links: "5/5", Size: unit.MB, Reps: 10, Quick: 1,
			Dual: &lab.DualSpec{Chunks: m12Chunks, Cases: []string{lab.DualBoth, lab.DualAlone}}}},
		Metrics: []Metric{Time, Energy(set, "", false), Energy(set, "", true)},
	}
	c := &r.Cells[0]
	for i, user := range lab.DualUsers {
		pair := dualSchemePair(user)
		c.Schemes = append(c.Schemes, pair[:]...)
		published := []float64{-32, -29}[i]
		r.Points = append(r.Points, Point{What: "time of a chunk relative to the own link alone, " + user, Unit: "%",
			Low: published, High: published, Aim: AimReduction,
			Of: func(d Data) []float64 { return d.Changes(m12Cell, pair, Time) }})
	}
	return r
}

// dualSchemePair returns a user with mpbond, while the other one uses it too, and without mpbond.
func dualSchemePair(user string) [2]string {
	return [2]string{lab.DualSchemeName(lab.DualBoth, user), lab.DualSchemeName(lab.DualAlone, user)}
}
