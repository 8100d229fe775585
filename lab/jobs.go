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
// running ones need, by what was measured (Plan.cores), is below a budget. The
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
	tries         = 2  // of an experiment whose lab dies
)

// Jobs is how experiments share the machine.
type Jobs struct {
	N    int // experiments at once, at most
	cpus int // whose time the transfers share; 0: no limit but N
}

// NewJobs runs n experiments at once, or as many as this machine can.
func NewJobs(n int) Jobs {
	if n > 0 {
		return Jobs{N: n}
	}
	return Jobs{N: labsPerCPU * runtime.NumCPU(), cpus: runtime.NumCPU()}
}

// budget is what transfers may take of the processors, as it develops.
type budget struct {
	cpus      int
	share     float64 // of the processors
	late, all float64 // seconds of transfers in this window that were disturbed, and of all
	made      int     // transfers in this window
}

func newBudget(cpus int) *budget { return &budget{cpus: cpus, share: budgetStart} }

// cores is the budget now, in processors; 0 is no limit.
func (b *budget) cores() float64 { return b.share * float64(b.cpus) }

// add takes in a transfer.
func (b *budget) add(r Result) {
	took := r.Seconds + transferExtra.Seconds()
	b.all += took
	if r.Disturbed {
		b.late += took
	}
	if b.made++; b.made < budgetWindow {
		return
	}
	switch share := b.late / b.all; {
	case share > mostDisturbed:
		b.share = max(budgetLeast, b.share-budgetStep)
	case share < fewDisturbed:
		b.share = min(budgetMost, b.share+budgetStep)
	}
	b.late, b.all, b.made = 0, 0, 0
}

// Estimate is how long the experiments take, with what is not yet done of each
// (1: all of it).
func (j Jobs) Estimate(all []Experiment, left func(i int) float64) time.Duration {
	var alone, longest, work float64 // seconds; work in seconds of one job, or of one processor
	for i, e := range all {
		took := e.Expected.Seconds() * left(i)
		switch e.phase() {
		case lonely:
			alone += took
			continue
		case computed:
			alone += took / float64(j.atOnce(computed))
			continue
		}
		longest = max(longest, took)
		if j.cpus == 0 {
			work += took
		} else {
			work += e.work * left(i)
		}
	}
	at := float64(j.N)
	if j.cpus > 0 {
		at = budgetStart * float64(j.cpus)
	}
	return time.Duration((alone + max(longest, work/at)) * float64(time.Second))
}

// atOnce is how many experiments of a phase run at once.
func (j Jobs) atOnce(p phase) int {
	switch p {
	case lonely:
		return 1
	case computed:
		return min(j.N, runtime.GOMAXPROCS(0))
	}
	return j.N
}

// Events are what RunAll tells, one at a time.
type Events struct {
	Began  func(i int) // a round of an experiment
	Result func(i int, r Result)
	// Ended tells that a round has ended, and whether it was the last one. err:
	// the round could not be completed.
	Ended func(i int, err error, last bool)
}

// Experiments are made in rounds: each comes to so many repetitions before any
// goes on to more. So a run that is ended early has something of everything. What
// was discarded, or failed, is tried again in the rounds that follow; the last
// ones are for that alone.
var rounds = []int{3, 6, math.MaxInt, math.MaxInt, math.MaxInt}

const (
	roundTries = 2 // of a transfer, in one round
	maxFailed  = 4 // transfers of a scheme in an experiment: then it is given up
)

// part is a round of an experiment.
type part struct{ i, round int }

// course is what has become of an experiment so far. Only one of its parts runs
// at a time.
type course struct {
	made   map[transferID]bool
	failed map[string]int // by scheme
	left   int            // parts
}

type transferID struct {
	scheme string
	rep    int
}

// parts are all rounds of all experiments, in the order in which to start them:
// by round, then those that are to be first, then the longest, so that the last ones
// end at about the same time.
func parts(all []Experiment, of phase) (order []part) {
	for round := range rounds {
		for i, e := range all {
			if e.phase() == of {
				order = append(order, part{i, round})
			}
		}
	}
	slices.SortStableFunc(order, func(a, b part) int {
		x, y := all[a.i], all[b.i]
		if x.First != y.First && a.round == b.round {
			return map[bool]int{true: -1, false: 1}[x.First]
		}
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(y.Expected, x.Expected))
	})
	return order
}

// turns hands out parts, to whoever is free. A part waits while another one of
// its experiment runs.
type turns struct {
	mu    sync.Mutex
	freed sync.Cond
	parts []part       // guarded by mu
	busy  map[int]bool // experiments; guarded by mu
}

func newTurns(parts []part) *turns {
	t := &turns{parts: parts, busy: map[int]bool{}}
	t.freed.L = &t.mu
	return t
}

func (t *turns) next() (p part, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.parts) > 0 {
		if at := slices.IndexFunc(t.parts, func(p part) bool { return !t.busy[p.i] }); at >= 0 {
			p = t.parts[at]
			t.parts = slices.Delete(t.parts, at, at+1)
			t.busy[p.i] = true
			return p, true
		}
		t.freed.Wait()
	}
	return p, false
}

func (t *turns) done(p part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, p.i)
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
	g := newGate(b.cores())
	courses := make([]course, len(all))
	for i := range courses {
		courses[i] = course{map[transferID]bool{}, map[string]int{}, len(rounds)}
	}
	for _, phase := range []phase{lonely, computed, shared} {
		t := newTurns(parts(all, phase))
		var wg sync.WaitGroup
		for range j.atOnce(phase) {
			wg.Go(func() {
				for p, ok := t.next(); ok; p, ok = t.next() {
					c := &courses[p.i]
					tell(&mu, func() { ev.Began(p.i) })
					w := wishes{
						skip: func(s string, rep int) bool { return rep >= rounds[p.round] || c.skips(s, rep) || done(p.i, s, rep) },
						turn: func(ctx context.Context, s string) (func(), error) { return g.enter(ctx, all[p.i].need[s]) },
					}
					err := runOne(ctx, all[p.i], c, w, func(r Result) {
						tell(&mu, func() {
							if ev.Result(p.i, r); phase == shared && j.cpus > 0 {
								b.add(r)
								g.change(func() { g.total = b.cores() })
							}
						})
					})
					tell(&mu, func() { c.left--; ev.Ended(p.i, err, c.left == 0) })
					t.done(p)
				}
			})
		}
		wg.Wait()
	}
}

func tell(mu *sync.Mutex, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

// skips tells which transfers have been made, or given up.
func (c *course) skips(scheme string, rep int) bool {
	return c.made[transferID{scheme, rep}] || c.failed[scheme] >= maxFailed
}

// runOne runs a round of an experiment, again if its lab failed.
func runOne(ctx context.Context, e Experiment, c *course, w wishes, emit func(Result)) (err error) {
	for range tries {
		if ctx.Err() != nil || e.Plan.complete(w.skip) {
			return ctx.Err()
		}
		err = e.run(ctx, w, func(r Result) {
			switch {
			case r.Error != "":
				c.failed[r.Scheme]++
			case !r.Disturbed || e.Plan.KeepDisturbed:
				c.made[transferID{r.Scheme, r.Rep}] = true
			}
			emit(r)
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("its lab failed %d times: %w", tries, err)
}

// wishes are what RunAll has to say about the transfers of an experiment.
type wishes struct {
	skip func(scheme string, rep int) bool
	turn func(ctx context.Context, scheme string) (done func(), err error)
}

// run makes the transfers of an experiment in a lab of their own.
func (e Experiment) run(ctx context.Context, w wishes, emit func(Result)) error {
	switch {
	case e.compute != nil:
		return e.computed(ctx, w, emit)
	case e.flows != nil:
		return e.flowed(ctx, w, emit)
	case e.Dual != nil:
		return e.Dual.transfers(ctx, w, emit)
	}
	p := e.Plan
	p.Skip, p.Turn, p.Tries = w.skip, w.turn, roundTries
	return Run(ctx, p, emit)
}

// complete tells whether nothing is left of the plan.
func (p Plan) complete(skip func(scheme string, rep int) bool) bool {
	for range p.transfers(skip) {
		return false
	}
	return true
}

// gate lets transfers in while they need no more than it has, in the order in
// which they came.
type gate struct {
	mu    sync.Mutex
	total float64 // 0: no limit; guarded by mu
	used  float64 // guarded by mu
	queue []*turn // guarded by mu
}

type turn struct {
	need float64
	open chan struct{} // closed when it is let in
}

func newGate(total float64) *gate { return &gate{total: total} }

// enter waits for a turn. One that needs more than there is has it alone.
func (g *gate) enter(ctx context.Context, need float64) (leave func(), err error) {
	t := &turn{need: need, open: make(chan struct{})}
	g.change(func() { g.queue = append(g.queue, t) })
	var once sync.Once
	leave = func() { once.Do(func() { g.change(func() { g.used -= t.need }) }) }
	select {
	case <-t.open:
		return leave, nil
	case <-ctx.Done():
	}
	g.change(func() {
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

// change makes a change and lets in who can be.
func (g *gate) change(f func()) {
	const slack = 1e-9 // sums of fractions
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	for len(g.queue) > 0 && (g.total == 0 || g.used < slack || g.used+g.queue[0].need <= g.total+slack) {
		g.used += g.queue[0].need
		close(g.queue[0].open)
		g.queue = g.queue[1:]
	}
}
