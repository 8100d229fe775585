package playlist

import (
	"context"
	"errors"
	"net/http"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
)

// Why a job was ended by us.
var (
	errStalled = fault.New(fault.Timeout, errors.New("nothing came for long"), "")
	errDropped = errors.New("not needed any more")
)

// line is a device, and how it does.
type line struct {
	fetch.Device
	path          int
	client        *http.Client
	bytes, wasted unit.Bytes
	fails         int
	until         time.Time // when it is tried again
	down          error     // nil: it is used
}

// settle carries out what the board orders, and unlocks. All that tells the board
// something ends with it.
func (p *Proxy) settle() {
	defer p.mu.Unlock()
	for !p.over {
		o, ok := p.board.Next(time.Now())
		if !ok {
			break
		}
		switch j := p.jobs[o.Job.ID]; {
		case o.Kind == board.Start:
			p.start(o.Job)
		case j == nil:
		case o.Kind == board.Shorten:
			j.Item.To = o.Job.Item.To
		default:
			p.cancel(j)
		}
		p.Log.Debug("onload", "order", o.Kind, "device", p.lines[o.Job.Path].Name, "object", o.Job.Item.Object,
			"from", o.Job.Item.From, "to", o.Job.Item.To, "reason", o.Reason.String())
	}
}

// cancel ends a job that the board has forgotten.
func (p *Proxy) cancel(j *job) {
	j.dropped = true
	delete(p.jobs, j.ID)
	j.cancel(errDropped)
}

func (p *Proxy) start(of board.Job) {
	s := p.byObject[of.Item.Object]
	ctx, cancel := context.WithCancelCause(p.ctx)
	j := &job{Job: of, seg: s, line: p.lines[of.Path], cancel: cancel, stirred: time.Now(), from: of.Item.From, to: of.Item.To,
		ranged: s.split || s.to != board.Unknown}
	j.header = s.request.Clone()
	if s.split {
		j.guard = s.answer.validator()
	}
	p.jobs[j.ID] = j
	p.running.Go(func() {
		err := p.fetch(ctx, j)
		if cause := context.Cause(ctx); cause != nil && err != nil {
			err = cause
		}
		cancel(nil)
		p.ended(j, err)
	})
}

// ended takes in how a job went.
func (p *Proxy) ended(j *job, err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.settle()
	s := j.seg
	delete(p.jobs, j.ID)
	switch refused := (*refusal)(nil); {
	case j.dropped:
	case err == nil:
		p.finished(j, now)
	case errors.As(err, &refused) && refused.moved && (s.answer != nil || s.left): // it was not for others
		p.leave(s, err)
	case errors.As(err, &refused) && refused.moved:
		p.moved(s, now)
	case errors.As(err, &refused):
		p.board.Fail(j.ID, now)
		if refused.pause > 0 {
			p.pause(j.line, refused.pause, err, now)
		}
		s.bars[j.line] = err
		p.board.Bar(j.line.path, s.object, now)
		p.judge(s, err)
	default:
		p.board.Fail(j.ID, now)
		p.pause(j.line, 0, err, now)
	}
	if s.lead == j && !s.whole {
		s.lead = nil
		s.signal()
	}
	if !s.split && len(s.buf) == 0 && len(j.buf) > 0 { // it is not kept, unless somebody is given it
		n := min(s.mem, unit.Bytes(len(j.buf)))
		s.mem, p.held = s.mem-n, p.held-n
	}
	j.line.wasted += j.got - j.fresh
}

// finished takes in that a job has brought its item.
func (p *Proxy) finished(j *job, now time.Time) {
	s := j.seg
	if !p.board.Finish(j.ID, now) {
		return
	}
	if !s.split {
		s.buf, s.size = j.buf, unit.Bytes(len(j.buf))
		s.answer, j.fresh = j.answer, j.got
		if n := unit.Bytes(len(j.buf)); n != s.mem { // copies are not counted any more
			p.held, s.mem = p.held-s.mem+n, n
		}
	} else if !s.have.Contains(0, s.size) {
		return
	}
	s.whole = true
	s.reel.size = s.size
	if p.byObject[s.object] == s {
		p.board.Drop(s.object)
		delete(p.byObject, s.object)
	}
	s.signal()
}

// judge leaves a segment to the player that no device can have now.
func (p *Proxy) judge(s *segment, err error) {
	for _, d := range p.lines {
		if s.bars[d] == nil && d.down == nil {
			return
		}
	}
	if len(s.bars) == len(p.lines) || s.readers > 0 {
		p.leave(s, err)
	}
}

// pause leaves a device alone for a while, longer each time.
func (p *Proxy) pause(d *line, atLeast time.Duration, err error, now time.Time) {
	d.fails++
	d.down, d.until = err, now.Add(min(longest, max(atLeast, backoff<<min(d.fails-1, 10))))
	p.board.Down(d.path, now)
	p.Log.Debug("a device rests", "device", d.Name, "for", d.until.Sub(now), "err", err)
	if p.Rests != nil {
		p.Rests(d.Name, err)
	}
	for _, s := range p.byObject {
		p.judge(s, err)
	}
}

// passTime does what time asks for.
func (p *Proxy) passTime(now time.Time) {
	p.mu.Lock()
	defer p.settle()
	for _, j := range p.jobs {
		if now.Sub(j.stirred) > stall {
			j.cancel(errStalled)
		}
	}
	for _, d := range p.lines {
		p.board.SetMetered(d.path, d.IsMetered())
		if d.down != nil && now.After(d.until) {
			d.down = nil
			p.board.Up(d.path)
		}
	}
	for _, r := range p.playing {
		if !r.asked.IsZero() && now.Sub(r.asked) > idle {
			p.rest(r)
		}
	}
}
