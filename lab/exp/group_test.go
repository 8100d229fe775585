// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"math"
	"testing"

	"mpbond/lab"
)

// Cells whose repetitions meet the same network are one case for each repetition; other cells are
// separate cases.
func TestGroupMeets(t *testing.T) {
	d := Data{}
	for rep := range 3 {
		for cell, ours := range map[string]float64{"a": 0.5, "b": 0.9} {
			d[cell] = append(d[cell], lab.Result{Scheme: Product, Rep: rep, Seconds: ours},
				lab.Result{Scheme: mptcp, Rep: rep, Seconds: 1})
		}
	}
	for _, meet := range []bool{false, true} {
		s := Summarize(group{"both", []string{"a", "b"}, meet}.comparePoint(mptcp, Time, -1, -1).Of(d))
		if n := map[bool]int{false: 6, true: 3}[meet]; s.N != n || math.Abs(s.Mean+30) > 0.1 {
			t.Errorf("meet %v: %+v", meet, s)
		}
	}
}

// Tables have only the best fixed ratio, by its own name. A bound is the mean of its transfers'
// bounds. Fixed ratios have no gaps.
func TestTabled(t *testing.T) {
	slow, quick := ratioPrefix+"0.4", ratioPrefix+"0.6"
	row := Row{ID: "x", Cells: []Cell{{Name: "c", Schemes: []string{Product, slow, quick}}},
		Metrics: []Metric{Time, LongestGap}}
	var results []lab.Result
	for rep := range 2 {
		for scheme, s := range map[string]float64{Product: 1, slow: 3, quick: 2} {
			results = append(results, lab.Result{Scheme: scheme, Rep: rep, Seconds: s, Bound: 0.5 + float64(rep)/5,
				FirstByte: 0.2, LongestGap: 0.1})
		}
	}
	e := Evaluate(row, Record{Row: "x", Results: Data{"c": results}})
	lines := e.TableLines()
	if len(lines) != 3 || lines[1].Scheme != bestRatioLabel || lines[1].Mean != 2 ||
		math.Abs(lines[0].Bound-0.6) > 1e-9 {
		t.Errorf("%+v", lines)
	}
	if l := lines[len(lines)-1]; l.Scheme != Product || l.Metric != LongestGap.Name || l.Mean != 0.2 {
		t.Errorf("%+v", l)
	}
}
