package exp

import (
	"fmt"

	"mpbond/lab/radio"
	"mpbond/unit"
)

// m5eSchemes are those of several devices.
var m5eSchemes = []string{Product, pams, mptcp, "combine:256KB"}

func m5eCell(devices int) string {
	if devices == 1 {
		return "1 device, 2 MB"
	}
	return fmt.Sprintf("%d devices, 2 MB", devices)
}

// m5e: which device and radio takes the energy.
func m5e(set radio.Set) Row {
	r := Row{
		ID: "m5e", Title: "Energy by device and radio, one to three devices", Source: mobi + ", stable networks",
		Setup:   setup + " 2 MB, 8/10/5 Mbit/s, a third device like the second. The paper tells a direction, no figure: shown is surely less, or not. " + energySetup(set),
		Metrics: []Metric{Time},
	}
	for _, full := range []bool{false, true} {
		r.Metrics = append(r.Metrics, Energy(set, "", full), Energy(set, "primary", full))
		for _, device := range []string{"primary", "helper1", "helper2"} {
			for _, kind := range []radio.Kind{radio.LTE, radio.WiFi} {
				r.Metrics = append(r.Metrics, radioEnergy(set, radioID{device, kind}, full))
			}
		}
	}
	for i, house := range m5Houses {
		schemes := m5eSchemes
		if i == 0 {
			schemes = []string{Product, "single"}
		}
		r.Cells = append(r.Cells, Cell{Name: m5eCell(i + 1), House: house, Size: 2 * unit.MB, Schemes: schemes, Reps: 10, Quick: 1})
	}
	primary := Energy(set, "primary", false)
	for n := 2; n <= len(m5Houses); n++ {
		r.Points = append(r.Points, Point{What: fmt.Sprintf("%s: %d devices beside %d", primary.Name, n, n-1), Unit: "%", Told: "less", Aim: Falls,
			Of: func(d Data) []float64 { return d.between([2]string{m5eCell(n), m5eCell(n - 1)}, Product, primary) }})
	}
	return r
}
