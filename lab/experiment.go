package lab

import (
	"context"
	"iter"
	"time"

	"mpbond/base/unit"
)

// Experiment is one network in which schemes take turns: what RunAll runs. Its fields
// are not changed once it is made.
type Experiment struct {
	Name string // for people
	Spec RunSpec
	// Dual, if set, is what is measured instead. Plan's schemes are then cases of it,
	// with a user each (DualSchemeName).
	Dual *DualSpec
	// Expected is how long it takes if nothing is disturbed, by itself.
	Expected time.Duration
	// StartFirst has it begin before others of its kind, however long these take: for a run
	// that may be ended before all have begun.
	StartFirst bool
	RunAlone   bool // nothing may run beside it

	computeTransfer func(scheme string, rep int) Result // in virtual time
	flowSpec        func(rep int) (FlowSpec, error)     // of bulk flows over one link

	cpuSeconds float64 // seconds of a processor that it takes
	// What a transfer of a scheme takes: processors, and time with all around it.
	schemeCores map[string]float64
	schemeTimes map[string]time.Duration
}

// NewExperiment returns the experiment whose transfers are those of a plan.
func NewExperiment(name string, p RunSpec) (Experiment, error) {
	e := Experiment{Name: name, Spec: p}
	return e, e.estimateTimes()
}

// NewDualExperiment is likewise one of two users.
func NewDualExperiment(name string, d DualSpec) (Experiment, error) {
	e := Experiment{Name: name, Dual: &d, Spec: RunSpec{Schemes: d.caseSchemes(), Size: d.Size, Reps: d.Reps, Seed: d.Seed}}
	var err error
	if e.Spec.Topology, err = d.buildTopology(); err != nil {
		return e, err
	}
	return e, e.estimateTimes()
}

// NewVirtualExperiment is likewise one whose transfers are computed in virtual time, by
// schemes, repetitions and seed of the plan. compute keeps one processor busy, for
// about took, and depends on nothing but what it is told; several run at once.
func NewVirtualExperiment(name string, p RunSpec, took time.Duration, compute func(scheme string, rep int) Result) Experiment {
	e := Experiment{Name: name, Spec: p, computeTransfer: compute}
	for _, s := range p.Schemes {
		e.addScheme(s, took, 1)
	}
	return e
}

// runComputed makes what is asked for of an experiment in virtual time.
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

// NewFlowExperiment is likewise one of bulk flows over one link, of which each set of
// controllers is a scheme; of makes the measurement of a repetition, but for its
// sets.
func NewFlowExperiment(name string, p RunSpec, of func(rep int) (FlowSpec, error)) Experiment {
	e := Experiment{Name: name, Spec: p, flowSpec: of}
	for _, s := range p.Schemes {
		e.addScheme(s, p.Length+flowExtra, flowCores)
	}
	return e
}

// What a measurement of flows takes besides their time, and of processors while they
// send some 40 Mbit/s over a mobile network.
const (
	flowExtra = 3 * time.Second
	flowCores = 0.6
)

// runFlowSets makes what is asked for of an experiment of flows, each in a lab of its
// own.
func (e Experiment) runFlowSets(ctx context.Context, w runHooks, emit func(Result)) error {
	for t := range e.Spec.pendingTransfers(w.skip) {
		leave, err := w.waitTurn(ctx, t.scheme)
		if err != nil {
			return err
		}
		p, err := e.flowSpec(t.rep)
		if err == nil {
			p.Sets, p.Reps, p.Tries = []string{t.scheme}, 1, roundTries
			err = RunFlows(ctx, p, func(f FlowResult) { emit(f.asResult(t.scheme, t.rep)) })
		}
		leave()
		if err != nil {
			return err
		}
	}
	return nil
}

// asResult is the last phase of a measurement as that of one flow.
func (f FlowResult) asResult(scheme string, rep int) Result {
	r := Result{Scheme: scheme, Rep: rep, Streams: 1, Direction: "get", Disturbed: f.Disturbed, Discarded: f.Discarded, Lateness: f.Lateness, Error: f.Error}
	if len(f.Phases) == 0 {
		return r
	}
	p := f.Phases[len(f.Phases)-1]
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.Seconds = p.To - p.From
	r.Bytes = p.Rate.Bytes(time.Duration(r.Seconds * float64(time.Second)))
	r.Virtual = &VirtualResult{Flows: []Flow{{Controller: scheme, Rate: float64(p.Rate) / 1e6, Bytes: r.Bytes, P50: ms(p.Delay.P50), P95: ms(p.Delay.P95)}}}
	return r
}

// pendingTransfers yields those of the plan in their order: schemes take turns. Those that are
// skipped when it is their turn are left out.
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

// Check says why the experiment cannot be made, on this machine or at all.
func (e Experiment) Check() error {
	switch {
	case e.computeTransfer != nil:
		return nil
	case e.Dual != nil, e.flowSpec != nil:
		return checkRequirements(nil)
	}
	return e.Spec.Check()
}

// TransferTime is how long a transfer of a scheme takes, about.
func (e Experiment) TransferTime(scheme string) time.Duration { return e.schemeTimes[scheme] }

// phaseKind is which experiments may run beside one another.
type phaseKind int

const (
	phaseAlone   phaseKind = iota // nothing
	phaseVirtual                  // as many as there are processors, of the same phase
	phaseShared                   // as many as the processors can bear
)

func (e Experiment) phaseOf() phaseKind {
	switch {
	case e.RunAlone:
		return phaseAlone
	case e.IsVirtual():
		return phaseVirtual
	}
	return phaseShared
}

// TransferCount is how many transfers it makes.
func (e Experiment) TransferCount() (n int) {
	for _, s := range e.Spec.Schemes {
		n += e.Spec.RepsOf(s)
	}
	return n
}

// IsVirtual reports whether its transfers are computed, in virtual time: they run beside
// each other only, one for each processor.
func (e Experiment) IsVirtual() bool { return e.computeTransfer != nil }

// VirtualResult is what a transfer in virtual time tells, or one of flows over one link.
type VirtualResult struct {
	Flows []Flow `json:"flows"` // those that are judged, the one of the scheme first
	// Figures are others, by what they are called in the cell's row.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Flow is one flow of such a transfer, by IP bytes. Delays are one way, in ms.
type Flow struct {
	Controller  string     `json:"controller"`
	Rate        float64    `json:"mbit_s"`
	Bytes       unit.Bytes `json:"bytes"`
	Mean        float64    `json:"mean_ms"`
	P50         float64    `json:"p50_ms"`
	P95         float64    `json:"p95_ms"`
	Propagation float64    `json:"propagation_ms"` // what it is without a queue or a cell
	Lost        float64    `json:"lost_percent"`
	// Carriers is how many were active at once, at most.
	Carriers int `json:"carriers,omitempty"`
	// States are seconds in each state of its controller.
	States map[string]float64 `json:"states,omitempty"`
	// Where asked for: delays at 0 to 100 % of the packets, in steps of 1 %; and
	// the rate and the mean delay in each slot of Step seconds.
	Quantiles []float64 `json:"quantiles_ms,omitempty"`
	Step      float64   `json:"step_seconds,omitempty"`
	Rates     []float64 `json:"rates_mbit_s,omitempty"`
	Delays    []float64 `json:"delays_ms,omitempty"`
}
