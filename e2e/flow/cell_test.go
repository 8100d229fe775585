// SPDX-License-Identifier: Apache-2.0

package flow_test

import (
	"strings"
	"testing"
	"time"

	"mpbond/lab"
	"mpbond/lab/virtual"
	"mpbond/pbe/flow"
)

// defaultCell is the cell of virtual.Default with one device, as a topology for real packets.
const defaultCell = `
seed = 1
[node.phone]
[node.server]
[link.air]
ends = ["phone", "server"]
delay = "25ms"
lte = {network = "one", rnti = 0x4000, signal = "18dB", error_rate = 2e-6, queue = "750KB"}
[lte.one]
carriers = [{prb = 50, control = 0.4}]
`

// TestCell runs PBE-CC with real packets over the default cell, with the control messages that the
// emulated cell reports. The results must match those in virtual time; while the machine is busy
// they need only use the cell. With -long it also runs our BBR and CUBIC and the kernel's.
func TestCell(t *testing.T) {
	requireLab(t)
	top, err := lab.ParseTopology([]byte(defaultCell), ".")
	if err != nil {
		t.Fatal(err)
	}
	const trip = 2 * virtual.DefaultDelay
	p := lab.FlowSpec{Topology: top, Link: "air", Sets: []string{"pbe"},
		Length: 4 * time.Second, Marks: []time.Duration{time.Second}, Reps: 1, Tries: 1}
	b := tolerance{0.25, 0.6, 40 * time.Millisecond}
	if *long {
		p.Sets = []string{"pbe", "bbr", "kernel:bbr", "cubic", "kernel:cubic"}
		p.Length, p.Marks, p.Reps, p.Tries = 12*time.Second, []time.Duration{2 * time.Second}, *repeats, *tries
		b = virtualTolerance
	}
	got := runSpec(t, trip, p)
	// The rate that the cell gives to one device that takes all of it. used is a part of this.
	available := func(seed uint64) float64 { return float64(virtual.Default(seed, 1).Available(0)) }
	for _, set := range p.Sets {
		real := medianPhases(got.bySet[set])[1]
		real.used = real.rate / available(1)
		name := strings.TrimPrefix(set, flow.KernelPrefix)
		var seeds [][]phase
		for seed := uint64(1); seed <= 5; seed++ {
			c := virtual.Default(seed, 1)
			c.Length = p.Length
			r := c.Run(name).Flows[0]
			seeds = append(seeds, []phase{{
				used:  float64(r.Rate(p.Marks[0], p.Length)) / available(seed),
				queue: r.Delay(p.Marks[0], p.Length, 0.95) - trip/2,
			}})
		}
		model := medianPhases(seeds)[0]
		t.Logf("default cell | %s | %d | %v | in virtual time %v %s",
			set, len(got.bySet[set]), real, model, got.disturbed[set])
		if *long && !got.undisturbed(set) {
			t.Errorf("%s: not measured: all runs were disturbed", set)
		}
		if real.used < leastUsed {
			t.Errorf("%s: %v, want at least %.0f %%", set, real, 100*leastUsed)
		}
		if d := b.difference(real, model); d != "" && got.undisturbed(set) {
			t.Errorf("%s: %v, in virtual time %v: %s", set, real, model, d)
		}
	}
}

// startTime is the first part of runPBE, which does not count.
const startTime = time.Second

// runPBE runs PBE-CC with real packets over a topology like defaultCell. It returns the phase after startTime.
func runPBE(t *testing.T, topology string, length time.Duration) (runs, phase) {
	t.Helper()
	top, err := lab.ParseTopology([]byte(topology), ".")
	if err != nil {
		t.Fatal(err)
	}
	got := runSpec(t, 2*virtual.DefaultDelay, lab.FlowSpec{Topology: top, Link: "air", Sets: []string{"pbe"},
		Length: length, Marks: []time.Duration{startTime}, Reps: 1, Tries: 1})
	return got, medianPhases(got.bySet["pbe"])[1]
}

// TestHandover runs PBE-CC with real packets while the device moves to another cell each second, with another RNTI that
// no message names. The sender uses the cell nevertheless.
func TestHandover(t *testing.T) {
	requireLab(t)
	moving := strings.Replace(defaultCell, `queue = "750KB"`, `queue = "750KB", handover = "1s"`, 1)
	got, real := runPBE(t, moving, 5*time.Second)
	used := real.rate / float64(virtual.Default(1, 1).Available(0))
	t.Logf("a handover each second: %.2f of the cell, %v %s", used, real, got.disturbed["pbe"])
	if used < 0.75 {
		t.Errorf("a handover each second: %.2f of the cell, want 0.75", used)
	}
}

// TestDetailedCell runs PBE-CC with real packets over a detailed cell, and compares it with the same parts in virtual
// time. Signals fade differently there, so only means can agree.
func TestDetailedCell(t *testing.T) {
	requireLab(t)
	const length = 6 * time.Second
	got, real := runPBE(t, defaultCell+"detailed = true\n", length)
	var seeds [][]phase
	for seed := uint64(1); seed <= 5; seed++ {
		c := virtual.Default(seed, 1)
		c.AddParts(virtual.Parts{Uplink: true, Blocks: true, Carriers: true})
		c.Length = length
		r := c.Run("pbe").Flows[0]
		seeds = append(seeds, []phase{{used: float64(r.Rate(startTime, length)) / 1e6,
			queue: r.Delay(startTime, length, 0.95) - virtual.DefaultDelay}})
	}
	model := medianPhases(seeds)[0]
	t.Logf("a detailed cell: %.1f Mbit/s, p95 %v, in virtual time %.1f Mbit/s, %v %s", real.rate/1e6, real.queue,
		model.used, model.queue, got.disturbed["pbe"])
	if part := real.rate / 1e6 / model.used; part < 0.7 || part > 1.2 {
		t.Errorf("%.2f of the rate in virtual time, want about 1", part)
	}
	if d := real.queue - model.queue; got.undisturbed("pbe") && (d < -30*time.Millisecond || d > 40*time.Millisecond) {
		t.Errorf("p95 of the delay %v, in virtual time %v", real.queue, model.queue)
	}
}
