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

// job is one item on its way. It awaits an answer when its body has been handed over.
type job struct {
	*transfer.Job
	engine  *engine
	file    *file        // the loop's
	of      *file        // what it was when the job began
	readErr atomic.Value // what reading the file said
	expect  bool
	part    part // S3: what the server called it
	proof   Proof
}

// Carry implements transfer.Carrier.
func (j *job) Carry(ctx context.Context) error { return j.engine.how.send(ctx, j) }

// Dropped takes in that another device sends the item instead.
func (j *job) Dropped() {
	if t := j.engine.Target; j.Awaits() && (t.Method == Post || t.Keep) {
		j.file.lost, j.file.twice = true, t.Method == Post
	}
}

// Ended implements transfer.Carrier.
func (j *job) Ended(err error) {
	e, f := j.engine, j.file
	if err == nil {
		e.taken = true
		e.confirmed(f, j)
		return
	}
	j.Worker.Wasted += j.Counted()
	var no *transfer.Refusal
	switch dropped := errors.Is(err, transfer.ErrDropped); {
	case dropped && j.Awaits() && e.Target.Method == Post:
		f.lost, f.twice = true, true
	case !dropped && j.Awaits() && (!errors.As(err, &no) || no.Stored):
		f.lost = true
	}
	if !errors.Is(err, transfer.ErrDropped) {
		e.refused(f, j.Worker, j.Counted(), err)
	}
}

// stepped takes in how a step of a file went.
func (e *engine) stepped(f *file, w *transfer.Worker, err error) {
	f.step = false
	e.under[w]--
	switch {
	case f.state == failed: // meanwhile
		if f.over {
			e.abandon(f)
		}
	case errors.Is(err, errAwaited): // the step is tried again
	case err != nil:
		e.refused(f, w, 0, err)
	case f.state == fresh:
		e.begin(f)
	default:
		e.loop.Recovered(w)
		e.arrived(f)
	}
}

// arrived takes in that the server has confirmed a file.
func (e *engine) arrived(f *file) {
	f.state = done
	x := e.notes.entry(f)
	x.Done, x.Twice = f.proof, f.twice
	e.notes.put(x)
	if e.Confirmed != nil {
		e.Confirmed(f.sent())
	}
}

// begin puts what is to be sent of a file on the board.
func (e *engine) begin(f *file) {
	if f.parts.id != "" {
		x := e.notes.entry(f)
		x.Upload, x.Part, x.Parts = f.parts.id, f.parts.size, f.parts.have
		e.notes.put(x)
	}
	items := e.how.items(f)
	f.state, f.left = sending, len(items)
	if len(items) == 0 {
		f.state = finishing
	}
	e.loop.Board.Add(items...)
}

// confirmed takes in that the server has an item.
func (e *engine) confirmed(f *file, j *job) {
	f.left--
	f.proof, f.until, f.asked = j.proof, time.Time{}, 0
	if f.parts.id != "" {
		if f.parts.have == nil {
			f.parts.have = map[int]part{}
		}
		n := f.parts.number(j.Item.From)
		f.parts.have[n] = j.part
		x := e.notes.entry(f)
		x.Upload, x.Part, x.Parts = f.parts.id, f.parts.size, map[int]part{n: j.part}
		e.notes.put(x)
	}
	if f.left > 0 {
		return
	}
	f.state = finishing
	if e.Target.Method == Post { // nothing else can be asked
		e.arrived(f)
	}
}

// refused acts on what went wrong, after so much was sent.
func (e *engine) refused(f *file, w *transfer.Worker, got unit.Bytes, err error) {
	if e.loop.Closing() {
		return // it is not known what did
	}
	no, answered := (*transfer.Refusal)(nil), true
	switch {
	case errors.As(err, &no):
	case errors.Is(err, errChanged):
		no = &transfer.Refusal{Verdict: transfer.Restart, Err: fault.New(fault.Integrity, err, "send it when nobody writes to it")}
	case errors.As(err, new(transfer.LocalError)):
		no = &transfer.Refusal{Verdict: transfer.Final, Err: err}
	default:
		no, answered = &transfer.Refusal{Err: explain(err)}, false
	}
	e.Log.Debug("a file could not be sent", "file", f.Path, "device", w.Name, "err", err)
	switch no.Verdict {
	case transfer.Exclude:
		e.loop.Exclude(f.index, f.bars, w, no.Err)
	case transfer.Final:
		if fault.Is(no.Err, fault.Exists) {
			f.lost = false // it has another one
		}
		e.fail(f, no.Err, true)
	case transfer.Restart:
		e.again(f, no.Err)
	default:
		e.retry(f, w, no, answered, answered || got > 0)
	}
}

// retry has a file tried again, later if a server has answered, and rather over another
// device. It counts unless that was the device's fault, and others may do better.
func (e *engine) retry(f *file, w *transfer.Worker, no *transfer.Refusal, answered, counts bool) {
	err := no.Err
	if f.until, f.last = (time.Time{}), w; answered {
		f.until, err = time.Now().Add(e.loop.Times.Pause(f.tries+1)), no
	}
	if w.IsBusy() { // it was a step of another file that failed
		w.Delay(no.After, err)
	} else {
		e.loop.Suspend(w, no.After, err)
	}
	if counts {
		f.tries++
	}
	if f.tries >= mostTries {
		e.fail(f, no.Err, false)
	}
}

// again begins a file anew.
func (e *engine) again(f *file, why error) {
	if f.restarts++; f.restarts > mostRestarts {
		e.fail(f, why, true)
		return
	}
	e.withdraw(f)
	e.abandon(f)
	if err := f.look(); err != nil {
		e.fail(f, err, true)
		return
	}
	f.state, f.parts, f.proof = fresh, partsOf{}, ""
}

// withdraw takes a file from the board, and ends its jobs.
func (e *engine) withdraw(f *file) {
	e.loop.Withdraw(f.index)
	for w, err := range f.bars { // the board has forgotten them
		e.loop.Exclude(f.index, f.bars, w, err)
	}
}

// fail gives a file up: for good, or so that another run may go on.
func (e *engine) fail(f *file, err error, forGood bool) {
	if !f.isOpen() {
		return
	}
	e.withdraw(f)
	f.state, f.err = failed, explain(err)
	f.over = forGood || e.Journal == nil
	if f.over && !f.lost {
		x := e.notes.entry(f)
		x.Gone = true
		e.notes.put(x)
	}
	if f.over && !f.step {
		e.abandon(f)
	}
}

// abandon removes from the server what there is of a file, if it can be reached.
func (e *engine) abandon(f *file) {
	left := *f
	left.bars = nil
	all := e.loop.Workers()
	w := all[max(0, slices.IndexFunc(all, (*transfer.Worker).IsUp))]
	e.loop.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		e.how.abandon(ctx, w, &left)
	})
}
