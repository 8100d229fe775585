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

// rowM5SmallFiles returns row m5: small files over stable links.
func rowM5SmallFiles(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m5", Title: "Small files over stable links, one to three devices", Source: mpbondPaper +
			", stable networks",
		Setup: commonSetup + " 8/10/5 Mbit/s, a third device like the second. The published ranges are those of " +
			"all sizes. " + fmt.Sprintf("The paper repeats each transfer 20 times; here %s and %s make %d, other "+
			"schemes %d (fixed ratios %d). ", Product, mptcp, m5Reps, m5Fewer, ratioReps) + "The paper compares " +
			"three devices with kernel MPTCP over one tethered helper (" + oneHelperMPTCP + "); " + mptcp + " tethers " +
			"both. Further cells have several objects over one connection, which the paper does not have: the first " +
			"opens it, and the others find it open. " + ratioSetup + " " + energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), Energy(set, "primary", true), CPUEnergy(set, ""),
			Cold, Warm},
	}
	for i, links := range m5Links {
		for _, size := range m5Sizes {
			devices := fmt.Sprintf("%d devices", i+1)
			schemes := append([]string{Product, pams, naive, mptcp, "single"}, combineSchemes...)
			if i == 0 {
				devices, schemes = "1 device", []string{Product, "single"}
			}
			if i == 2 {
				schemes = append(schemes, oneHelperMPTCP)
			}
			c := Cell{Name: fmt.Sprintf("%s, %v", devices, size), Links: links, Size: size, Schemes: schemes,
				Reps: m5Reps, Quick: 1}
			c = c.limitSchemeReps(m5Fewer, slices.Concat([]string{pams, naive, "single"},
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
					at.compareBestRatio(c.listRatioSchemes(), Time), at.compareBestRatio(c.listRatioSchemes(), active),
					at.compareCombine(Time, -21, -15), at.compareCombine(active, -38, -28))
			case 2:
				r.Points = append(r.Points, at.comparePoint(oneHelperMPTCP, Time, -30, -25),
					at.comparePoint(mptcp, Time, -30, -25),
					at.compareBestRatio(c.listRatioSchemes(), Time), at.compareBestRatio(c.listRatioSchemes(), active),
					at.compareCombine(Time, -26, -12), at.compareCombine(active, -25, -22))
			}
		}
	}
	for _, size := range m5WarmSizes {
		c := Cell{Name: fmt.Sprintf("2 devices, %d objects of %v", m5Objects, size), Links: m5Links[1], Size: size,
			Objects: m5Objects, Schemes: []string{Product, pams, mptcp, "single"}, Reps: m5WarmReps, Quick: 0}
		r.Cells = append(r.Cells, c)
		for _, m := range []Metric{Cold, Warm} {
			p := singleGroup(c).comparePoint(mptcp, m, 0, 0)
			p.PublishedText, p.Aim = noFigureText, AimAnyReduction
			r.Points = append(r.Points, p)
		}
	}
	return r
}

// oneHelperMPTCP is kernel MPTCP with one tethered helper, as in the paper: its Kibbutz had only
// two devices.
const oneHelperMPTCP = mptcp + ":helpers=1"

// Objects of m5 over one connection: the other cells open a connection for each transfer, of which
// kernel MPTCP's needs longer than a stream over an open bond.
const (
	m5Objects  = 5
	m5WarmReps = 6
)

var m5WarmSizes = []unit.Bytes{512 * unit.KB, unit.MB}

// combineSchemes are COMBINE with the chunk sizes of which the paper took the best.
var combineSchemes = []string{"combine:256KB", "combine:128KB", "combine:64KB"}
