package primary

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/control/policy"
	"mpbond/link/pipe"
)

// reportAge is how long a helper's report about a pipe holds: on one that has
// become very slow the next one is behind the bytes that it has queued.
const reportAge = 3 * time.Second

// chooser uses the pipes of a helper as policy.Pipes decides: it moves the
// helper's subflow, and keeps second ones while they raise the rate.
type chooser struct {
	keeper  *subflowKeeper
	helper  *helper
	main    tended
	decide  policy.Pipes
	seconds map[string]*second // by link
	all     sync.WaitGroup
}

// tended is a helped subflow whose pipe is looked at.
type tended struct {
	openSubflow
	acked uint64
}

// second is a further subflow by a helper.
type second struct {
	end  context.CancelFunc
	done chan struct{}
	up   chan struct{} // closed when t is set
	t    tended
}

func newChooser(k *subflowKeeper, h *helper, main openSubflow) *chooser {
	return &chooser{keeper: k, helper: h, main: tended{openSubflow: main}, seconds: map[string]*second{}}
}

// close ends the second subflows.
func (c *chooser) close() {
	for link := range c.seconds {
		c.endSecond(link)
	}
	c.all.Wait()
}

// applyChoice looks at the pipes and does what policy decides. It takes as long as a
// move, if it comes to that.
func (c *chooser) applyChoice(ctx context.Context, now time.Time) {
	plan := c.decide.Decide(now, c.snapshot(now))
	if plan.Do == policy.PipesStay {
		return
	}
	if plan.Do == policy.PipesMove || plan.Do == policy.PipesEnd {
		c.endSecond(plan.Link)
	}
	if plan.Do == policy.PipesEnd {
		c.keeper.log.Info("pipe not used any more", "by", c.helper.currentName(), "link", plan.Link, "reason", plan.Reason)
		return
	}
	w := c.helper.takeVia(plan.Link)
	switch {
	case w == nil:
	case plan.Do == policy.PipesMove:
		_ = c.keeper.movePipe(ctx, c.helper, c.main.openSubflow, w, plan.Reason) // policy sees what came of it
	case plan.Do == policy.PipesTry:
		c.keeper.log.Info("another pipe is tried", "by", c.helper.currentName(), "link", plan.Link, "reason", plan.Reason)
		c.trySecond(ctx, plan.Link, w)
	}
}

// moveTo does what somebody asks for.
func (c *chooser) moveTo(ctx context.Context, r moveRequest) error {
	if r.path != c.main.id {
		return fault.New(fault.NotFound, fmt.Errorf("subflow %d has ended", r.path), "see `mpbond status`")
	}
	to := c.helper.takeAt(r.to)
	if to == nil {
		return fault.New(fault.NotFound, fmt.Errorf("no pipe of %s waits at %.100q", c.helper.currentName(), r.to), "`mpbond status` lists those that wait")
	}
	c.endSecond(to.Via())
	return fault.New(fault.Unreachable, c.keeper.movePipe(ctx, c.helper, c.main.openSubflow, to, "asked for"), "the subflow stays where it was, as far as that works")
}

// snapshot is all pipes of the helper.
func (c *chooser) snapshot(now time.Time) []policy.Pipe {
	list := []policy.Pipe{c.main.state(now, policy.PipeMain)}
	for link, x := range c.seconds {
		select {
		case <-x.done:
			delete(c.seconds, link)
			continue
		default:
		}
		select {
		case <-x.up:
			list = append(list, x.t.state(now, policy.PipeHelps))
		default:
			list = append(list, policy.Pipe{Link: link, Use: policy.PipeJoins})
		}
	}
	for _, w := range c.helper.inReserve() {
		if w.Err() == nil {
			list = append(list, policy.Pipe{Link: w.Via(), RTT: w.RTT()})
		}
	}
	return list
}

// state is what is known of the pipe in use.
func (t *tended) state(now time.Time, use policy.PipeUse) policy.Pipe {
	s := policy.Pipe{Link: t.link.Via(), Use: use}
	if h, err := t.link.Probe(); err == nil {
		t.acked, s.Waiting, s.RTT = h.Acked, h.Queue, h.MinRTT
	}
	s.Moved = t.link.Received() + t.acked
	if r := t.seen.Load(); r != nil && now.Sub(r.at) <= reportAge {
		s.Waiting = max(s.Waiting, r.waiting)
	}
	return s
}

// trySecond makes a second subflow over w, which lasts until its pipe breaks or stalls,
// or it is ended.
func (c *chooser) trySecond(ctx context.Context, link string, w *pipe.Waiting) {
	tried, end := context.WithCancel(ctx)
	x := &second{end: end, done: make(chan struct{}), up: make(chan struct{})}
	c.seconds[link] = x
	attempt := c.helper.lastAttempt()
	c.all.Go(func() {
		defer close(x.done)
		defer end()
		defer w.Close()
		l, err := c.keeper.openHelped(tried, c.helper, w, attempt, func(*pipe.Link) {})
		if err == nil {
			x.t.openSubflow = l
			close(x.up)
			err = c.tendSecond(tried, l)
			if ctx.Err() == nil { // else all is about to end, which says goodbye first
				l.s.e.Detach(l.id)
				c.keeper.sessions.endSubflow(l.s, l.id, nil)
			}
		}
		if tried.Err() == nil {
			c.keeper.log.Info("no second subflow", "by", c.helper.currentName(), "link", link, "err", err)
		}
	})
}

// tendSecond returns when a second subflow is to end, and why.
func (c *chooser) tendSecond(ctx context.Context, l openSubflow) error {
	tick := time.NewTicker(stallCheck)
	defer tick.Stop()
	for {
		select {
		case err := <-l.down:
			return err
		case <-l.link.Trouble():
			return errors.New("its pipe broke")
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			if l.link.Stalled(now) {
				return errors.New("its pipe stalled")
			}
		}
	}
}

// endSecond ends the second subflow over a link, if there is one.
func (c *chooser) endSecond(link string) {
	if x := c.seconds[link]; x != nil {
		x.end()
		delete(c.seconds, link)
	}
}
