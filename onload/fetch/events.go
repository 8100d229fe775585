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

// acceptResponse returns where the body of an answer goes, or why it cannot be used. The URL is where
// redirects led.
func (j *job) acceptResponse(a response, url string) (*part, error) {
	e, o := j.task, j.object
	e.loop.Lock()
	defer e.loop.DispatchAndUnlock()
	if j.IsDropped() {
		return nil, transfer.ErrDropped
	}
	j.SetAwaitingResponse(false)
	j.Worker.NoteResponse()
	news := !o.versionKnown
	to, err := o.acceptResponse(j, a)
	if err != nil {
		return nil, err
	}
	j.part = to
	if j.url != url && j.url == o.URL && !hasUserinfo(o.URL) {
		o.finalURL[j.Worker] = url
	}
	if news {
		e.loop.Board.SetObjectSize(j.ID, o.version.Size, !o.wholeOnly)
		if o.version.Size != board.Unknown {
			j.SetEnd(o.version.Size)
		}
	}
	e.loop.Board.ReportProgress(j.ID, 0, time.Now())
	return to, nil
}

// hasUserinfo tells whether a URL has a name and a password, which those that redirects lead
// to have not.
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
		j.Worker.Wasted -= j.Counted() // counted so as long as another one could win
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
	case errors.Is(err, errDigest): // what it has brought is not what its sender had
		if !o.wholeOnly {
			o.discardReceived(j)
			e.loop.Board.AddItems(board.Item{Object: o.index, From: j.Item.From, To: j.Item.From + j.Counted(), Splittable: true})
		}
		e.loop.Exclude(o.index, o.excluded, j.Worker, err)
	default:
		e.handleBrokenLine(j, err)
	}
	if j.part != nil && j.part.temp && j.part != o.complete { // another one has won
		j.part.discard()
	}
}

// handleBrokenLine takes in that the line of a job broke. An object that is fetched whole begins all
// over again, as long as that may help.
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

// markComplete notes that all of an object is in a part file. It is checked when no job of it
// runs any more.
func (e *task) markComplete(o *object, p *part) {
	o.complete = p
	e.loop.WithdrawObject(o.index)
}

// startCheck has an object checked, when nobody writes to its files any more.
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

// verifyObject compares what is there with what was promised, and gives it its name.
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

// handleRefusal acts on an answer that cannot be used.
func (e *task) handleRefusal(j *job, refusal *transfer.Refusal) {
	o, w := j.object, j.Worker
	if o.finalURL[w] != "" { // where a redirect led once: perhaps not any more
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
		refusal.Err = fault.New(fault.Integrity, fmt.Errorf("the object changes while it is fetched: %w", refusal.Err), "try again later")
		if o.hasChanged(w, e.loop.LocalWorker()) {
			e.restartObject(o, false, refusal.Err)
			return
		}
	case transfer.NoRange:
		o.noRange = true
		if !o.versionKnown && !o.wholeOnly {
			e.restartObject(o, true, refusal.Err)
			return
		}
	}
	e.loop.Exclude(o.index, o.excluded, w, refusal.Err)
}

// failIfExcluded gives an object up that no device can have. One that does not work now is not
// waited for unless there is something to complete, or others are left out as liars.
func (e *task) failIfExcluded(o *object) {
	if len(o.excluded) == 0 || o.phase == closed || o.complete != nil || e.loop.ExpectsDevices() {
		return
	}
	for _, w := range e.loop.Workers() {
		if o.excluded[w] == nil && (w.IsUp() || len(e.conflicts[o.forgeableHost()]) > 0 || len(o.received) > 0 && (len(o.otherVersions) == 0 || w.IsLocal())) {
			return
		}
	}
	err := o.excluded.Reasons(e.loop.Workers())
	if o.noRange && !o.wholeOnly || len(o.otherVersions) > 0 { // nobody is left who has what it was
		e.restartObject(o, o.noRange, err)
		return
	}
	e.failObject(o, err)
}

// restartObject begins an object anew.
func (e *task) restartObject(o *object, whole bool, why error) {
	e.Log.Info("a download begins anew", "url", o.URL, "whole", whole, "err", why)
	if o.restarts++; o.restarts > maxRestarts {
		e.failObject(o, why)
		return
	}
	e.resetObject(o, whole || o.restarts == maxRestarts) // in one go it is of one version
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
