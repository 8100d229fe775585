package exp

import (
	"fmt"
	"slices"

	"mpbond/base/unit"
	"mpbond/lab/radio"
)

var m5Sizes = []unit.Bytes{512 * unit.KB, unit.MB, 2 * unit.MB}

// m5Houses are one to three devices. The third one's links are like the
// second's: the paper's are not known to us.
var m5Houses = []string{"8", "8/10/5", "8/10/5,10/5"}

// Repetitions of m5: of what its figures are changes of, the paper's number.
const (
	m5Reps  = 20
	m5Fewer = 8
)

// m5: small files over links that do not change.
func m5(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m5", Title: "Small files over stable links, one to three devices", Source: mobi + ", stable networks",
		Setup:   setup + " 8/10/5 Mbit/s, a third device like the second. The published ranges are those of all sizes. " + fmt.Sprintf("The paper repeats each transfer 20 times; here %s and %s make %d, others %d (fixed ratios %d). ", Product, mptcp, m5Reps, m5Fewer, oracleReps) + oracleSetup + " " + energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), Energy(set, "primary", true), CPUEnergy(set, "")},
	}
	for i, house := range m5Houses {
		for _, size := range m5Sizes {
			devices := fmt.Sprintf("%d devices", i+1)
			schemes := append([]string{Product, pams, naive, mptcp, "single"}, combines...)
			if i == 0 {
				devices, schemes = "1 device", []string{Product, "single"}
			}
			c := Cell{Name: fmt.Sprintf("%s, %v", devices, size), House: house, Size: size, Schemes: schemes, Reps: m5Reps, Quick: 1}
			c = c.fewer(m5Fewer, slices.Concat([]string{pams, naive, "single"}, combines)...).withOracles()
			if i == 0 {
				c.Reps = m5Fewer
			}
			r.Cells = append(r.Cells, c)
			at := alone(c)
			switch i {
			case 1:
				r.Points = append(r.Points, at.beside(mptcp, Time, -11, -5), at.beside(mptcp, active, -14, -10),
					at.besideOracle(c.ratios(), Time), at.besideOracle(c.ratios(), active),
					at.besideCombine(Time, -21, -15), at.besideCombine(active, -38, -28))
			case 2:
				r.Points = append(r.Points, at.beside(mptcp, Time, -30, -25), at.besideOracle(c.ratios(), Time), at.besideOracle(c.ratios(), active),
					at.besideCombine(Time, -26, -12), at.besideCombine(active, -25, -22))
			}
		}
	}
	return r
}

// combines are COMBINE with the sizes of chunks of which the paper took the best.
var combines = []string{"combine:256KB", "combine:128KB", "combine:64KB"}
