package exp

import (
	"fmt"

	"mpbond/lab/radio"
)

// m6Rates of PS and HS: the paper tells figures of PS 1 and HS 18 alone; the
// other rates of its grid are our choice.
var (
	m6PS = []int{1, 8, 14}
	m6HS = []int{2, 10, 18}
)

// m6OracleReps are few: there are many cells.
const m6OracleReps = 3

// m6: a grid of rates. Where the helper's link is much the better one, most is to
// be saved.
func m6(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m6", Title: "Small files, rates of PS and HS varied, pipe 5 Mbit/s", Source: mobi + ", stable networks",
		Setup:   setup + " Only PS 1/HS 18 has published figures; the grid's other rates are ours. " + oracleSetup + " " + energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), CPUEnergy(set, "")},
	}
	published := []float64{-31, -37, -47} // by size
	for _, ps := range m6PS {
		for _, hs := range m6HS {
			for i, size := range m5Sizes {
				house := fmt.Sprintf("%d/%d/5", ps, hs)
				c := Cell{Name: fmt.Sprintf("%s, %v", house, size), House: house, Size: size, Schemes: []string{Product, pams, mptcp}, Reps: 10}.withOracles(m6OracleReps)
				r.Points = append(r.Points, alone(c).besideOracle(c.ratios(), Time))
				if ps == 1 && hs == 18 {
					c.Quick = 1
					r.Points = append(r.Points, alone(c).beside(mptcp, active, published[i], published[i]))
				}
				r.Cells = append(r.Cells, c)
			}
		}
	}
	return r
}
