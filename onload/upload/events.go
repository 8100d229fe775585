// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/transfer"
)

// job is one item under way. It awaits a response when its body has been handed over.
type job struct {
	*transfer.Job
	task           *task
	file           *file        // the current state
	snapshot       *file        // state of file when the job began
	readErr        atomic.Value // error of reading the file
	expectContinue bool
	part           part // S3: ETag and size that the server returned
	proof          Proof
}

// Carry implements transfer.Carrier.
func (j *job) Carry(ctx context.Context) error { return j.task.protocol.sendItem(ctx, j) }

// OnDrop records that another device will send the item instead.
func (j *job) OnDrop() {
	if t := j.task.Target; j.AwaitsResponse() && (t.Method == Post || t.KeepExisting) {
		j.file.maybeStored, j.file.maybeDuplicate = true, t.Method == Post
	}
}

// OnEnd implements transfer.Carrier.
func (j *job) OnEnd(err error) {
	e, f := j.task, j.file
	if err == nil {
		e.accepted = true
		e.markConfirmed(f, j)
		return
	}
	j.Worker.Wasted += j.Counted()
	var refusal *transfer.Refusal
	switch dropped := errors.Is(err, transfer.ErrDropped); {
	case dropped && j.AwaitsResponse() && e.Target.Method == Post:
		f.maybeStored, f.maybeDuplicate = true, true
	case !dropped && j.AwaitsResponse() && (!errors.As(err, &refusal) || refusal.MaybeStored):
		f.maybeStored = true
	}
	if !errors.Is(err, transfer.ErrDropped) {
		e.handleFailure(f, j.Worker, j.Counted(), err)
	}
}

// finishStep records how a step of a file ended.
func (e *task) finishStep(f *file, w *transfer.Worker, err error) {
	f.stepRunning = false
	e.runningSteps[w]--
	switch {
	case f.state == failed: // failed during the step
		if f.permanent {
			e.abandonFile(f)
		}
	case errors.Is(err, errCollectionPending): // the step is repeated
	case err != nil:
		e.handleFailure(f, w, 0, err)
	case f.state == unprepared:
		e.startSending(f)
	default:
		e.loop.NoteRecovery(w)
		e.markDone(f)
	}
}

// markDone records that the server has confirmed a file.
func (e *task) markDone(f *file) {
	f.state = done
	x := e.journaled.newEntry(f)
	x.Done, x.Twice = f.proof, f.maybeDuplicate
	e.journaled.saveEntry(x)
	if e.OnConfirmed != nil {
		e.OnConfirmed(f.sentInfo())
	}
}

// startSending adds the items of a prepared file to the board.
func (e *task) startSending(f *file) {
	if f.multipart.uploadID != "" {
		x := e.journaled.newEntry(f)
		x.Upload, x.Part, x.Parts = f.multipart.uploadID, f.multipart.partSize, f.multipart.confirmed
		e.journaled.saveEntry(x)
	}
	items := e.protocol.remainingItems(f)
	f.state, f.unconfirmedItems = sending, len(items)
	if len(items) == 0 {
		f.state = confirming
	}
	e.loop.Board.AddItems(items...)
}

// markConfirmed records that the server has confirmed an item.
func (e *task) markConfirmed(f *file, j *job) {
	f.unconfirmedItems--
	f.proof, f.retryTime, f.stepAttempts = j.proof, time.Time{}, 0
	if f.multipart.uploadID != "" {
		if f.multipart.confirmed == nil {
			f.multipart.confirmed = map[int]part{}
		}
		n := f.multipart.partNumber(j.Item.From)
		f.multipart.confirmed[n] = j.part
		x := e.journaled.newEntry(f)
		x.Upload, x.Part, x.Parts = f.multipart.uploadID, f.multipart.partSize, map[int]part{n: j.part}
		e.journaled.saveEntry(x)
	}
	if f.unconfirmedItems > 0 {
		return
	}
	f.state = confirming
	if e.Target.Method == Post { // a form has no further confirmation
		e.markDone(f)
	}
}

// handleFailure acts on an error, after sent bytes of an item were sent.
func (e *task) handleFailure(f *file, w *transfer.Worker, got unit.Bytes, err error) {
	if e.loop.IsClosing() {
		return // the end of the loop caused the error
	}
	refusal, answered := (*transfer.Refusal)(nil), true
	switch {
	case errors.As(err, &refusal):
	case errors.Is(err, errChanged):
		refusal = &transfer.Refusal{Verdict: transfer.Restart,
			Err: fault.New(fault.Integrity, err, "retry when no program writes to it")}
	case errors.As(err, new(transfer.LocalError)):
		refusal = &transfer.Refusal{Verdict: transfer.Final, Err: err}
	default:
		refusal, answered = &transfer.Refusal{Err: classifyError(err)}, false
	}
	e.Log.Debug("sending a file failed", "file", f.Path, "device", w.Name, "err", err)
	switch refusal.Verdict {
	case transfer.Exclude:
		e.loop.Exclude(f.index, f.excluded, w, refusal.Err)
	case transfer.Final:
		if fault.Is(refusal.Err, fault.Exists) {
			f.maybeStored = false // the server has another file
		}
		e.failFile(f, refusal.Err, true)
	case transfer.Restart:
		e.restartFile(f, refusal.Err)
	default:
		e.scheduleRetry(f, w, refusal, answered, answered || got > 0)
	}
}

// scheduleRetry tries a file again, after a delay if a server has responded, and preferably over
// another device. The try counts unless the device is to blame and others may do better.
func (e *task) scheduleRetry(f *file, w *transfer.Worker, refusal *transfer.Refusal, answered, counts bool) {
	err := refusal.Err
	if f.retryTime, f.lastFailed = (time.Time{}), w; answered {
		f.retryTime, err = time.Now().Add(e.loop.Times.BackoffAfter(f.tries+1)), refusal
	}
	if w.IsBusy() { // a step failed, but its jobs continue
		w.BackOff(refusal.RetryAfter, err)
	} else {
		e.loop.Suspend(w, refusal.RetryAfter, err)
	}
	if counts {
		f.tries++
	}
	if f.tries >= maxTries {
		e.failFile(f, refusal.Err, false)
	}
}

// restartFile sends a file from the beginning, at most maxRestarts times.
func (e *task) restartFile(f *file, why error) {
	if f.restarts++; f.restarts > maxRestarts {
		e.failFile(f, why, true)
		return
	}
	e.withdrawFile(f)
	e.abandonFile(f)
	if err := f.readAttributes(); err != nil {
		e.failFile(f, err, true)
		return
	}
	f.state, f.multipart, f.proof = unprepared, multipartUpload{}, ""
}

// withdrawFile removes a file from the board and ends its jobs.
func (e *task) withdrawFile(f *file) {
	e.loop.WithdrawObject(f.index)
	for w, err := range f.excluded { // the board has lost the exclusions
		e.loop.Exclude(f.index, f.excluded, w, err)
	}
}

// failFile gives a file up, either permanently or so that another run may resume it.
func (e *task) failFile(f *file, err error, forGood bool) {
	if !f.isOpen() {
		return
	}
	e.withdrawFile(f)
	f.state, f.err = failed, classifyError(err)
	f.permanent = forGood || e.Journal == nil
	if f.permanent && !f.maybeStored {
		x := e.journaled.newEntry(f)
		x.Gone = true
		e.journaled.saveEntry(x)
	}
	if f.permanent && !f.stepRunning {
		e.abandonFile(f)
	}
}

// abandonFile removes an incomplete file from the server in the background.
func (e *task) abandonFile(f *file) {
	left := *f
	left.excluded = nil
	all := e.loop.Workers()
	w := all[max(0, slices.IndexFunc(all, (*transfer.Worker).IsUp))]
	e.loop.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
		defer cancel()
		e.protocol.abandonFile(ctx, w, &left)
	})
}
