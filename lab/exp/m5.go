// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"

	"mpbond/base/unit"
	"mpbond/lab/radio"
)

var m5Sizes = []unit.Bytes{512 * unit.KB, unit.MB, 2 * unit.MB}

// m5Links are one to three devices. The third one's links equal the second's: the paper's are not
// known to us.
var m5Links = []string{"8", "8/10/5", "8/10/5,10/5"}

// Repetitions of m5: of schemes with published values (the paper's number), and of others.
const (
	m5Reps  = 20
	m5Fewer = 8
)

// rowM5 returns row m5: small files over stable links.
func rowM5(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m5", Title: "Small files over stable links, one to three devices", Source: mpbondPaper +
			", stable networks",
		Setup: commonSetup + " 8/10/5 Mbit/s, a third device like the second. The published ranges are those of " +
			"all sizes. " + fmt.Sprintf("The paper repeats each transfer 20 times; here %s and %s make %d, other "+
			"schemes %d (fixed ratios %d). ", Product, mptcp, m5Reps, m5Fewer, ratioReps) + ratioSetup + " " +
			energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), Energy(set, "primary", true), CPUEnergy(set, "")},
	}
	for i, links := range m5Links {
		for _, size := range m5Sizes {
			devices := fmt.Sprintf("%d devices", i+1)
			schemes := append([]string{Product, pams, naive, mptcp, "single"}, combineSchemes...)
			if i == 0 {
				devices, schemes = "1 device", []string{Product, "single"}
			}
			c := Cell{Name: fmt.Sprintf("%s, %v", devices, size), Links: links, Size: size, Schemes: schemes,
				Reps: m5Reps, Quick: 1}
			c = c.limitReps(m5Fewer, slices.Concat([]string{pams, naive, "single"},
				combineSchemes)...).withRatioSearch()
			if i == 0 {
				c.Reps = m5Fewer
			}
			r.Cells = append(r.Cells, c)
			at := singleGroup(c)
			switch i {
			case 1:
				r.Points = append(r.Points, at.comparePoint(mptcp, Time, -11, -5), at.comparePoint(mptcp, active, -14,
					-10),
					at.compareBestRatio(c.ratioSchemes(), Time), at.compareBestRatio(c.ratioSchemes(), active),
					at.compareCombine(Time, -21, -15), at.compareCombine(active, -38, -28))
			case 2:
				r.Points = append(r.Points, at.comparePoint(mptcp, Time, -30, -25),
					at.compareBestRatio(c.ratioSchemes(), Time), at.compareBestRatio(c.ratioSchemes(), active),
					at.compareCombine(Time, -26, -12), at.compareCombine(active, -25, -22))
			}
		}
	}
	return r
}

// combineSchemes are COMBINE with the chunk sizes of which the paper took the best.
var combineSchemes = []string{"combine:256KB", "combine:128KB", "combine:64KB"}
