// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"

	"mpbond/lab/radio"
)

// m6Rates are rates of PS and HS. The paper gives values for PS 1 and HS 18 alone; the other rates
// of its grid are our choice. 8/10 and 14/10 are in m7, with the same schemes.
var m6Rates = [][2]int{{1, 2}, {1, 10}, {1, 18}, {8, 2}, {8, 18}, {14, 2}, {14, 18}}

// Repetitions of m6, which has many cells.
const (
	m6Reps  = 6
	m6Fewer = 5
)

// rowM6RateGrid returns row m6: a grid of rates. Most can be saved where the helper's link is much
// faster.
func rowM6RateGrid(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m6", Title: "Small files, rates of PS and HS varied, pipe 5 Mbit/s", Source: mpbondPaper +
			", stable networks",
		Setup: commonSetup + " Only PS 1/HS 18 has published figures; the grid's other rates are ours; 8/10/5 " +
			"and 14/10/5 are in m7. COMBINE is measured to see whether mpbond is faster than both everywhere: the " +
			"paper gives no values of it here. " + ratioSetup + " " + energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), CPUEnergy(set, "")},
	}
	published := []float64{-31, -37, -47} // by size
	for _, rates := range m6Rates {
		for i, size := range m5Sizes {
			links := fmt.Sprintf("%d/%d/5", rates[0], rates[1])
			c := Cell{Name: fmt.Sprintf("%s, %v", links, size), Links: links, Size: size,
				Schemes: slices.Concat([]string{Product, pams, mptcp}, combineSchemes), Reps: m6Reps}
			c = c.limitSchemeReps(m6Fewer, slices.Concat([]string{pams}, combineSchemes)...).withRatioSearch()
			r.Points = append(r.Points, singleGroup(c).compareBestRatio(c.listRatioSchemes(), Time))
			if rates == [2]int{1, 18} {
				c.Quick = 1
				r.Points = append(r.Points, singleGroup(c).comparePoint(mptcp, active, published[i], published[i]))
			}
			r.Cells = append(r.Cells, c)
		}
	}
	return r
}
