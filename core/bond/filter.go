package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

const (
	// maxAnswerAge is how old the answer of a guide may be.
	maxAnswerAge = 10 * time.Millisecond
	// choiceInterval is how often the primary is sent the choice for a stream, at most.
	choiceInterval = 100 * time.Millisecond
)

// subflowFilter says by which subflows something may be sent now: what its traffic class
// permits, of that what the Guide allows, or the one subflow that a stream is bound to. It
// keeps an answer of the guide for maxAnswerAge, in the route of a stream or, for small things
// that must not wait, in itself. It never chooses among what is allowed but for small things;
// that is the scheduler's part. Not safe for concurrent use.
type subflowFilter struct {
	subflows *subflowTable
	classes  *classTable
	reports  *controlQueue // where changed answers are sent to the other end; nil: they are not

	guide       Guide       // nil: all are allowed
	smallAnswer guideAnswer // for control frames, datagrams and streams of mode Latency
	generation  uint64      // of answers; older ones are expired
	boundRoutes int         // routes that are bound
	view        []GuideSubflow
}

// guideAnswer is an answer of the guide. The zero value is expired.
type guideAnswer struct {
	subflows    []wire.SubflowID // by rising number
	at          time.Time        // when the guide was asked
	generation  uint64           // of the filter then
	streamEnded bool             // its stream has ended: age alone expires it
	demand      Demand
	reason      string
}

// expire makes the next question go to the guide.
func (a *guideAnswer) expire() { a.at = time.Time{} }

// route is by what a stream may be sent. The zero value is that of a stream of mode Bond, of
// group 0, which has sent nothing.
type route struct {
	mode    wire.Mode
	group   wire.GroupID
	boundTo wire.SubflowID // the one subflow that it is bound to; 0: any

	answer guideAnswer
	// released tells that none of the allowed ones can be used at present, being gone, silent
	// or avoided: then all may, lest the stream waits for one that never works again.
	released bool
	burst    unit.Bytes // given to subflows since there was last nothing to send
	// backloggedSince is when a subflow was first asked for, for bytes that could be sent since
	// without a pause.
	backloggedSince time.Time

	choice   wire.Choice // the server's: the last one sent, or at the primary received
	choiceAt time.Time   // when it was sent
}

// setGuide has g asked from now on.
func (f *subflowFilter) setGuide(g Guide) {
	f.guide = g
	f.expireAnswers()
}

// expireAnswers makes all answers of the guide too old.
func (f *subflowFilter) expireAnswers() { f.generation++ }

// refreshAnswer brings an answer about the subflows of a class up to date: it is old, or what is to be
// sent has grown by a quarter.
func (f *subflowFilter) refreshAnswer(a *guideAnswer, c *trafficClass, d Demand, now time.Time) {
	if !a.at.IsZero() && (a.streamEnded || a.generation == f.generation) && now.Sub(a.at) < maxAnswerAge && d.Pending+d.Burst <= (a.demand.Pending+a.demand.Burst)*5/4 {
		return
	}
	list := f.view[:0]
	for _, p := range f.subflows.list {
		if p.isSilent() || !c.permitsSubflow(p.id) {
			continue
		}
		n := p.est.EstimateAt(now)
		list = append(list, GuideSubflow{ID: p.id, Rate: n.Th, Known: n.RateKnown, RTT: n.SRTT, Delay: n.PAD, Idle: now.Sub(p.lastActive), InUse: slices.Contains(a.subflows, p.id)})
	}
	f.view = list
	a.reason, a.at, a.generation, a.demand = f.guide.AllowSubflows(list, d), now, f.generation, d
	a.subflows = a.subflows[:0]
	for _, p := range list {
		if p.Allowed {
			a.subflows = append(a.subflows, p.ID)
		}
	}
}

// refreshSmallAnswer brings the answer for small things up to date.
func (f *subflowFilter) refreshSmallAnswer(now time.Time) {
	if f.guide != nil {
		f.refreshAnswer(&f.smallAnswer, nil, Demand{}, now)
	}
}

// permitsSmall reports whether something small may use p, as of the last refreshSmallAnswer.
func (f *subflowFilter) permitsSmall(p *subflow) bool {
	return f.guide == nil || len(f.smallAnswer.subflows) == 0 || slices.Contains(f.smallAnswer.subflows, p.id)
}

// isGuided reports whether the guide is asked about a route.
func (f *subflowFilter) isGuided(r *route) bool {
	return f.guide != nil && r.mode == wire.Bond && r.boundTo == 0
}

// refreshRoute brings the answer for the route of stream id up to date, before each segment. Pending
// is what there is to send, avoid a subflow that is not to be used, or 0.
func (f *subflowFilter) refreshRoute(id wire.StreamID, r *route, pending unit.Bytes, avoid wire.SubflowID, now time.Time) {
	if !f.isGuided(r) {
		return
	}
	if r.backloggedSince.IsZero() {
		r.backloggedSince = now
	}
	f.refreshAnswer(&r.answer, f.classes.findClass(r.group), Demand{pending, r.burst, now.Sub(r.backloggedSince)}, now)
	if f.reports != nil && f.reports.hasNoticeRoom() {
		if c, ok := r.changedChoice(id, now); ok {
			f.reports.queueNotice(c)
		}
	}
	r.released = true
	for _, p := range f.subflows.list {
		if !p.isSilent() && p.id != avoid && slices.Contains(r.answer.subflows, p.id) {
			r.released = false
		}
	}
}

// changedChoice returns the answer for stream id, for the primary's status, if it differs
// from the one that was returned last and that was not a moment ago.
func (r *route) changedChoice(id wire.StreamID, now time.Time) (wire.Choice, bool) {
	if now.Sub(r.choiceAt) < choiceInterval || r.choice.Reason == r.answer.reason && slices.Equal(r.choice.Subflows, r.answer.subflows) {
		return wire.Choice{}, false
	}
	r.choiceAt = now
	r.choice = wire.Choice{Stream: id, Subflows: slices.Clone(r.answer.subflows), Reason: r.answer.reason}
	return r.choice, true
}

// permitsSubflow reports whether a route may use a subflow, as of its last refresh.
func (f *subflowFilter) permitsSubflow(r *route, id wire.SubflowID) bool {
	if r.boundTo != 0 {
		return id == r.boundTo
	}
	if !f.classes.findClass(r.group).permitsSubflow(id) {
		return false
	}
	return f.guide == nil || r.mode != wire.Bond || r.released || slices.Contains(r.answer.subflows, id)
}

// isLimited reports whether a route may not use every subflow.
func (f *subflowFilter) isLimited(r *route) bool {
	c := f.classes.findClass(r.group)
	return r.boundTo != 0 || f.guide != nil && r.mode == wire.Bond || c != nil && c.limited
}

// appendPermitted appends to list what a route may use of view.
func (f *subflowFilter) appendPermitted(list, view []sched.Subflow, r *route) []sched.Subflow {
	for i := range view {
		if f.permitsSubflow(r, view[i].ID) {
			list = append(list, view[i])
		}
	}
	return list
}

// routesDiffer reports whether streams may differ in what they may use, or in their turns.
func (f *subflowFilter) routesDiffer() bool {
	return f.guide != nil || f.classes.limited || f.boundRoutes > 0 || f.classes.ranked
}

// sameRoute reports whether two routes are of one class and may use the same subflows.
func (f *subflowFilter) sameRoute(r, o *route) bool {
	return (r.group == o.group || f.classes.findClass(r.group).equivalentTo(f.classes.findClass(o.group))) && r.boundTo == o.boundTo && slices.Equal(r.answer.subflows, o.answer.subflows)
}

// permitsOtherSubflow reports whether n bytes in flight on p may go over another subflow that could
// take them now; pending is what else there is to send. The last answer of the guide was about
// the stream's last segment, and p may have become slow since: then the guide is asked again.
func (f *subflowFilter) permitsOtherSubflow(r *route, p *subflow, n, pending unit.Bytes, now time.Time) bool {
	if f.guide == nil && !f.classes.limited || f.hasOtherIdle(r, p) {
		return true
	}
	if f.guide == nil {
		return false
	}
	d := Demand{Pending: pending + n}
	if !r.backloggedSince.IsZero() {
		d.BackloggedFor = now.Sub(r.backloggedSince)
	}
	f.refreshAnswer(&r.answer, f.classes.findClass(r.group), d, now)
	return f.hasOtherIdle(r, p)
}

// hasOtherIdle reports whether a route may use a subflow besides p that is idle.
func (f *subflowFilter) hasOtherIdle(r *route, p *subflow) bool {
	for _, q := range f.subflows.list {
		if q != p && q.idle && !q.isSilent() && f.permitsSubflow(r, q.id) {
			return true
		}
	}
	return false
}

// bindRoute lets a route use that subflow only.
func (f *subflowFilter) bindRoute(r *route, id wire.SubflowID) {
	if r.boundTo == 0 {
		f.boundRoutes++
	}
	r.boundTo = id
}

// endRoute notes that the stream of a route has ended, though frames of it may be in flight: it is
// not bound any more.
func (f *subflowFilter) endRoute(r *route) {
	if r.answer.generation != f.generation {
		r.answer.expire()
	}
	r.answer.streamEnded = true
	if r.boundTo != 0 {
		r.boundTo = 0
		f.boundRoutes--
	}
}

// fastestPermitted returns the subflow of least PAD that a class may use, besides one: one that is not
// possibly silent if there is any, and of these one that the guide lets carry small things.
func (f *subflowFilter) fastestPermitted(besides *subflow, c *trafficClass, now time.Time) (best *subflow) {
	var least time.Duration
	worst := 0
	for _, p := range f.subflows.list {
		if p == besides || !c.permitsSubflow(p.id) {
			continue
		}
		bad, pad := 0, p.est.EstimateAt(now).PAD
		if !f.permitsSmall(p) {
			bad = 1
		}
		if p.possiblySilent(now) {
			bad += 2
		}
		if best == nil || bad < worst || bad == worst && pad < least {
			best, worst, least = p, bad, pad
		}
	}
	return best
}
