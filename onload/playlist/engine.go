package playlist

import (
	"errors"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// errStalled ends jobs.
var errStalled = fault.New(fault.Timeout, errors.New("nothing came for long"), "")

// Next implements transfer.Task. A segment that no device can have now is left to the
// player who waits for it.
func (p *shelf) Next() (more bool) {
	for _, s := range p.queue.segments {
		if s.isHopeless(p.loop.Workers()) {
			p.leave(s, s.bars.Reasons(p.loop.Workers()))
		}
	}
	return true
}

// Start implements transfer.Task.
func (p *shelf) Start(of *transfer.Job) transfer.Carrier {
	s := p.queue.segments[of.Item.Object]
	j := &job{Job: of, shelf: p, seg: s, header: s.request.Clone(), from: of.Item.From, to: of.Item.To, ranged: s.split || s.to != board.Unknown}
	if s.split {
		j.guard = s.answer.validator()
	}
	return j
}

// Report implements transfer.Task.
func (p *shelf) Report(now time.Time) {
	for _, r := range p.library.playing {
		if !r.asked.IsZero() && now.Sub(r.asked) > idle {
			p.rest(r)
		}
	}
}

// GiveUp implements transfer.Task: players decide when they have waited for long enough.
func (p *shelf) GiveUp() {}

// Ended implements transfer.Carrier.
func (j *job) Ended(err error) {
	p, s := j.shelf, j.seg
	switch no := (*transfer.Refusal)(nil); {
	case errors.Is(err, transfer.ErrDropped):
	case err == nil:
		j.finished()
	case errors.As(err, &no) && no.Verdict == transfer.Redirect && (s.answer != nil || s.left): // it was not for others
		p.leave(s, err)
	case errors.As(err, &no) && no.Verdict == transfer.Redirect:
		p.moved(s, time.Now())
	case errors.As(err, &no):
		if no.After > 0 {
			p.loop.Suspend(j.Worker, min(longest, no.After), err) // there are other servers
		}
		p.loop.Exclude(s.object, s.bars, j.Worker, err)
	default:
		p.loop.Suspend(j.Worker, 0, err)
	}
	if s.lead == j && !s.whole {
		s.lead = nil
		s.signal()
	}
	if !s.split && len(s.buf) == 0 && len(j.buf) > 0 { // it is not kept, unless somebody is given it
		n := min(s.mem, unit.Bytes(len(j.buf)))
		s.mem, p.held = s.mem-n, p.held-n
	}
	j.Worker.Wasted += j.Carried() - j.fresh
}

// finished takes in that a job has brought its item.
func (j *job) finished() {
	p, s := j.shelf, j.seg
	if !s.split {
		s.buf, s.size = j.buf, unit.Bytes(len(j.buf))
		s.answer, j.fresh = j.answer, j.Carried()
		if n := unit.Bytes(len(j.buf)); n != s.mem { // copies are not counted any more
			p.held, s.mem = p.held-s.mem+n, n
		}
	} else if !s.have.Contains(0, s.size) {
		return
	}
	s.whole = true
	s.reel.size = s.size
	p.queue.remove(s)
	s.signal()
}
