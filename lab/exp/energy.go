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

// linkRadio is which radio a link stands for, by its name.
func linkRadio(link string) radio.Kind {
	if strings.HasPrefix(link, "pipe") || strings.HasPrefix(link, "wifi") || strings.HasPrefix(link, "wlan") {
		return radio.WiFi
	}
	return radio.LTE // ps, hs1, lte, wwan0, …
}

// radioTraces are a transfer's packets by device and radio: a device has one of each.
func radioTraces(r lab.Result) (all []radio.Trace) {
	for _, t := range r.Traffic {
		x := radio.Trace{Device: t.Node, Radio: linkRadio(t.Link), Packets: make([]radio.Packet, 0, len(t.Sizes))}
		t.Each(func(at time.Duration, n unit.Bytes, sent bool) {
			x.Packets = append(x.Packets, radio.Packet{At: at, Size: n, Up: sent})
		})
		all = append(all, x)
	}
	return all
}

// Energy is a metric: E_active or E_full of all devices, or of one, by the
// constants of a set. Radios are idle before the transfer. A row that has it
// needs the packets of its transfers.
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

// radioEnergy is likewise that of one radio, of transfers whose house has it.
func radioEnergy(set radio.Set, id radioID, full bool) Metric {
	return energyMetric(set, fmt.Sprintf(" of %s, %s", id.device, id.kind), full, func(i radio.Item) bool { return i.Device == id.device && i.Radio == id.kind })
}

// activePrefix begins the names of energies without tails.
const activePrefix = "E_active"

// energyMetric is the energy of those items that are meant.
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
		told := false
		for _, i := range items {
			if meant(i) {
				sum, told = sum.Add(i.Energy), true
			}
		}
		if full {
			return float64(sum.Full()), told
		}
		return float64(sum.Active()), told
	}
	return m
}

// cpuSeconds is the processor time, in seconds, of programs of a node while the client
// ran; of the primary with the client.
func cpuSeconds(r lab.Result, node string) float64 {
	used := r.CPU[node]
	if node == "primary" {
		used += r.ClientCPU
	}
	return used
}

// listDevices are the primary and its helpers, of which a transfer tells processor
// time: not the servers.
func listDevices(r lab.Result) (all []string) {
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

// CPUEnergy is a metric: E_cpu, what the processors of all devices took, or that
// of one, by a set's core. It is part of neither E_active nor E_full, which are
// those of radios, as published ones are.
func CPUEnergy(set radio.Set, device string) Metric {
	m := Metric{Name: "E_cpu", Unit: "J"}
	if device != "" {
		m.Name += " of " + device
	}
	m.Of = func(r lab.Result) (float64, bool) {
		seconds, told := 0.0, false
		for _, d := range listDevices(r) {
			if device == "" || d == device {
				seconds, told = seconds+cpuSeconds(r, d), true
			}
		}
		return float64(set.Core().EnergyOf(seconds)), told
	}
	return m
}

// energySetup says what energies are made of.
func energySetup(set radio.Set) string {
	text := fmt.Sprintf("Energy by constants %s, of radios that are idle before; E_active is without tails. Packets count while the client runs, for all schemes: mpbond's subflows are up before, other schemes' handshakes are in it.", set.Name)
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
	return text + fmt.Sprintf(" E_cpu, of programs on the devices: %s; %s. What a helper's kernel does as a router is nobody's, so that kernel MPTCP's is too low.", c.Source, c.Lacks)
}
