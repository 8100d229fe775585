// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/flow"
)

func testFlows(length string, flows []string) (err error) {
	var job flow.Job
	if job.Length, err = time.ParseDuration(length); err != nil {
		return err
	}
	if err := job.ParseFlows(1, flows); err != nil {
		return err
	}
	return flow.Source(context.Background(), job, os.Stdin, os.Stdout)
}

// TestFlows runs mpbond's controllers and the kernel's, alone and in pairs, over links of 10 Mbit/s
// that drop to 5. The reports on link and flows must agree. The test does not depend on the speed
// of the machine.
func TestFlows(t *testing.T) {
	needLab(t)
	top, err := Triangle("10")
	if err != nil {
		t.Fatal(err)
	}
	p := FlowSpec{Topology: top, Link: "ps", Sets: []string{"bbr", "kernel:cubic", "cubic+kernel:cubic"},
		Length: 2 * time.Second,
		Marks:  []time.Duration{time.Second}, Reps: 1, At: []string{"1s:ps.rate=5Mbit/s"}, Together: true, Tries: 1}
	got := map[string]FlowResult{}
	if err := RunFlows(context.Background(), p, func(r FlowResult) { got[r.Set] = r }); err != nil {
		t.Fatal(err)
	}
	// capacity returns the mean rate of the link between two times: samples may be taken late.
	capacity := func(from, to float64) unit.Rate {
		before := max(0, min(to, 1)-from)
		return unit.Rate((10e6*before + 5e6*(to-from-before)) / (to - from))
	}
	const slot = 10e6 * 0.05 // bits; flows count their bytes in slots of 50 ms
	for i, set := range p.Sets {
		r := got[set]
		flows := 1 + i/2
		if r.Error != "" || len(r.Phases) != 2 || len(r.Seconds) < 2 || len(r.Retransmitted) != flows {
			t.Fatalf("%s: %+v", set, r)
		}
		for j, ph := range r.Phases {
			want := capacity(ph.From, ph.To)
			if ph.Capacity < want*9/10 || ph.Capacity > want*11/10 || ph.Rate <= 0 ||
				ph.Delay.P50 < 25*time.Millisecond || ph.Delay.P95 < ph.Delay.P50 {
				t.Errorf("%s, phase %d: %+v", set, j, ph)
			}
			if len(ph.Flows) != flows {
				t.Errorf("%s, phase %d: %v", set, j, ph.Flows)
			}
		}
		payload, carried := 0.0, 0.0
		for _, ph := range r.Phases {
			carried += float64(ph.Rate) * (ph.To - ph.From)
			for _, f := range ph.Flows {
				payload += float64(f) * (ph.To - ph.From)
			}
		}
		if payload <= 0 || payload > carried+slot {
			t.Errorf("%s: %.0f bits of payload in %.0f", set, payload, carried)
		}
	}
	// Packets of the first phase that were late came in the second.
	if r := got["bbr"]; r.Phases[1].Rate > capacity(r.Phases[1].From, r.Phases[1].To)+2*unit.Mbps+
		unit.Rate(10e6*r.Lateness.Max.Seconds()) {
		t.Errorf("the link did not change: %+v", r.Phases)
	}
	for _, bad := range []FlowSpec{
		{Topology: top, Link: "nolink", Sets: []string{"bbr"}, Length: time.Second, Reps: 1},
		{Topology: top, Link: "ps", Length: time.Second, Reps: 1},
		{Topology: top, Link: "ps", Sets: []string{"bbr"}, Length: time.Second, Marks: []time.Duration{time.Second},
			Reps: 1},
	} {
		if err := RunFlows(context.Background(), bad, nil); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
	// An unknown controller is reported with the program's error.
	p.Sets, p.Together, p.At = []string{"kernel:nothing"}, false, nil
	if err := RunFlows(context.Background(), p, func(r FlowResult) {
		got[r.Set] = r
	}); err != nil || got["kernel:nothing"].Error == "" {
		t.Errorf("%v, %+v", err, got["kernel:nothing"])
	}
}

// A flow experiment makes the requested measurements, each as a transfer of its scheme and
// repetition, with the link's values.
func TestFlowExperiment(t *testing.T) {
	needLab(t)
	e := NewFlowExperiment("x", RunSpec{Schemes: []string{"bbr", "cubic"}, Reps: 2, Length: time.Second},
		func(rep int) (FlowSpec, error) {
			top, err := Triangle("10")
			return FlowSpec{Topology: top, Link: "ps", Length: time.Second}, err
		})
	if e.Check() != nil || e.Expected != 4*e.TransferTime("bbr") || e.experimentPhase() != phaseShared {
		t.Errorf("%v, %v, %v", e.Expected, e.experimentPhase(), e.Check())
	}
	turns, made := 0, map[transferID]int{}
	w := runHooks{
		skip:     func(s string, rep int) bool { return rep == 0 || s == "bbr" },
		waitTurn: func(context.Context, string) (func(), error) { turns++; return func() { turns-- }, nil },
	}
	if err := e.runPendingTransfers(t.Context(), w, func(r Result) {
		made[transferID{r.Scheme, r.Rep}]++
		if r.Error != "" || r.Virtual == nil {
			t.Fatalf("%+v", r)
		}
		f := r.Virtual.Flows[0]
		if turns != 1 || f.Controller != "cubic" || f.Bytes != r.Bytes || r.Seconds < 0.9 || f.P50 < 25 || f.P95 < f.P50 {
			t.Errorf("%d turns, %+v, %+v", turns, r, f)
		}
		if rate := float64(8*r.Bytes) / 1e6 / r.Seconds; rate > 11 || rate < 1 || f.Rate > 1.001*rate ||
			f.Rate < 0.999*rate {
			t.Errorf("%.2f Mbit/s, %+v", rate, f)
		}
	}); err != nil || turns != 0 {
		t.Errorf("%d turns, %v", turns, err)
	}
	// Disturbed measurements are repeated.
	if n := made[transferID{"cubic", 1}]; len(made) != 1 || n < 1 || n > roundTries {
		t.Errorf("%v", made)
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		flows []unit.Rate
		want  float64
	}{{[]unit.Rate{5, 5}, 1}, {[]unit.Rate{7, 0}, 0.5}, {[]unit.Rate{1, 3}, 0.8}, {nil, 1}} {
		if got := Jain(c.flows); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%v: %v, want %v", c.flows, got, c.want)
		}
	}
}
