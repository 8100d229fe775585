// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// leg is a flow's queue for the subflow that it is pinned to.
type leg struct {
	flow *Flow
	pinnedSubflow
	waiting     []datagram
	bytes       unit.Bytes
	queued      bool
	wasPinned   bool   // it has had a subflow
	sentCounter uint64 // bytes sent, weighted; see classTable
	isBulk      bool   // the queue exceeds that of a network: it takes turns with streams
}

// datagram is an encoded frame that waits.
type datagram struct {
	frame       []byte
	payloadSize unit.Bytes // bytes of the app in it
	queuedAt    time.Time
	sentOn      *wire.SubflowID // the subflow that carries a copy of it, or 0; shared by all copies
}

// takeOldest removes the oldest frame.
func (l *leg) takeOldest() datagram {
	q := l.waiting[0]
	l.waiting[0] = datagram{}
	if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
		l.waiting, l.isBulk = nil, false
	}
	l.releaseFrame(q)
	return q
}

// releaseFrame releases the memory of a frame that no longer waits.
func (l *leg) releaseFrame(q datagram) {
	cost := unit.Bytes(len(q.frame)) + datagramCost
	l.bytes -= cost
	l.flow.table.outBytes -= cost
	l.flow.table.memory.returnToBudget(cost)
}

// dropOldestFrame drops the oldest frame. It counts as dropped if no copy of it was sent.
func (l *leg) dropOldestFrame() {
	if *l.takeOldest().sentOn == 0 {
		l.flow.stats.Dropped++
		l.flow.table.stats.DatagramsDropped++
	}
}

// pinnedSubflow ties low-latency data to one subflow, so that it is not reordered. The pin moves at
// once when that subflow is removed or may be silent, or another one is clearly faster since a handoff
// is likely, and when another one has been clearly faster for moveDelay.
type pinnedSubflow struct {
	subflow          *subflow  // nil: none yet, or removed
	otherFasterSince time.Time // since when another one has been clearly faster
}

// shouldMove reports whether to move to best, the subflow of least PAD and expected stall, and why. It
// moves at once if a handoff is likely.
func (n *pinnedSubflow) shouldMove(best *subflow, now time.Time) (move bool, why string) {
	switch {
	case best == nil || best == n.subflow:
		n.otherFasterSince = time.Time{}
	case n.subflow == nil:
		return true, ""
	case n.subflow.possiblySilent(now) && !best.possiblySilent(now):
		return true, "its subflow is silent"
	default:
		stall, otherStall := n.subflow.expectedStall(now), best.expectedStall(now)
		was, is := n.subflow.est.EstimateAt(now).PAD+stall, best.est.EstimateAt(now).PAD+otherStall
		switch gain := stall - otherStall; {
		case was-is < max(clearlyFaster, was/4):
			n.otherFasterSince = time.Time{}
		case gain >= clearlyFaster && gain >= (was-is)/2:
			return true, "a handoff is likely"
		case n.otherFasterSince.IsZero():
			n.otherFasterSince = now
		case now.Sub(n.otherFasterSince) >= moveDelay:
			return true, "another subflow is faster"
		}
	}
	return false, ""
}

// updateLegPin moves a leg to another subflow if it should.
func (t *flowTable) updateLegPin(l *leg, now time.Time) {
	g := t.classes.findGroupClass(l.flow.group)
	if l.subflow != nil && !g.permitsSubflow(l.subflow.id) {
		l.subflow = nil
	}
	best := t.filter.fastestPermitted(l.otherLegSubflow(), g, now)
	if move, why := l.shouldMove(best, now); move {
		t.moveLegToSubflow(l, best, now, why)
	}
}

// otherLegSubflow returns the subflow of a redundant flow's other leg, which this leg must not use.
func (l *leg) otherLegSubflow() *subflow {
	switch {
	case !l.flow.redundant:
		return nil
	case l == &l.flow.legs[0]:
		return l.flow.legs[1].subflow
	}
	return l.flow.legs[0].subflow
}

// moveLegToSubflow pins a leg to another subflow and traces why.
func (t *flowTable) moveLegToSubflow(l *leg, to *subflow, now time.Time, why string) {
	l.subflow, l.otherFasterSince = to, time.Time{}
	if l.wasPinned {
		l.flow.stats.Moves++
	}
	l.wasPinned = true
	// The other leg may have sent copies over this subflow before it moved away: drop those.
	kept := l.waiting
	l.waiting, l.isBulk = nil, l.isBulk && len(kept) > 0
	for _, q := range kept {
		if *q.sentOn == to.id {
			l.releaseFrame(q)
		} else {
			l.waiting = append(l.waiting, q)
		}
	}
	to.extendLowLatency(now.Add(lowLatencyPeriod))
	t.trace.emitTimestamped(now, trace.Event{Kind: trace.FlowMove, Flow: uint64(l.flow.id), Subflow: uint32(to.id),
		Reason: why})
}

// unpinSubflow removes a subflow from all legs.
func (t *flowTable) unpinSubflow(p *subflow) {
	for _, f := range t.all {
		for i := range f.legs {
			if f.legs[i].subflow == p {
				f.legs[i].subflow = nil
			}
		}
	}
	for _, l := range t.ready { // including those of ended flows
		if l.subflow == p {
			l.subflow = nil
		}
	}
}

// nextSendableLeg returns the first leg with datagrams that can leave over an idle subflow now, or
// nil. It drops expired datagrams.
func (t *flowTable) nextSendableLeg(now time.Time) *leg {
	t.dropExpired(now)
	for _, l := range t.ready {
		t.updateLegPin(l, now)
		p := l.subflow
		if p != nil && p.idle && len(l.waiting) > 0 && !(l.isBulk && p.mustDeferBulk(p.est.EstimateAt(now), now, t.timer)) {
			return l
		}
	}
	return nil
}

// dropExpired drops datagrams that waited too long, and removes empty legs from the turns.
func (t *flowTable) dropExpired(now time.Time) {
	t.ready = slices.DeleteFunc(t.ready, func(l *leg) bool {
		for len(l.waiting) > 0 && now.Sub(l.waiting[0].queuedAt) > maxQueueTime {
			l.dropOldestFrame()
		}
		l.queued = len(l.waiting) > 0
		return !l.queued
	})
}

// fillDatagrams appends a segment of datagrams for subflow p: one of each leg in turn, at least
// one. streams holds the other data that waits.
func (t *flowTable) fillDatagrams(p *subflow, streams *backlog, now time.Time, buf []byte) []byte {
	first, room := true, p.targetSegmentSize(now)
	backlog := max(p.est.EstimateAt(now).Th.Bytes(maxStandingQueue), 4*minSegment)
	p.streamsFirst = false
	for i := 0; i < len(t.ready); {
		l := t.ready[i]
		if l.subflow != p || len(l.waiting) == 0 || !first && (len(l.waiting[0].frame) > room || t.isOutranked(l, streams)) {
			if l.subflow == p && l.bytes > backlog {
				l.isBulk, p.streamsFirst = true, true
			}
			i++
			continue
		}
		q := l.takeOldest()
		buf = append(buf, q.frame...)
		n := len(q.frame)
		r := t.rankFlowLeg(l)
		if first { // others in the segment have no turn of their own, or legs would lose theirs
			t.classes.beginRankedTurn(r)
		}
		r.countSentBytes(unit.Bytes(n))
		first, room = false, room-n
		p.recordSentFrame(n, sentFrame{frameType: wire.TypeDatagram})
		l.flow.stats.Sent++
		if *q.sentOn != 0 {
			t.stats.Redundant += unit.Bytes(n)
		} else {
			l.flow.stats.SentBytes += q.payloadSize
		}
		*q.sentOn = p.id
		t.ready = append(t.ready[:i], t.ready[i+1:]...)
		if l.queued = len(l.waiting) > 0; l.queued {
			t.enqueueLeg(l)
		}
	}
	return buf
}

// rankFlowLeg returns the rank of a leg.
func (t *flowTable) rankFlowLeg(l *leg) rank {
	return t.classes.rankInGroup(l.flow.group, &l.sentCounter)
}

// enqueueLeg queues a leg for its next turn.
func (t *flowTable) enqueueLeg(l *leg) { t.ready = insertByRank(t.classes, t.ready, l, t.rankFlowLeg) }

// streamsGoFirst reports whether streams precede the datagrams of a leg that could leave over its
// subflow. A short queue waits for no stream. A bulk leg yields to a higher priority, and takes
// turns by weight with its own.
func (t *flowTable) streamsGoFirst(l *leg, streams *backlog) bool {
	if !t.classes.ranked || !l.isBulk {
		return l.subflow.streamsFirst
	}
	for _, s := range streams.ready {
		if !s.send.isSendable() || !t.filter.permissionAllows(&s.permission, l.subflow.id) {
			continue
		}
		own, other := t.rankFlowLeg(l), streams.rankStream(s)
		if own.priority != other.priority {
			return other.priority.Above(own.priority)
		}
		return *other.sent < *own.sent
	}
	return false
}

// isOutranked reports whether a bulk leg must not fill a segment of others because data of a higher
// priority waits.
func (t *flowTable) isOutranked(l *leg, streams *backlog) bool {
	if !t.classes.ranked || !l.isBulk {
		return false
	}
	own := t.rankFlowLeg(l).priority
	return t.ready[0] != l && t.rankFlowLeg(t.ready[0]).priority.Above(own) ||
		len(streams.ready) > 0 && streams.rankStream(streams.ready[0]).priority.Above(own)
}
