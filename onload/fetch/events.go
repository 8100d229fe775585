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

// acceptResponse returns the file for the body of a response, or the reason why the response cannot
// be used. url is the URL after redirects.
func (j *job) acceptResponse(a response, url string) (*part, error) {
	e, o := j.task, j.object
	e.loop.Lock()
	defer e.loop.DispatchAndUnlock()
	if j.IsDropped() {
		return nil, transfer.ErrDropped
	}
	j.SetAwaitingResponse(false)
	j.Worker.NoteResponse()
	isFirst := !o.versionKnown
	to, err := o.acceptResponse(j, a)
	if err != nil {
		return nil, err
	}
	j.part = to
	if j.url != url && j.url == o.URL && !hasUserinfo(o.URL) {
		o.finalURL[j.Worker] = url
	}
	if isFirst {
		e.loop.Board.SetObjectSize(j.ID, o.version.Size, !o.wholeOnly)
		if o.version.Size != board.Unknown {
			j.SetEnd(o.version.Size)
		}
	}
	e.loop.Board.ReportProgress(j.ID, 0, time.Now())
	return to, nil
}

// hasUserinfo reports whether a URL contains credentials. URLs of redirects lack them.
func hasUserinfo(s string) bool {
	u, err := url.Parse(s)
	return err != nil || u.User != nil
}

// OnEnd implements transfer.Carrier.
func (j *job) OnEnd(err error) {
	e, o := j.task, j.object
	o.runningJobs--
	switch refusal := (*transfer.Refusal)(nil); {
	case errors.Is(err, transfer.ErrDropped), e.loop.IsClosing(), errors.Is(err, errShortRange):
	case err == nil && o.wholeOnly:
		j.Worker.Wasted -= j.Counted() // it counted as wasted while another job could win
		o.carriedBy[j.Worker] += j.Counted()
		e.markComplete(o, j.part)
	case err == nil:
		if o.received.Contains(0, o.version.Size) {
			e.markComplete(o, o.part)
		}
	case errors.As(err, new(transfer.LocalError)):
		e.failObject(o, err)
	case errors.As(err, &refusal):
		e.handleRefusal(j, refusal)
	case errors.Is(err, errDigest): // its bytes are not those of the sender
		if !o.wholeOnly {
			o.discardReceived(j)
			e.loop.Board.AddItems(board.Item{Object: o.index, From: j.Item.From,
				To: j.Item.From + j.Counted(), Splittable: true})
		}
		e.loop.Exclude(o.index, o.excluded, j.Worker, err)
	default:
		e.handleBrokenLine(j, err)
	}
	if j.part != nil && j.part.temp && j.part != o.complete { // another job was first
		j.part.discard()
	}
}

// handleBrokenLine suspends the device of a job whose connection broke. An object that is fetched
// whole starts from the beginning, at most maxBroken times.
func (e *task) handleBrokenLine(j *job, err error) {
	o := j.object
	delete(o.finalURL, j.Worker)
	e.loop.Suspend(j.Worker, 0, err)
	if o.wholeOnly && !j.AwaitsResponse() {
		if o.brokenTries++; o.brokenTries > maxBroken {
			e.failObject(o, err)
		}
	}
}

// markComplete records that a part file has all bytes of an object. It is verified when no job of
// the object runs any more.
func (e *task) markComplete(o *object, p *part) {
	o.complete = p
	e.loop.WithdrawObject(o.index)
}

// startCheck starts the verification of an object, when no job writes to its files any more.
func (e *task) startCheck(o *object) {
	o.phase = confirming
	if o.complete != o.part && o.part != nil {
		o.part.discard()
	}
	if o.forgeableHost() != "" && o.hasSingleSource(e.loop.LocalWorker()) {
		e.askOtherDevices(o)
	} else {
		e.verifyObject(o)
	}
}

// verifyObject compares the file with the promised size and digests and gives it its name.
func (e *task) verifyObject(o *object) {
	o.phase = verifying
	e.loop.Go(func(context.Context) {
		err := o.verifyAndPublish(&e.Config)
		e.loop.Lock()
		defer e.loop.DispatchAndUnlock()
		if err != nil {
			e.failObject(o, err)
			return
		}
		o.phase = closed
		e.refetchUnchecked(o)
	})
}

// handleRefusal acts on a response that cannot be used.
func (e *task) handleRefusal(j *job, refusal *transfer.Refusal) {
	o, w := j.object, j.Worker
	if o.finalURL[w] != "" { // the stored target of a redirect may be outdated
		delete(o.finalURL, w)
		if refusal.Verdict != transfer.Retry {
			return
		}
	}
	if refusal.Verdict == transfer.Restart && e.settleDisagreement(o, w, refusal.Err) {
		return
	}
	switch refusal.Verdict {
	case transfer.Retry:
		e.loop.Suspend(w, refusal.RetryAfter, refusal)
		return
	case transfer.Restart:
		o.otherVersions[w] = j.seenVersion
		refusal.Err = fault.New(fault.Integrity, fmt.Errorf("the object changed while it was fetched: %w",
			refusal.Err), "try again later")
		if o.hasChanged(w, e.loop.LocalWorker()) {
			e.restartObject(o, false, refusal.Err)
			return
		}
	case transfer.NoRange:
		o.rangesFail = true
		if !o.versionKnown && !o.wholeOnly {
			e.restartObject(o, true, refusal.Err)
			return
		}
	}
	e.loop.Exclude(o.index, o.excluded, w, refusal.Err)
}

// failIfExcluded fails an object that no device can get. It waits for a suspended device only if
// bytes are there already, or if other devices are excluded for conflicting versions.
func (e *task) failIfExcluded(o *object) {
	if len(o.excluded) == 0 || o.phase == closed || o.complete != nil || e.loop.ExpectsDevices() {
		return
	}
	for _, w := range e.loop.Workers() {
		if o.excluded[w] == nil && (w.IsUp() || len(e.conflicts[o.forgeableHost()]) > 0 || len(o.received) > 0 &&
			(len(o.otherVersions) == 0 || w.IsLocal())) {
			return
		}
	}
	err := o.excluded.Reasons(e.loop.Workers())
	// no device has the earlier version any more
	if o.rangesFail && !o.wholeOnly || len(o.otherVersions) > 0 {
		e.restartObject(o, o.rangesFail, err)
		return
	}
	e.failObject(o, err)
}

// restartObject fetches an object from the beginning, at most maxRestarts times.
func (e *task) restartObject(o *object, whole bool, why error) {
	e.Log.Info("download restarted", "url", o.URL, "whole", whole, "err", why)
	if o.restarts++; o.restarts > maxRestarts {
		e.failObject(o, why)
		return
	}
	e.resetObject(o, whole || o.restarts == maxRestarts) // a single response has a single version
}

// failObject gives an object up.
func (e *task) failObject(o *object, err error) {
	if o.phase == closed {
		return
	}
	e.loop.WithdrawObject(o.index)
	o.phase, o.err = closed, classifyError(err)
	if o.part != nil {
		o.closePart()
	}
}
