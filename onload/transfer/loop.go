package transfer

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"
	"time"

	"mpbond/onload/board"
)

// Loop carries out what a board orders, with the devices that there are, until its task has
// nothing left. Whoever changes something of the board or of the task holds the lock, and
// gives it back by Settle, so that what follows is begun. Run is called once; after it
// nothing runs any more.
type Loop struct {
	Config
	task    Task
	ctx     context.Context // of all that runs
	caller  context.Context // of Run, whose end counts at once; nil before Run
	stop    context.CancelCauseFunc
	running sync.WaitGroup
	done    chan struct{} // closed when the task has nothing left

	mu sync.Mutex
	// Board is that of the task's items. The lock must be held.
	Board *board.Board
	// LongStep lengthens Times.Patience as long as something runs that moves no bytes.
	LongStep time.Duration

	workers  []*Worker
	jobs     map[board.JobID]*Job
	started  bool
	closing  bool // nothing is begun any more
	over     bool // done is closed
	lastMove time.Time
	reported time.Time
}

// Lock takes the lock. Unlock or Settle gives it back.
func (l *Loop) Lock() { l.mu.Lock() }

// Unlock gives the lock back, where nothing was changed that the board must know of.
func (l *Loop) Unlock() { l.mu.Unlock() }

// Settle carries out what the board orders now, and gives the lock back.
func (l *Loop) Settle() {
	defer l.mu.Unlock()
	for l.started && !l.Closing() && !l.over {
		if !l.task.Next() {
			l.over = true
			close(l.done)
			return
		}
		if !l.carryOut() {
			return
		}
	}
}

// Go runs f in a goroutine that the end of Run waits for. The context ends with the loop.
func (l *Loop) Go(f func(ctx context.Context)) { l.running.Go(func() { f(l.ctx) }) }

// Closing reports whether the loop begins nothing any more: what fails from then on says
// nothing about devices, servers or items. The lock must be held.
func (l *Loop) Closing() bool {
	return l.closing || l.ctx.Err() != nil || l.caller != nil && l.caller.Err() != nil
}

// Joining reports whether more devices may be found. The lock must be held.
func (l *Loop) Joining() bool { return l.Joins != nil }

// Run works on a task until nothing of it is left, or ctx ends: then it returns the cause.
// What is on its way then is ended before it returns.
func (l *Loop) Run(ctx context.Context, task Task) error {
	defer context.AfterFunc(ctx, func() { l.stop(context.Cause(ctx)) })()
	l.Lock()
	l.task, l.started, l.caller = task, true, ctx
	for _, w := range l.workers {
		l.admit(w)
	}
	l.Settle()
	err := l.loop(ctx)
	l.Lock()
	l.closing = true
	l.Unlock()
	l.stop(ErrDropped)
	l.running.Wait()
	return err
}

// CloseIdle closes connections that are kept.
func (l *Loop) CloseIdle() {
	for _, w := range l.workers {
		w.Client.CloseIdleConnections()
	}
}

func (l *Loop) loop(ctx context.Context) error {
	tick := time.NewTicker(l.Times.Tick)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case d, ok := <-l.Joins:
			l.Lock()
			if w := (*Worker)(nil); !ok {
				l.Joins = nil // no more will be found
			} else if w = l.addWorker(d); w != nil {
				l.admit(w)
			}
			l.Settle()
		case <-tick.C:
			l.Lock()
			l.passTime(time.Now())
			l.Settle()
		}
	}
}

// carryOut does what the board orders, and reports whether it was anything.
func (l *Loop) carryOut() (any bool) {
	for {
		o, ok := l.Board.Next(time.Now())
		if !ok {
			return any
		}
		any = true
		switch j := l.jobs[o.Job.ID]; {
		case o.Kind == board.Start:
			l.start(o.Job)
		case j == nil:
		case o.Kind == board.Shorten:
			j.Item.To = o.Job.Item.To
			j.SetEnd(j.Item.To)
		default:
			l.drop(j)
		}
		l.Log.Debug("onload", "order", o.Kind, "device", l.workers[o.Job.Path].Name, "object", o.Job.Item.Object,
			"from", o.Job.Item.From, "to", o.Job.Item.To, "reason", o.Reason.String())
	}
}

// start has a job carried.
func (l *Loop) start(of board.Job) {
	j := &Job{Job: of, Worker: l.workers[of.Path]}
	j.SetEnd(of.Item.To)
	j.Await(!l.Sends)
	if j.carrier = l.task.Start(j); j.carrier == nil {
		return
	}
	l.jobs[j.ID] = j
	j.Worker.jobs++
	if l.Sends {
		l.Board.Progress(j.ID, 0, time.Now()) // no answer is waited for: it is sent at once
	}
	ctx, cancel := context.WithCancelCause(l.ctx)
	j.cancel = cancel
	l.running.Go(func() {
		err := j.carrier.Carry(ctx)
		if cause := context.Cause(ctx); cause != nil && err != nil && !errors.As(err, new(LocalError)) {
			err = cause
		}
		cancel(nil)
		l.Lock()
		defer l.Settle()
		l.ended(j, err, time.Now())
	})
}

// drop ends a job that the board has forgotten.
func (l *Loop) drop(j *Job) {
	l.Count(j)
	j.dropped = true
	l.forget(j)
	j.cancel(ErrDropped)
	if d, ok := j.carrier.(dropper); ok {
		d.Dropped()
	}
}

// forget frees the device of a job.
func (l *Loop) forget(j *Job) {
	if l.jobs[j.ID] == j {
		delete(l.jobs, j.ID)
		j.Worker.jobs--
	}
}

// ended takes in how a job went. Of one that the end of the loop broke off nothing is known.
func (l *Loop) ended(j *Job, err error, now time.Time) {
	l.Count(j)
	l.forget(j)
	switch {
	case j.dropped, err != nil && l.Closing():
		j.dropped, err = true, ErrDropped
	case err != nil:
		l.Board.Fail(j.ID, now)
	default:
		if l.Recovered(j.Worker); !l.Board.Finish(j.ID, now) {
			err = ErrDropped
		}
	}
	j.carrier.Ended(err)
}

// Count takes in what a job has carried by now. The lock must be held.
func (l *Loop) Count(j *Job) {
	got, now := j.Carried(), time.Now()
	n := got - j.counted
	if n == 0 {
		return
	}
	j.counted, l.lastMove = got, now
	j.Worker.bytes += max(0, n)
	if got >= l.Recovery && !l.Sends { // what is sent may be in buffers
		j.Worker.failures, j.Worker.lastError = 0, nil
	}
	if c, ok := j.carrier.(counter); ok {
		c.Moved(n)
	}
	if j.dropped {
		return
	}
	if size := j.Item.Size(); l.Sends && size > 0 {
		got = min(got, size-1) // all is there when it is confirmed
	}
	l.Board.Progress(j.ID, got, now)
}

// Withdraw has the board forget an object, and ends its jobs. The lock must be held.
func (l *Loop) Withdraw(object int) {
	l.Board.Drop(object)
	for _, j := range l.jobs {
		if j.Item.Object == object {
			l.drop(j)
		}
	}
}

// Jobs lists what is carried now. The lock must be held.
func (l *Loop) Jobs() iter.Seq[*Job] { return maps.Values(l.jobs) }

// IsUnderWay reports whether something of an object is carried now. The lock must be held.
func (l *Loop) IsUnderWay(object int) bool {
	for _, j := range l.jobs {
		if j.Item.Object == object {
			return true
		}
	}
	return false
}

// passTime does what time asks for.
func (l *Loop) passTime(now time.Time) {
	for _, j := range l.jobs {
		l.Count(j)
		switch quiet, waits := now.Sub(time.Unix(0, j.touched.Load())), j.Awaits(); {
		case waits && quiet > l.Times.Answer:
			j.cancel(l.NoAnswer)
		case !waits && quiet > l.Times.Stall:
			j.cancel(l.Stalled)
		}
	}
	back, hopeless := l.reviewWorkers(now)
	if limit := l.lastMove.Add(l.Times.Patience + l.LongStep); l.Times.Patience > 0 &&
		(now.After(limit) || !l.Joining() && (back.After(limit) || hopeless)) {
		l.task.GiveUp()
		return
	}
	if now.Sub(l.reported) >= 2*l.Times.Tick {
		l.reported = now
		l.task.Report(now)
	}
}
