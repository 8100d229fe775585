package exp

import (
	"fmt"

	"mpbond/unit"
)

var m5Sizes = []unit.Bytes{512 * unit.KB, unit.MB, 2 * unit.MB}

// m5Houses are one to three devices. The third one's links are like the
// second's: the paper's are not known to us.
var m5Houses = []string{"8", "8/10/5", "8/10/5,10/5"}

// m5: small files over links that do not change.
var m5 = func() Row {
	r := Row{
		ID: "m5", Title: "Small files over stable links, one to three devices", Source: mobi + ", stable networks",
		Setup:   setup + " 8/10/5 Mbit/s, a third device like the second. The published ranges are those of all sizes.",
		Lacks:   "energy, COMBINE",
		Metrics: []Metric{Time},
	}
	for i, house := range m5Houses {
		for _, size := range m5Sizes {
			devices := fmt.Sprintf("%d devices", i+1)
			schemes := []string{Product, pams, naive, mptcp, "single"}
			if i == 0 {
				devices, schemes = "1 device", []string{Product, "single"}
			}
			c := Cell{Name: fmt.Sprintf("%s, %v", devices, size), House: house, Size: size, Schemes: schemes, Reps: 20, Quick: 1}
			r.Cells = append(r.Cells, c)
			if i == 0 {
				continue
			}
			low, high := -11.0, -5.0
			if i == 2 {
				low, high = -30, -25
			}
			r.Points = append(r.Points, Point{What: c.Name + ": time beside kernel MPTCP's", Unit: "%", Low: low, High: high, Aim: Change,
				Of: func(d Data) []float64 { return d.Changes(c.Name, [2]string{Product, mptcp}, Time) }})
		}
	}
	return r
}()
