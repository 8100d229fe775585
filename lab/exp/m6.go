package exp

import (
	"fmt"
	"slices"

	"mpbond/lab/radio"
)

// m6Rates of PS and HS: the paper tells figures of PS 1 and HS 18 alone; the
// other rates of its grid are our choice. 8/10 and 14/10 are in m7, with the same
// schemes.
var m6Rates = [][2]int{{1, 2}, {1, 10}, {1, 18}, {8, 2}, {8, 18}, {14, 2}, {14, 18}}

// Repetitions of m6: there are many cells.
const (
	m6Reps  = 6
	m6Fewer = 5
)

// m6: a grid of rates. Where the helper's link is much the better one, most is to
// be saved.
func m6(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m6", Title: "Small files, rates of PS and HS varied, pipe 5 Mbit/s", Source: mobi + ", stable networks",
		Setup:   setup + " Only PS 1/HS 18 has published figures; the grid's other rates are ours; 8/10/5 and 14/10/5 are in m7. COMBINE is beside it to see whether mpbond is quicker than both everywhere: the paper tells no figure of it here. " + oracleSetup + " " + energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), CPUEnergy(set, "")},
	}
	published := []float64{-31, -37, -47} // by size
	for _, rates := range m6Rates {
		for i, size := range m5Sizes {
			house := fmt.Sprintf("%d/%d/5", rates[0], rates[1])
			c := Cell{Name: fmt.Sprintf("%s, %v", house, size), House: house, Size: size, Schemes: slices.Concat([]string{Product, pams, mptcp}, combines), Reps: m6Reps}
			c = c.fewer(m6Fewer, slices.Concat([]string{pams}, combines)...).withOracles()
			r.Points = append(r.Points, alone(c).besideOracle(c.ratios(), Time))
			if rates == [2]int{1, 18} {
				c.Quick = 1
				r.Points = append(r.Points, alone(c).beside(mptcp, active, published[i], published[i]))
			}
			r.Cells = append(r.Cells, c)
		}
	}
	return r
}
