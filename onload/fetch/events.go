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

// meet returns where the body of an answer goes, or why it cannot be used. The URL is where
// redirects led.
func (j *job) meet(a answer, url string) (*part, error) {
	e, o := j.engine, j.object
	e.loop.Lock()
	defer e.loop.Settle()
	if j.IsDropped() {
		return nil, transfer.ErrDropped
	}
	j.Await(false)
	j.Worker.NoteAnswer()
	news := !o.known
	to, err := o.meet(j, a)
	if err != nil {
		return nil, err
	}
	j.part = to
	if j.url != url && j.url == o.URL && !hasUser(o.URL) {
		o.final[j.Worker] = url
	}
	if news {
		e.loop.Board.Learn(j.ID, o.is.Size, !o.whole)
		if o.is.Size != board.Unknown {
			j.SetEnd(o.is.Size)
		}
	}
	e.loop.Board.Progress(j.ID, 0, time.Now())
	return to, nil
}

// hasUser tells whether a URL has a name and a password, which those that redirects lead
// to have not.
func hasUser(s string) bool {
	u, err := url.Parse(s)
	return err != nil || u.User != nil
}

// Ended implements transfer.Carrier.
func (j *job) Ended(err error) {
	e, o := j.engine, j.object
	o.jobs--
	switch no := (*transfer.Refusal)(nil); {
	case errors.Is(err, transfer.ErrDropped), e.loop.Closing(), errors.Is(err, errShort):
	case err == nil && o.whole:
		j.Worker.Wasted -= j.Counted() // counted so as long as another one could win
		o.carried[j.Worker] += j.Counted()
		e.collected(o, j.part)
	case err == nil:
		if o.have.Contains(0, o.is.Size) {
			e.collected(o, o.part)
		}
	case errors.As(err, new(transfer.LocalError)):
		e.fail(o, err)
	case errors.As(err, &no):
		e.refused(j, no)
	case errors.Is(err, errDigest): // what it has brought is not what its sender had
		if !o.whole {
			o.lose(j)
			e.loop.Board.Add(board.Item{Object: o.index, From: j.Item.From, To: j.Item.From + j.Counted(), Split: true})
		}
		e.loop.Exclude(o.index, o.bars, j.Worker, err)
	default:
		e.broken(j, err)
	}
	if j.part != nil && j.part.temp && j.part != o.right { // another one has won
		j.part.discard()
	}
}

// broken takes in that the line of a job broke. An object that is fetched whole begins all
// over again, as long as that may help.
func (e *engine) broken(j *job, err error) {
	o := j.object
	delete(o.final, j.Worker)
	e.loop.Suspend(j.Worker, 0, err)
	if o.whole && !j.Awaits() {
		if o.broken++; o.broken > mostBroken {
			e.fail(o, err)
		}
	}
}

// collected notes that all of an object is in a part file. It is checked when no job of it
// runs any more.
func (e *engine) collected(o *object, p *part) {
	o.right = p
	e.loop.Withdraw(o.index)
}

// check has an object checked, when nobody writes to its files any more.
func (e *engine) check(o *object) {
	o.phase = asking
	if o.right != o.part && o.part != nil {
		o.part.discard()
	}
	if o.host() != "" && o.alone(e.loop.Own()) {
		e.ask(o)
	} else {
		e.verify(o)
	}
}

// verify compares what is there with what was promised, and gives it its name.
func (e *engine) verify(o *object) {
	o.phase = verifying
	e.loop.Go(func(context.Context) {
		err := o.check(&e.Config)
		e.loop.Lock()
		defer e.loop.Settle()
		if err != nil {
			e.fail(o, err)
			return
		}
		o.phase = closed
		e.reopen(o)
	})
}

// refused acts on an answer that cannot be used.
func (e *engine) refused(j *job, no *transfer.Refusal) {
	o, w := j.object, j.Worker
	if o.final[w] != "" { // where a redirect led once: perhaps not any more
		delete(o.final, w)
		if no.Verdict != transfer.Retry {
			return
		}
	}
	if no.Verdict == transfer.Restart && e.dispute(o, w, no.Err) {
		return
	}
	switch no.Verdict {
	case transfer.Retry:
		e.loop.Suspend(w, no.After, no)
		return
	case transfer.Restart:
		o.differ[w] = j.seen
		no.Err = fault.New(fault.Integrity, fmt.Errorf("the object changes while it is fetched: %w", no.Err), "try again later")
		if o.hasChanged(w, e.loop.Own()) {
			e.again(o, false, no.Err)
			return
		}
	case transfer.NoRange:
		o.noRange = true
		if !o.known && !o.whole {
			e.again(o, true, no.Err)
			return
		}
	}
	e.loop.Exclude(o.index, o.bars, w, no.Err)
}

// judge gives an object up that no device can have. One that does not work now is not
// waited for unless there is something to complete, or others are left out as liars.
func (e *engine) judge(o *object) {
	if len(o.bars) == 0 || o.phase == closed || o.right != nil || e.loop.Joining() {
		return
	}
	for _, w := range e.loop.Workers() {
		if o.bars[w] == nil && (w.IsUp() || len(e.liars[o.host()]) > 0 || len(o.have) > 0 && (len(o.differ) == 0 || w.IsOwn())) {
			return
		}
	}
	err := o.bars.Reasons(e.loop.Workers())
	if o.noRange && !o.whole || len(o.differ) > 0 { // nobody is left who has what it was
		e.again(o, o.noRange, err)
		return
	}
	e.fail(o, err)
}

// again begins an object anew.
func (e *engine) again(o *object, whole bool, why error) {
	e.Log.Info("a download begins anew", "url", o.URL, "whole", whole, "err", why)
	if o.restarts++; o.restarts > mostRestarts {
		e.fail(o, why)
		return
	}
	e.anew(o, whole || o.restarts == mostRestarts) // in one go it is of one version
}

// fail gives an object up.
func (e *engine) fail(o *object, err error) {
	if o.phase == closed {
		return
	}
	e.loop.Withdraw(o.index)
	o.phase, o.err = closed, explain(err)
	if o.part != nil {
		o.leave()
	}
}
