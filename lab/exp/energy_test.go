// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"math"
	"slices"
	"strings"
	"testing"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// deviceEnergy is the energy of one component of one consumer of a device in a transfer.
type deviceEnergy struct {
	Device    string
	Consumer  string // a radio.Kind, or CPU
	Component string // of radio.Energy, or "busy"
	Energy    unit.Joules
}

// energyParts returns a transfer's energies by device, radio and component, and those of
// processors. Devices are in order of name, radios in that of their links, components in a fixed
// order, including zeros. Without recorded packets it returns those of processors alone.
func energyParts(set radio.Set, r lab.Result) (all []deviceEnergy) {
	items, err := set.Account(radioTraces(r))
	if err != nil {
		return nil // every set has LTE and WiFi
	}
	for _, i := range items {
		for _, c := range i.Components() {
			all = append(all, deviceEnergy{i.Device, string(i.Radio), c.Name, c.Energy})
		}
	}
	for _, d := range devicesWithCPUTime(r) {
		all = append(all, deviceEnergy{d, "CPU", "busy", set.Core().EnergyOf(cpuSeconds(r, d))})
	}
	slices.SortStableFunc(all, func(a, b deviceEnergy) int { return strings.Compare(a.Device, b.Device) })
	return all
}

// Energies by device, radio and component add up to those of the metrics.
func TestParts(t *testing.T) {

	r := lab.Result{Seconds: 1, ClientCPU: 0.5, CPU: map[string]float64{"primary": 1, "helper1": 0.25, "server": 8,
		"web": 8},
		Traffic: []lab.Traffic{
			{Node: "primary", Link: "ps", Gaps: []int64{0, 50_000}, Sizes: []int32{40, -1500}},
			{Node: "primary", Link: "pipe1", Gaps: []int64{0, 900_000}, Sizes: []int32{-1500, 40}},
			{Node: "helper1", Link: "pipe1", Gaps: []int64{0, 900_000}, Sizes: []int32{1500, -40}},
			{Node: "helper1", Link: "hs1", Gaps: []int64{0, 20_000_000}, Sizes: []int32{-1500, -1500}},
		}}
	for _, set := range radio.Sets {
		var all, active, cpu unit.Joules
		by := map[[3]string]unit.Joules{}
		for _, p := range energyParts(set, r) {
			key := [3]string{p.Device, p.Consumer, p.Component}
			if _, twice := by[key]; twice || p.Energy < 0 {
				t.Errorf("%+v is there twice, or less than nothing", p)
			}
			by[key] = p.Energy
			switch p.Component {
			case "busy":
				cpu += p.Energy
				continue
			case "promotion", "base", "data":
				active += p.Energy
			}
			all += p.Energy
		}
		if len(by) != 4*5+2 {
			t.Errorf("%s: %d parts", set.Name, len(by))
		}
		for _, c := range []struct {
			m    Metric
			want unit.Joules
		}{
			{Energy(set, "", true), all}, {Energy(set, "", false), active}, {CPUEnergy(set, ""), cpu},
			{CPUEnergy(set, "helper1"), by[[3]string{"helper1", "CPU", "busy"}]},
			{CPUEnergy(set, "primary"), set.Core().EnergyOf(1.5)},
		} {
			if v, ok := c.m.Of(r); !ok || math.Abs(v-float64(c.want)) > 1e-9 {
				t.Errorf("%s, %s: %v %v, its parts come to %v", set.Name, c.m.Name, v, ok, c.want)
			}
		}
		if got, want := by[[3]string{"primary", "LTE", "base"}],
			mustModel(t, set).Base.EnergyOver(0.05); math.Abs(float64(got-want)) > 1e-9 {
			t.Errorf("%s: 50 ms of LTE take %v, not %v", set.Name, got, want)
		}
	}
	if _, ok := CPUEnergy(radio.Sets[0], "").Of(lab.Result{}); ok ||
		len(energyParts(radio.Sets[0], lab.Result{})) != 0 {
		t.Error("a transfer that tells nothing has energies")
	}
	if _, ok := CPUEnergy(radio.Sets[0], "helper2").Of(r); ok {
		t.Error("a helper that is not there took energy")
	}
}

func mustModel(t *testing.T, set radio.Set) radio.Model {
	t.Helper()
	m, err := set.Model(radio.LTE)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What mpbond adds is the difference to plain TCP.
func TestCPU(t *testing.T) {
	r := rowM14CPUTime(radio.Sets[0])
	d := newData(r, 3, func(string, string) float64 { return 2 })
	for i := range d[m14Cell] {
		x := &d[m14Cell][i]
		x.ClientCPU = 0.04 * x.Seconds // 4 %
		if x.Scheme == Product {
			x.CPU = map[string]float64{"primary": 0.03 * x.Seconds, "helper1": 0.05 * x.Seconds}
		}
	}
	outcomes, v := r.EvaluatePoints(d)
	if len(outcomes) != 6 || math.Abs(outcomes[0].Mean-3) > 1e-9 || outcomes[0].Verdict != Reproduced ||
		math.Abs(outcomes[1].Mean-5) > 1e-9 || outcomes[1].Verdict != NotReproduced || v != NotReproduced {
		t.Errorf("%+v %s", outcomes, v)
	}
}
