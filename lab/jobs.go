package lab

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Experiments that run at once each have a lab of their own: namespaces, an
// emulator and programs that know nothing of the others. What they share is the
// processors; so each transfer waits for its turn until the sum of what the
// running ones need, as measured (Plan.cores), is below budgetShare of them.
// The emulator's threads have real-time priority, and come first in any case;
// budgetShare is for the programs. Experiments of the group Alone show what it
// does to results.
const (
	budgetShare = 0.7
	labsPerCPU  = 4 // more labs than can have their turn: no one waits for a lab to come up
	tries       = 2 // of an experiment whose lab dies
)

// Jobs is how experiments share the machine.
type Jobs struct {
	N     int     // experiments at once, at most
	cores float64 // processors that transfers may take; 0: no limit but N
}

// NewJobs runs n experiments at once, or as many as this machine can.
func NewJobs(n int) Jobs {
	if n > 0 {
		return Jobs{N: n}
	}
	return Jobs{N: labsPerCPU * runtime.NumCPU(), cores: budgetShare * float64(runtime.NumCPU())}
}

// Estimate is how long the experiments take, with what is not yet done of each
// (1: all of it).
func (j Jobs) Estimate(all []Experiment, left func(i int) float64) time.Duration {
	var alone, longest, work float64 // seconds; work in seconds of one job, or of one processor
	for i, e := range all {
		took := e.Expected.Seconds() * left(i)
		if e.lonely() {
			alone += took
			continue
		}
		longest = max(longest, took)
		if j.cores == 0 {
			work += took
		} else {
			work += e.work * left(i)
		}
	}
	at := float64(j.N)
	if j.cores > 0 {
		at = j.cores
	}
	return time.Duration((alone + max(longest, work/at)) * float64(time.Second))
}

// Events are what RunAll tells, one at a time.
type Events struct {
	Began  func(i int)
	Result func(i int, r Result)
	Ended  func(i int, err error) // err: it could not be completed
}

// RunAll runs experiments, several at once, and returns when all have ended, or
// ctx has. An experiment whose lab fails is tried again, for what is missing of
// it. done tells which transfers are not to be made.
func RunAll(ctx context.Context, all []Experiment, j Jobs, done func(i int, scheme string, rep int) bool, ev Events) {
	var mu sync.Mutex // guards ev
	g := newGate(j.cores)
	work := func(next <-chan int) {
		for i := range next {
			tell(&mu, func() { ev.Began(i) })
			err := runOne(ctx, all[i], g, func(s string, rep int) bool { return done(i, s, rep) }, func(r Result) {
				tell(&mu, func() { ev.Result(i, r) })
			})
			tell(&mu, func() { ev.Ended(i, err) })
		}
	}
	start := func(n int) (next chan int, wait func()) {
		var wg sync.WaitGroup
		next = make(chan int)
		for range n {
			wg.Go(func() { work(next) })
		}
		return next, func() { close(next); wg.Wait() }
	}
	next, wait := start(1)
	lonely := true
	for _, i := range longestFirst(all) {
		if all[i].lonely() != lonely {
			wait()
			if lonely = !lonely; lonely {
				next, wait = start(1)
			} else {
				next, wait = start(j.N)
			}
		}
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	wait()
}

func tell(mu *sync.Mutex, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

// runOne runs an experiment, again if its lab failed.
func runOne(ctx context.Context, e Experiment, g *gate, done func(string, int) bool, emit func(Result)) (err error) {
	type transfer struct {
		scheme string
		rep    int
	}
	made := map[transfer]bool{}
	p := e.Plan
	p.Skip = func(scheme string, rep int) bool { return made[transfer{scheme, rep}] || done(scheme, rep) }
	p.Turn = func(ctx context.Context, scheme string) (func(), error) { return g.enter(ctx, e.need[scheme]) }
	if p.complete() || ctx.Err() != nil {
		return ctx.Err()
	}
	for range tries {
		err = Run(ctx, p, func(r Result) {
			if r.Error == "" && !r.Disturbed {
				made[transfer{r.Scheme, r.Rep}] = true
			}
			emit(r)
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("its lab failed %d times: %w", tries, err)
}

// complete tells whether nothing is left of the plan.
func (p Plan) complete() bool {
	for _, s := range p.Schemes {
		for rep := range p.RepsOf(s) {
			if p.Skip == nil || !p.Skip(s, rep) {
				return false
			}
		}
	}
	return true
}

// gate lets transfers in while they need no more than it has, in the order in
// which they came.
type gate struct {
	mu    sync.Mutex
	total float64 // 0: no limit
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
	if g.total == 0 {
		return func() {}, nil
	}
	t := &turn{need: min(need, g.total), open: make(chan struct{})}
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
	for len(g.queue) > 0 && g.used+g.queue[0].need <= g.total+slack {
		g.used += g.queue[0].need
		close(g.queue[0].open)
		g.queue = g.queue[1:]
	}
}
