// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"mpbond/base/unit"
	"mpbond/lab/radio"
)

const (
	m1Stable  = "5/10/5, 4 MB"
	m1Varying = "5/10/5, 4 MB, HS-path to 1 Mbit/s at 2 s"
)

// m1Shares are the fixed shares of the direct path that are searched, by cell: with a helper that
// splits the connection, and with a helper that is a router. Where the HS-path drops, the time has
// two minima with a splitting helper: most bytes at the helper before the drop, or most on the
// direct path.
var m1Shares = map[string][2][]float64{
	m1Stable:  {{0.4, 0.45, 0.5, 0.55, 0.6}, {0.4, 0.45, 0.5, 0.55, 0.6}},
	m1Varying: {{0.2, 0.3, 0.35, 0.4, 0.5, 0.7, 0.8, 0.85, 0.9}, {0.5, 0.55, 0.6, 0.65, 0.7, 0.75}},
}

// rowM1FixedShares returns row m1: the helper splits the connection and buffers, so that its own
// link may be faster than the pipe; compared with fixed shares of the bytes.
func rowM1FixedShares(set radio.Set) Row {
	active, full := Energy(set, "", false), Energy(set, "", true)
	r := Row{
		ID: "m1", Title: "Connection split and PAMS against a fixed split of the bytes", Source: mpbondPaper +
			", connection split",
		Setup: commonSetup + " 4 MB at 5/10/5 Mbit/s; the HS-path falls from 10 to 1 Mbit/s 2 s after the " +
			"client starts, or does not. We do not know whether the paper's fixed split runs over helpers that " +
			"split the connection (here mpbond:ratio) or that are routers (" + mptcp +
			":ratio): both are compared at their best. \"The same time\" means at most 2 % more. Shares are " +
			"searched in steps of 5 or 10 %, and the best by time chosen after the fact, which favours them. " +
			energySetup(set),
		Metrics: []Metric{Time, active, full, Energy(set, "helper1", true)},
	}
	for _, name := range []string{m1Stable, m1Varying} {
		c := Cell{Name: name, Links: "5/10/5", Size: 4 * unit.MB, Schemes: []string{Product, pams, mptcp}, Reps: 7,
			RepsByScheme: map[string]int{}, Quick: 1}
		if name == m1Varying {
			c.At = []string{"2s:hs1.rate=1Mbit/s"}
		}
		for i, prefix := range []string{"mpbond:ratio:", ratioPrefix} {
			var fixed []string
			for _, p := range m1Shares[name][i] {
				fixed = append(fixed, prefix+formatRatio(p))
				c.RepsByScheme[prefix+formatRatio(p)] = ratioReps
			}
			c.Schemes = append(c.Schemes, fixed...)
			for _, ours := range []string{pams, Product} {
				point := func(m Metric, p Point) {
					p.What = name + ": " + m.Name + " of " + ours + " relative to the best " + prefix + "P"
					p.Unit = "%"
					p.Of = func(d Data) []float64 {
						return d.Changes(name, [2]string{ours, d.bestScheme(name, fixed, Time)}, m)
					}
					r.Points = append(r.Points, p)
				}
				if name == m1Stable {
					point(Time, Point{High: 2, PublishedText: "the same", Aim: AimAtMost, IsLimit: true})
					point(active, Point{Low: -22, High: -10, Aim: AimReduction})
				} else {
					point(Time, Point{PublishedText: "less", Aim: AimAnyReduction})
					point(active, Point{PublishedText: "less", Aim: AimAnyReduction})
				}
			}
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}
