// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

const (
	// maxAnswerAge bounds the age of a guide's answer.
	maxAnswerAge = 10 * time.Millisecond
	// choiceInterval is the least time between two reports of a stream's choice to the primary.
	choiceInterval = 100 * time.Millisecond
)

// subflowFilter decides which subflows something may use now: those that its traffic class permits
// and the Guide allows, or the one that a stream is bound to. It keeps an answer of the guide for
// maxAnswerAge: in the permission of a stream, or in itself for small data that must not wait. The
// scheduler chooses among the permitted subflows; the filter chooses only for small data. Not safe
// for concurrent use.
type subflowFilter struct {
	subflows *subflowTable
	classes  *classTable
	reports  *controlQueue // for changed answers to report to the other end; nil: none

	guide        Guide       // nil: allows all
	smallAnswer  guideAnswer // for control frames, datagrams and streams of mode Latency
	generation   uint64      // of answers; older ones are expired
	boundStreams int         // number of streams bound to one subflow
	view         []GuideSubflow
}

// guideAnswer is an answer of the guide. The zero value is expired.
type guideAnswer struct {
	subflows    []wire.SubflowID // by rising ID
	at          time.Time        // time of the answer
	generation  uint64           // of the filter at that time
	streamEnded bool             // the stream has ended, so only age expires the answer
	demand      Demand
	reason      string
}

// invalidateAnswer makes the next use ask the guide.
func (a *guideAnswer) invalidateAnswer() { a.at = time.Time{} }

// permission holds how a stream may be sent: its mode, its group and the subflows that it may use.
// The zero value is that of a new stream of mode Bond and group 0.
type permission struct {
	mode    wire.Mode
	group   wire.GroupID
	boundTo wire.SubflowID // the only permitted subflow; 0: any

	answer guideAnswer
	// allowsAll reports that no allowed subflow is usable now: each is removed or silent.
	// Then all are permitted, so that the stream does not wait for one that never works again.
	allowsAll bool
	burst     unit.Bytes  // bytes given to subflows since none were left to send
	expected  Expectation // of the present message
	// backloggedSince is when the stream first asked for a subflow, for bytes that have been
	// sendable without a pause since.
	backloggedSince time.Time

	choice   wire.Choice // of the server: the last one sent, or at the primary received
	choiceAt time.Time   // when it was sent
}

// replaceGuide sets the guide.
func (f *subflowFilter) replaceGuide(g Guide) {
	f.guide = g
	f.expireAnswers()
}

// expireAnswers makes all answers of the guide expire.
func (f *subflowFilter) expireAnswers() { f.generation++ }

// refreshAnswer asks the guide about the subflows of a class if the answer is old or the bytes to
// send have grown by a quarter.
func (f *subflowFilter) refreshAnswer(a *guideAnswer, c *trafficClass, d Demand, now time.Time) {
	if !a.at.IsZero() && (a.streamEnded || a.generation == f.generation) && now.Sub(a.at) < maxAnswerAge &&
		d.Pending+d.Burst <= (a.demand.Pending+a.demand.Burst)*5/4 {
		return
	}
	list := f.appendGuideSubflows(f.view[:0], a, c, now)
	f.view = list
	a.reason, a.at, a.generation, a.demand = f.guide.AllowSubflows(list, d), now, f.generation, d
	a.subflows = a.subflows[:0]
	for _, p := range list {
		if p.Allowed {
			a.subflows = append(a.subflows, p.ID)
		}
	}
}

// appendGuideSubflows appends to list the subflows that a class permits, with those of the answer
// in use.
func (f *subflowFilter) appendGuideSubflows(list []GuideSubflow, a *guideAnswer, c *trafficClass,
	now time.Time) []GuideSubflow {
	for _, p := range f.subflows.list {
		if p.isSilent() || !c.permitsSubflow(p.id) {
			continue
		}
		view := p.guideView(now)
		view.InUse = slices.Contains(a.subflows, p.id)
		list = append(list, view)
	}
	return list
}

// explainedReason returns the reason of a stream's last answer, and on a line of its own the
// guide's explanation if there is one.
func (f *subflowFilter) explainedReason(perm *permission, now time.Time) string {
	a := &perm.answer
	if e, ok := f.guide.(Explainer); ok && !a.at.IsZero() {
		list := f.appendGuideSubflows(nil, a, f.classes.findGroupClass(perm.group), now)
		if text := e.Explain(list, a.demand); text != "" {
			return a.reason + "\n" + text
		}
	}
	return a.reason
}

// wakeDelayOfOthers returns the least wake delay of the live subflows other than p; 0 if a radio is awake, or
// none is needed.
func (f *subflowFilter) wakeDelayOfOthers(p *subflow, now time.Time) (least time.Duration) {
	w, ok := f.guide.(WakeDelayer)
	if !ok {
		return 0
	}
	for _, q := range f.subflows.list {
		if q == p || q.isSilent() {
			continue
		}
		d := w.WakeDelay(q.guideView(now))
		if d == 0 {
			return 0
		}
		if least == 0 || d < least {
			least = d
		}
	}
	return least
}

// guideView returns the subflow as a guide sees it, without InUse.
func (p *subflow) guideView(now time.Time) GuideSubflow {
	n := p.est.EstimateAt(now)
	ceiling := unit.Rate(0)
	if n.DoublingTime > 0 {
		ceiling = n.Ceiling
	}
	return GuideSubflow{ID: p.id, Rate: n.Th, Known: n.RateKnown, Ceiling: ceiling, RTT: n.SRTT, MinRTT: n.MinRTT,
		Delay: n.PAD + p.expectedStall(now), Spread: n.Spread, Loss: n.Loss, QuietFor: now.Sub(p.lastActive)}
}

// refreshSmallAnswer refreshes the answer for small data.
func (f *subflowFilter) refreshSmallAnswer(now time.Time) {
	if f.guide != nil {
		f.refreshAnswer(&f.smallAnswer, nil, Demand{}, now)
	}
}

// permitsSmall reports whether small data may use p, by the last refreshSmallAnswer.
func (f *subflowFilter) permitsSmall(p *subflow) bool {
	return f.guide == nil || len(f.smallAnswer.subflows) == 0 || slices.Contains(f.smallAnswer.subflows, p.id)
}

// guideAppliesTo reports whether the guide decides about a stream with this permission.
func (f *subflowFilter) guideAppliesTo(perm *permission) bool {
	return f.guide != nil && perm.mode == wire.ModeBond && perm.boundTo == 0
}

// refreshPermission refreshes the guide's answer for stream id. It is called before each segment.
// d is the demand of the stream, without BackloggedFor.
func (f *subflowFilter) refreshPermission(id wire.StreamID, perm *permission, d Demand, now time.Time) {
	if !f.guideAppliesTo(perm) {
		return
	}
	if perm.backloggedSince.IsZero() {
		perm.backloggedSince = now
	}
	d.BackloggedFor = now.Sub(perm.backloggedSince)
	f.refreshAnswer(&perm.answer, f.classes.findGroupClass(perm.group), d, now)
	if f.reports != nil && f.reports.hasNoticeRoom() {
		if c, ok := perm.changedChoice(id, now); ok {
			c.Reason = f.explainedReason(perm, now)
			f.reports.queueNotice(c)
		}
	}
	perm.allowsAll = true
	for _, p := range f.subflows.list {
		if !p.isSilent() && slices.Contains(perm.answer.subflows, p.id) {
			perm.allowsAll = false
		}
	}
}

// changedChoice returns the answer for stream id, for the primary's status, if it differs from the
// last one returned and that one is older than choiceInterval.
func (perm *permission) changedChoice(id wire.StreamID, now time.Time) (wire.Choice, bool) {
	if now.Sub(perm.choiceAt) < choiceInterval ||
		perm.choice.Reason == perm.answer.reason && slices.Equal(perm.choice.Subflows, perm.answer.subflows) {
		return wire.Choice{}, false
	}
	perm.choiceAt = now
	perm.choice = wire.Choice{Stream: id, Subflows: slices.Clone(perm.answer.subflows), Reason: perm.answer.reason}
	return perm.choice, true
}

// permissionAllows reports whether a stream with this permission may use a subflow, by its last
// refresh.
func (f *subflowFilter) permissionAllows(perm *permission, id wire.SubflowID) bool {
	if perm.boundTo != 0 {
		return id == perm.boundTo
	}
	if !f.classes.findGroupClass(perm.group).permitsSubflow(id) {
		return false
	}
	return f.guide == nil || perm.mode != wire.ModeBond || perm.allowsAll || slices.Contains(perm.answer.subflows, id)
}

// mayLimitSubflows reports whether a permission may exclude some subflows.
func (f *subflowFilter) mayLimitSubflows(perm *permission) bool {
	c := f.classes.findGroupClass(perm.group)
	return perm.boundTo != 0 || f.guide != nil && perm.mode == wire.ModeBond || c != nil && c.limited
}

// appendPermitted appends to list the subflows of view that a stream with this permission may use.
func (f *subflowFilter) appendPermitted(list, view []sched.Subflow, perm *permission) []sched.Subflow {
	for i := range view {
		if f.permissionAllows(perm, view[i].ID) {
			list = append(list, view[i])
		}
	}
	return list
}

// permitsMessageCopy reports whether p may carry a copy of a message of stream s: the stream may
// use it, and small data may, by the last refreshSmallAnswer.
func (f *subflowFilter) permitsMessageCopy(p *subflow, s *Stream) bool {
	return f.permitsSmall(p) && f.permissionAllows(&s.permission, p.id)
}

// permissionsDiffer reports whether streams may differ in their permitted subflows or in the order
// of turns.
func (f *subflowFilter) permissionsDiffer() bool {
	return f.guide != nil || f.classes.limited || f.boundStreams > 0 || f.classes.ranked
}

// samePermission reports whether two permissions have the same class and the same permitted
// subflows.
func (f *subflowFilter) samePermission(a, b *permission) bool {
	return (a.group == b.group || f.classes.findGroupClass(a.group).equivalentTo(f.classes.findGroupClass(b.group))) &&
		a.boundTo == b.boundTo && slices.Equal(a.answer.subflows, b.answer.subflows)
}

// permitsOtherSubflow reports whether n bytes in flight on p may move to another subflow that can
// take them now. pending is the number of other bytes to send. The guide's last answer concerned
// the stream's last segment, and p may have become slow since, so it asks the guide again.
func (f *subflowFilter) permitsOtherSubflow(perm *permission, p *subflow, n, pending unit.Bytes, now time.Time) bool {
	if f.guide == nil && !f.classes.limited || f.hasOtherIdle(perm, p) {
		return true
	}
	if f.guide == nil {
		return false
	}
	d := Demand{Pending: pending + n, NeededIn: perm.expected.neededIn(now), Repetition: perm.answer.demand.Repetition,
		SourceRate: perm.answer.demand.SourceRate}
	if !perm.backloggedSince.IsZero() {
		d.BackloggedFor = now.Sub(perm.backloggedSince)
	}
	f.refreshAnswer(&perm.answer, f.classes.findGroupClass(perm.group), d, now)
	return f.hasOtherIdle(perm, p)
}

// hasOtherIdle reports whether a permission has an idle subflow other than p.
func (f *subflowFilter) hasOtherIdle(perm *permission, p *subflow) bool {
	for _, q := range f.subflows.list {
		if q != p && q.idle && !q.isSilent() && f.permissionAllows(perm, q.id) {
			return true
		}
	}
	return false
}

// bindStream restricts the stream of a permission to one subflow.
func (f *subflowFilter) bindStream(perm *permission, id wire.SubflowID) {
	if perm.boundTo == 0 {
		f.boundStreams++
	}
	perm.boundTo = id
}

// markStreamEnded records that the stream of a permission has ended and releases its binding to one
// subflow. Frames of the stream may still be in flight.
func (f *subflowFilter) markStreamEnded(perm *permission) {
	if perm.answer.generation != f.generation {
		perm.answer.invalidateAnswer()
	}
	perm.answer.streamEnded = true
	if perm.boundTo != 0 {
		perm.boundTo = 0
		f.boundStreams--
	}
}

// fastestPermitted returns the subflow of least PAD and expected stall, other than except, that a class may use. It
// prefers subflows that are not possibly silent, and of these the ones that the guide allows for
// small data.
func (f *subflowFilter) fastestPermitted(except *subflow, c *trafficClass, now time.Time) (best *subflow) {
	var least time.Duration
	worst := 0
	for _, p := range f.subflows.list {
		if p == except || !c.permitsSubflow(p.id) {
			continue
		}
		bad, pad := 0, p.est.EstimateAt(now).PAD+p.expectedStall(now)
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
