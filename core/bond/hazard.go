// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/link/wire"
)

// Hazard says how likely the link of a subflow changes its mobile cell soon. Such a handoff may stall the
// link.
type Hazard struct {
	Probability float64   // of a handoff before Until
	Until       time.Time // later it says nothing
	// HandedOff reports that the link has changed its cell since the last Hazard.
	HandedOff bool
}

// stallHistory is how much handoffs have delayed what a subflow carried, on average. The zero value
// assumes usualStall.
type stallHistory struct {
	count int           // of handoffs while it carried something
	sum   time.Duration // of their stalls, each up to maxStall
}

const (
	// usualStall counts as measured usualStalls times.
	usualStall, usualStalls = 250 * time.Millisecond, 4
	// maxStall bounds the delay by one stall: by then it is noticed, and others carry the bytes.
	maxStall = 350 * time.Millisecond
	// maxStallHistory bounds the count, so that later stalls count more.
	maxStallHistory = 40
	// handoffReportTime is how old a handoff may be when it is reported.
	handoffReportTime = 2 * time.Second
)

// meanStall returns the mean.
func (h *stallHistory) meanStall() time.Duration {
	return (usualStall*usualStalls + h.sum) / time.Duration(usualStalls+h.count)
}

// addStall adds the stall of a handoff.
func (h *stallHistory) addStall(d time.Duration) {
	if h.count == maxStallHistory {
		h.sum -= h.sum / maxStallHistory
		h.count--
	}
	h.sum, h.count = h.sum+min(d, maxStall), h.count+1
}

const (
	// leastHazard is the least probability that counts. Most forecasts are below it.
	leastHazard = 0.1
	// hintInterval is the least time between two HINTs of a subflow.
	hintInterval = 100 * time.Millisecond
)

// expectedStall returns by how much a stall that may come, or has begun, delays what the subflow is
// given now, on average; 0 if none is likely.
//
// The stall of a handoff is under way, or begins before the bytes have arrived, with about the square
// of the probability of a handoff within 2 s: over 100 journeys by train (lab/vary), links stalled for
// 2, 13, 35 and 64 % of the second after forecasts of 0.15, 0.45, 0.75 and 0.95.
func (p *subflow) expectedStall(now time.Time) time.Duration {
	if h := &p.hazard; h.Probability >= leastHazard && now.Before(h.Until) {
		return time.Duration(h.Probability * h.Probability * float64(p.stalls.meanStall()))
	}
	return 0
}

// SetHazard sets how likely the link of a subflow changes its cell soon. While streams are open the
// other end gets it too, at most once each hintInterval. It is no fact: bytes that would go over the
// subflow go over another one if that is nearly as fast.
func (b *Bond) SetHazard(id wire.SubflowID, h Hazard, now time.Time) {
	if p := b.subflows.subflowByID(id); p != nil {
		was := p.expectedStall(now)
		b.applyHazard(p, h, now)
		if len(b.streams.all) > 0 && (h.HandedOff || was > 0 || p.expectedStall(now) > 0) {
			b.queueHint(p, now)
		}
	}
}

// applyHazard stores a hazard, and after a handoff how long the subflow has stalled.
func (b *Bond) applyHazard(p *subflow, h Hazard, now time.Time) {
	was := p.expectedStall(now)
	p.hazard = h
	if h.HandedOff {
		p.recordHandoff(now)
	}
	if was != p.expectedStall(now) {
		b.filter.expireAnswers()
	}
}

// recordHandoff records how long the subflow has stalled in a handoff that has just been reported.
func (p *subflow) recordHandoff(now time.Time) {
	switch began := p.stallBegan; {
	case !p.stalledSince.IsZero():
		p.stalls.addStall(now.Sub(began))
	case !began.IsZero() && now.Sub(p.stallEnded) < handoffReportTime:
		p.stalls.addStall(p.stallEnded.Sub(began))
	case now.Sub(p.lastActive) < handoffReportTime:
		p.stalls.addStall(0)
	}
}

// queueHint queues the hazard of a subflow for the other end.
func (b *Bond) queueHint(p *subflow, now time.Time) {
	if b.cfg.OpensStreams && now.Sub(p.hintedAt) >= hintInterval {
		p.hintedAt = now
		b.control.queueHint(wire.Hint{Subflow: p.id, Probability: p.hazard.Probability,
			Holds: p.hazard.Until.Sub(now), HandedOff: p.hazard.HandedOff})
		p.hazard.HandedOff = false // the other end counts it once
	}
}

// queueDueHints queues the hazards of all subflows that may stall, after a stream was opened.
func (b *Bond) queueDueHints(now time.Time) {
	if !b.hintsDue {
		return
	}
	b.hintsDue = false
	for _, p := range b.subflows.list {
		if p.expectedStall(now) > 0 {
			b.queueHint(p, now)
		}
	}
}

// queueHint queues a HINT in place of a waiting one of its subflow.
func (q *controlQueue) queueHint(f wire.Hint) {
	for i, other := range q.notices {
		if h, ok := other.(wire.Hint); ok && h.Subflow == f.Subflow {
			f.HandedOff = f.HandedOff || h.HandedOff
			q.notices[i] = f
			return
		}
	}
	q.queueNotice(f)
}

// receiveHint stores a hazard that the primary reports. It never makes a subflow better than it is
// measured to be.
func (b *Bond) receiveHint(_ *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParseHint(payload)
	if p := b.subflows.subflowByID(f.Subflow); err == nil && p != nil {
		b.applyHazard(p, Hazard{Probability: f.Probability, Until: now.Add(f.Holds), HandedOff: f.HandedOff}, now)
	}
	return err
}
