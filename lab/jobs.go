// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Experiments that run at once have separate labs: namespaces, emulators and programs. They share
// only the processors. Each transfer therefore waits until the running ones and itself need less
// than a budget, by measured values (RunSpec.estimateBusyCores). The emulators' threads have
// real-time priority and always come first. Experiments that run alone show the effect on results.
//
// The more transfers run at once, the more are disturbed; the goal is many transfers that count.
// Measured on two processors without other load: three at once keep 0.16 of the processors busy and
// 100 % of their time counts, 2.9 s in each second. Eight take 0.70, 84 % and 6.2 s; ten take 0.83,
// 85 % and 8.2 s, but small transfers then take slightly longer. So the budget starts at
// budgetStart of the processors and follows the share that is disturbed: above mostDisturbed it shrinks
// by half of that share, since a slower machine needs far less; below fewDisturbed it grows by budgetStep.
const (
	budgetStart   = 0.70
	budgetLeast   = 0.20
	budgetMost    = 0.80
	budgetStep    = 0.05
	mostDisturbed = 0.25
	fewDisturbed  = 0.10
	budgetWindow  = 30 // transfers between two changes
	labsPerCPU    = 6  // more labs than can have their turn, so that no turn waits for a lab
	maxLabTries   = 2  // of an experiment whose lab dies
)

// Jobs limits how many experiments share the machine.
type Jobs struct {
	Max  int // experiments at once
	cpus int // whose time transfers share; 0: no limit but Max
}

// NewJobs returns the limit of n experiments at once; with n = 0, as many as this machine can run.
func NewJobs(n int) Jobs {
	if n > 0 {
		return Jobs{Max: n}
	}
	return Jobs{Max: labsPerCPU * runtime.NumCPU(), cpus: runtime.NumCPU()}
}

// budget is the share of the processors that transfers may use, adapted to disturbances.
type budget struct {
	cpus             int
	share            float64 // of the processors
	disturbed, total float64 // seconds of disturbed and of all transfers in this window
	transfers        int     // in this window
}

func newCPUBudget(cpus int) *budget { return &budget{cpus: cpus, share: budgetStart} }

// currentCores returns the budget in processors; 0 is no limit.
func (b *budget) currentCores() float64 { return b.share * float64(b.cpus) }

// addTransfer counts a transfer and adapts the budget at the end of a window.
func (b *budget) addTransfer(r Result) {
	took := r.Seconds + transferExtra.Seconds()
	b.total += took
	if r.Disturbed {
		b.disturbed += took
	}
	if b.transfers++; b.transfers < budgetWindow {
		return
	}
	switch share := b.disturbed / b.total; {
	case share > mostDisturbed:
		b.share = max(budgetLeast, b.share*(1-share/2))
	case share < fewDisturbed:
		b.share = min(budgetMost, b.share+budgetStep)
	}
	b.disturbed, b.total, b.transfers = 0, 0, 0
}

// Estimate estimates the time of the experiments. left returns the part of experiment i that is
// still to do, 1 for all of it.
func (j Jobs) Estimate(all []Experiment, left func(i int) float64) time.Duration {
	var alone, longest, work float64 // seconds; work in seconds of one job, or of one processor
	for i, e := range all {
		took := e.Expected.Seconds() * left(i)
		switch e.experimentPhase() {
		case phaseAlone:
			alone += took
			continue
		case phaseVirtual:
			alone += took / float64(j.parallelism(phaseVirtual))
			continue
		}
		longest = max(longest, took)
		if j.cpus == 0 {
			work += took
		} else {
			work += e.cpuSeconds * left(i)
		}
	}
	at := float64(j.Max)
	if j.cpus > 0 {
		at = budgetStart * float64(j.cpus)
	}
	return time.Duration((alone + max(longest, work/at)) * float64(time.Second))
}

// parallelism returns how many experiments of a phase run at once.
func (j Jobs) parallelism(p phaseKind) int {
	switch p {
	case phaseAlone:
		return 1
	case phaseVirtual:
		return min(j.Max, runtime.GOMAXPROCS(0))
	}
	return j.Max
}

// Events are the callbacks of RunAll, called one at a time.
type Events struct {
	RoundBegan func(i int) // of experiment i
	Result     func(i int, r Result)
	// RoundEnded reports the end of a round, and whether it was the last one of the experiment. err
	// says why the round is incomplete.
	RoundEnded func(i int, err error, last bool)
}

// Experiments run in rounds: all reach the repetitions of a round before any continues with the
// next one. So a run that ends early has some results of everything. Disturbed or failed transfers
// are repeated in later rounds; the last rounds are for those alone.
var roundReps = []int{3, 6, math.MaxInt, math.MaxInt, math.MaxInt}

const (
	roundTries = 2 // of a transfer in one round
	maxFailed  = 4 // transfers of a scheme in an experiment before RunAll gives it up
)

// experimentRound is one round of one experiment.
type experimentRound struct{ experiment, index int }

// progress is the state of an experiment. Only one of its rounds runs at a time.
type progress struct {
	completed  map[transferID]bool
	failed     map[string]int // by scheme
	roundsLeft int            // parts
}

// transferID identifies a transfer of an experiment.
type transferID struct {
	scheme string
	rep    int
}

// orderRounds returns all rounds of the experiments of a phase, in the order in which to start
// them: by round, then experiments with StartFirst, then the longest, so that the last ones end at
// about the same time.
func orderRounds(all []Experiment, of phaseKind) (order []experimentRound) {
	for round := range roundReps {
		for i, e := range all {
			if e.experimentPhase() == of {
				order = append(order, experimentRound{i, round})
			}
		}
	}
	slices.SortStableFunc(order, func(a, b experimentRound) int {
		x, y := all[a.experiment], all[b.experiment]
		if x.StartFirst != y.StartFirst && a.index == b.index {
			return map[bool]int{true: -1, false: 1}[x.StartFirst]
		}
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(y.Expected, x.Expected))
	})
	return order
}

// roundQueue hands out rounds to workers. A round waits while another one of its experiment runs.
type roundQueue struct {
	mu      sync.Mutex
	freed   sync.Cond
	pending []experimentRound // guarded by mu
	busy    map[int]bool      // experiments; guarded by mu
}

func newRoundQueue(parts []experimentRound) *roundQueue {
	t := &roundQueue{pending: parts, busy: map[int]bool{}}
	t.freed.L = &t.mu
	return t
}

// waitForRound waits for a round that may run. ok is false if none is left.
func (t *roundQueue) waitForRound() (p experimentRound, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.pending) > 0 {
		if at := slices.IndexFunc(t.pending, func(p experimentRound) bool { return !t.busy[p.experiment] }); at >= 0 {
			p = t.pending[at]
			t.pending = slices.Delete(t.pending, at, at+1)
			t.busy[p.experiment] = true
			return p, true
		}
		t.freed.Wait()
	}
	return p, false
}

// finishRound lets the next round of the experiment run.
func (t *roundQueue) finishRound(p experimentRound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, p.experiment)
	t.freed.Broadcast()
}

// RunAll runs experiments, several at once, and returns when all have ended or ctx has. Experiments
// that run alone come first, then those in virtual time. An experiment whose lab fails is tried
// again for its missing transfers. done reports whether a transfer is not to be made.
func RunAll(ctx context.Context, all []Experiment, j Jobs, done func(i int, scheme string, rep int) bool, ev Events) {
	var mu sync.Mutex // guards ev, b and roundsLeft of states
	b := newCPUBudget(j.cpus)
	admission := newAdmission(b.currentCores())
	states := make([]progress, len(all))
	for i := range states {
		states[i] = progress{map[transferID]bool{}, map[string]int{}, len(roundReps)}
	}
	for _, phase := range []phaseKind{phaseAlone, phaseVirtual, phaseShared} {
		t := newRoundQueue(orderRounds(all, phase))
		var wg sync.WaitGroup
		for range j.parallelism(phase) {
			wg.Go(func() {
				for p, ok := t.waitForRound(); ok; p, ok = t.waitForRound() {
					c := &states[p.experiment]
					withLockHeld(&mu, func() { ev.RoundBegan(p.experiment) })
					w := runHooks{
						skip: func(s string, rep int) bool {
							return rep >= roundReps[p.index] || c.isDoneOrGivenUp(s, rep) || done(p.experiment, s, rep)
						},
						waitTurn: func(ctx context.Context, s string) (func(), error) {
							return admission.waitForAdmission(ctx, all[p.experiment].schemeCores[s])
						},
					}
					err := runExperimentRound(ctx, all[p.experiment], c, w, func(r Result) {
						withLockHeld(&mu, func() {
							if ev.Result(p.experiment, r); phase == phaseShared && j.cpus > 0 {
								b.addTransfer(r)
								admission.updateAndAdmit(func() { admission.capacity = b.currentCores() })
							}
						})
					})
					withLockHeld(&mu, func() { c.roundsLeft--; ev.RoundEnded(p.experiment, err, c.roundsLeft == 0) })
					t.finishRound(p)
				}
			})
		}
		wg.Wait()
	}
}

// withLockHeld calls f with mu held.
func withLockHeld(mu *sync.Mutex, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

// isDoneOrGivenUp reports whether a transfer has been made or given up.
func (c *progress) isDoneOrGivenUp(scheme string, rep int) bool {
	return c.completed[transferID{scheme, rep}] || c.failed[scheme] >= maxFailed
}

// runExperimentRound runs a round of an experiment, and again if its lab failed.
func runExperimentRound(ctx context.Context, e Experiment, c *progress, w runHooks, emit func(Result)) (err error) {
	for range maxLabTries {
		if ctx.Err() != nil || e.Spec.allTransfersDone(w.skip) {
			return ctx.Err()
		}
		err = e.runPendingTransfers(ctx, w, func(r Result) {
			switch {
			case r.Error != "":
				c.failed[r.Scheme]++
			case !r.Disturbed || e.Spec.KeepDisturbed:
				c.completed[transferID{r.Scheme, r.Rep}] = true
			}
			emit(r)
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("its lab failed %d times: %w", maxLabTries, err)
}

// runHooks are RunAll's decisions about the transfers of an experiment.
type runHooks struct {
	skip     func(scheme string, rep int) bool
	waitTurn func(ctx context.Context, scheme string) (done func(), err error)
}

// runPendingTransfers makes the transfers of an experiment in a new lab.
func (e Experiment) runPendingTransfers(ctx context.Context, w runHooks, emit func(Result)) error {
	switch {
	case e.computeTransfer != nil:
		return e.runComputed(ctx, w, emit)
	case e.flowSpec != nil:
		return e.runFlowSets(ctx, w, emit)
	case e.Dual != nil:
		return e.Dual.runUserTransfers(ctx, w, emit)
	}
	p := e.Spec
	p.Skip, p.WaitTurn, p.Tries = w.skip, w.waitTurn, roundTries
	return Run(ctx, p, emit)
}

// allTransfersDone reports whether no transfer of the spec is pending.
func (p RunSpec) allTransfersDone(skip func(scheme string, rep int) bool) bool {
	for range p.pendingTransfers(skip) {
		return false
	}
	return true
}

// admission admits transfers in order of arrival while they need no more than its capacity.
type admission struct {
	mu       sync.Mutex
	capacity float64   // 0: no limit; guarded by mu
	used     float64   // guarded by mu
	queue    []*waiter // guarded by mu
}

// waiter is a transfer that waits for admission.
type waiter struct {
	need     float64
	admitted chan struct{} // closed on admission
}

// newAdmission returns an admission limit of a capacity in processors, without limit if it is 0.
func newAdmission(total float64) *admission { return &admission{capacity: total} }

// waitForAdmission waits for admission. A transfer that needs more than the capacity runs alone.
// The caller must call leave at the end.
func (g *admission) waitForAdmission(ctx context.Context, need float64) (leave func(), err error) {
	t := &waiter{need: need, admitted: make(chan struct{})}
	g.updateAndAdmit(func() { g.queue = append(g.queue, t) })
	var once sync.Once
	leave = func() { once.Do(func() { g.updateAndAdmit(func() { g.used -= t.need }) }) }
	select {
	case <-t.admitted:
		return leave, nil
	case <-ctx.Done():
	}
	g.updateAndAdmit(func() {
		for i, o := range g.queue {
			if o == t {
				g.queue = append(g.queue[:i:i], g.queue[i+1:]...)
				t.need = 0 // it was never admitted
				break
			}
		}
	})
	leave()
	return nil, context.Cause(ctx)
}

// updateAndAdmit calls f with mu held, then admits waiters as far as possible.
func (g *admission) updateAndAdmit(f func()) {
	const slack = 1e-9 // rounding of sums
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	for len(g.queue) > 0 && (g.capacity == 0 || g.used < slack || g.used+g.queue[0].need <= g.capacity+slack) {
		g.used += g.queue[0].need
		close(g.queue[0].admitted)
		g.queue = g.queue[1:]
	}
}
