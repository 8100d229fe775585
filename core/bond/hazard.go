// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/link/wire"
)

// Hazard says how likely the link of a subflow changes its mobile cell soon. Such a handoff may stall the
// link.
type Hazard struct {
	Probability float64   // of a handoff within 2 s
	Until       time.Time // later it says nothing
	// HandedOff reports that the link has changed its cell since the last Hazard.
	HandedOff bool
}

// stallHistory holds the mean delay by the handoffs of a subflow's link. The zero value assumes
// usualStall.
type stallHistory struct {
	count int           // of handoffs while the subflow carried something
	sum   time.Duration // of their stalls, each up to maxStall
}

const (
	// usualStall counts as measured usualStalls times.
	usualStall, usualStalls = 250 * time.Millisecond, 4
	// maxStall bounds the delay by one stall: by then it is noticed, and others carry the bytes.
	maxStall = 350 * time.Millisecond
	// maxStallHistory bounds the count, so that later stalls count more.
	maxStallHistory = 40
	// aroundHandoff is how long before or after the report of a handoff its stall may be.
	aroundHandoff = 2 * time.Second
	// handoffReport is how old a handoff is at most when it is reported, usually.
	handoffReport = time.Second
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

// expectedStall returns by how much a stall that may come, or is under way, delays what the subflow is
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

// SetHazard sets how likely the link of a subflow changes its cell soon. The other end gets it too, while
// the bond carries something. A hazard only adds delay to the subflow; it never excludes it.
func (b *Bond) SetHazard(id wire.SubflowID, h Hazard, now time.Time) {
	p := b.subflows.subflowByID(id)
	if p == nil {
		return
	}
	was := p.expectedStall(now)
	b.applyHazard(p, h, now)
	if h.HandedOff {
		p.unsentHandoff = now
	}
	if h.HandedOff || was > 0 || p.expectedStall(now) > 0 {
		p.hintDue = true
	}
}

// applyHazard stores a hazard.
func (b *Bond) applyHazard(p *subflow, h Hazard, now time.Time) {
	was := p.expectedStall(now)
	p.hazard = h
	if h.HandedOff {
		p.learnStall(now) // of the handoff before
		p.handoffAt, p.wasBusyAtHandoff = now, p.isBusySince(now.Add(-handoffReport), now)
	}
	if was != p.expectedStall(now) {
		b.filter.expireAnswers()
	}
}

// isBusySince reports whether checks have seen frames in flight all the time since then.
func (p *subflow) isBusySince(since, now time.Time) bool {
	return !p.inFlightSince.IsZero() && !p.inFlightSince.After(since) && now.Sub(p.lastInFlight) <= 2*checkInterval
}

// noteInFlight records that a check sees frames in flight.
func (p *subflow) noteInFlight(now time.Time) {
	if now.Sub(p.lastInFlight) > 2*checkInterval {
		p.inFlightSince = now
	}
	p.lastInFlight = now
}

// learnStall records how long the subflow has stalled around the last handoff, if there was one whose
// stall is not recorded. Stalls that silence detection does not notice count as none, but only if the
// subflow was busy: otherwise it is unknown whether there was one.
func (p *subflow) learnStall(now time.Time) {
	at := p.handoffAt
	if at.IsZero() {
		return
	}
	p.handoffAt = time.Time{}
	began, ended := p.stallBegan, p.stallEnded
	if !p.stalledSince.IsZero() {
		ended = now
	}
	switch {
	case !began.IsZero() && ended.After(at.Add(-aroundHandoff)) && began.Before(at.Add(aroundHandoff)):
		p.stalls.addStall(ended.Sub(began))
		p.stallBegan = time.Time{} // counts once
	case !p.stalledSince.IsZero(): // it was counted
	case p.wasBusyAtHandoff:
		p.stalls.addStall(0)
	}
}

// learnStallInTime records the stall of the last handoff once it cannot begin any more.
func (p *subflow) learnStallInTime(now time.Time) {
	if !p.handoffAt.IsZero() && now.Sub(p.handoffAt) >= aroundHandoff {
		p.learnStall(now)
	}
}

// IsActive reports whether the bond carries something, or lately did: its radios are awake.
func (b *Bond) IsActive(now time.Time) bool {
	if b.backlog.pending+b.backlog.lowLatencyPending > 0 || len(b.control.frames) > 0 ||
		now.Sub(b.silence.lastData) < recentActivity {
		return true
	}
	for _, p := range b.subflows.list {
		if p.inFlight.len() > 0 || now.Sub(p.lastInFlight) < recentActivity {
			return true
		}
	}
	return false
}

// queueDueHints queues the hazards that the other end does not have, while the bond is active. When it
// becomes active these are all that matter.
func (b *Bond) queueDueHints(now time.Time) {
	if !b.cfg.OpensStreams {
		return
	}
	was := b.wasActive
	if b.wasActive = b.IsActive(now); !b.wasActive {
		return
	}
	for _, p := range b.subflows.list {
		if p.hintDue = p.hintDue || !was && p.expectedStall(now) > 0; !p.hintDue {
			continue
		}
		if next := p.hintedAt.Add(hintInterval); now.Before(next) {
			b.timer.requestWakeAt(next)
			continue
		}
		b.hintSerial++
		b.control.queueHint(wire.Hint{Subflow: p.id, Serial: b.hintSerial, Probability: p.hazard.Probability,
			ValidFor: p.hazard.Until.Sub(now), HandedOff: now.Sub(p.unsentHandoff) < aroundHandoff})
		p.hintDue, p.hintedAt, p.unsentHandoff = false, now, time.Time{}
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

// receiveHint stores a hazard that the primary reports, unless a later one has overtaken it. It never
// makes a subflow better than it is measured to be.
func (b *Bond) receiveHint(_ *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParseHint(payload)
	if p := b.subflows.subflowByID(f.Subflow); err == nil && p != nil && f.Serial > p.hintSerial {
		p.hintSerial = f.Serial
		b.applyHazard(p, Hazard{Probability: f.Probability, Until: now.Add(f.ValidFor), HandedOff: f.HandedOff}, now)
	}
	return err
}
