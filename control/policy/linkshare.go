// SPDX-License-Identifier: Apache-2.0

// Package policy decides, from measurements and a policy file, how a device may use its links. Its
// functions turn a snapshot into a choice and a reason; some types keep state between calls. It
// uses no clock and does no I/O. It stands beside the data path: package device and others measure,
// the roles carry the decisions out.
//
//	caps.go          caps on the bytes of a link or device, and their periods
//	choose.go        which subflows a stream may use
//	describe.go      parts of a policy file as text
//	devices.go       limits of a device, and when its battery or temperature suspends it
//	energy.go        energy that radios use
//	file.go          the policy file: its values, and the patterns that they match
//	linkshare.go     how much of a link its owner's traffic leaves to others
//	locations.go     performance of subflows at known locations
//	matchfilter.go   a quick check that rejects most rules
//	meter.go         energy that a radio has used
//	modes.go         mode settings compiled to rules
//	othertraffic.go  traffic on a link that is not ours
//	pipes.go         which pipes to a helper carry subflows
//	rules.go         compiled rules, and the verdict on a connection
//	trafficclass.go  traffic classes that rules give to connections
//	uplinks.go       which of its interfaces a primary uses
//	usage.go         records of bytes carried, and the periods that they count for
package policy

import (
	"time"

	"mpbond/base/unit"
)

// Tuning of LinkShare; ours, chosen in the lab on links of 3 to 10 Mbit/s.
const (
	// Rates are means over shareWindow.
	shareWindow = 200 * time.Millisecond
	// The owner is busy while its rate exceeds busyShare of the link's capacity. It has a bulk
	// transfer after bulkBytes or bulkTime of that. Smaller transfers end before a limit could
	// help.
	busyShare = 0.15
	bulkBytes = 24 * unit.KB
	bulkTime  = 400 * time.Millisecond
	// The owner is idle once its rate was below idleShare for idleTime.
	idleShare = 0.05
	idleTime  = 200 * time.Millisecond
	// An idle owner that sends a request will soon receive. For expectTime at most expectShare is
	// shared, so that the response finds no full queue.
	expectTime  = 300 * time.Millisecond
	expectShare = 0.1
	// settleTime is how long the owner has the link alone before its leftover is shared again. TCP
	// needs that time to reach its rate.
	settleTime = 400 * time.Millisecond
	// The owner's rate counts with this factor, so that it can grow.
	ownerHeadroom = 1.3
	// The shared rate grows by these factors in each growStep: while the owner is busy, and once it
	// is idle.
	growStep           = 50 * time.Millisecond
	growBusy, growIdle = 1.25, 2.0
	// minSharedRate keeps shared subflows alive. A silent one would be given up, and to join again
	// costs more. It is the same for each link, so that of two devices that share with each other
	// neither loses.
	minSharedRate = 64 * unit.Kbps
	// The capacity of a link is its highest rate in the last one to two periods of capacityTime.
	capacityTime = 30 * time.Second
)

// ShareDecision is a decision of LinkShare.
type ShareDecision struct {
	Limited bool
	Limit   unit.Rate // for all others together, while Limited
	Reason  string
	// The rates that the decision is based on.
	Owner, Shared, Capacity unit.Rate
}

// LinkShare decides, for one direction of one link, how much of it other devices may use: the
// leftover of its owner. It yields at once when the owner is busy. Then it shares again what the
// owner, left alone, does not use.
//
//	free ── owner busy ──> yielding ── leftover found ──> sharing      (free ── request ──> expecting,
//	  ^                       ^ └── owner idle ──┐           │ │        then yielding or growing)
//	  └── all is shared ── growing <─────────────┴───────────┘ │
//	                          └── owner's rate rises ──────────┘ (to yielding)
//
// The zero LinkShare is ready to use. Not safe for concurrent use.
type LinkShare struct {
	state  shareState
	since  time.Time // time of the last state change
	limit  unit.Rate
	points []sharePoint

	bulk      uint64    // bytes of the owner when it became busy
	bulkSince time.Time // zero: not busy
	idleSince time.Time // zero: not idle
	settled   unit.Rate // owner's rate when sharing began

	peak, peakBefore unit.Rate // highest rate of this period and the one before
	peakSince        time.Time
}

// shareState is the state of a LinkShare.
type shareState uint8

const (
	shareFree shareState = iota
	shareYielding
	shareSharing
	shareGrowing
	shareExpecting
)

// Reasons of a ShareDecision.
const (
	reasonFree     = "the owner is idle"
	reasonYielding = "the owner is busy"
	reasonSharing  = "the owner leaves this rate"
	reasonGrowing  = "the owner became idle"
	reasonExpects  = "the owner sent a request"
)

// LinkBytes counts the bytes that one direction of a link has carried since the start: for its
// owner, for other devices, and in total by the link's own counter, or 0 without one. The counter
// shows the link's capacity best. The others count bytes that TCP has in order, which jump when a
// lost packet is repaired.
//
// Requested counts the bytes that the owner sent in the other direction. From an owner that
// receives nothing they are a request. It may stay 0.
type LinkBytes struct {
	Owner, Shared, Total, Requested uint64
}

// sharePoint is a sample of LinkBytes.
type sharePoint struct {
	at time.Time
	LinkBytes
}

// Observe takes the bytes carried so far and decides. Call it about every 50 ms while the link is
// in use.
func (l *LinkShare) Observe(now time.Time, m LinkBytes) ShareDecision {
	before, had := l.lastSharePoint()
	ownerRate, sharedRate, total, ok := l.meanShareRates(now, m)
	if !ok {
		return l.buildDecision(0, 0)
	}
	if m.Total == 0 {
		total = ownerRate + sharedRate
	}
	// The rate of the owner's packets, in order or not. After a lost packet the bytes in order
	// stall for a round trip or more, but the link does not.
	taken := max(ownerRate, total-sharedRate)
	l.updatePeak(now, total)
	l.updateActivity(now, m.Owner, ownerRate, taken)
	idle := !l.idleSince.IsZero() && now.Sub(l.idleSince) >= idleTime
	bulk := !l.bulkSince.IsZero() && (m.Owner-l.bulk >= uint64(bulkBytes) || now.Sub(l.bulkSince) >= bulkTime)
	step := time.Duration(0)
	if had {
		step = min(now.Sub(before.at), 4*growStep)
	}
	switch {
	case (l.state == shareYielding || l.state == shareSharing) && idle:
		l.enterShareState(shareGrowing, now)
	case l.state != shareYielding && l.state != shareSharing && bulk:
		l.enterShareState(shareYielding, now)
	case (l.state == shareFree || l.state == shareGrowing) && idle && had && m.Requested > before.Requested:
		l.enterShareState(shareExpecting, now)
	case l.state == shareExpecting && now.Sub(l.since) >= expectTime:
		l.enterShareState(shareGrowing, now)
	}
	switch l.state {
	case shareYielding:
		l.limit = minSharedRate
		if now.Sub(l.since) >= settleTime && l.spareRate(taken) > 2*minSharedRate {
			l.enterShareState(shareSharing, now)
			l.settled = taken
		}
	case shareSharing:
		l.shareLeftover(now, taken, sharedRate, step)
	case shareExpecting:
		l.limit = max(minSharedRate, unit.Rate(expectShare*float64(l.linkCapacity())))
	case shareGrowing:
		l.limit = rateAfterGrowth(max(l.limit, l.linkCapacity()/8), growIdle, step)
		if l.limit >= 2*l.linkCapacity() {
			l.enterShareState(shareFree, now)
		}
	}
	return l.buildDecision(ownerRate, sharedRate)
}

// shareLeftover shares the owner's leftover until the owner needs more.
func (l *LinkShare) shareLeftover(now time.Time, owner, shared unit.Rate, step time.Duration) {
	fell := l.settled - owner
	switch {
	case owner > l.settled*13/10+minSharedRate:
		l.enterShareState(shareYielding, now)
	case fell > l.settled/5 && shared > fell/2 && owner+shared < l.linkCapacity()*9/10:
		// The owner lost what others gained: the capacity has fallen.
		l.peak, l.peakBefore = owner+shared, 0
		l.enterShareState(shareYielding, now)
	default:
		l.limit = max(minSharedRate, min(l.spareRate(owner), rateAfterGrowth(max(l.limit, l.linkCapacity()/16), growBusy,
			step)))
		return
	}
	l.limit = minSharedRate
}

// enterShareState changes the state.
func (l *LinkShare) enterShareState(s shareState, now time.Time) {
	l.state, l.since = s, now
	l.bulkSince = time.Time{}
}

// buildDecision returns the decision of the present state.
func (l *LinkShare) buildDecision(owner, shared unit.Rate) ShareDecision {
	g := ShareDecision{Limited: l.state != shareFree, Owner: owner, Shared: shared, Capacity: l.linkCapacity()}
	g.Reason = [...]string{reasonFree, reasonYielding, reasonSharing, reasonGrowing, reasonExpects}[l.state]
	if g.Limited {
		g.Limit = l.limit
	}
	return g
}

// spareRate returns the capacity less the owner's rate with ownerHeadroom. It may be negative.
func (l *LinkShare) spareRate(owner unit.Rate) unit.Rate {
	return l.linkCapacity() - unit.Rate(ownerHeadroom*float64(owner))
}

// rateAfterGrowth returns r after growing by factor in each growStep, for step.
func rateAfterGrowth(r unit.Rate, factor float64, step time.Duration) unit.Rate {
	return r + unit.Rate(float64(r)*(factor-1)*float64(step)/float64(growStep))
}

// linkCapacity returns the highest recent rate of the link.
func (l *LinkShare) linkCapacity() unit.Rate { return max(l.peak, l.peakBefore) }

// updatePeak updates the highest rate of the period.
func (l *LinkShare) updatePeak(now time.Time, total unit.Rate) {
	if l.peakSince.IsZero() || now.Sub(l.peakSince) >= capacityTime {
		l.peak, l.peakBefore, l.peakSince = 0, l.peak, now
	}
	l.peak = max(l.peak, total)
}

// updateActivity updates since when the owner is busy or idle.
func (l *LinkShare) updateActivity(now time.Time, moved uint64, owner, taken unit.Rate) {
	if float64(taken) <= idleShare*float64(l.linkCapacity()) {
		if l.idleSince.IsZero() {
			l.idleSince = now
		}
	} else {
		l.idleSince = time.Time{}
	}
	if owner == 0 || float64(owner) < busyShare*float64(l.linkCapacity()) {
		l.bulkSince = time.Time{}
	} else if l.bulkSince.IsZero() {
		l.bulkSince, l.bulk = now, l.points[0].Owner
	}
}

// lastSharePoint returns the last sample, if any.
func (l *LinkShare) lastSharePoint() (p sharePoint, ok bool) {
	if n := len(l.points); n > 0 {
		return l.points[n-1], true
	}
	return p, false
}

// meanShareRates returns the mean rates over about shareWindow; ok is false until half of it was
// observed.
func (l *LinkShare) meanShareRates(now time.Time, m LinkBytes) (owner, shared, total unit.Rate, ok bool) {
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
