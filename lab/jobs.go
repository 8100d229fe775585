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

// Experiments that run at once each have a lab of their own: namespaces, an
// emulator and programs that know nothing of the others. What they share is the
// processors; so each transfer waits for its turn until the sum of what the
// running ones need, by what was measured (Plan.busyCores), is below a budget. The
// emulator's threads have real-time priority, and come first in any case.
// Experiments that are alone show what it does to results.
//
// The more run at once, the more are disturbed: what is wanted is transfers that
// count. Measured on two processors with nothing else at work: three at once keep
// 0.16 of the processors busy, 100 % of their time counts, 2.9 s of it in each
// second; eight 0.70, 84 %, 6.2 s; ten 0.83, 85 %, 8.2 s, but small transfers then
// take a little longer. So the budget begins at budgetStart of the processors and
// follows the share that is disturbed: above mostDisturbed it shrinks, below
// fewDisturbed it grows.
const (
	budgetStart   = 0.70
	budgetLeast   = 0.20
	budgetMost    = 0.80
	budgetStep    = 0.05
	mostDisturbed = 0.25
	fewDisturbed  = 0.10
	budgetWindow  = 30 // transfers between two changes
	labsPerCPU    = 6  // more labs than can have their turn: no one waits for a lab to come up
	maxLabTries   = 2  // of an experiment whose lab dies
)

// Jobs is how experiments share the machine.
type Jobs struct {
	Max  int // experiments at once, at most
	cpus int // whose time the transfers share; 0: no limit but N
}

// NewJobs runs n experiments at once, or as many as this machine can.
func NewJobs(n int) Jobs {
	if n > 0 {
		return Jobs{Max: n}
	}
	return Jobs{Max: labsPerCPU * runtime.NumCPU(), cpus: runtime.NumCPU()}
}

// budget is what transfers may take of the processors, as it develops.
type budget struct {
	cpus             int
	share            float64 // of the processors
	disturbed, total float64 // seconds of transfers in this window that were disturbed, and of all
	transfers        int     // transfers in this window
}

func newBudget(cpus int) *budget { return &budget{cpus: cpus, share: budgetStart} }

// currentCores is the budget now, in processors; 0 is no limit.
func (b *budget) currentCores() float64 { return b.share * float64(b.cpus) }

// addTransfer takes in a transfer.
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
		b.share = max(budgetLeast, b.share-budgetStep)
	case share < fewDisturbed:
		b.share = min(budgetMost, b.share+budgetStep)
	}
	b.disturbed, b.total, b.transfers = 0, 0, 0
}

// Estimate is how long the experiments take, with what is not yet done of each
// (1: all of it).
func (j Jobs) Estimate(all []Experiment, left func(i int) float64) time.Duration {
	var alone, longest, work float64 // seconds; work in seconds of one job, or of one processor
	for i, e := range all {
		took := e.Expected.Seconds() * left(i)
		switch e.phaseOf() {
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

// parallelism is how many experiments of a phase run at once.
func (j Jobs) parallelism(p phaseKind) int {
	switch p {
	case phaseAlone:
		return 1
	case phaseVirtual:
		return min(j.Max, runtime.GOMAXPROCS(0))
	}
	return j.Max
}

// Events are what RunAll tells, one at a time.
type Events struct {
	RoundBegan func(i int) // a round of an experiment
	Result     func(i int, r Result)
	// RoundEnded tells that a round has ended, and whether it was the last one. err:
	// the round could not be completed.
	RoundEnded func(i int, err error, last bool)
}

// Experiments are made in rounds: each comes to so many repetitions before any
// goes on to more. So a run that is ended early has something of everything. What
// was discarded, or failed, is tried again in the rounds that follow; the last
// ones are for that alone.
var roundReps = []int{3, 6, math.MaxInt, math.MaxInt, math.MaxInt}

const (
	roundTries = 2 // of a transfer, in one round
	maxFailed  = 4 // transfers of a scheme in an experiment: then it is given up
)

// experimentRound is a round of an experiment.
type experimentRound struct{ experiment, index int }

// progress is what has become of an experiment so far. Only one of its parts runs
// at a time.
type progress struct {
	completed  map[transferID]bool
	failed     map[string]int // by scheme
	roundsLeft int            // parts
}

type transferID struct {
	scheme string
	rep    int
}

// orderRounds are all rounds of all experiments, in the order in which to start them:
// by round, then those that are to be first, then the longest, so that the last ones
// end at about the same time.
func orderRounds(all []Experiment, of phaseKind) (order []experimentRound) {
	for round := range roundReps {
		for i, e := range all {
			if e.phaseOf() == of {
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

// roundQueue hands out parts, to whoever is free. A part waits while another one of
// its experiment runs.
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

func (t *roundQueue) nextRound() (p experimentRound, ok bool) {
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

func (t *roundQueue) finishRound(p experimentRound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, p.experiment)
	t.freed.Broadcast()
}

// RunAll runs experiments, several at once, and returns when all have ended, or
// ctx has. Those beside which nothing may run come first,
// then those in virtual time. An experiment whose lab
// fails is tried again, for what is missing of it. done tells which transfers are
// not to be made.
func RunAll(ctx context.Context, all []Experiment, j Jobs, done func(i int, scheme string, rep int) bool, ev Events) {
	var mu sync.Mutex // guards ev, b and the courses' left
	b := newBudget(j.cpus)
	admission := newAdmission(b.currentCores())
	courses := make([]progress, len(all))
	for i := range courses {
		courses[i] = progress{map[transferID]bool{}, map[string]int{}, len(roundReps)}
	}
	for _, phase := range []phaseKind{phaseAlone, phaseVirtual, phaseShared} {
		t := newRoundQueue(orderRounds(all, phase))
		var wg sync.WaitGroup
		for range j.parallelism(phase) {
			wg.Go(func() {
				for p, ok := t.nextRound(); ok; p, ok = t.nextRound() {
					c := &courses[p.experiment]
					withLock(&mu, func() { ev.RoundBegan(p.experiment) })
					w := runHooks{
						skip: func(s string, rep int) bool {
							return rep >= roundReps[p.index] || c.shouldSkip(s, rep) || done(p.experiment, s, rep)
						},
						waitTurn: func(ctx context.Context, s string) (func(), error) {
							return admission.acquire(ctx, all[p.experiment].schemeCores[s])
						},
					}
					err := runRound(ctx, all[p.experiment], c, w, func(r Result) {
						withLock(&mu, func() {
							if ev.Result(p.experiment, r); phase == phaseShared && j.cpus > 0 {
								b.addTransfer(r)
								admission.update(func() { admission.capacity = b.currentCores() })
							}
						})
					})
					withLock(&mu, func() { c.roundsLeft--; ev.RoundEnded(p.experiment, err, c.roundsLeft == 0) })
					t.finishRound(p)
				}
			})
		}
		wg.Wait()
	}
}

func withLock(mu *sync.Mutex, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

// shouldSkip tells which transfers have been made, or given up.
func (c *progress) shouldSkip(scheme string, rep int) bool {
	return c.completed[transferID{scheme, rep}] || c.failed[scheme] >= maxFailed
}

// runRound runs a round of an experiment, again if its lab failed.
func runRound(ctx context.Context, e Experiment, c *progress, w runHooks, emit func(Result)) (err error) {
	for range maxLabTries {
		if ctx.Err() != nil || e.Spec.isComplete(w.skip) {
			return ctx.Err()
		}
		err = e.runTransfers(ctx, w, func(r Result) {
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

// runHooks are what RunAll has to say about the transfers of an experiment.
type runHooks struct {
	skip     func(scheme string, rep int) bool
	waitTurn func(ctx context.Context, scheme string) (done func(), err error)
}

// runTransfers makes the transfers of an experiment in a lab of their own.
func (e Experiment) runTransfers(ctx context.Context, w runHooks, emit func(Result)) error {
	switch {
	case e.computeTransfer != nil:
		return e.runComputed(ctx, w, emit)
	case e.flowSpec != nil:
		return e.runFlowSets(ctx, w, emit)
	case e.Dual != nil:
		return e.Dual.runTransfers(ctx, w, emit)
	}
	p := e.Spec
	p.Skip, p.WaitTurn, p.Tries = w.skip, w.waitTurn, roundTries
	return Run(ctx, p, emit)
}

// isComplete tells whether nothing is left of the plan.
func (p RunSpec) isComplete(skip func(scheme string, rep int) bool) bool {
	for range p.pendingTransfers(skip) {
		return false
	}
	return true
}

// admission lets transfers in while they need no more than it has, in the order in
// which they came.
type admission struct {
	mu       sync.Mutex
	capacity float64   // 0: no limit; guarded by mu
	used     float64   // guarded by mu
	queue    []*waiter // guarded by mu
}

type waiter struct {
	need     float64
	admitted chan struct{} // closed when it is let in
}

func newAdmission(total float64) *admission { return &admission{capacity: total} }

// acquire waits for a turn. One that needs more than there is has it alone.
func (g *admission) acquire(ctx context.Context, need float64) (leave func(), err error) {
	t := &waiter{need: need, admitted: make(chan struct{})}
	g.update(func() { g.queue = append(g.queue, t) })
	var once sync.Once
	leave = func() { once.Do(func() { g.update(func() { g.used -= t.need }) }) }
	select {
	case <-t.admitted:
		return leave, nil
	case <-ctx.Done():
	}
	g.update(func() {
		for i, o := range g.queue {
			if o == t {
				g.queue = append(g.queue[:i:i], g.queue[i+1:]...)
				t.need = 0 // it was never let in
				break
			}
		}
	})
	leave()
	return nil, context.Cause(ctx)
}

// update makes a change and lets in who can be.
func (g *admission) update(f func()) {
	const slack = 1e-9 // sums of fractions
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	for len(g.queue) > 0 && (g.capacity == 0 || g.used < slack || g.used+g.queue[0].need <= g.capacity+slack) {
		g.used += g.queue[0].need
		close(g.queue[0].admitted)
		g.queue = g.queue[1:]
	}
}
