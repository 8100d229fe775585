// Package policy decides, from what was measured, what a device may use its
// links for: pure functions from a snapshot to a choice and a reason. It stands
// beside the data path, between the counters of package device and the roles,
// which carry its decisions out.
//
//	lend.go     how much of a link its owner leaves to those who borrow it
//	context.go  which subflows a stream may use
//	energy.go   what radios take
//	meter.go    what a radio has taken for what it carried
//	modes.go    settings as rules: which connections must not wait, or go twice
//	pipes.go    which of the pipes to a helper carry subflows
//	rest.go     what moves over a link besides what is known
//	uplinks.go  which of its own interfaces a primary uses
package policy

import (
	"time"

	"mpbond/base/unit"
)

// Tuning of Lender; ours, chosen in the lab on links of 3 to 10 Mbit/s.
const (
	// Rates are means over shareWindow.
	shareWindow = 200 * time.Millisecond
	// The owner is busy while its rate is over busyShare of what the link
	// carries, and at work in earnest after bulkBytes or bulkTime of that:
	// smaller things end before a limit could help them.
	busyShare = 0.15
	bulkBytes = 24 * unit.KB
	bulkTime  = 400 * time.Millisecond
	// It is idle once its rate has been under idleShare for idleTime.
	idleShare = 0.05
	idleTime  = 200 * time.Millisecond
	// An idle owner that sends a request will soon receive: for expectTime no
	// more than expectShare is lent, lest what comes meets a full queue.
	expectTime  = 300 * time.Millisecond
	expectShare = 0.1
	// settleTime is how long the owner has the link to itself before what it
	// leaves is lent again: TCP must have had time to take what it can.
	settleTime = 400 * time.Millisecond
	// What the owner uses counts this much, so that it can grow.
	ownHeadroom = 1.3
	// A lent rate grows by these factors in each growStep: while the owner is
	// at work, and once it is idle.
	growStep           = 50 * time.Millisecond
	growBusy, growIdle = 1.25, 2.0
	// The floor keeps borrowed subflows alive: one that is silent would be
	// given up, and joining again costs more. It is the same for each link, so
	// that of two who lend to each other none loses by it.
	minSharedRate = 64 * unit.Kbps
	// What the link can carry is the most that it did in the last one to two
	// of these.
	capacityTime = 30 * time.Second
)

// ShareDecision is a decision of a Lender.
type ShareDecision struct {
	Limited bool
	Limit   unit.Rate // for all who borrow together, while Limited
	Reason  string
	// What the decision was taken from.
	Owner, Shared, Capacity unit.Rate
}

// LinkShare decides, for one direction of one link, how much of it may be lent:
// what the owner leaves. It yields at once when the owner is busy, and lends
// again what the owner, left alone, turns out not to use.
//
//	free ── owner busy ──> yielding ── it leaves some ──> sharing      (free ── request ──> expecting,
//	  ^                       ^ └── owner idle ──┐           │ │        then yielding or growing)
//	  └──── all is lent ── growing <─────────────┴───────────┘ │
//	                          └── the owner wants more ────────┘ (to yielding)
//
// The zero Lender is ready. Not safe for concurrent use.
type LinkShare struct {
	state  shareState
	since  time.Time // of the state
	limit  unit.Rate
	points []sharePoint

	bulk      uint64    // what the owner had moved when it became busy
	bulkSince time.Time // zero: it is not
	idleSince time.Time // zero: it is not
	settled   unit.Rate // the owner's rate when sharing began

	peak, peakBefore unit.Rate // capacity, of this period and the one before
	peakSince        time.Time
}

type shareState uint8

const (
	shareFree shareState = iota
	shareYielding
	shareSharing
	shareGrowing
	shareExpecting
)

// Reasons of a Grant.
const (
	reasonFree     = "the owner is idle"
	reasonYielding = "the owner is busy"
	reasonSharing  = "the owner leaves this"
	reasonGrowing  = "the owner has become idle"
	reasonExpects  = "the owner has asked for something"
)

// LinkBytes is what a direction of a link has moved in all since the start, in
// bytes: for its owner, for those who borrow it, and as its own counter says, if
// it has one. That one is the best for what the link can carry: the others tell
// what TCP has in order, which comes in leaps when a lost packet is made good.
//
// Asked counts what the owner sent the other way, which in one who receives
// nothing is a request. It may stay 0.
type LinkBytes struct {
	Owner, Shared, Total, Requested uint64
}

type sharePoint struct {
	at time.Time
	LinkBytes
}

// Observe takes what was moved and decides. It is to be called each 50 ms or so
// while the link is in use.
func (l *LinkShare) Observe(now time.Time, m LinkBytes) ShareDecision {
	before, had := l.lastPoint()
	ownRate, lentRate, total, ok := l.meanRates(now, m)
	if !ok {
		return l.buildDecision(0, 0)
	}
	if m.Total == 0 {
		total = ownRate + lentRate
	}
	// What the owner takes of the link, its bytes in order or not: after a lost
	// packet the former stand still for a round trip or more, and the link does not.
	taken := max(ownRate, total-lentRate)
	l.updatePeak(now, total)
	l.updateActivity(now, m.Owner, ownRate, taken)
	idle := !l.idleSince.IsZero() && now.Sub(l.idleSince) >= idleTime
	bulk := !l.bulkSince.IsZero() && (m.Owner-l.bulk >= uint64(bulkBytes) || now.Sub(l.bulkSince) >= bulkTime)
	step := time.Duration(0)
	if had {
		step = min(now.Sub(before.at), 4*growStep)
	}
	switch {
	case (l.state == shareYielding || l.state == shareSharing) && idle:
		l.enterState(shareGrowing, now)
	case l.state != shareYielding && l.state != shareSharing && bulk:
		l.enterState(shareYielding, now)
	case (l.state == shareFree || l.state == shareGrowing) && idle && had && m.Requested > before.Requested:
		l.enterState(shareExpecting, now)
	case l.state == shareExpecting && now.Sub(l.since) >= expectTime:
		l.enterState(shareGrowing, now)
	}
	switch l.state {
	case shareYielding:
		l.limit = minSharedRate
		if now.Sub(l.since) >= settleTime && l.spareRate(taken) > 2*minSharedRate {
			l.enterState(shareSharing, now)
			l.settled = taken
		}
	case shareSharing:
		l.shareLeftover(now, taken, lentRate, step)
	case shareExpecting:
		l.limit = max(minSharedRate, unit.Rate(expectShare*float64(l.linkCapacity())))
	case shareGrowing:
		l.limit = grownRate(max(l.limit, l.linkCapacity()/8), growIdle, step)
		if l.limit >= 2*l.linkCapacity() {
			l.enterState(shareFree, now)
		}
	}
	return l.buildDecision(ownRate, lentRate)
}

// shareLeftover lends what the owner leaves, until it wants more.
func (l *LinkShare) shareLeftover(now time.Time, own, lent unit.Rate, step time.Duration) {
	fell := l.settled - own
	switch {
	case own > l.settled*13/10+minSharedRate:
		l.enterState(shareYielding, now)
	case fell > l.settled/5 && lent > fell/2 && own+lent < l.linkCapacity()*9/10:
		// The owner lost what was lent: the link carries less than it did once.
		l.peak, l.peakBefore = own+lent, 0
		l.enterState(shareYielding, now)
	default:
		l.limit = max(minSharedRate, min(l.spareRate(own), grownRate(max(l.limit, l.linkCapacity()/16), growBusy, step)))
		return
	}
	l.limit = minSharedRate
}

func (l *LinkShare) enterState(s shareState, now time.Time) {
	l.state, l.since = s, now
	l.bulkSince = time.Time{}
}

func (l *LinkShare) buildDecision(own, lent unit.Rate) ShareDecision {
	g := ShareDecision{Limited: l.state != shareFree, Owner: own, Shared: lent, Capacity: l.linkCapacity()}
	g.Reason = [...]string{reasonFree, reasonYielding, reasonSharing, reasonGrowing, reasonExpects}[l.state]
	if g.Limited {
		g.Limit = l.limit
	}
	return g
}

// spareRate is what an owner of that rate leaves.
func (l *LinkShare) spareRate(own unit.Rate) unit.Rate {
	return l.linkCapacity() - unit.Rate(ownHeadroom*float64(own))
}

func grownRate(r unit.Rate, factor float64, step time.Duration) unit.Rate {
	return r + unit.Rate(float64(r)*(factor-1)*float64(step)/float64(growStep))
}

// linkCapacity is the most that the link was seen to carry lately.
func (l *LinkShare) linkCapacity() unit.Rate { return max(l.peak, l.peakBefore) }

func (l *LinkShare) updatePeak(now time.Time, total unit.Rate) {
	if l.peakSince.IsZero() || now.Sub(l.peakSince) >= capacityTime {
		l.peak, l.peakBefore, l.peakSince = 0, l.peak, now
	}
	l.peak = max(l.peak, total)
}

// updateActivity follows since when the owner is busy, or idle: it takes nothing of the
// link.
func (l *LinkShare) updateActivity(now time.Time, moved uint64, own, taken unit.Rate) {
	if float64(taken) <= idleShare*float64(l.linkCapacity()) {
		if l.idleSince.IsZero() {
			l.idleSince = now
		}
	} else {
		l.idleSince = time.Time{}
	}
	if own == 0 || float64(own) < busyShare*float64(l.linkCapacity()) {
		l.bulkSince = time.Time{}
	} else if l.bulkSince.IsZero() {
		l.bulkSince, l.bulk = now, l.points[0].Owner
	}
}

func (l *LinkShare) lastPoint() (p sharePoint, ok bool) {
	if n := len(l.points); n > 0 {
		return l.points[n-1], true
	}
	return p, false
}

// meanRates are the means over about shareWindow; not ok while less than half of it
// was seen.
func (l *LinkShare) meanRates(now time.Time, m LinkBytes) (own, lent, total unit.Rate, ok bool) {
	l.points = append(l.points, sharePoint{now, m})
	old := 0
	for old+1 < len(l.points) && now.Sub(l.points[old+1].at) >= shareWindow {
		old++
	}
	l.points = l.points[:copy(l.points, l.points[old:])]
	first := l.points[0]
	took := now.Sub(first.at)
	if took < shareWindow/2 {
		return 0, 0, 0, false
	}
	since := func(n, before uint64) unit.Rate { return unit.RateOf(unit.Bytes(n-min(n, before)), took) }
	return since(m.Owner, first.Owner), since(m.Shared, first.Shared), since(m.Total, first.Total), true
}
