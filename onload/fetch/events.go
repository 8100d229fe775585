// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"mpbond/base/fault"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// acceptJobResponse returns the file for the body of a response, or the reason why the response
// cannot be used. url is the URL after redirects.
func (j *job) acceptJobResponse(a response, url string) (*part, error) {
	t, o := j.task, j.object
	t.loop.Lock()
	defer t.loop.DispatchAndUnlock()
	if j.IsDropped() {
		return nil, transfer.ErrDropped
	}
	j.SetAwaitingResponse(false)
	j.Worker.NoteResponse()
	isFirst := !o.versionKnown
	to, err := o.partForResponse(j, a)
	if err != nil {
		return nil, err
	}
	j.part = to
	if j.url != url && j.url == o.URL && !hasUserinfo(o.URL) {
		o.finalURL[j.Worker] = url
	}
	if isFirst {
		t.loop.Board.SetObjectSize(j.ID, o.version.Size, !o.wholeOnly)
		if o.version.Size != board.Unknown {
			j.SetEnd(o.version.Size)
		}
	}
	t.loop.Board.ReportProgress(j.ID, 0, time.Now())
	return to, nil
}

// hasUserinfo reports whether a URL contains credentials, or may: it is invalid. URLs of redirects
// lack them.
func hasUserinfo(s string) bool {
	u, err := url.Parse(s)
	return err != nil || u.User != nil
}

// OnEnd implements transfer.JobRunner.
func (j *job) OnEnd(err error) {
	t, o := j.task, j.object
	o.runningJobs--
	switch refusal := (*transfer.Refusal)(nil); {
	case errors.Is(err, transfer.ErrDropped), t.loop.IsClosing(), errors.Is(err, errShortRange):
	case err == nil && o.wholeOnly:
		j.Worker.Wasted -= j.Counted() // it counted as wasted while another job could win
		o.carriedBy[j.Worker] += j.Counted()
		t.markComplete(o, j.part)
	case err == nil:
		if o.received.Contains(0, o.version.Size) {
			t.markComplete(o, o.part)
		}
	case errors.As(err, new(transfer.LocalError)):
		t.failObject(o, err)
	case errors.As(err, &refusal):
		t.handleRefusal(j, refusal)
	case errors.Is(err, errDigest): // its bytes are not those of the sender
		if !o.wholeOnly {
			o.discardReceived(j)
			t.loop.Board.AddItems(board.Item{Object: o.index, From: j.Item.From,
				To: j.Item.From + j.Counted(), Splittable: true})
		}
		t.loop.Exclude(o.index, o.excluded, j.Worker, err)
	default:
		t.handleBrokenLine(j, err)
	}
	if j.part != nil && j.part.temp && j.part != o.complete { // another job was first
		j.part.discardPartFile()
	}
}

// handleBrokenLine suspends the device of a job after its connection broke. An object that is
// fetched whole starts from the beginning, at most maxBroken times.
func (t *task) handleBrokenLine(j *job, err error) {
	o := j.object
	delete(o.finalURL, j.Worker)
	t.loop.Suspend(j.Worker, 0, err)
	if o.wholeOnly && !j.AwaitsResponse() {
		if o.brokenTries++; o.brokenTries > maxBroken {
			t.failObject(o, err)
		}
	}
}

// markComplete records that a part file has all bytes of an object. It is verified when no job of
// the object runs any more.
func (t *task) markComplete(o *object, p *part) {
	o.complete = p
	t.loop.WithdrawObject(o.index)
}

// startCheck starts the verification of an object, when no job writes to its files any more.
func (t *task) startCheck(o *object) {
	o.phase = confirming
	if o.complete != o.part && o.part != nil {
		o.part.discardPartFile()
	}
	if o.forgeableHost() != "" && o.hasSingleSource(t.loop.LocalWorker()) {
		t.requestOtherVersions(o)
	} else {
		t.verifyObject(o)
	}
}

// verifyObject compares the file with the promised size and digests and gives it its name.
func (t *task) verifyObject(o *object) {
	o.phase = verifying
	t.loop.Go(func(context.Context) {
		err := o.verifyAndPublish(&t.Config)
		t.loop.Lock()
		defer t.loop.DispatchAndUnlock()
		if err != nil {
			t.failObject(o, err)
			return
		}
		o.phase = closed
		t.refetchUnchecked(o)
	})
}

// handleRefusal acts on a response that cannot be used.
func (t *task) handleRefusal(j *job, refusal *transfer.Refusal) {
	o, w := j.object, j.Worker
	if o.finalURL[w] != "" { // the stored target of a redirect may be outdated
		delete(o.finalURL, w)
		if refusal.Verdict != transfer.Retry {
			return
		}
	}
	if refusal.Verdict == transfer.Restart && t.settleDisagreement(o, w, refusal.Err) {
		return
	}
	switch refusal.Verdict {
	case transfer.Retry:
		t.loop.Suspend(w, refusal.RetryAfter, refusal)
		return
	case transfer.Restart:
		o.otherVersions[w] = j.seenVersion
		refusal.Err = fault.New(fault.Integrity, fmt.Errorf("the object changed while it was fetched: %w",
			refusal.Err), "try again later")
		if o.hasChanged(w, t.loop.LocalWorker()) {
			t.restartObject(o, false, refusal.Err)
			return
		}
	case transfer.NoRange:
		o.rangesFail = true
		if !o.versionKnown && !o.wholeOnly {
			t.restartObject(o, true, refusal.Err)
			return
		}
	}
	t.loop.Exclude(o.index, o.excluded, w, refusal.Err)
}

// failIfExcluded fails an object that no device can get. It waits for a suspended device only if
// bytes are there already, or if other devices are excluded for conflicting versions.
func (t *task) failIfExcluded(o *object) {
	if len(o.excluded) == 0 || o.phase == closed || o.complete != nil || t.loop.ExpectsDevices() {
		return
	}
	for _, w := range t.loop.Workers() {
		if o.excluded[w] == nil && (w.IsUp() || len(t.conflicts[o.forgeableHost()]) > 0 || len(o.received) > 0 &&
			(len(o.otherVersions) == 0 || w.IsLocal())) {
			return
		}
	}
	err := o.excluded.Reasons(t.loop.Workers())
	// no device has the earlier version any more
	if o.rangesFail && !o.wholeOnly || len(o.otherVersions) > 0 {
		t.restartObject(o, o.rangesFail, err)
		return
	}
	t.failObject(o, err)
}

// restartObject fetches an object from the beginning, at most maxRestarts times.
func (t *task) restartObject(o *object, whole bool, why error) {
	t.Log.Info("download restarted", "url", o.URL, "whole", whole, "err", why)
	if o.restarts++; o.restarts > maxRestarts {
		t.failObject(o, why)
		return
	}
	t.resetObject(o, whole || o.restarts == maxRestarts) // a single response has a single version
}

// failObject gives an object up.
func (t *task) failObject(o *object, err error) {
	if o.phase == closed {
		return
	}
	t.loop.WithdrawObject(o.index)
	o.phase, o.err = closed, classifyFetchError(err)
	if o.part != nil {
		o.closePartFile()
	}
}
