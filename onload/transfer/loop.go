// SPDX-License-Identifier: Apache-2.0

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

// Loop executes the orders of a board on its devices until the task has nothing left. Callers that
// change the board or the task hold the lock and release it with DispatchAndUnlock, so that the
// resulting orders start. Run may be called once; when it returns, no goroutine of the loop is
// running.
type Loop struct {
	Config
	task      Task
	ctx       context.Context // of all jobs and goroutines
	callerCtx context.Context // passed to Run; its end stops new work at once. nil before Run
	cancel    context.CancelCauseFunc
	running   sync.WaitGroup
	done      chan struct{} // closed when the task has nothing left

	mu sync.Mutex
	// Board holds the items of the task. The lock must be held.
	Board *board.Board
	// IdleTimeoutExtension is added to Times.IdleTimeout while a step runs that moves no bytes.
	IdleTimeoutExtension time.Duration

	workers      []*Worker
	jobs         map[board.JobID]*Job
	started      bool
	closing      bool // no new work is started
	finished     bool // done is closed
	lastProgress time.Time
	lastReport   time.Time
}

// Lock takes the lock. Release it with Unlock or DispatchAndUnlock.
func (l *Loop) Lock() { l.mu.Lock() }

// Unlock releases the lock without dispatching. Use it when nothing changed that affects the board.
func (l *Loop) Unlock() { l.mu.Unlock() }

// DispatchAndUnlock executes all pending orders of the board and releases the lock.
func (l *Loop) DispatchAndUnlock() {
	defer l.mu.Unlock()
	for l.started && !l.IsClosing() && !l.finished {
		if !l.task.Schedule() {
			l.finished = true
			close(l.done)
			return
		}
		if !l.executeOrders() {
			return
		}
	}
}

// Go runs f in a goroutine that Run waits for before it returns. ctx ends with the loop.
func (l *Loop) Go(f func(ctx context.Context)) { l.running.Go(func() { f(l.ctx) }) }

// IsClosing reports whether the loop starts no more work. Failures from then on say nothing about
// devices, servers or items. The lock must be held.
func (l *Loop) IsClosing() bool {
	return l.closing || l.ctx.Err() != nil || l.callerCtx != nil && l.callerCtx.Err() != nil
}

// ExpectsDevices reports whether more devices may still be found. The lock must be held.
func (l *Loop) ExpectsDevices() bool { return l.NewDevices != nil }

// Run works on task until nothing of it is left or ctx ends; then it returns the cause of ctx. It
// stops running jobs and waits for them before it returns.
func (l *Loop) Run(ctx context.Context, task Task) error {
	defer context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })()
	l.Lock()
	l.task, l.started, l.callerCtx = task, true, ctx
	for _, w := range l.workers {
		l.admitWorker(w)
	}
	l.DispatchAndUnlock()
	err := l.runUntilDone(ctx)
	l.Lock()
	l.closing = true
	l.Unlock()
	l.cancel(ErrDropped)
	l.running.Wait()
	return err
}

// CloseIdleConnections closes the unused connections of all devices.
func (l *Loop) CloseIdleConnections() {
	for _, w := range l.workers {
		w.Client.CloseIdleConnections()
	}
}

// runUntilDone admits new devices and handles ticks until the task is done or ctx ends.
func (l *Loop) runUntilDone(ctx context.Context) error {
	tick := time.NewTicker(l.Times.TickInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case d, ok := <-l.NewDevices:
			l.Lock()
			if w := (*Worker)(nil); !ok {
				l.NewDevices = nil // no more devices will be found
			} else if w = l.addDeviceWorker(d); w != nil {
				l.admitWorker(w)
			}
			l.DispatchAndUnlock()
		case <-tick.C:
			l.Lock()
			l.handleLoopTick(time.Now())
			l.DispatchAndUnlock()
		}
	}
}

// executeOrders executes the pending orders of the board. It reports whether there were any. mu
// must be held.
func (l *Loop) executeOrders() (executed bool) {
	for {
		o, ok := l.Board.NextOrder(time.Now())
		if !ok {
			return executed
		}
		executed = true
		switch j := l.jobs[o.Job.ID]; {
		case o.Kind == board.Start:
			l.startJobOnDevice(o.Job)
		case j == nil:
		case o.Kind == board.Shorten:
			j.Item.To = o.Job.Item.To
			j.SetEnd(j.Item.To)
		default:
			l.dropRunningJob(j)
		}
		l.Log.Debug("onload", "order", o.Kind, "device", l.workers[o.Job.Path].Name, "object", o.Job.Item.Object,
			"from", o.Job.Item.From, "to", o.Job.Item.To, "reason", o.Reason.String())
	}
}

// startJobOnDevice starts a job on its device. mu must be held.
func (l *Loop) startJobOnDevice(boardJob board.Job) {
	j := &Job{Job: boardJob, Worker: l.workers[boardJob.Path]}
	j.SetEnd(boardJob.Item.To)
	j.SetAwaitingResponse(!l.Upload)
	if j.runner = l.task.StartJob(j); j.runner == nil {
		return
	}
	l.jobs[j.ID] = j
	j.Worker.jobs++
	if l.Upload {
		l.Board.ReportProgress(j.ID, 0, time.Now()) // an upload sends at once and waits for no response
	}
	ctx, cancel := context.WithCancelCause(l.ctx)
	j.cancel = cancel
	l.running.Go(func() {
		err := j.runner.Run(ctx)
		if cause := context.Cause(ctx); cause != nil && err != nil && !errors.As(err, new(LocalError)) {
			err = cause
		}
		cancel(nil)
		l.Lock()
		defer l.DispatchAndUnlock()
		l.recordJobEnd(j, err, time.Now())
	})
}

// dropRunningJob ends a job that the board has already removed. mu must be held.
func (l *Loop) dropRunningJob(j *Job) {
	l.CountProgress(j)
	j.dropped = true
	l.removeRunningJob(j)
	j.cancel(ErrDropped)
	if d, ok := j.runner.(dropObserver); ok {
		d.OnDrop()
	}
}

// removeRunningJob removes a job from the running jobs. It does nothing if the job was removed
// before. mu must be held.
func (l *Loop) removeRunningJob(j *Job) {
	if l.jobs[j.ID] == j {
		delete(l.jobs, j.ID)
		j.Worker.jobs--
	}
}

// recordJobEnd records how a job ended. A job that the end of the loop interrupted counts as
// dropped. mu must be held.
func (l *Loop) recordJobEnd(j *Job, err error, now time.Time) {
	l.CountProgress(j)
	l.removeRunningJob(j)
	switch {
	case j.dropped, err != nil && l.IsClosing():
		j.dropped, err = true, ErrDropped
	case err != nil:
		l.Board.Fail(j.ID, now)
	default:
		if l.NoteRecovery(j.Worker); !l.Board.Finish(j.ID, now) {
			err = ErrDropped
		}
	}
	j.runner.OnEnd(err)
}

// CountProgress records the bytes that a job has carried so far. The lock must be held.
func (l *Loop) CountProgress(j *Job) {
	got, now := j.Carried(), time.Now()
	n := got - j.counted
	if n == 0 {
		return
	}
	j.counted, l.lastProgress = got, now
	j.Worker.bytes += max(0, n)
	if got >= l.RecoveryBytes && !l.Upload { // sent bytes may still be in buffers
		j.Worker.failures, j.Worker.lastError = 0, nil
	}
	if c, ok := j.runner.(progressCounter); ok {
		c.CountMoved(n)
	}
	if j.dropped {
		return
	}
	if size := j.Item.Size(); l.Upload && size > 0 {
		got = min(got, size-1) // the last byte counts only when the item is confirmed
	}
	l.Board.ReportProgress(j.ID, got, now)
}

// WithdrawObject removes an object from the board and ends its jobs. The lock must be held.
func (l *Loop) WithdrawObject(object int) {
	l.Board.RemoveObject(object)
	for _, j := range l.jobs {
		if j.Item.Object == object {
			l.dropRunningJob(j)
		}
	}
}

// Jobs returns the running jobs. The lock must be held.
func (l *Loop) Jobs() iter.Seq[*Job] { return maps.Values(l.jobs) }

// IsUnderWay reports whether a job of object is running. The lock must be held.
func (l *Loop) IsUnderWay(object int) bool {
	for _, j := range l.jobs {
		if j.Item.Object == object {
			return true
		}
	}
	return false
}

// handleLoopTick does what is due: it counts progress, cancels stalled jobs and resumes devices
// after their back-off. It gives the task up when nothing moves, and else has it report its
// progress. mu must be held.
func (l *Loop) handleLoopTick(now time.Time) {
	for _, j := range l.jobs {
		l.CountProgress(j)
		switch quiet, waits := now.Sub(time.Unix(0, j.lastActivity.Load())), j.AwaitsResponse(); {
		case waits && quiet > l.Times.ResponseTimeout:
			j.cancel(l.ErrNoResponse)
		case !waits && quiet > l.Times.StallTimeout:
			j.cancel(l.ErrStalled)
		}
	}
	usableAt, hopeless := l.reviewWorkers(now)
	if limit := l.lastProgress.Add(l.Times.IdleTimeout + l.IdleTimeoutExtension); l.Times.IdleTimeout > 0 &&
		(now.After(limit) || !l.ExpectsDevices() && (usableAt.After(limit) || hopeless)) {
		l.task.GiveUp()
		return
	}
	if now.Sub(l.lastReport) >= 2*l.Times.TickInterval {
		l.lastReport = now
		l.task.ReportProgress(now)
	}
}
