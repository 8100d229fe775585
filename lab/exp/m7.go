package exp

import (
	"fmt"
	"slices"

	"mpbond/lab/radio"
)

// m7: rates of the direct path, beside COMBINE.
func m7(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m7", Title: "Small files beside COMBINE, rate of PS varied", Source: mobi + ", stable networks",
		Setup:   setup + " HS 10, pipe 5 Mbit/s. The published ranges are those of all cells; the sizes of files are our choice. " + oracleSetup + " " + energySetup(set),
		Metrics: []Metric{Time, active, Energy(set, "", true), CPUEnergy(set, "")},
	}
	for _, ps := range []int{5, 8, 11, 14} {
		for _, size := range m5Sizes {
			house := fmt.Sprintf("%d/10/5", ps)
			c := Cell{Name: fmt.Sprintf("%s, %v", house, size), House: house, Size: size, Schemes: slices.Concat([]string{Product, pams, mptcp}, combines), Reps: 7}
			if size == m5Sizes[0] {
				c.Quick = 1
			}
			c = c.fewer(5, slices.Concat([]string{pams}, combines)...).withOracles()
			r.Cells = append(r.Cells, c)
			r.Points = append(r.Points, alone(c).besideCombine(Time, -46, -14), alone(c).besideCombine(active, -57, -24), alone(c).besideOracle(c.ratios(), Time))
		}
	}
	return r
}
