// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"

	"mpbond/lab/radio"
)

// rowM7Combine returns row m7: rates of the direct path, compared with COMBINE.
func rowM7Combine(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m7", Title: "Small files compared with COMBINE, rate of PS varied", Source: mpbondPaper + ", stable networks",
		Setup: commonSetup + " HS 10, pipe 5 Mbit/s. The published ranges are those of all cells; the sizes of " +
			"files are our choice. " + ratioSetup + " " + energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), CPUEnergy(set, "")},
	}
	for _, ps := range []int{5, 8, 11, 14} {
		for _, size := range m5Sizes {
			links := fmt.Sprintf("%d/10/5", ps)
			c := Cell{Name: fmt.Sprintf("%s, %v", links, size), Links: links, Size: size,
				Schemes: slices.Concat([]string{Product, pams, mptcp}, combineSchemes), Reps: 7}
			if size == m5Sizes[0] {
				c.Quick = 1
			}
			c = c.limitSchemeReps(5, slices.Concat([]string{pams}, combineSchemes)...).withRatioSearch()
			r.Cells = append(r.Cells, c)
			r.Points = append(r.Points, singleGroup(c).compareCombine(Time, -46, -14),
				singleGroup(c).compareCombine(active, -57, -24), singleGroup(c).compareBestRatio(c.listRatioSchemes(),
					Time))
		}
	}
	return r
}
