// SPDX-License-Identifier: Apache-2.0

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

// maxReportAge is how long a helper's report about a pipe is valid. On a pipe that became very
// slow, the next report waits behind the bytes queued there.
const maxReportAge = 3 * time.Second

// pipeChooser uses the pipes of a helper as policy.Pipes decides: it moves the helper's subflow and
// keeps second subflows while they raise the rate.
type pipeChooser struct {
	supervisor *subflowSupervisor
	helper     *helper
	main       activePipe
	policy     policy.Pipes
	seconds    map[string]*secondSubflow // by local interface
	tasks      sync.WaitGroup
}

// activePipe is a helped subflow with a monitored pipe.
type activePipe struct {
	liveSubflow
	acked uint64
}

// secondSubflow is a further subflow by the same helper.
type secondSubflow struct {
	end    context.CancelFunc
	done   chan struct{}
	up     chan struct{} // closed when active is set
	active activePipe
}

func newPipeChooser(k *subflowSupervisor, h *helper, main liveSubflow) *pipeChooser {
	return &pipeChooser{
		supervisor: k,
		helper:     h,
		main:       activePipe{liveSubflow: main},
		seconds:    map[string]*secondSubflow{},
	}
}

// endSeconds ends the second subflows and waits for them.
func (c *pipeChooser) endSeconds() {
	for iface := range c.seconds {
		c.endSecondSubflow(iface)
	}
	c.tasks.Wait()
}

// applyPipeDecision evaluates the pipes and applies the decision of policy. A move takes a round
// trip or more.
func (c *pipeChooser) applyPipeDecision(ctx context.Context, now time.Time) {
	decision := c.policy.Decide(now, c.pipesForPolicy(now))
	if decision.Do == policy.PipesStay {
		return
	}
	if decision.Do == policy.PipesMove || decision.Do == policy.PipesEnd {
		c.endSecondSubflow(decision.Link)
	}
	if decision.Do == policy.PipesEnd {
		c.supervisor.log.Info(
			"pipe no longer used", "by", c.helper.currentHelperName(), "link", decision.Link, "reason", decision.Reason,
		)
		return
	}
	w := c.helper.takeReservePipeVia(decision.Link)
	switch {
	case w == nil:
	case decision.Do == policy.PipesMove:
		// policy sees the result at its next decision
		_ = c.supervisor.moveSubflowToPipe(ctx, c.helper, c.main.liveSubflow, w, decision.Reason)
	case decision.Do == policy.PipesTry:
		c.supervisor.log.Info(
			"trying another pipe", "by", c.helper.currentHelperName(), "link", decision.Link, "reason", decision.Reason,
		)
		c.trySecondSubflow(ctx, decision.Link, w)
	}
}

// applyMoveRequest applies a user's request to move the subflow.
func (c *pipeChooser) applyMoveRequest(ctx context.Context, r moveRequest) error {
	if r.subflow != c.main.id {
		return fault.New(fault.NotFound, fmt.Errorf("subflow %d has ended", r.subflow), "see `mpbond status`")
	}
	to := c.helper.takeReservePipeAt(r.to)
	if to == nil {
		return fault.New(
			fault.NotFound,
			fmt.Errorf("no pipe of %s waits at %.100q", c.helper.currentHelperName(), r.to),
			"`mpbond status` lists those that wait",
		)
	}
	c.endSecondSubflow(to.Via())
	return fault.New(
		fault.Unreachable,
		c.supervisor.moveSubflowToPipe(ctx, c.helper, c.main.liveSubflow, to, "requested"),
		"the subflow stays on its pipe if that works",
	)
}

// pipesForPolicy describes all pipes of the helper for policy.
func (c *pipeChooser) pipesForPolicy(now time.Time) []policy.Pipe {
	list := []policy.Pipe{c.main.describePipe(now, policy.PipeMain)}
	for iface, x := range c.seconds {
		select {
		case <-x.done:
			delete(c.seconds, iface)
			continue
		default:
		}
		select {
		case <-x.up:
			list = append(list, x.active.describePipe(now, policy.PipeSecond))
		default:
			list = append(list, policy.Pipe{Link: iface, Use: policy.PipeJoining})
		}
	}
	for _, w := range c.helper.reservePipes() {
		if w.Err() == nil {
			list = append(list, policy.Pipe{Link: w.Via(), RTT: w.RTT()})
		}
	}
	return list
}

// describePipe describes a pipe in use.
func (a *activePipe) describePipe(now time.Time, use policy.PipeUse) policy.Pipe {
	s := policy.Pipe{Link: a.link.Via(), Use: use}
	if h, err := a.link.Probe(); err == nil {
		a.acked, s.Waiting, s.RTT = h.Acked, h.Queue, h.MinRTT
	}
	s.Moved = a.link.Received() + a.acked
	if r := a.lastReport.Load(); r != nil && now.Sub(r.at) <= maxReportAge {
		s.Waiting = max(s.Waiting, r.waiting)
	}
	return s
}

// trySecondSubflow opens a second subflow over w. It lasts until its pipe breaks or stalls, or
// until it is ended.
func (c *pipeChooser) trySecondSubflow(ctx context.Context, iface string, w *pipe.Waiting) {
	tried, end := context.WithCancel(ctx)
	x := &secondSubflow{end: end, done: make(chan struct{}), up: make(chan struct{})}
	c.seconds[iface] = x
	attempt := c.helper.lastAttempt()
	c.tasks.Go(func() {
		defer close(x.done)
		defer end()
		defer w.Close()
		l, err := c.supervisor.openHelped(tried, c.helper, w, attempt, func(*pipe.Link) {})
		if err == nil {
			x.active.liveSubflow = l
			close(x.up)
			err = c.runSecondSubflow(tried, l)
			if ctx.Err() == nil { // else the session says goodbye for all subflows
				l.session.endpoint.Detach(l.id)
				c.supervisor.bond.endSubflow(l.session, l.id, nil)
			}
		}
		if tried.Err() == nil {
			c.supervisor.log.Info("no second subflow", "by", c.helper.currentHelperName(), "link", iface, "err", err)
		}
	})
}

// runSecondSubflow waits until a second subflow must end, and returns why.
func (c *pipeChooser) runSecondSubflow(ctx context.Context, l liveSubflow) error {
	tick := c.supervisor.cfg.Clock.NewTicker(stallCheckInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-l.ended:
			return err
		case <-l.link.ConnNeeded():
			return errors.New("its pipe broke")
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if l.link.CheckStalled(time.Now()) {
				return errors.New("its pipe stalled")
			}
		}
	}
}

// endSecondSubflow ends the second subflow over a local interface, if there is one.
func (c *pipeChooser) endSecondSubflow(iface string) {
	if x := c.seconds[iface]; x != nil {
		x.end()
		delete(c.seconds, iface)
	}
}
