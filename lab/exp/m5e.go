// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"mpbond/base/unit"
	"mpbond/lab/radio"
)

// m5eSchemes are the schemes with several devices.
var m5eSchemes = []string{Product, pams, mptcp, "combine:256KB"}

// m5eHelper is the cell of the only published energy of a helper.
const m5eHelper = "2 devices, 4 MB"

func m5eCellName(devices int) string {
	if devices == 1 {
		return "1 device, 2 MB"
	}
	return fmt.Sprintf("%d devices, 2 MB", devices)
}

// rowM5eEnergy returns row m5e: energy by device and radio.
func rowM5eEnergy(set radio.Set) Row {
	r := Row{
		ID: "m5e", Title: "Energy by device and radio, one to three devices", Source: mpbondPaper + ", stable networks",
		Setup: commonSetup + " 8/10/5 Mbit/s, a third device like the second. For the primary's energy the " +
			"paper gives a direction without a value: the result is surely less, or not. For a helper's it gives " +
			"1.9 J for 4 MB. The constants mpbond-s5 were fitted to that by its rates alone: the row shows " +
			"whether the packets of a transfer agree. " + energySetup(set),
		Metrics: []Metric{Time, Energy(set, "", false), Energy(set, "primary", false)},
	}
	for _, device := range []string{"primary", "helper1", "helper2"} {
		for _, kind := range []radio.Kind{radio.LTE, radio.WiFi} {
			r.Metrics = append(r.Metrics, radioEnergy(set, radioID{device, kind}, false))
		}
	}
	r.Metrics = append(r.Metrics, Energy(set, "", true), Energy(set, "primary", true), CPUEnergy(set, ""),
		CPUEnergy(set, "primary"))
	for i, links := range m5Links {
		schemes := m5eSchemes
		if i == 0 {
			schemes = []string{Product, "single"}
		}
		r.Cells = append(r.Cells, Cell{Name: m5eCellName(i + 1), Links: links, Size: 2 * unit.MB, Schemes: schemes, Reps: 6,
			Quick: 1})
	}
	r.Cells = append(r.Cells, Cell{Name: m5eHelper, Links: m5Links[1], Size: 4 * unit.MB,
		Schemes: []string{Product, pams, mptcp}, Reps: 5, Quick: 1})
	for n := 2; n <= len(m5Links); n++ {
		for _, by := range comparedSets(set) {
			primary := Energy(by, "primary", false)
			r.Points = append(r.Points, Point{What: fmt.Sprintf("%s by %s: %d devices relative to %d", primary.Name, by.Name,
				n, n-1), Unit: "%", PublishedText: "less", Aim: AimAnyReduction,
				Of: func(d Data) []float64 {
					return d.cellChanges([2]string{m5eCellName(n), m5eCellName(n - 1)}, Product, primary)
				}})
		}
	}
	if s5, err := radio.FindSet(mobiSet); err == nil {
		for _, scheme := range []string{pams, Product} {
			r.Points = append(r.Points, Point{What: fmt.Sprintf("%s, %s: energy of helper1 by %s", m5eHelper, scheme,
				mobiSet), Unit: "J", Low: 1.9, High: 1.9, Aim: AimNear, IsFitted: true,
				Of: func(d Data) []float64 { return d.Values(m5eHelper, scheme, Energy(s5, "helper1", true)) }})
		}
	}
	return r
}

// mobiSet is the set of constants that agrees with the only energy that the paper gives.
const mobiSet = "mpbond-s5"

// comparedSets returns the chosen constants and those of mobiSet.
func comparedSets(set radio.Set) []radio.Set {
	if s, err := radio.FindSet(mobiSet); err == nil && set.Name != mobiSet {
		return []radio.Set{set, s}
	}
	return []radio.Set{set}
}
