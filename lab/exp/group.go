// SPDX-License-Identifier: Apache-2.0

package exp

import "fmt"

// group is a group of cells that is evaluated as one.
type group struct {
	name  string
	cells []string
	// sameNetwork says that a repetition meets the same network in all cells. The cells are then
	// one case, whose mean counts.
	sameNetwork bool
}

// singleGroup returns a cell as a group.
func singleGroup(c Cell) group { return group{c.Name, []string{c.Name}, false} }

// productChanges returns the changes of the product relative to a scheme of each cell.
func (g group) productChanges(d Data, other func(cell string) string, m Metric) (percent []float64) {
	var order []int
	cases := map[int][]float64{}
	for i, c := range g.cells {
		d.forEachPair(c, [2]string{Product, other(c)}, m, func(rep int, ours, base float64) {
			if base <= 0 {
				return
			}
			if !g.sameNetwork {
				rep = i<<16 + rep
			}
			if cases[rep] == nil {
				order = append(order, rep)
			}
			cases[rep] = append(cases[rep], 100*(ours/base-1))
		})
	}
	for _, rep := range order {
		percent = append(percent, Summarize(cases[rep]).Mean)
	}
	return percent
}

// comparePoint returns a point: by how many percent the product differs from another scheme in the
// cells, by repetition.
func (g group) comparePoint(other string, m Metric, low, high float64) Point {
	return Point{What: fmt.Sprintf("%s: %s relative to %s", g.name, m.Name, other), Unit: "%", Low: low, High: high,
		Aim: AimReduction,
		Of:  func(d Data) []float64 { return g.productChanges(d, func(string) string { return other }, m) }}
}

// compareCombine is like comparePoint, relative to COMBINE with the fastest chunk size of each
// cell.
func (g group) compareCombine(m Metric, low, high float64) Point {
	return Point{What: fmt.Sprintf("%s: %s relative to COMBINE", g.name, m.Name), Unit: "%", Low: low, High: high,
		Aim: AimReduction,
		Of:  func(d Data) []float64 { return g.bestChanges(d, combineSchemes, m) }}
}

// compareBestRatio is like comparePoint, relative to the fastest fixed ratio of each cell. No paper
// publishes a value of it: the result is surely less, or not.
func (g group) compareBestRatio(ratios []string, m Metric) Point {
	return Point{What: fmt.Sprintf("%s: %s relative to %s with the best fixed ratio", g.name, m.Name, mptcp), Unit: "%",
		PublishedText: noFigureText, Aim: AimAnyReduction,
		Of: func(d Data) []float64 { return g.bestChanges(d, ratios, m) }}
}

// bestChanges returns the changes relative to the fastest of some schemes in each cell.
func (g group) bestChanges(d Data, others []string, m Metric) []float64 {
	return g.productChanges(d, func(cell string) string { return d.bestScheme(cell, others, Time) }, m)
}
