package fetch

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

func (e *engine) handle(ev event) {
	switch ev.kind {
	case answered:
		e.answered(ev)
	case ended:
		e.ended(ev.job, ev.err)
	case warmed:
		ev.device.warming = false
		if e.ctx.Err() == nil {
			e.rest(ev.device, 0, ev.err)
		}
	case checked:
		o := ev.object
		o.verifying = false
		if ev.err != nil {
			e.fail(o, ev.err)
			return
		}
		o.closed = true
		e.open--
		e.reopen(o)
	case compared:
		if o := ev.second.object; o.checking { // else it was begun anew meanwhile
			e.compared(ev.second)
		}
	case saved:
		ev.object.saving = false
		if ev.err != nil {
			e.Log.Warn("the journal of a download could not be written", "file", ev.object.File, "err", ev.err)
		}
	}
}

// answered tells a job where its body goes.
func (e *engine) answered(ev event) {
	j, o := ev.job, ev.job.object
	if j.dropped {
		j.goOn <- nil
		return
	}
	news := !o.known
	j.device.unheard = 0
	to, no := o.meet(j.device, j.want, ev.answer)
	if no != nil {
		j.goOn <- nil
		e.refused(j, no)
		return
	}
	j.part = to
	if j.url != ev.url && j.url == o.URL && !hasUser(o.URL) {
		o.final[j.device] = ev.url
	}
	if news {
		e.board.Learn(j.ID, o.is.Size, !o.whole)
		if o.is.Size != board.Unknown {
			j.end.Store(int64(o.is.Size))
		}
	}
	e.board.Progress(j.ID, 0, time.Now())
	j.goOn <- to
}

// hasUser tells whether a URL has a name and a password, which those that redirects lead
// to have not.
func hasUser(s string) bool {
	u, err := url.Parse(s)
	return err != nil || u.User != nil
}

// count takes in what a job has brought by now.
func (e *engine) count(j *job) {
	got := unit.Bytes(j.at.Load()) - j.Item.From
	n := got - j.counted
	if n <= 0 {
		return
	}
	j.counted = got
	now := time.Now()
	e.lastByte, e.any = now, true
	j.object.take(j, n)
	if j.counted >= goodBytes {
		j.device.fails, j.device.why = 0, nil
	}
	if !j.dropped {
		e.board.Progress(j.ID, got, now)
	}
}

// ended takes in how a job went.
func (e *engine) ended(j *job, err error) {
	o := j.object
	o.jobs--
	e.count(j)
	if !j.dropped {
		delete(e.jobs, j.ID)
		switch no := (*refusal)(nil); {
		case err == nil:
			e.brought(j)
		case errors.Is(err, errShort):
			e.board.Fail(j.ID, time.Now())
		case errors.As(err, &no):
			e.refused(j, no)
		case errors.As(err, new(diskError)):
			e.fail(o, err)
		case errors.Is(err, errDigest):
			e.spoiled(j, err)
		default:
			e.board.Fail(j.ID, time.Now())
			if o.final[j.device] != "" {
				delete(o.final, j.device)
			}
			e.rest(j.device, 0, err)
			if o.whole && j.answered.Load() { // all over again, as long as that may help
				if o.broken++; o.broken > mostBroken {
					e.fail(o, err)
				}
			}
		}
	}
	e.putAway(j)
	if o.right != nil {
		e.check(o)
	}
}

// spoiled takes in that what a job has brought is not what its sender had.
func (e *engine) spoiled(j *job, err error) {
	o := j.object
	e.board.Fail(j.ID, time.Now())
	if !o.whole {
		o.lose(j)
		e.board.Add(board.Item{Object: o.index, From: j.Item.From, To: j.Item.From + j.counted, Split: true})
	}
	e.bar(o, j.device, err)
}

// brought takes in that a job has done what it should.
func (e *engine) brought(j *job) {
	o := j.object
	j.device.fails, j.device.why = 0, nil
	if !e.board.Finish(j.ID, time.Now()) {
		return
	}
	if o.whole {
		j.device.wasted -= j.counted // counted so as long as another one could win
		o.carried[j.device] += j.counted
		e.finished(o, j.part)
	} else if len(o.have.Missing(o.is.Size)) == 0 {
		e.finished(o, o.part)
	}
}

// finished has an object checked when no job of it runs any more.
func (e *engine) finished(o *object, p *part) {
	o.right = p
	e.board.Drop(o.index)
	e.carryOut()
	e.check(o)
}

// check has an object checked, once and when nobody writes to its files any more.
func (e *engine) check(o *object) {
	if o.jobs > 0 || o.checking || o.closed {
		return
	}
	o.checking = true
	if o.right != o.part && o.part != nil {
		o.part.discard()
	}
	if o.host() != "" && o.alone(e.own()) {
		e.ask(o)
	} else {
		e.verify(o)
	}
}

// verify compares what is there with what was promised, and gives it its name.
func (e *engine) verify(o *object) {
	o.verifying = true
	e.running.Go(func() { e.tell(event{kind: checked, object: o, err: o.check(&e.Config)}) })
}

// refused acts on an answer that cannot be used.
func (e *engine) refused(j *job, no *refusal) {
	o, d := j.object, j.device
	if !j.dropped {
		j.dropped = true
		delete(e.jobs, j.ID)
		e.board.Fail(j.ID, time.Now())
	}
	if errors.As(no.err, new(diskError)) {
		e.fail(o, no.err)
		return
	}
	if o.final[d] != "" { // where a redirect led once: perhaps not any more
		delete(o.final, d)
		if no.verdict != again {
			return
		}
	}
	if no.verdict == other && e.dispute(o, d, no.err) {
		return
	}
	switch no.verdict {
	case again:
		e.rest(d, no.after, no)
		return
	case other:
		o.differ[d] = no.seen
		no.err = fault.New(fault.Integrity, fmt.Errorf("the object changes while it is fetched: %w", no.err), "try again later")
		if e.changed(o, d) {
			e.again(o, false, no.err)
			return
		}
	case noRange:
		o.noRange = true
		if !o.known && !o.whole {
			e.again(o, true, no.err)
			return
		}
	}
	e.bar(o, d, no.err)
}

// changed tells whether what a device sees instead of an object is what there is by now:
// another device must see it too, and this one's own line first, if it works.
func (e *engine) changed(o *object, d *device) bool {
	if own := e.devices[0]; own != d && own.down == nil && o.bars[own] == nil {
		return false
	}
	for by, v := range o.differ {
		if w := o.differ[d]; by != d && (v == version{} || w == version{} || v.agrees(w)) {
			return true
		}
	}
	return false
}

// bar keeps a device from an object.
func (e *engine) bar(o *object, d *device, err error) {
	o.bars[d] = err
	e.board.Bar(d.path, o.index, time.Now())
	e.Log.Debug("a device cannot fetch an object", "device", d.Name, "url", o.URL, "err", err)
	e.judge(o)
}

// judge gives an object up that no device can have. One that does not work now is not
// waited for unless there is something to complete, or others are left out as liars.
func (e *engine) judge(o *object) {
	if len(o.bars) == 0 || o.closed || o.right != nil || e.Joins != nil {
		return
	}
	for _, d := range e.devices {
		if o.bars[d] == nil && (d.down == nil || len(e.liars[o.host()]) > 0 || len(o.have) > 0 && (len(o.differ) == 0 || d.path == 0)) {
			return
		}
	}
	err := e.none(o)
	if o.noRange && !o.whole || len(o.differ) > 0 { // nobody is left who has what it was
		e.again(o, o.noRange, err)
		return
	}
	e.fail(o, err)
}

// none is why no device can have an object, as far as it is known.
func (e *engine) none(o *object) error {
	var list []Reason
	for _, d := range e.devices {
		if err := cmp.Or(o.bars[d], d.why); err != nil {
			list = append(list, Reason{d.Name, err})
		}
	}
	return None(len(e.devices), list)
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

// carryOutDrops ends the jobs of an object that the board has forgotten.
func (e *engine) carryOutDrops(o *object) {
	for _, j := range e.jobs {
		if j.object == o {
			e.drop(j)
		}
	}
}

// fail gives an object up.
func (e *engine) fail(o *object, err error) {
	if o.closed {
		return
	}
	e.board.Drop(o.index)
	e.carryOutDrops(o)
	o.closed, o.err = true, explain(err)
	e.open--
	if o.part != nil {
		e.leave(o)
	}
}

// rest leaves a device alone for a while, longer each time, or has it work if err is nil.
func (e *engine) rest(d *device, atLeast time.Duration, err error) {
	if d.down = err; err == nil {
		e.board.Up(d.path)
		return
	}
	d.fails++
	if d.unheard++; errors.As(err, new(*refusal)) {
		d.unheard = 0
	}
	pause := max(atLeast, min(mostBackoff, e.times.backoff<<min(d.fails-1, 10)))
	d.until = time.Now().Add(pause)
	several := false
	for _, j := range e.jobs {
		if j.device == d {
			several = true
			e.drop(j)
		}
	}
	e.board.Down(d.path, time.Now())
	if several && errors.As(err, new(*refusal)) { // perhaps of so many at once
		e.board.SetSingle(d.path)
	}
	d.why = err
	e.Log.Debug("a device rests", "device", d.Name, "for", pause, "err", err)
	for _, o := range e.objects {
		e.judge(o)
	}
}
