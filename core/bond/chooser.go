// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

// turnChooser decides what the next segment carries and on which subflow: datagrams, low-latency
// streams, copies, or other streams as the scheduler decides, in this order. It offers the
// scheduler only the subflows that the subflowFilter permits. It asks the parts that hold the
// waiting data, and sends nothing itself. Not safe for concurrent use.
type turnChooser struct {
	subflows  *subflowTable
	filter    *subflowFilter
	classes   *classTable
	backlog   *backlog
	control   *controlQueue
	flows     *flowTable
	trace     *tracer
	timer     *wakeTimer
	scheduler sched.Scheduler

	view      []sched.Subflow // from the last survey
	permitted []sched.Subflow // part of view that one stream may use
	others    []sched.Subflow // part of permitted that withoutRecalledFrom keeps
}

// turn says what the next segment carries, and on which subflow; nil: none.
type turn struct {
	subflow  *subflow
	kind     turnKind
	stream   *Stream        // for turnLowLatency and turnBulk
	decision sched.Decision // for turnBulk
}

// turnKind says which data a turn carries.
type turnKind uint8

const (
	turnDatagrams  turnKind = iota
	turnLowLatency          // bytes of a low-latency stream
	turnCopies              // copies of bytes that other subflows carry
	turnBulk                // bytes of other streams, by the scheduler
)

// surveySubflows collects the state of all subflows for the next decision. It returns the idle
// subflow for control frames and ACKs: the fastest one or one nearly as fast. If that is nil they
// wait a moment. idle reports whether any subflow is idle.
func (c *turnChooser) surveySubflows(now time.Time) (carrier *subflow, idle bool) {
	c.filter.refreshSmallAnswer(now)
	// Late subflows carry control frames only if no other can, and those with a packet train in
	// flight if they are faster all the same.
	var onTime, behindTrain, all fastestSubflows
	var repeatedFrom *subflow
	view := c.view[:0]
	anyLive := c.subflows.hasOtherLive(nil)
	for _, p := range c.subflows.list {
		if p.isSilent() && anyLive {
			continue
		}
		n := p.est.EstimateAt(now)
		idle = idle || p.idle
		switch {
		case c.control.isRepeatedFrom(p.id):
			repeatedFrom = p
		case c.filter.permitsSmall(p):
			pad, train := n.PAD+p.expectedStall(now), p.inFlight.endsWithTrain()
			if train { // it goes at an unknown rate
				pad += max(n.SRTT, minSilence)
			}
			all.offerSubflow(p, pad)
			switch {
			case n.AckLate > 0:
			case train:
				behindTrain.offerSubflow(p, pad)
			default:
				onTime.offerSubflow(p, pad)
			}
		}
		p.est.AddForecast(&n, now)
		view = append(view, p.schedulerView(n, now))
		p.defersBulk = p.idle && c.backlog.pending > 0 && p.mustDeferBulk(n, now, c.timer)
	}
	c.view = view
	switch {
	case !all.found && repeatedFrom != nil && repeatedFrom.idle:
		return repeatedFrom, idle
	case !onTime.found:
		return all.idleCarrier(), idle
	case behindTrain.found && behindTrain.leastPAD < onTime.leastPAD:
		return behindTrain.idleCarrier(), idle
	}
	return onTime.idleCarrier(), idle
}

// chooseTurn returns the next turn, after a survey, in the order of turnKind. A flow whose
// datagrams come faster than a network would carry them takes turns with streams.
func (c *turnChooser) chooseTurn(now time.Time) turn {
	var datagramSubflow *subflow
	if l := c.flows.nextSendableLeg(now); l != nil {
		if datagramSubflow = l.subflow; !c.flows.streamsGoFirst(l, c.backlog) {
			return turn{subflow: datagramSubflow, kind: turnDatagrams}.limitUnacked()
		}
	}
	var t turn
	if p, s := c.nextLowLatency(now); p != nil {
		t = turn{subflow: p, kind: turnLowLatency, stream: s}
	} else if p := c.copyTarget(now); p != nil {
		t = turn{subflow: p, kind: turnCopies}
	} else if len(c.backlog.ready) > 0 {
		t = c.chooseBulkTurn(now)
	}
	if datagramSubflow != nil && datagramSubflow != t.subflow {
		t = turn{subflow: datagramSubflow, kind: turnDatagrams}
	}
	return t.limitUnacked()
}

// limitUnacked returns no turn while more than maxUnackedFrames frames of the subflow are not
// acknowledged: the record of frames in flight is bounded.
func (t turn) limitUnacked() turn {
	if t.subflow != nil && t.subflow.inFlight.len() > maxUnackedFrames {
		return turn{}
	}
	return t
}

// nextLowLatency returns a stream of mode Latency with sendable bytes and the idle subflow that it
// is pinned to, or nil.
func (c *turnChooser) nextLowLatency(now time.Time) (*subflow, *Stream) {
	c.backlog.dropUnsendable(now)
	if len(c.backlog.lowLatency) == 0 {
		return nil, nil
	}
	all := c.filter.fastestPermitted(nil, nil, now)
	for _, s := range c.backlog.lowLatency {
		if !s.send.isSendable() {
			continue
		}
		best := all
		if g := c.classes.findGroupClass(s.permission.group); g != nil && g.limited {
			best = c.filter.fastestPermitted(nil, g, now)
			if s.pin.subflow != nil && !g.permitsSubflow(s.pin.subflow.id) {
				s.pin.subflow = nil
			}
		}
		if move, _ := s.pin.shouldMove(best, now); move {
			s.pin = pinnedSubflow{subflow: best}
		}
		if p := s.pin.subflow; p != nil {
			p.extendLowLatency(now.Add(lowLatencyPeriod))
			if _, found := p.inFlight.firstUncarried(s); found && p.idle {
				return p, s
			}
		}
	}
	return nil, nil
}

// copyTarget returns an idle subflow with copies to send, or nil.
func (c *turnChooser) copyTarget(now time.Time) *subflow {
	for _, p := range c.subflows.list {
		if !p.idle || p.isSilent() || len(p.copies) == 0 || len(p.dropUnneededCopies(c.filter)) == 0 {
			continue
		}
		if n := p.est.EstimateAt(now); n.FarQueueTime <= sched.MaxCopyFarWait && !p.mustDeferBulk(n, now, c.timer) {
			return p
		}
	}
	return nil
}

// permittedView returns the part of view that stream s may use. Some subflows take no bulk data
// now, to keep their queue short. Only short streams see them as idle.
func (c *turnChooser) permittedView(view []sched.Subflow, s *Stream, now time.Time) []sched.Subflow {
	if c.filter.mayLimitSubflows(&s.permission) {
		c.filter.refreshPermission(s.id, &s.permission, s.demandOf(c.backlog.contendingBytes(s), now), now)
		c.permitted = c.filter.appendPermitted(c.permitted[:0], view, &s.permission)
	} else {
		c.permitted = append(c.permitted[:0], view...)
	}
	for i := range c.permitted {
		p := &c.permitted[i]
		p.Idle = p.Idle && c.subflows.subflowByID(p.ID).permitsBulkOf(s)
	}
	return c.permitted
}

// withoutRecalledFrom returns the part of view that may carry the next bytes of stream s: without
// subflows from which bytes of it were recalled that are still missing. If bytes were recalled from
// all, it returns those that can send bytes other than the ones that they still carry.
func (c *turnChooser) withoutRecalledFrom(view []sched.Subflow, s *Stream) []sched.Subflow {
	c.others = c.others[:0]
	for i := range view {
		if !c.subflows.subflowByID(view[i].ID).inFlight.missesRecalled(s) {
			c.others = append(c.others, view[i])
		}
	}
	if len(c.others) > 0 {
		return c.others
	}
	if !s.send.sharesNext() {
		return view
	}
	for i := range view {
		if _, found := c.subflows.subflowByID(view[i].ID).inFlight.firstUncarried(s); found {
			c.others = append(c.others, view[i])
		}
	}
	return c.others
}

// chooseBulkTurn asks the scheduler about the next stream. If that stream has to wait for one of
// its subflows, it asks about streams that may use others.
func (c *turnChooser) chooseBulkTurn(now time.Time) (t turn) {
	t.kind = turnBulk
	differ := c.filter.permissionsDiffer()
	var asked *Stream
	for i, s := range c.backlog.ready {
		if i > 0 && (!differ || !s.send.isSendable() ||
			c.filter.samePermission(&s.permission, &c.backlog.ready[0].permission) ||
			asked != nil && c.filter.samePermission(&s.permission, &asked.permission)) {
			continue
		}
		asked = s
		seen := c.withoutRecalledFrom(c.permittedView(c.view, s, now), s)
		if len(seen) == 0 && len(c.view) > 0 {
			continue // all subflows that it may use are removed or silent
		}
		t.decision = c.pickSubflow(s, now, seen)
		c.trace.traceDecision(now, t.decision, c.backlog.pending, seen)
		c.trace.traceEstimates(now, c.subflows.list)
		if !t.decision.Wait {
			t.subflow, t.stream = c.subflows.subflowByID(t.decision.Subflow), s
			break
		}
		if !differ {
			break
		}
	}
	return t
}

// pickSubflow asks the scheduler about the ready stream s.
func (c *turnChooser) pickSubflow(s *Stream, now time.Time, view []sched.Subflow) sched.Decision {
	if s.permission.mode == wire.ModeRedundant {
		return sched.Redundant.Pick(view, c.backlog.pending)
	}
	if w, ok := c.scheduler.(sched.WindowAware); ok {
		w.ObserveWindow(sched.Window{Size: unit.Bytes(s.send.limit - s.send.firstUnacked),
			Room:    s.send.sendableRoom() * unit.Bytes(len(c.backlog.ready)), // streams take turns
			Blocked: c.backlog.windowBlocked, SourceIsLimit: s.isSourceLimit() && !c.subflows.hasLowLatency(now),
			BusyFor: s.backlog.updateBusyTime(now)}, now)
	}
	return c.scheduler.Pick(view, c.backlog.bytesUntilDone(s))
}

// fastestSubflows finds the fastest subflow, and the fastest idle one.
type fastestSubflows struct {
	found        bool
	leastPAD     time.Duration // PAD of the fastest
	idle         *subflow
	leastIdlePAD time.Duration // PAD of idle
}

// offerSubflow considers a subflow of that PAD.
func (q *fastestSubflows) offerSubflow(p *subflow, pad time.Duration) {
	if !q.found || pad < q.leastPAD {
		q.found, q.leastPAD = true, pad
	}
	if p.idle && (q.idle == nil || pad < q.leastIdlePAD) {
		q.idle, q.leastIdlePAD = p, pad
	}
}

// idleCarrier returns the fastest idle subflow, or nil if it is much slower than the fastest one.
func (q *fastestSubflows) idleCarrier() *subflow {
	if q.leastIdlePAD > q.leastPAD*5/4+5*time.Millisecond {
		return nil
	}
	return q.idle
}
