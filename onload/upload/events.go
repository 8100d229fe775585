package upload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/transfer"
)

func (e *engine) handle(ev event) {
	if ev.job != nil {
		e.ended(ev.job, ev.err)
		return
	}
	f := ev.file
	f.step = false
	ev.device.steps--
	switch {
	case f.state == failed: // meanwhile
		if f.over {
			e.abandon(f)
		}
	case errors.Is(ev.err, errAwaited): // the step is tried again
	case ev.err != nil:
		e.refused(f, ev.device, 0, ev.err)
	case f.state == fresh:
		e.begin(f)
	default:
		e.well(ev.device)
		e.arrived(f)
	}
}

// arrived takes in that the server has confirmed a file.
func (e *engine) arrived(f *file) {
	f.state = done
	x := e.entry(f)
	x.Done, x.Twice = f.proof, f.twice
	e.note(x)
	if e.Confirmed != nil {
		e.Confirmed(f.sent())
	}
}

// begin puts what is to be sent of a file on the board.
func (e *engine) begin(f *file) {
	if f.parts.id != "" {
		x := e.entry(f)
		x.Upload, x.Part, x.Parts = f.parts.id, f.parts.size, f.parts.have
		e.note(x)
	}
	items := e.how.items(f)
	f.state, f.left = sending, len(items)
	if len(items) == 0 {
		f.state = finishing
	}
	e.board.Add(items...)
}

// well tells that a device has been answered.
func (e *engine) well(d *device) {
	d.fails, d.unheard, d.why, d.answered = 0, 0, nil, true
	e.moved = time.Now()
}

// count takes in what of a job has left by now.
func (e *engine) count(j *job) {
	got := unit.Bytes(j.sent.bytes.Load())
	if got == j.counted {
		return
	}
	if got > j.counted { // else it was sent on to elsewhere
		j.device.bytes += got - j.counted
		if j.dropped {
			j.device.wasted += got - j.counted
		}
	}
	j.counted = got
	e.moved = time.Now()
	if size := j.Item.Size(); !j.dropped && size > 0 {
		e.board.Progress(j.ID, min(got, size-1), e.moved) // all is there when it is confirmed
	}
}

// ended takes in how a job went.
func (e *engine) ended(j *job, err error) {
	f, d := j.file, j.device
	f.jobs--
	e.count(j)
	var no *refusal
	switch all := j.sent.all.Load(); {
	case j.dropped && all && e.Target.Method == Post:
		f.lost, f.twice = true, true
	case !j.dropped && all && err != nil && (!errors.As(err, &no) || no.maybe):
		f.lost = true
	}
	if !j.dropped && err != nil {
		d.wasted += j.counted
	}
	switch {
	case j.dropped:
	case err != nil:
		delete(e.jobs, j.ID)
		e.board.Fail(j.ID, time.Now())
		e.refused(f, d, j.counted, err)
	default:
		delete(e.jobs, j.ID)
		e.well(d)
		e.taken = true
		e.board.Finish(j.ID, time.Now())
		e.confirmed(f, j)
	}
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
		x := e.entry(f)
		x.Upload, x.Part, x.Parts = f.parts.id, f.parts.size, map[int]part{n: j.part}
		e.note(x)
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
func (e *engine) refused(f *file, d *device, got unit.Bytes, err error) {
	if e.ctx.Err() != nil {
		return // it is not known what did
	}
	var no *refusal
	switch {
	case errors.As(err, &no):
		d.unheard = 0
	case errors.Is(err, errChanged):
		no = &refusal{verdict: anew, err: fault.New(fault.Integrity, err, "send it when nobody writes to it")}
	case errors.As(err, new(readError)):
		no = &refusal{verdict: final, err: err}
	default:
		no = &refusal{verdict: again, err: explain(err)}
		d.unheard++
	}
	e.Log.Debug("a file could not be sent", "file", f.Path, "device", d.Name, "err", err)
	switch no.verdict {
	case again:
		e.rest(d, no.after, no.err)
		f.until, f.last = time.Time{}, d // what a line does is no other's fault
		if d.unheard == 0 {              // but the server's may be
			f.until = time.Now().Add(min(mostBackoff, e.times.backoff<<min(f.tries, 10)))
		}
		if errors.As(err, &no) || got > 0 { // else it is the line's, and others may do better
			f.tries++
		}
		if f.tries >= mostTries {
			e.fail(f, no.err, false)
		}
	case barred:
		f.bars[d] = no.err
		e.board.Bar(d.path, f.index, time.Now())
		e.judge(f)
	case final:
		if fault.Is(no.err, fault.Exists) {
			f.lost = false // it has another one
		}
		e.fail(f, no.err, true)
	case anew:
		e.again(f, no.err)
	}
}

// judge gives up what no device may send, when no more will come.
func (e *engine) judge(f *file) {
	if e.Joins != nil || len(f.bars) < len(e.devices) {
		return
	}
	var list []transfer.Reason
	for _, d := range e.devices {
		list = append(list, transfer.Reason{Device: d.Name, Err: f.bars[d]})
	}
	e.fail(f, transfer.None(len(e.devices), list), true)
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
	e.board.Drop(f.index)
	for _, j := range e.jobs {
		if j.file == f {
			e.drop(j)
		}
	}
	for d := range f.bars { // Drop has forgotten them
		e.board.Bar(d.path, f.index, time.Now())
	}
}

// fail gives a file up: for good, or so that another run may go on.
func (e *engine) fail(f *file, err error, forGood bool) {
	if f.state == failed || f.state == done {
		return
	}
	e.withdraw(f)
	f.state, f.err = failed, explain(err)
	f.over = forGood || e.Journal == nil
	if f.over && !f.lost {
		x := e.entry(f)
		x.Gone = true
		e.note(x)
	}
	if f.over && !f.step {
		e.abandon(f)
	}
}

// abandon removes from the server what there is of a file, if it can be reached.
func (e *engine) abandon(f *file) {
	left := *f
	left.bars = nil
	d := e.devices[0]
	for _, other := range e.devices {
		if other.down == nil {
			d = other
			break
		}
	}
	e.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), endTime)
		defer cancel()
		e.how.abandon(ctx, d, &left)
	})
}

// rest leaves a device alone for a while, longer each time.
func (e *engine) rest(d *device, atLeast time.Duration, err error) {
	d.fails++
	pause := max(atLeast, min(mostBackoff, e.times.backoff<<min(d.fails-1, 10)))
	d.until = time.Now().Add(pause)
	d.why = err
	if atLeast > 0 {
		d.why = fmt.Errorf("%w, and asks to be left alone for %v", err, atLeast.Round(time.Second))
	}
	for _, j := range e.jobs {
		if j.device == d { // it was a step of another file that failed
			return
		}
	}
	d.down = err
	e.board.Down(d.path, time.Now())
	e.Log.Debug("a device rests", "device", d.Name, "for", pause, "err", err)
}

// look does what time asks for.
func (e *engine) look(now time.Time) {
	for _, j := range e.jobs {
		e.count(j)
		quiet := now.Sub(time.Unix(0, j.sent.stirred.Load()))
		switch all := j.sent.all.Load(); {
		case !all && quiet > e.times.stall:
			j.cancel(errStalled)
		case all && quiet > e.times.answer:
			j.cancel(errNoAnswer)
		}
	}
	unheard, back := 0, now.Add(24*time.Hour)
	for _, d := range e.devices {
		e.board.SetMetered(d.path, d.IsMetered())
		if d.down != nil && now.After(d.until) {
			d.down = nil
			e.board.Up(d.path)
		}
		if d.down == nil {
			back = now
		} else if d.until.Before(back) {
			back = d.until
		}
		if d.unheard >= mostFails {
			unheard++
		}
	}
	limit := e.moved.Add(e.times.patience)
	for _, f := range e.files {
		if f.step && f.joins() {
			limit = e.moved.Add(e.times.patience + e.times.join)
		}
	}
	if now.After(limit) || e.Joins == nil && (back.After(limit) || !e.heard.Load() && unheard == len(e.devices)) {
		e.giveUp()
		return
	}
	if now.Sub(e.told) >= 2*e.times.tick {
		e.report(now)
	}
}

// giveUp fails all that is open. What is begun stays for another run.
func (e *engine) giveUp() {
	var list []transfer.Reason
	for _, d := range e.devices {
		if d.why != nil {
			list = append(list, transfer.Reason{Device: d.Name, Err: d.why})
		}
	}
	err := transfer.None(len(e.devices), list)
	if err == nil {
		err = fault.New(fault.Timeout, errors.New("nothing leaves any more"), "the same command goes on")
	}
	for _, f := range e.files {
		e.fail(f, err, false)
	}
}
