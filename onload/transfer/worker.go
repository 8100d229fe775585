// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"mpbond/base/unit"
)

// Worker is a device of a loop: its client, its availability and its bytes. The loop's lock guards
// all fields but Device and Client.
type Worker struct {
	Device
	Client *http.Client
	// Wasted is how many of its bytes were of no use.
	Wasted unit.Bytes

	times      Times
	boardIndex int // index of its path on the board
	jobs       int // running jobs
	bytes      unit.Bytes
	failures   int // since the last success
	unanswered int // most recent failures in a row without any response
	responded  bool
	retryTime  time.Time
	suspended  error // why it is suspended, or nil
	lastError  error // of the last failure, or nil
}

// BoardIndex returns the index of the path of the device on the board. That of the local device is
// 0.
func (w *Worker) BoardIndex() int { return w.boardIndex }

// IsLocal reports whether this is the local device, the first of Config.Devices.
func (w *Worker) IsLocal() bool { return w.boardIndex == 0 }

// IsUp reports whether the device is not suspended.
func (w *Worker) IsUp() bool { return w.suspended == nil }

// MayRetry reports whether the device is up and its back-off is over.
func (w *Worker) MayRetry(now time.Time) bool { return w.IsUp() && !now.Before(w.retryTime) }

// HasResponded reports whether a server has ever responded over the device.
func (w *Worker) HasResponded() bool { return w.responded }

// IsBusy reports whether a job is running on the device.
func (w *Worker) IsBusy() bool { return w.jobs > 0 }

// NoteResponse records that a server has responded over the device.
func (w *Worker) NoteResponse() { w.unanswered, w.responded = 0, true }

// BackOff records a failure and starts a back-off, which grows with each failure and lasts at least
// atLeast. Running jobs continue. A Refusal counts as a response. BackOff returns the length of the
// back-off.
func (w *Worker) BackOff(atLeast time.Duration, err error) time.Duration {
	w.failures++
	if w.unanswered++; errors.As(err, new(*Refusal)) {
		w.NoteResponse()
	}
	pause := max(atLeast, w.times.BackoffAfter(w.failures))
	if w.retryTime, w.lastError = time.Now().Add(pause), err; atLeast > 0 {
		w.lastError = fmt.Errorf("%w, and asks to retry after %v", err, atLeast.Round(time.Second))
	}
	return pause
}

// Excluded maps the devices that cannot get an object to the reasons.
type Excluded map[*Worker]error

// LocalWorker returns the local device.
func (l *Loop) LocalWorker() *Worker { return l.workers[0] }

// Workers returns the devices, the local one first. The lock must be held.
func (l *Loop) Workers() []*Worker { return l.workers }

// Usage returns what the devices have carried. The lock must be held.
func (l *Loop) Usage(now time.Time) (list []DeviceUsage) {
	paths := l.Board.DeviceStates(now)
	for i, w := range l.workers {
		s := DeviceUsage{Device: w.Name, Bytes: w.bytes, Wasted: w.Wasted, Down: w.suspended}
		if paths[i].Busy {
			s.Rate = paths[i].Rate
		}
		list = append(list, s)
	}
	return list
}

// addDeviceWorker adds a device and its path on the board, which is down. It returns nil if
// Config.NewClient rejects the device. mu must be held once Run was called.
func (l *Loop) addDeviceWorker(d Device) *Worker {
	client := l.NewClient(d)
	if client == nil {
		return nil
	}
	w := &Worker{Device: d, Client: client, times: l.Times, boardIndex: len(l.workers)}
	l.workers = append(l.workers, w)
	l.Board.AddDevice()
	l.Board.SetMetered(w.boardIndex, d.IsMetered())
	return w
}

// admitWorker puts a device to use, after its warm-up if it has one. mu must be held.
func (l *Loop) admitWorker(w *Worker) {
	var warm func(context.Context) error
	if l.WarmUp != nil {
		warm = l.WarmUp(w)
	}
	if warm == nil {
		l.Board.SetUp(w.boardIndex)
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
		l.Board.SetUp(w.boardIndex)
	})
}

// Exclude keeps a device from an object: running jobs fail and no new ones start. It records the
// reason in from. The lock must be held.
func (l *Loop) Exclude(object int, from Excluded, w *Worker, err error) {
	from[w] = err
	l.Board.Exclude(w.boardIndex, object, time.Now())
	l.Log.Debug("device excluded from object", "device", w.Name, "object", object, "err", err)
}

// NoteRecovery clears the failures of a device after a success. The lock must be held.
func (l *Loop) NoteRecovery(w *Worker) {
	w.NoteResponse()
	w.failures, w.lastError, l.lastProgress = 0, nil, time.Now()
}

// Resume ends the suspension of a device. The lock must be held.
func (l *Loop) Resume(w *Worker) {
	w.suspended = nil
	l.Board.SetUp(w.boardIndex)
}

// Suspend backs off as Worker.BackOff does and suspends the device: its jobs fail. After a refusal
// while it carried several items, the device carries one at a time. The lock must be held.
func (l *Loop) Suspend(w *Worker, atLeast time.Duration, err error) {
	pause, several := w.BackOff(atLeast, err), false
	for _, j := range l.jobs {
		if j.Worker == w {
			several = true
			l.dropRunningJob(j)
		}
	}
	w.suspended = err
	l.Board.SetDown(w.boardIndex, time.Now())
	if several && errors.As(err, new(*Refusal)) { // the server may allow fewer connections
		l.Board.SetSingle(w.boardIndex)
	}
	l.Log.Debug("device suspended", "device", w.Name, "for", pause, "err", err)
	if l.OnSuspend != nil {
		l.OnSuspend(w.Name, err)
	}
}

// reviewWorkers resumes devices after their back-off. It returns when the next device will be
// usable, and whether all devices have failed maxFailures times without any response. mu must be
// held.
func (l *Loop) reviewWorkers(now time.Time) (usableAt time.Time, hopeless bool) {
	usableAt, hopeless = now.Add(24*time.Hour), true
	for _, w := range l.workers {
		l.Board.SetMetered(w.boardIndex, w.IsMetered())
		if w.suspended != nil && now.After(w.retryTime) {
			l.Resume(w)
		}
		if w.suspended == nil {
			usableAt = now
		} else if w.retryTime.Before(usableAt) {
			usableAt = w.retryTime
		}
		hopeless = hopeless && w.unanswered >= maxFailures && !w.responded
	}
	return usableAt, hopeless
}
