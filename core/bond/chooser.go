package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

// turnChooser decides what the next segment is filled with and which subflow gets it:
// datagrams, streams that must not wait, copies, or what the scheduler says of the other
// streams, the most urgent first. It asks the parts of the bond that know what waits, and
// sends nothing itself. Not safe for concurrent use.
type turnChooser struct {
	subflows  *subflowTable
	filter    *subflowFilter
	classes   *classTable
	backlog   *backlog
	flows     *flowTable
	trace     *tracer
	timer     *wakeTimer
	scheduler sched.Scheduler

	view      []sched.Path // of the last survey
	permitted []sched.Path // of it, what one stream may use
	others    []sched.Path // of that, what does not carry all of it yet
}

// turn is what the next segment is filled with, and for which subflow; nil is none.
type turn struct {
	subflow  *subflow
	kind     turnKind
	stream   *Stream        // lowLatency, bulk
	decision sched.Decision // bulk
}

type turnKind uint8

const (
	datagrams  turnKind = iota
	lowLatency          // of a stream that must not wait
	copies              // of what other subflows carry
	bulk                // as the scheduler says
)

// survey looks at all subflows for the next decision. It returns the idle one that control
// frames and ACKs go by: the fastest, or one that is nearly as fast; if it is nil they wait a
// moment. It reports false if no subflow is idle.
func (c *turnChooser) survey(now time.Time) (carrier *subflow, idle bool) {
	c.filter.refreshSmall(now)
	var onTime, any fastest // a late helper carries them only where all are late
	view := c.view[:0]
	live, timely := 0, 0
	for _, p := range c.subflows.list {
		if !p.silent() {
			live++
			if p.inFlight.tooLate == 0 {
				timely++
			}
		}
	}
	if live < 2 {
		c.backlog.avoid = 0
	}
	for _, p := range c.subflows.list {
		if p.silent() && live > 0 {
			continue
		}
		n := p.est.At(now)
		idle = idle || p.idle
		if c.filter.permitsSmall(p) {
			any.offer(p, n.PAD)
			if n.Late == 0 {
				onTime.offer(p, n.PAD)
			}
		}
		if p.id != c.backlog.avoid && (timely == 0 || p.inFlight.tooLate == 0) {
			v := p.schedulerView(n, now)
			v.Idle = v.Idle && (c.backlog.pending == 0 || !p.holdsBulk(n, now, c.timer))
			view = append(view, v)
		}
	}
	c.view = view
	if onTime.found {
		return onTime.carrier(), idle
	}
	return any.carrier(), idle
}

// choose returns whose turn is next, after a survey, the most urgent first. Datagrams that came
// faster than a network would take them take turns with streams.
func (c *turnChooser) choose(now time.Time) turn {
	var flow *subflow
	if l := c.flows.next(now); l != nil {
		if flow = l.subflow; !c.flows.streamsFirst(l, c.backlog) {
			return turn{subflow: flow, kind: datagrams}.bounded()
		}
	}
	var t turn
	if p, s := c.lowLatencyStream(now); p != nil {
		t = turn{subflow: p, kind: lowLatency, stream: s}
	} else if p := c.copyTarget(now); p != nil {
		t = turn{subflow: p, kind: copies}
	} else if len(c.backlog.ready) > 0 {
		t = c.bulkTurn(now)
	}
	if flow != nil && flow != t.subflow {
		t = turn{subflow: flow, kind: datagrams}
	}
	return t.bounded()
}

// bounded returns no turn for a subflow whose other end acknowledges nothing: what is
// noted of each frame would take ever more memory.
func (t turn) bounded() turn {
	if t.subflow != nil && t.subflow.inFlight.len() > maxUnackedFrames {
		return turn{}
	}
	return t
}

// lowLatencyStream returns a stream of mode Latency and the idle subflow that it is pinned
// to, if there is one with bytes to send.
func (c *turnChooser) lowLatencyStream(now time.Time) (*subflow, *Stream) {
	c.backlog.dropUnsendable()
	if len(c.backlog.lowLatency) == 0 {
		return nil, nil
	}
	all := c.filter.fastest(nil, nil, now)
	for _, s := range c.backlog.lowLatency {
		if !s.send.sendable() {
			continue
		}
		best := all
		if g := c.classes.find(s.route.group); g != nil && g.limited {
			best = c.filter.fastest(nil, g, now)
			if s.pin.subflow != nil && !g.permits(s.pin.subflow.id) {
				s.pin.subflow = nil
			}
		}
		if move, _ := s.pin.shouldMove(best, now); move {
			s.pin = pinnedSubflow{subflow: best}
		}
		if p := s.pin.subflow; p != nil {
			p.extendLowLatency(now.Add(lowLatencyFor))
			if _, found := p.inFlight.firstUncarried(s); found && p.idle {
				return p, s
			}
		}
	}
	return nil, nil
}

// copyTarget returns an idle subflow that has copies to send, or nil.
func (c *turnChooser) copyTarget(now time.Time) *subflow {
	for _, p := range c.subflows.list {
		if !p.idle || p.silent() || len(p.copies) == 0 || len(p.neededCopies()) == 0 {
			continue
		}
		if n := p.est.At(now); n.FarWait <= sched.StaleAfter && !p.holdsBulk(n, now, c.timer) {
			return p
		}
	}
	return nil
}

// within is the part of view that stream s may use.
func (c *turnChooser) within(view []sched.Path, s *Stream, now time.Time) []sched.Path {
	if !c.filter.limits(&s.route) {
		return view
	}
	c.filter.refresh(s.id, &s.route, c.backlog.contended(s), c.backlog.avoid, now)
	c.permitted = c.filter.permitted(c.permitted[:0], view, &s.route)
	return c.permitted
}

// exceptCarriers returns the part of view that does not have all sendable bytes of stream s in
// flight already.
func (c *turnChooser) exceptCarriers(view []sched.Path, s *Stream) []sched.Path {
	if !s.send.sharesNext() {
		return view
	}
	c.others = c.others[:0]
	for i := range view {
		if _, found := c.subflows.find(view[i].ID).inFlight.firstUncarried(s); found {
			c.others = append(c.others, view[i])
		}
	}
	return c.others
}

// bulkTurn asks the scheduler about the stream that is next; and, if that one
// has to wait for a subflow that it may use, about others that may use others.
func (c *turnChooser) bulkTurn(now time.Time) (t turn) {
	t.kind = bulk
	differ := c.filter.routesDiffer()
	var asked *Stream
	for i, s := range c.backlog.ready {
		if i > 0 && (!differ || !s.send.sendable() || c.filter.equal(&s.route, &c.backlog.ready[0].route) || asked != nil && c.filter.equal(&s.route, &asked.route)) {
			continue
		}
		asked = s
		seen := c.exceptCarriers(c.within(c.view, s, now), s)
		if len(seen) == 0 && len(c.view) > 0 {
			continue // all that it may use is gone or silent
		}
		t.decision = c.pick(s, now, seen)
		c.trace.decided(now, t.decision, c.backlog.pending, seen)
		c.trace.estimates(now, c.subflows.list)
		if !t.decision.Wait {
			t.subflow, t.stream = c.subflows.find(t.decision.Path), s
			break
		}
		if !differ {
			break
		}
	}
	return t
}

// pick asks the scheduler about stream s, which is ready.
func (c *turnChooser) pick(s *Stream, now time.Time, view []sched.Path) sched.Decision {
	if s.route.mode == wire.Redundant {
		return sched.Redundant.Pick(view, c.backlog.pending)
	}
	if w, ok := c.scheduler.(sched.WindowAware); ok {
		w.SendWindow(sched.Window{Size: unit.Bytes(s.send.limit - s.send.firstUnacked), Blocked: c.backlog.blocked, AtHand: s.noMoreData() && !c.subflows.anyLowLatency(now)}, now)
	}
	return c.scheduler.Pick(view, c.backlog.contended(s))
}

// fastest is the fastest of some subflows, and the fastest of those that are idle.
type fastest struct {
	found     bool
	least     time.Duration // PAD of the fastest
	idle      *subflow
	idleLeast time.Duration // PAD of idle
}

func (q *fastest) offer(p *subflow, pad time.Duration) {
	if !q.found || pad < q.least {
		q.found, q.least = true, pad
	}
	if p.idle && (q.idle == nil || pad < q.idleLeast) {
		q.idle, q.idleLeast = p, pad
	}
}

// carrier returns the idle subflow, or nil if there is none that is nearly as fast as the
// fastest.
func (q *fastest) carrier() *subflow {
	if q.idleLeast > q.least*5/4+5*time.Millisecond {
		return nil
	}
	return q.idle
}
