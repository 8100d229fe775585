// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"iter"
	"time"

	"mpbond/base/unit"
)

// Experiment is one network in which schemes take turns, for RunAll. Its fields do not change once
// it is made.
type Experiment struct {
	Name string // for people
	Spec RunSpec
	// Dual is measured instead of transfers, if set. The schemes of Spec are then its cases, with a
	// user each (DualSchemeName).
	Dual *DualSpec
	// Expected is the expected time if it runs alone and nothing is disturbed.
	Expected time.Duration
	// StartFirst starts it before others of its kind, however long these take. It is for runs that
	// may end before all experiments have begun.
	StartFirst bool
	RunAlone   bool // nothing else may run at the same time

	computeTransfer func(scheme string, rep int) Result // in virtual time
	flowSpec        func(rep int) (FlowSpec, error)     // of bulk flows over one link

	cpuSeconds float64 // processor time that it takes
	// By scheme: the processors that a transfer needs, and its time with everything around it.
	schemeCores map[string]float64
	schemeTimes map[string]time.Duration
}

// NewExperiment returns the experiment of a spec's transfers.
func NewExperiment(name string, p RunSpec) (Experiment, error) {
	e := Experiment{Name: name, Spec: p}
	return e, e.estimateTimes()
}

// NewDualExperiment returns the experiment of a DualSpec.
func NewDualExperiment(name string, d DualSpec) (Experiment, error) {
	e := Experiment{Name: name, Dual: &d, Spec: RunSpec{Schemes: d.caseSchemes(), Size: d.Size, Reps: d.Reps,
		Seed: d.Seed}}
	var err error
	if e.Spec.Topology, err = d.buildDualTopology(); err != nil {
		return e, err
	}
	return e, e.estimateTimes()
}

// NewVirtualExperiment returns an experiment with transfers that are computed in virtual time, for
// the schemes, repetitions and seed of the spec. compute keeps one processor busy for about took.
// Its result depends on its arguments alone; several calls run at once.
func NewVirtualExperiment(
	name string,
	p RunSpec,
	took time.Duration,
	compute func(scheme string, rep int) Result,
) Experiment {
	e := Experiment{Name: name, Spec: p, computeTransfer: compute}
	for _, s := range p.Schemes {
		e.addSchemeEstimate(s, took, 1)
	}
	return e
}

// runComputed computes the pending transfers of an experiment in virtual time.
func (e Experiment) runComputed(ctx context.Context, w runHooks, emit func(Result)) error {
	for t := range e.Spec.pendingTransfers(w.skip) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r := e.computeTransfer(t.scheme, t.rep)
		r.Scheme, r.Rep, r.Streams, r.Direction = t.scheme, t.rep, 1, "get"
		emit(r)
	}
	return nil
}

// NewFlowExperiment returns an experiment of bulk flows over one link. Each set of controllers is a
// scheme. of returns the spec of a repetition, without its sets.
func NewFlowExperiment(name string, p RunSpec, of func(rep int) (FlowSpec, error)) Experiment {
	e := Experiment{Name: name, Spec: p, flowSpec: of}
	for _, s := range p.Schemes {
		e.addSchemeEstimate(s, p.Length+flowExtra, flowCores)
	}
	return e
}

// Time of a flow measurement besides its length, and its processors while flows send some 40 Mbit/s
// over a mobile network.
const (
	flowExtra = 3 * time.Second
	flowCores = 0.6
)

// runFlowSets runs the pending transfers of a flow experiment, each in its own lab.
func (e Experiment) runFlowSets(ctx context.Context, w runHooks, emit func(Result)) error {
	for t := range e.Spec.pendingTransfers(w.skip) {
		leave, err := w.waitTurn(ctx, t.scheme)
		if err != nil {
			return err
		}
		p, err := e.flowSpec(t.rep)
		if err == nil {
			p.Sets, p.Reps, p.Tries = []string{t.scheme}, 1, roundTries
			err = RunFlows(ctx, p, func(f FlowResult) { emit(f.lastPhaseResult(t.scheme, t.rep)) })
		}
		leave()
		if err != nil {
			return err
		}
	}
	return nil
}

// UsedFigure is the figure of VirtualResult with the part of the capacity that was used, in percent.
const UsedFigure = "used"

// lastPhaseResult returns the last phase of a measurement as the result of one flow.
func (f FlowResult) lastPhaseResult(scheme string, rep int) Result {
	r := Result{Scheme: scheme, Rep: rep, Streams: 1, Direction: "get", Disturbed: f.Disturbed, Discarded: f.Discarded,
		Lateness: f.Lateness, Starved: f.Starved, Error: f.Error}
	if len(f.Phases) == 0 {
		return r
	}
	p := f.Phases[len(f.Phases)-1]
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.Seconds = p.To - p.From
	r.Bytes = p.Rate.Bytes(time.Duration(r.Seconds * float64(time.Second)))
	r.Virtual = &VirtualResult{Flows: []Flow{{Controller: scheme, Rate: float64(p.Rate) / 1e6, Bytes: r.Bytes,
		P50: ms(p.Delay.P50), P95: ms(p.Delay.P95), Propagation: ms(f.Propagation),
		Lost: 100 * float64(p.Drops+p.Losses) / float64(max(p.Packets+p.Drops+p.Losses, 1))}},
		Figures: map[string]float64{UsedFigure: 100 * p.Used}}
	return r
}

// pendingTransfers yields the transfers of the spec in order; schemes take turns. It omits those
// that skip reports at their turn.
func (p RunSpec) pendingTransfers(skip func(scheme string, rep int) bool) iter.Seq[transferID] {
	return func(yield func(transferID) bool) {
		for rep := range p.Reps {
			for _, s := range p.Schemes {
				if rep < p.RepsOf(s) && (skip == nil || !skip(s, rep)) && !yield(transferID{s, rep}) {
					return
				}
			}
		}
	}
}

// Check returns why the experiment cannot run, on this machine or at all.
func (e Experiment) Check() error {
	switch {
	case e.computeTransfer != nil:
		return nil
	case e.Dual != nil, e.flowSpec != nil:
		return checkRequirements(nil, false)
	}
	return e.Spec.Check()
}

// TransferTime returns the estimated time of a transfer of a scheme.
func (e Experiment) TransferTime(scheme string) time.Duration { return e.schemeTimes[scheme] }

// phaseKind decides which experiments may run at the same time.
type phaseKind int

const (
	phaseAlone   phaseKind = iota // one at a time
	phaseVirtual                  // one for each processor, of the same phase
	phaseShared                   // as many as the processors allow
)

// experimentPhase returns the phase of the experiment.
func (e Experiment) experimentPhase() phaseKind {
	switch {
	case e.RunAlone:
		return phaseAlone
	case e.IsVirtual():
		return phaseVirtual
	}
	return phaseShared
}

// TransferCount returns how many transfers the experiment makes.
func (e Experiment) TransferCount() (n int) {
	for _, s := range e.Spec.Schemes {
		n += e.Spec.RepsOf(s)
	}
	return n
}

// IsVirtual reports whether its transfers are computed in virtual time. Such experiments run only
// beside each other, one for each processor.
func (e Experiment) IsVirtual() bool { return e.computeTransfer != nil }

// VirtualResult is the result of a transfer in virtual time, or of flows over one link.
type VirtualResult struct {
	Flows []Flow `json:"flows"` // the scheme's own flow first
	// Figures are further values by the name of their metric.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Flow is one flow of a VirtualResult. Rates are of IP bytes. Delays are one way, in ms.
type Flow struct {
	Controller  string     `json:"controller"`
	Rate        float64    `json:"mbit_s"`
	Bytes       unit.Bytes `json:"bytes"`
	Mean        float64    `json:"mean_ms"`
	P50         float64    `json:"p50_ms"`
	P95         float64    `json:"p95_ms"`
	Propagation float64    `json:"propagation_ms"` // delay without a queue or a cell
	Lost        float64    `json:"lost_percent"`
	// Carriers is the largest number of carriers that were active at once.
	Carriers int `json:"carriers,omitempty"`
	// States is the time in seconds in each state of the flow's controller.
	States map[string]float64 `json:"states,omitempty"`
	// If recorded: Quantiles are the delays at 0 to 100 % of the packets, in steps of 1 %. Rates
	// and Delays are the rate and mean delay in each slot of Step seconds.
	Quantiles []float64 `json:"quantiles_ms,omitempty"`
	Step      float64   `json:"step_seconds,omitempty"`
	Rates     []float64 `json:"rates_mbit_s,omitempty"`
	Delays    []float64 `json:"delays_ms,omitempty"`
}
