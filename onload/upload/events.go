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

// Run implements transfer.JobRunner.
func (j *job) Run(ctx context.Context) error { return j.task.protocol.sendJobItem(ctx, j) }

// OnDrop records that another device will send the item instead.
func (j *job) OnDrop() {
	if t := j.task.Target; j.AwaitsResponse() && (t.Method == Post || t.KeepExisting) {
		j.file.maybeStored, j.file.maybeDuplicate = true, t.Method == Post
	}
}

// OnEnd implements transfer.JobRunner.
func (j *job) OnEnd(err error) {
	t, f := j.task, j.file
	if err == nil {
		t.accepted = true
		t.markItemConfirmed(f, j)
		return
	}
	j.Worker.Wasted += j.Counted()
	var refusal *transfer.Refusal
	switch dropped := errors.Is(err, transfer.ErrDropped); {
	case dropped && j.AwaitsResponse() && t.Target.Method == Post:
		f.maybeStored, f.maybeDuplicate = true, true
	case !dropped && j.AwaitsResponse() && (!errors.As(err, &refusal) || refusal.MaybeStored):
		f.maybeStored = true
	}
	if !errors.Is(err, transfer.ErrDropped) {
		t.handleFailure(f, j.Worker, j.Counted(), err)
	}
}

// finishStep records how a step of a file ended.
func (t *task) finishStep(f *file, w *transfer.Worker, err error) {
	f.stepRunning = false
	t.runningSteps[w]--
	switch {
	case f.state == failed: // failed during the step
		if f.permanent {
			t.abandonFile(f)
		}
	case errors.Is(err, errCollectionPending): // the step is repeated
	case err != nil:
		t.handleFailure(f, w, 0, err)
	case f.state == unprepared:
		t.startSending(f)
	default:
		t.loop.NoteRecovery(w)
		t.markUploadDone(f)
	}
}

// markUploadDone records that the server has confirmed a file.
func (t *task) markUploadDone(f *file) {
	f.state = done
	x := t.journaled.newJournalEntry(f)
	x.Done, x.MaybeDuplicate = f.proof, f.maybeDuplicate
	t.journaled.saveJournalEntry(x)
	if t.OnConfirmed != nil {
		t.OnConfirmed(f.buildSentEntry())
	}
}

// startSending adds the items of a prepared file to the board.
func (t *task) startSending(f *file) {
	if f.multipart.uploadID != "" {
		x := t.journaled.newJournalEntry(f)
		x.Upload, x.Part, x.Parts = f.multipart.uploadID, f.multipart.partSize, f.multipart.confirmed
		t.journaled.saveJournalEntry(x)
	}
	items := t.protocol.remainingItems(f)
	f.state, f.unconfirmedItems = sending, len(items)
	if len(items) == 0 {
		f.state = confirming
	}
	t.loop.Board.AddItems(items...)
}

// markItemConfirmed records that the server has confirmed an item.
func (t *task) markItemConfirmed(f *file, j *job) {
	f.unconfirmedItems--
	f.proof, f.retryTime, f.stepAttempts = j.proof, time.Time{}, 0
	if f.multipart.uploadID != "" {
		if f.multipart.confirmed == nil {
			f.multipart.confirmed = map[int]part{}
		}
		n := f.multipart.partNumber(j.Item.From)
		f.multipart.confirmed[n] = j.part
		x := t.journaled.newJournalEntry(f)
		x.Upload, x.Part, x.Parts = f.multipart.uploadID, f.multipart.partSize, map[int]part{n: j.part}
		t.journaled.saveJournalEntry(x)
	}
	if f.unconfirmedItems > 0 {
		return
	}
	f.state = confirming
	if t.Target.Method == Post { // a form has no further confirmation
		t.markUploadDone(f)
	}
}

// handleFailure acts on an error, after sent bytes of an item were sent.
func (t *task) handleFailure(f *file, w *transfer.Worker, got unit.Bytes, err error) {
	if t.loop.IsClosing() {
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
		refusal, answered = &transfer.Refusal{Err: classifyUploadError(err)}, false
	}
	t.Log.Debug("sending a file failed", "file", f.Path, "device", w.Name, "err", err)
	switch refusal.Verdict {
	case transfer.Exclude:
		t.loop.Exclude(f.index, f.excluded, w, refusal.Err)
	case transfer.Final:
		if fault.Is(refusal.Err, fault.Exists) {
			f.maybeStored = false // the server has another file
		}
		t.failFileUpload(f, refusal.Err, true)
	case transfer.Restart:
		t.restartFile(f, refusal.Err)
	default:
		t.scheduleRetry(f, w, refusal, answered, answered || got > 0)
	}
}

// scheduleRetry tries a file again, after a delay if a server has responded, and preferably over
// another device. The try counts unless the device is to blame and others may do better.
func (t *task) scheduleRetry(f *file, w *transfer.Worker, refusal *transfer.Refusal, answered, counts bool) {
	err := refusal.Err
	if f.retryTime, f.lastFailed = (time.Time{}), w; answered {
		f.retryTime, err = time.Now().Add(t.loop.Times.BackoffAfter(f.tries+1)), refusal
	}
	if w.IsBusy() { // a step failed, but its jobs continue
		w.BackOff(refusal.RetryAfter, err)
	} else {
		t.loop.Suspend(w, refusal.RetryAfter, err)
	}
	if counts {
		f.tries++
	}
	if f.tries >= maxTries {
		t.failFileUpload(f, refusal.Err, false)
	}
}

// restartFile sends a file from the beginning, at most maxRestarts times.
func (t *task) restartFile(f *file, why error) {
	if f.restarts++; f.restarts > maxRestarts {
		t.failFileUpload(f, why, true)
		return
	}
	t.withdrawFile(f)
	t.abandonFile(f)
	if err := f.readAttributes(); err != nil {
		t.failFileUpload(f, err, true)
		return
	}
	f.state, f.multipart, f.proof = unprepared, multipartUpload{}, ""
}

// withdrawFile removes a file from the board and ends its jobs.
func (t *task) withdrawFile(f *file) {
	t.loop.WithdrawObject(f.index)
	for w, err := range f.excluded { // the board has lost the exclusions
		t.loop.Exclude(f.index, f.excluded, w, err)
	}
}

// failFileUpload gives a file up, either permanently or so that another run may resume it.
func (t *task) failFileUpload(f *file, err error, forGood bool) {
	if !f.isUnfinished() {
		return
	}
	t.withdrawFile(f)
	f.state, f.err = failed, classifyUploadError(err)
	f.permanent = forGood || t.Journal == nil
	if f.permanent && !f.maybeStored {
		x := t.journaled.newJournalEntry(f)
		x.Gone = true
		t.journaled.saveJournalEntry(x)
	}
	if f.permanent && !f.stepRunning {
		t.abandonFile(f)
	}
}

// abortUpload removes an incomplete file from the server in the background.
func (t *task) abandonFile(f *file) {
	left := *f
	left.excluded = nil
	all := t.loop.Workers()
	w := all[max(0, slices.IndexFunc(all, (*transfer.Worker).IsUp))]
	t.loop.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
		defer cancel()
		t.protocol.abortUpload(ctx, w, &left)
	})
}
