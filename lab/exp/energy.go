// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// radioKindOfLink returns the radio that a link stands for, by the link's name.
func radioKindOfLink(link string) radio.Kind {
	if strings.HasPrefix(link, "pipe") || strings.HasPrefix(link, "wifi") || strings.HasPrefix(link, "wlan") {
		return radio.WiFi
	}
	return radio.LTE // ps, hs1, lte, wwan0, …
}

// radioTraces returns a transfer's packets by device and radio. A device has one radio of each
// kind.
func radioTraces(r lab.Result) (all []radio.Trace) {
	for _, t := range r.Traffic {
		x := radio.Trace{Device: t.Node, Radio: radioKindOfLink(t.Link), Packets: make([]radio.Packet, 0, len(t.Sizes))}
		t.Each(func(at time.Duration, n unit.Bytes, sent bool) {
			x.Packets = append(x.Packets, radio.Packet{At: at, Size: n, Up: sent})
		})
		all = append(all, x)
	}
	return all
}

// Energy returns the metric E_active or E_full, of all devices or of one, by the constants of a
// set. Radios are idle before the transfer. A row with it needs the packets of its transfers.
func Energy(set radio.Set, device string, full bool) Metric {
	name := ""
	if device != "" {
		name = " of " + device
	}
	return energyMetric(set, name, full, func(i radio.Item) bool { return device == "" || i.Device == device })
}

// radioID is one radio of a device.
type radioID struct {
	device string
	kind   radio.Kind
}

// radioEnergy returns the energy of one radio, for transfers whose network has it.
func radioEnergy(set radio.Set, id radioID, full bool) Metric {
	return energyMetric(set, fmt.Sprintf(" of %s, %s", id.device, id.kind), full, func(i radio.Item) bool {
		return i.Device == id.device && i.Radio == id.kind
	})
}

// activePrefix begins the names of energies without tails.
const activePrefix = "E_active"

// energyMetric returns the energy of the items that meant accepts.
func energyMetric(set radio.Set, name string, full bool, meant func(radio.Item) bool) Metric {
	m := Metric{Name: activePrefix + name, Unit: "J", needsPackets: true, energySet: &set}
	if full {
		m.Name = "E_full" + name
	}
	m.Of = func(r lab.Result) (float64, bool) {
		items, err := set.Account(radioTraces(r))
		if err != nil {
			return 0, false // every set has LTE and WiFi
		}
		var sum radio.Energy
		ok := false
		for _, i := range items {
			if meant(i) {
				sum, ok = sum.Add(i.Energy), true
			}
		}
		if full {
			return float64(sum.Full()), ok
		}
		return float64(sum.Active()), ok
	}
	return m
}

// cpuSeconds returns the processor time in seconds of a node's programs while the client ran, for
// the primary including the client.
func cpuSeconds(r lab.Result, node string) float64 {
	used := r.CPU[node]
	if node == "primary" {
		used += r.ClientCPU
	}
	return used
}

// devicesWithCPUTime returns the primary and its helpers that report processor time, without the
// servers.
func devicesWithCPUTime(r lab.Result) (all []string) {
	for node := range r.CPU {
		if node == "primary" || strings.HasPrefix(node, "helper") {
			all = append(all, node)
		}
	}
	if !slices.Contains(all, "primary") && r.ClientCPU > 0 {
		all = append(all, "primary")
	}
	slices.Sort(all)
	return all
}

// CPUEnergy returns the metric E_cpu: the energy of the processors of all devices, or of one, by a
// set's core. It is in neither E_active nor E_full, which cover radios alone, as published energies
// do.
func CPUEnergy(set radio.Set, device string) Metric {
	m := Metric{Name: "E_cpu", Unit: "J"}
	if device != "" {
		m.Name += " of " + device
	}
	m.Of = func(r lab.Result) (float64, bool) {
		seconds, ok := 0.0, false
		for _, d := range devicesWithCPUTime(r) {
			if device == "" || d == device {
				seconds, ok = seconds+cpuSeconds(r, d), true
			}
		}
		return float64(set.Core().EnergyOf(seconds)), ok
	}
	return m
}

// energySetup describes how energies are computed.
func energySetup(set radio.Set) string {
	text := fmt.Sprintf("Energy by constants %s, of radios that are idle before; E_active is without tails. "+
		"Packets count while the client runs, for all schemes: mpbond's subflows are up before, and the "+
		"handshakes of other schemes are included.", set.Name)
	for _, k := range []radio.Kind{radio.LTE, radio.WiFi} {
		m, err := set.Model(k)
		if err != nil {
			continue // every set has both
		}
		text += fmt.Sprintf(" %s: %s", k, m.Source)
		if m.Lacks != "" {
			text += "; without " + m.Lacks
		}
		text += "."
	}
	c := set.Core()
	return text + fmt.Sprintf(" E_cpu, of programs on the devices: %s; %s. Work of a helper's kernel as a router "+
		"is not counted, so the value for mptcp is too low.", c.Source, c.Lacks)
}
