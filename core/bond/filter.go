package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

const (
	// guideEvery is how old the answer of a guide may be.
	guideEvery = 10 * time.Millisecond
	// reportEvery is how often the primary is sent the choice for a stream, at most.
	reportEvery = 100 * time.Millisecond
)

// subflowFilter says by which subflows something may be sent now: what its traffic class
// permits, of that what the Guide allows, or the one subflow that a stream is bound to. It
// keeps an answer of the guide for guideEvery, in the route of a stream or, for small things
// that must not wait, in itself. It never chooses among what is allowed but for small things;
// that is the scheduler's part. Not safe for concurrent use.
type subflowFilter struct {
	subflows *subflowTable
	classes  *classTable
	reports  *controlQueue // where changed answers are sent to the other end; nil: they are not

	guide      Guide   // nil: all are allowed
	small      allowed // for control frames, datagrams and streams of mode Latency
	generation uint64  // of answers; older ones are expired
	bound      int     // routes that are bound
	view       []GuidePath
}

// allowed is an answer of the guide. The zero value is expired.
type allowed struct {
	paths      []wire.PathID // by rising number
	at         time.Time     // when the guide was asked
	generation uint64        // of the filter then
	ended      bool          // its stream has ended: age alone expires it
	asked      Demand
	reason     string
}

// expire makes the next question go to the guide.
func (a *allowed) expire() { a.at = time.Time{} }

// route is by what a stream may be sent. The zero value is that of a stream of mode Bond, of
// group 0, which has sent nothing.
type route struct {
	mode  wire.Mode
	group wire.GroupID
	only  wire.PathID // the one subflow that it is bound to; 0: any

	allowed allowed
	// released tells that none of the allowed ones can be used at present, being gone, silent
	// or avoided: then all may, lest the stream waits for one that never works again.
	released bool
	burst    unit.Bytes // given to subflows since there was last nothing to send
	// fullSince is when a subflow was first asked for, for bytes that could be sent since
	// without a pause.
	fullSince time.Time

	choice   wire.Choice // the server's: the last one sent, or at the primary received
	choiceAt time.Time   // when it was sent
}

// setGuide has g asked from now on.
func (f *subflowFilter) setGuide(g Guide) {
	f.guide = g
	f.expireAll()
}

// expireAll makes all answers of the guide too old.
func (f *subflowFilter) expireAll() { f.generation++ }

// ask brings an answer about the subflows of a class up to date: it is old, or what is to be
// sent has grown by a quarter.
func (f *subflowFilter) ask(a *allowed, c *trafficClass, d Demand, now time.Time) {
	if !a.at.IsZero() && (a.ended || a.generation == f.generation) && now.Sub(a.at) < guideEvery && d.Pending+d.Burst <= (a.asked.Pending+a.asked.Burst)*5/4 {
		return
	}
	list := f.view[:0]
	for _, p := range f.subflows.list {
		if p.silent() || !c.permits(p.id) {
			continue
		}
		n := p.est.At(now)
		list = append(list, GuidePath{ID: p.id, Rate: n.Th, Known: n.Known, RTT: n.SRTT, Delay: n.PAD, Idle: now.Sub(p.lastActive), Used: slices.Contains(a.paths, p.id)})
	}
	f.view = list
	a.reason, a.at, a.generation, a.asked = f.guide.Guide(list, d), now, f.generation, d
	a.paths = a.paths[:0]
	for _, p := range list {
		if p.Allowed {
			a.paths = append(a.paths, p.ID)
		}
	}
}

// refreshSmall brings the answer for small things up to date.
func (f *subflowFilter) refreshSmall(now time.Time) {
	if f.guide != nil {
		f.ask(&f.small, nil, Demand{}, now)
	}
}

// permitsSmall reports whether something small may use p, as of the last refreshSmall.
func (f *subflowFilter) permitsSmall(p *subflow) bool {
	return f.guide == nil || len(f.small.paths) == 0 || slices.Contains(f.small.paths, p.id)
}

// guided reports whether the guide is asked about a route.
func (f *subflowFilter) guided(r *route) bool {
	return f.guide != nil && r.mode == wire.Bond && r.only == 0
}

// refresh brings the answer for the route of stream id up to date, before each segment. Pending
// is what there is to send, avoid a subflow that is not to be used, or 0.
func (f *subflowFilter) refresh(id wire.StreamID, r *route, pending unit.Bytes, avoid wire.PathID, now time.Time) {
	if !f.guided(r) {
		return
	}
	if r.fullSince.IsZero() {
		r.fullSince = now
	}
	f.ask(&r.allowed, f.classes.find(r.group), Demand{pending, r.burst, now.Sub(r.fullSince)}, now)
	if f.reports != nil && f.reports.hasRoom() {
		if c, ok := r.changedChoice(id, now); ok {
			f.reports.notice(c)
		}
	}
	r.released = true
	for _, p := range f.subflows.list {
		if !p.silent() && p.id != avoid && slices.Contains(r.allowed.paths, p.id) {
			r.released = false
		}
	}
}

// changedChoice returns the answer for stream id, for the primary's status, if it differs
// from the one that was returned last and that was not a moment ago.
func (r *route) changedChoice(id wire.StreamID, now time.Time) (wire.Choice, bool) {
	if now.Sub(r.choiceAt) < reportEvery || r.choice.Reason == r.allowed.reason && slices.Equal(r.choice.Paths, r.allowed.paths) {
		return wire.Choice{}, false
	}
	r.choiceAt = now
	r.choice = wire.Choice{Stream: id, Paths: slices.Clone(r.allowed.paths), Reason: r.allowed.reason}
	return r.choice, true
}

// permits reports whether a route may use a subflow, as of its last refresh.
func (f *subflowFilter) permits(r *route, id wire.PathID) bool {
	if r.only != 0 {
		return id == r.only
	}
	if !f.classes.find(r.group).permits(id) {
		return false
	}
	return f.guide == nil || r.mode != wire.Bond || r.released || slices.Contains(r.allowed.paths, id)
}

// limits reports whether a route may not use every subflow.
func (f *subflowFilter) limits(r *route) bool {
	c := f.classes.find(r.group)
	return r.only != 0 || f.guide != nil && r.mode == wire.Bond || c != nil && c.limited
}

// permitted appends to list what a route may use of view.
func (f *subflowFilter) permitted(list, view []sched.Path, r *route) []sched.Path {
	for i := range view {
		if f.permits(r, view[i].ID) {
			list = append(list, view[i])
		}
	}
	return list
}

// routesDiffer reports whether streams may differ in what they may use, or in their turns.
func (f *subflowFilter) routesDiffer() bool {
	return f.guide != nil || f.classes.limited || f.bound > 0 || f.classes.ranked
}

// equal reports whether two routes are of one class and may use the same subflows.
func (f *subflowFilter) equal(r, o *route) bool {
	return (r.group == o.group || f.classes.find(r.group).equal(f.classes.find(o.group))) && r.only == o.only && slices.Equal(r.allowed.paths, o.allowed.paths)
}

// permitsOther reports whether n bytes in flight on p may go over another subflow that could
// take them now; pending is what else there is to send. The last answer of the guide was about
// the stream's last segment, and p may have become slow since: then the guide is asked again.
func (f *subflowFilter) permitsOther(r *route, p *subflow, n, pending unit.Bytes, now time.Time) bool {
	if f.guide == nil && !f.classes.limited || f.otherIdle(r, p) {
		return true
	}
	if f.guide == nil {
		return false
	}
	d := Demand{Pending: pending + n}
	if !r.fullSince.IsZero() {
		d.Full = now.Sub(r.fullSince)
	}
	f.ask(&r.allowed, f.classes.find(r.group), d, now)
	return f.otherIdle(r, p)
}

// otherIdle reports whether a route may use a subflow besides p that is idle.
func (f *subflowFilter) otherIdle(r *route, p *subflow) bool {
	for _, q := range f.subflows.list {
		if q != p && q.idle && !q.silent() && f.permits(r, q.id) {
			return true
		}
	}
	return false
}

// bind lets a route use that subflow only.
func (f *subflowFilter) bind(r *route, id wire.PathID) {
	if r.only == 0 {
		f.bound++
	}
	r.only = id
}

// end notes that the stream of a route has ended, though frames of it may be in flight: it is
// not bound any more.
func (f *subflowFilter) end(r *route) {
	if r.allowed.generation != f.generation {
		r.allowed.expire()
	}
	r.allowed.ended = true
	if r.only != 0 {
		r.only = 0
		f.bound--
	}
}

// fastest returns the subflow of least PAD that a class may use, besides one: one that is not
// possibly silent if there is any, and of these one that the guide lets carry small things.
func (f *subflowFilter) fastest(besides *subflow, c *trafficClass, now time.Time) (best *subflow) {
	var least time.Duration
	worst := 0
	for _, p := range f.subflows.list {
		if p == besides || !c.permits(p.id) {
			continue
		}
		bad, pad := 0, p.est.At(now).PAD
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
