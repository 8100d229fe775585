// SPDX-License-Identifier: Apache-2.0

// Package flow_test compares congestion controllers with the kernel's on the same emulated links,
// and with themselves in virtual time.
package flow_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
	"mpbond/pbe/flow"
)

var (
	long    = flag.Bool("long", false, "run the cases of docs/explanation/pbe.md in full, and print their table")
	repeats = flag.Int("repeats", 1, "runs of each case with -long")
	tries   = flag.Int("tries", 1, "how often a run is made that is disturbed, with -long")
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		if err := runProgram(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "ft") // short: a socket path has at most 108 bytes
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_RUNTIME_DIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// runProgram runs a program that the lab starts from this test binary.
func runProgram(name string, args []string) error {
	switch name {
	case "daemon":
		return lab.RunDaemon(os.Stdin, os.Stdout)
	case "guard":
		return lab.RunGuard(os.Stdin, args[0])
	case "flow-sink":
		var listener flow.CellListener
		if len(args) == 4 { // --cells SOURCE --rnti N
			n, err := strconv.ParseUint(args[3], 10, 16)
			if err != nil {
				return err
			}
			listener = flow.CellListener{Source: args[1], RNTI: uint16(n)}
		}
		return flow.Sink(context.Background(), listener)
	case "flow-source": // --length L --seed N CONTROLLER@ADDRESS…
		var job flow.Job
		var err error
		if job.Length, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
		if err := job.ParseFlows(1, args[4:]); err != nil {
			return err
		}
		return flow.Source(context.Background(), job, os.Stdin, os.Stdout)
	}
	return fmt.Errorf("no program %q", name)
}

func requireLab(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root (network namespaces and /dev/net/tun)")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun")
	}
	have, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	for _, name := range []string{"bbr", "cubic"} {
		if !slices.Contains(strings.Fields(string(have)), name) {
			t.Skipf("the kernel has no %s (modprobe tcp_%s)", name, name)
		}
	}
}

// network is a link and the sets of flows that run over it.
type network struct {
	name      string
	rate      unit.Rate
	roundTrip time.Duration
	queue     float64 // capacity, in bandwidth-delay products
	loss      float64
	halved    [2]time.Duration // the rate is halved between these times
	sets      []string
	length    time.Duration
	marks     []time.Duration
}

var singleSets = []string{"bbr", "kernel:bbr", "cubic", "kernel:cubic"}

// pairedSets are sets of two flows, which show fairness.
var pairedSets = []string{
	"bbr+bbr", "kernel:bbr+kernel:bbr", "bbr+kernel:bbr",
	"cubic+cubic", "kernel:cubic+kernel:cubic", "cubic+kernel:cubic",
}

func allNetworks() []network {
	const ms = time.Millisecond
	n := []network{
		{name: "1 product", rate: 30 * unit.Mbps, roundTrip: 50 * ms, queue: 1, sets: singleSets},
		{name: "2 products", rate: 30 * unit.Mbps, roundTrip: 50 * ms, queue: 2, sets: singleSets},
		{name: "100 Mbit/s, 20 ms", rate: 100 * unit.Mbps, roundTrip: 20 * ms, queue: 2, sets: singleSets},
		{name: "1 % lost", rate: 30 * unit.Mbps, roundTrip: 50 * ms, queue: 2, loss: 0.01, sets: singleSets},
		{name: "halved", rate: 30 * unit.Mbps, roundTrip: 50 * ms, queue: 2, sets: singleSets,
			halved: [2]time.Duration{8 * time.Second, 16 * time.Second}, length: 24 * time.Second,
			marks: []time.Duration{
				3 * time.Second, 8 * time.Second, 11 * time.Second, 16 * time.Second, 18 * time.Second,
			}},
		{name: "two flows", rate: 30 * unit.Mbps, roundTrip: 50 * ms, queue: 1, sets: pairedSets,
			length: 18 * time.Second, marks: []time.Duration{6 * time.Second}},
	}
	for i := range n {
		if n[i].length == 0 {
			n[i].length, n[i].marks = 12*time.Second, []time.Duration{4 * time.Second}
		}
	}
	return n
}

func (n network) queueBytes() unit.Bytes {
	return unit.Bytes(n.queue * float64(n.rate.Bytes(n.roundTrip)))
}

func (n network) rateAt(now time.Duration) unit.Rate {
	if now >= n.halved[0] && now < n.halved[1] {
		return n.rate / 2
	}
	return n.rate
}

// flowSpec returns the run of sets over the network with real packets.
func (n network) flowSpec(t *testing.T, sets []string, reps int) lab.FlowSpec {
	top := &lab.Topology{Node: map[string]*lab.Node{"a": {}, "b": {}}, Link: map[string]*lab.Link{
		"way": {Ends: [2]string{"a", "b"}, LinkSettings: lab.LinkSettings{Delay: (n.roundTrip / 2).String()},
			Down: &lab.LinkSettings{
				Rate:  fmt.Sprint(int64(n.rate)),
				Queue: fmt.Sprint(int64(n.queueBytes())),
				Loss:  fmt.Sprint(n.loss),
			}}}}
	if err := top.Check(); err != nil {
		t.Fatal(err)
	}
	p := lab.FlowSpec{Topology: top, Link: "way", Sets: sets, Length: n.length, Marks: n.marks, Reps: reps, Seed: 1}
	if n.halved[1] > 0 {
		p.At = []string{
			fmt.Sprintf("%v:way.down.rate=%d", n.halved[0], int64(n.rate/2)),
			fmt.Sprintf("%v:way.down.rate=%d", n.halved[1], int64(n.rate)),
		}
	}
	return p
}

// phase holds the compared results of a part of a run: the used share of the rate, the 95th
// percentile of the queueing delay, and Jain's fairness index (0 for one flow).
type phase struct {
	used, jain float64
	rate       float64 // bit/s; set for real packets only
	queue      time.Duration
}

func (p phase) String() string {
	s := fmt.Sprintf("%.1f %%, %.0f ms", 100*p.used, float64(p.queue)/1e6)
	if p.jain > 0 {
		s += fmt.Sprintf(", Jain %.3f", p.jain)
	}
	return s
}

// phasesOf returns the phases of a run over a link with the given round-trip time.
func phasesOf(r lab.FlowResult, trip time.Duration) (list []phase) {
	for _, ph := range r.Phases {
		p := phase{used: ph.Used, rate: float64(ph.Rate), queue: ph.Delay.P95 - trip/2}
		if len(ph.Flows) > 1 {
			p.jain = lab.Jain(ph.Flows)
		}
		list = append(list, p)
	}
	return list
}

// runVirtual runs a set of our controllers in virtual time. The kernel's are not available there.
func (n network) runVirtual(set string, seed uint64) (list []phase) {
	var flows []virtual.Flow
	for i, name := range strings.Split(set, "+") {
		flows = append(flows, virtual.Flow{
			Controller:  cc.New(name, seed+uint64(i)),
			DelayToLink: n.roundTrip / 2,
			AckDelay:    n.roundTrip / 2,
			Loss:        n.loss,
		})
	}
	got := virtual.Run(virtual.NewWire(n.rateAt, n.queueBytes()), n.length, seed, flows...)
	from := time.Duration(0)
	for _, to := range append(slices.Clone(n.marks), n.length) {
		var p phase
		var rates []unit.Rate
		for _, r := range got {
			rate := r.Rate(from, to)
			rates = append(rates, rate)
			p.used += float64(rate)
			p.queue = max(p.queue, r.Delay(from, to, 0.95)-n.roundTrip/2)
		}
		p.used /= float64(n.rateAt(from)) * (1 - n.loss)
		if len(rates) > 1 {
			p.jain = lab.Jain(rates)
		}
		list = append(list, p)
		from = to
	}
	return list
}

// medianPhases returns, for each phase, the median of each figure over the runs.
func medianPhases(runs [][]phase) (list []phase) {
	for i := range runs[0] {
		pick := func(f func(phase) float64) float64 {
			var all []float64
			for _, r := range runs {
				all = append(all, f(r[i]))
			}
			slices.Sort(all)
			return (all[len(all)/2] + all[(len(all)-1)/2]) / 2
		}
		list = append(list, phase{
			used:  pick(func(p phase) float64 { return p.used }),
			jain:  pick(func(p phase) float64 { return p.jain }),
			rate:  pick(func(p phase) float64 { return p.rate }),
			queue: time.Duration(pick(func(p phase) float64 { return float64(p.queue) })),
		})
	}
	return list
}

// tolerance is the largest accepted difference. Queues may differ by the larger of share and queue.
type tolerance struct {
	used  float64
	share float64 // part of the longer queueing delay
	queue time.Duration
}

// difference names the figures of two runs that differ by more than the tolerance, or returns "".
func (b tolerance) difference(x, y phase) (what string) {
	if math.Abs(x.used-y.used) > b.used {
		what = "rate "
	}
	if d := max(x.queue-y.queue, y.queue-x.queue); d > b.queue && float64(d) > b.share*float64(max(x.queue, y.queue)) {
		what += "queue"
	}
	return what
}

// runs holds the phases of the runs of each set. If all runs of a set were disturbed, they are
// logged but not compared.
type runs struct {
	bySet     map[string][][]phase
	disturbed map[string]string // by set: how late packets were, if all runs were disturbed
}

// undisturbed reports whether the figures of all these sets count.
func (r runs) undisturbed(sets ...string) bool {
	return !slices.ContainsFunc(sets, func(s string) bool { return r.disturbed[s] != "" })
}

// leastUsed is the share of the rate that each short run must use, even on a busy machine.
const leastUsed = 0.4

// runSpec runs a flow spec.
func runSpec(t *testing.T, trip time.Duration, p lab.FlowSpec) runs {
	t.Helper()
	got, late := map[string][][]phase{}, map[string]string{}
	disturbed := map[string][][]phase{}
	err := lab.RunFlows(t.Context(), p, func(r lab.FlowResult) {
		switch {
		case r.Error != "":
			t.Errorf("%s: %s", r.Set, r.Error)
		case r.Disturbed:
			disturbed[r.Set] = append(disturbed[r.Set], phasesOf(r, trip))
			late[r.Set] = fmt.Sprintf("disturbed: late p99 %v, max %v, starved %v",
				r.Lateness.P99, r.Lateness.Max, r.Starved)
		default:
			got[r.Set] = append(got[r.Set], phasesOf(r, trip))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range p.Sets {
		if len(got[set]) > 0 {
			delete(late, set)
		} else {
			got[set] = disturbed[set]
		}
		if len(got[set]) == 0 {
			t.Fatal("no results of ", set)
		}
	}
	return runs{got, late}
}

// TestKernel compares our BBR and CUBIC over pbe/transport with the kernel's on the same link, and
// with themselves in virtual time. With -long it runs all cases of docs/explanation/pbe.md with the
// bounds stated there; otherwise one case with loose bounds, once. While the machine is busy that
// case shows only that all of them use the link.
func TestKernel(t *testing.T) {
	requireLab(t)
	if *long {
		for _, n := range allNetworks() {
			t.Run(n.name, func(t *testing.T) { compareNetwork(t, n, *repeats) })
		}
		return
	}
	n := network{rate: 8 * unit.Mbps, roundTrip: 40 * time.Millisecond, queue: 2, sets: singleSets,
		length: 5 * time.Second, marks: []time.Duration{2 * time.Second}}
	p := n.flowSpec(t, n.sets, 1)
	p.Together, p.Tries = true, 1
	got := runSpec(t, n.roundTrip, p)
	b := tolerance{0.25, 0.6, 40 * time.Millisecond}
	last := func(set string) phase { return got.bySet[set][0][1] }
	for _, name := range []string{"bbr", "cubic"} {
		ours, kernels, model := last(name), last(flow.KernelPrefix+name), n.runVirtual(name, 1)[1]
		t.Logf("%s: %v; the kernel's %v; in virtual time %v %s", name, ours, kernels, model, got.disturbed[name])
		if min(ours.used, kernels.used) < leastUsed {
			t.Errorf("%s: %v, the kernel's %v: want at least %.0f %%", name, ours, kernels, 100*leastUsed)
		}
		if !got.undisturbed(name, flow.KernelPrefix+name) {
			continue
		}
		if d := b.difference(ours, kernels); d != "" {
			t.Errorf("%s: %v, the kernel's %v: %s", name, ours, kernels, d)
		}
		if d := b.difference(ours, model); d != "" {
			t.Errorf("%s: %v, in virtual time %v: %s", name, ours, model, d)
		}
	}
	// BBR and CUBIC differ in their queues.
	if bbr, cubic := last("bbr").queue, last("cubic").queue; bbr > cubic+10*time.Millisecond &&
		got.undisturbed("bbr", "cubic") {
		t.Errorf("the queueing delay of BBR is %v, that of CUBIC %v", bbr, cubic)
	}
}

// The bounds that docs/explanation/pbe.md states.
var (
	kernelTolerance  = tolerance{0.05, 0.25, 10 * time.Millisecond}
	virtualTolerance = tolerance{0.05, 0.25, 10 * time.Millisecond}
)

// compareNetwork logs a network's rows of the table and reports results beyond the bounds.
func compareNetwork(t *testing.T, n network, reps int) {
	p := n.flowSpec(t, n.sets, reps)
	p.Tries = *tries
	got := runSpec(t, n.roundTrip, p)
	of := map[string][]phase{}
	for _, set := range n.sets {
		of[set] = medianPhases(got.bySet[set])
		row := fmt.Sprintf("%s | %s | %d | %v", n.name, set, len(got.bySet[set]), of[set])
		if strings.Contains(set, flow.KernelPrefix) {
			t.Log(row, got.disturbed[set])
			continue
		}
		var model [][]phase
		for seed := range uint64(5) {
			model = append(model, n.runVirtual(set, seed+1))
		}
		v := medianPhases(model)
		t.Log(row, "| in virtual time", v, got.disturbed[set])
		if !got.undisturbed(set) {
			t.Errorf("%s %s: not measured: all runs were disturbed", n.name, set)
		}
		// Phases alternate between settling and settled; only the settled ones are compared.
		for i := 1; i < len(v) && got.undisturbed(set); i += 2 {
			if d := virtualTolerance.difference(of[set][i], v[i]); d != "" {
				t.Errorf("%s %s, phase %d: %v, in virtual time %v: %s", n.name, set, i, of[set][i], v[i], d)
			}
		}
	}
	for _, name := range []string{"bbr", "cubic"} {
		k := flow.KernelPrefix + name
		for i := 1; i < len(of[name]) && got.undisturbed(name, k); i += 2 {
			if d := kernelTolerance.difference(of[name][i], of[k][i]); d != "" {
				t.Errorf("%s %s, phase %d: %v, the kernel's %v: %s", n.name, name, i, of[name][i], of[k][i], d)
			}
		}
	}
}
