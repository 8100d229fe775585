package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"mpbond/base/unit"
)

// Worker is a device of a loop: its client, whether it works, and what it has carried. The
// loop's lock guards all but Device and Client.
type Worker struct {
	Device
	Client *http.Client
	// Wasted is what of its bytes was of no use.
	Wasted unit.Bytes

	times      Times
	path       int // on the board
	jobs       int // under way
	bytes      unit.Bytes
	failures   int // since it worked the last time
	unanswered int // of these, the last ones without any answer
	responded  bool
	retryTime  time.Time
	suspended  error // why it is not used, or nil
	lastError  error // of its last failure, or nil
}

// Path returns its number on the board, of which 0 is this device's own line.
func (w *Worker) Path() int { return w.path }

// IsLocal reports whether it is this device's own line, the first of Config.Devices.
func (w *Worker) IsLocal() bool { return w.path == 0 }

// IsUp reports whether it is not suspended.
func (w *Worker) IsUp() bool { return w.suspended == nil }

// MayRetry reports whether it is not to be left alone.
func (w *Worker) MayRetry(now time.Time) bool { return w.IsUp() && !now.Before(w.retryTime) }

// HasResponded reports whether a server has ever answered over it.
func (w *Worker) HasResponded() bool { return w.responded }

// IsBusy reports whether it carries something.
func (w *Worker) IsBusy() bool { return w.jobs > 0 }

// NoteResponse notes that a server has answered over it.
func (w *Worker) NoteResponse() { w.unanswered, w.responded = 0, true }

// BackOff notes a failure, and has the device left alone for a while, longer each time, but for
// what it carries; it returns for how long. A Refusal is an answer.
func (w *Worker) BackOff(atLeast time.Duration, err error) time.Duration {
	w.failures++
	if w.unanswered++; errors.As(err, new(*Refusal)) {
		w.NoteResponse()
	}
	pause := max(atLeast, w.times.BackoffAfter(w.failures))
	if w.retryTime, w.lastError = time.Now().Add(pause), err; atLeast > 0 {
		w.lastError = fmt.Errorf("%w, and asks to be left alone for %v", err, atLeast.Round(time.Second))
	}
	return pause
}

// Excluded are the devices that cannot have an object, and why.
type Excluded map[*Worker]error

// LocalWorker returns this device's own line.
func (l *Loop) LocalWorker() *Worker { return l.workers[0] }

// Workers lists the devices, this device's own line first. The lock must be held.
func (l *Loop) Workers() []*Worker { return l.workers }

// Usage lists what the devices have carried. The lock must be held.
func (l *Loop) Usage(now time.Time) (list []DeviceUsage) {
	paths := l.Board.Paths(now)
	for i, w := range l.workers {
		s := DeviceUsage{Device: w.Name, Bytes: w.bytes, Wasted: w.Wasted, Down: w.suspended}
		if paths[i].Busy {
			s.Rate = paths[i].Rate
		}
		list = append(list, s)
	}
	return list
}

// addWorker adds a device, unless it is not to be used; its path on the board is down.
func (l *Loop) addWorker(d Device) *Worker {
	client := l.NewClient(d)
	if client == nil {
		return nil
	}
	w := &Worker{Device: d, Client: client, times: l.Times, path: len(l.workers)}
	l.workers = append(l.workers, w)
	l.Board.AddDevice()
	l.Board.SetMetered(w.path, d.IsMetered())
	return w
}

// admitWorker has a device be used, once it is warm.
func (l *Loop) admitWorker(w *Worker) {
	var warm func(context.Context) error
	if l.WarmUp != nil {
		warm = l.WarmUp(w)
	}
	if warm == nil {
		l.Board.SetUp(w.path)
		return
	}
	l.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, warmUpTimeout)
		defer cancel()
		err := warm(ctx)
		l.Lock()
		defer l.DispatchAndUnlock()
		if err != nil && ctx.Err() == nil {
			l.Suspend(w, 0, err)
			return
		}
		l.Board.SetUp(w.path)
	})
}

// Exclude keeps a device from an object: from now on, and what it has of it under way. The
// lock must be held.
func (l *Loop) Exclude(object int, from Excluded, w *Worker, err error) {
	from[w] = err
	l.Board.Exclude(w.path, object, time.Now())
	l.Log.Debug("a device cannot carry an object", "device", w.Name, "object", object, "err", err)
}

// NoteRecovery notes that a device has done what it should. The lock must be held.
func (l *Loop) NoteRecovery(w *Worker) {
	w.NoteResponse()
	w.failures, w.lastError, l.lastProgress = 0, nil, time.Now()
}

// Resume has a device used again that was suspended. The lock must be held.
func (l *Loop) Resume(w *Worker) {
	w.suspended = nil
	l.Board.SetUp(w.path)
}

// Suspend is Delay for a device that does not work: what it carries fails. One that is
// refused while it carries several items carries one at a time from now on. The lock must
// be held.
func (l *Loop) Suspend(w *Worker, atLeast time.Duration, err error) {
	pause, several := w.BackOff(atLeast, err), false
	for _, j := range l.jobs {
		if j.Worker == w {
			several = true
			l.dropJob(j)
		}
	}
	w.suspended = err
	l.Board.SetDown(w.path, time.Now())
	if several && errors.As(err, new(*Refusal)) { // perhaps of so many at once
		l.Board.SetSingle(w.path)
	}
	l.Log.Debug("a device is suspended", "device", w.Name, "for", pause, "err", err)
	if l.OnSuspend != nil {
		l.OnSuspend(w.Name, err)
	}
}

// reviewWorkers resumes devices that are due. It returns when the first of the others is,
// and whether all have failed so often, and none was ever answered, that it is of no use.
func (l *Loop) reviewWorkers(now time.Time) (back time.Time, hopeless bool) {
	back, hopeless = now.Add(24*time.Hour), true
	for _, w := range l.workers {
		l.Board.SetMetered(w.path, w.IsMetered())
		if w.suspended != nil && now.After(w.retryTime) {
			l.Resume(w)
		}
		if w.suspended == nil {
			back = now
		} else if w.retryTime.Before(back) {
			back = w.retryTime
		}
		hopeless = hopeless && w.unanswered >= maxFailures && !w.responded
	}
	return back, hopeless
}
