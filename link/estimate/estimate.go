// Package estimate turns what is measured about a subflow's hops into the
// numbers that schedulers compare: throughput, one-way delay, backlog and,
// from them, the pipe-aware delay PAD. It stands between the probes of package
// tcp and the choices of package sched, and is pure: no clock, no sockets.
//
// With hop 1 nearest the sender and hop 2 the far one, B the bytes waiting
// before a hop, Th its throughput and OWD its one-way delay:
//
//	direct:  PAD = OWD1 + B1/Th1
//	helped:  PAD = OWD1 + OWD2 + max(B1/Th1, (B1+B2)/Th2)
//
// (MPBond, MobiSys 2020, section 4.2, whose two cases are one line here.)
package estimate

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Tuning. Each value is ours and was chosen in the lab at 1 to 50 Mbit/s.
const (
	// The far queue is dead-reckoned for at most this long after the newest
	// acknowledgement, so that a path that fell silent does not look empty.
	maxExtrapolation = 200 * time.Millisecond
	// Before anything is known a hop counts as one of 10 segments per 100 ms.
	guessRate = 10 * guessMSS * 8 * 10 * unit.Rate(1)
	guessMSS  = 1448
	guessRTT  = 100 * time.Millisecond
	// initialWindow of a TCP (RFC 6928).
	initialWindow = 10 * 1448
)

// Estimate are a subflow's estimates at an instant. Th is end to end: the
// smaller of Th1 and Th2, where Th2 is 0 for a direct subflow or while the far
// hop was never seen at its limit.
type Estimate struct {
	PAD          time.Duration
	OWD          time.Duration // both hops
	SRTT         time.Duration // both hops
	Th, Th1, Th2 unit.Rate
	RateKnown    bool // Th was measured while the network was the limit, else it is a guess
	B1, B2       unit.Bytes
	FarQueueTime time.Duration // how long B2 lasts at the far hop
	// PastPAD is PAD with the time that bytes were last measured to wait at the
	// helper in place of that which its backlog will take; see held.
	PastPAD time.Duration
	// Overdue is how much longer than a round trip the oldest byte that has not
	// arrived has been under way: what follows it will take no less.
	Overdue time.Duration
	// TimeToAck is how long it takes until the acknowledgement of a byte given to it now is
	// due. Late is how long the oldest one that is due has not come.
	TimeToAck, AckLate time.Duration
	// ArrivalsMeasured reports that it is known how much arrives while bytes are waiting.
	ArrivalsMeasured bool
	// Acked is all that the far end has acknowledged of this subflow.
	Acked unit.Bytes
	// FarFlight is what has left hop 1 and is not received, and FarCwnd the
	// window of the far hop, of which the helper tells rate and round trip only:
	// their product, or TCP's initial window where that is more.
	FarFlight, FarCwnd unit.Bytes
	// QueueTime is how long a byte given to it now would wait in queues, when hop 1
	// is fed no faster than the whole subflow carries: then less of what is under
	// way is on the air of hop 1 than PAD takes for it.
	QueueTime time.Duration
}

// Subflow estimates one subflow in its sending direction. Byte counts are those
// of the subflow's own stream. Not safe for concurrent use.
type Subflow struct {
	Helped bool
	// JoinRTT is the round trip end to end that the handshake took, 0 where it
	// is not known. It stands for the far hop's until that one is reported:
	// without it a helped subflow would look as quick as its first hop.
	JoinRTT time.Duration

	lastHop      Hop
	nearMeter    Meter
	farState     wire.HopState
	helperDelay  helperDelay
	farLimitSeen bool // far.Rate was once measured at the hop's limit
	arrivals     arrivals

	sent       uint64
	acked      uint64 // or taken for acknowledged
	ackedAt    time.Time
	ackedBytes unit.Bytes // that was acknowledged
}

// OnSent records that n more bytes were given to the subflow.
func (p *Subflow) OnSent(now time.Time, n unit.Bytes) {
	if p.Helped && n > 0 && p.arrivals.needsMark(now) {
		p.arrivals.recordSent(now, p.sent, p.EstimateAt(now).TimeToAck)
	}
	p.sent += uint64(n)
}

// OnUnsent records that the newest n bytes were not sent after all.
func (p *Subflow) OnUnsent(n unit.Bytes) {
	p.sent -= uint64(n)
	p.arrivals.dropUnsent(p.sent)
}

// OnPause records that this process did not run for d: nothing is late for that.
func (p *Subflow) OnPause(d time.Duration) { p.arrivals.postponeDue(d) }

// BytesInFlight is what was sent and is not known to have been received.
func (p *Subflow) BytesInFlight() unit.Bytes { return unit.Bytes(p.sent - p.acked) }

// LastHop is the newest local sample.
func (p *Subflow) LastHop() Hop { return p.lastHop }

// OnAcked records that the far end had received total bytes at the given time, and
// how long the acknowledgement travelled.
func (p *Subflow) OnAcked(total uint64, at time.Time, travelled time.Duration) {
	if total >= p.acked {
		total = min(total, p.sent)
		p.ackedBytes += unit.Bytes(total - p.acked)
		p.acked, p.ackedAt = total, at
		if p.Helped {
			p.arrivals.recordAcked(at.Add(travelled), p.acked, p.sent)
			p.arrivals.addSample(at.Add(travelled), p.acked, p.BytesInFlight())
		}
	}
}

// AssumeAllReceived takes all that was sent for received.
func (p *Subflow) AssumeAllReceived(at time.Time) {
	p.acked, p.ackedAt = p.sent, at
	p.arrivals.pending = p.arrivals.pending[:0]
}

// FillBlindHop is a sample of hop 1 that is blind, made of what the far end
// acknowledges instead: for a helped subflow hop 1 then stands for both. Others
// stay as they are.
func (p *Subflow) FillBlindHop(h Hop) Hop {
	if !h.Blind {
		return h
	}
	return Hop{Blind: true, SRTT: p.JoinRTT, MinRTT: p.JoinRTT, MSS: guessMSS, Queue: p.BytesInFlight(), Acked: p.acked}
}

// AddLocalSample takes a sample of hop 1.
func (p *Subflow) AddLocalSample(now time.Time, h Hop) {
	p.lastHop = h
	p.nearMeter.Add(now, h)
}

// AddHelperReport takes a helper's report about hop 2, which came at the time now. A rate that the helper had too
// little data to reach only ever raises the estimate. Reports go different ways: one that a newer one
// has overtaken is left out.
func (p *Subflow) AddHelperReport(now time.Time, s wire.HopState) {
	if s.Received < p.farState.Received || s.Forwarded < p.farState.Forwarded {
		return
	}
	if s.Rate == 0 || s.AppLimited && s.Rate < p.farState.Rate {
		s.Rate = p.farState.Rate
	}
	p.farLimitSeen = p.farLimitSeen || !s.AppLimited && s.Rate > 0
	if s.RTT == 0 {
		s.RTT = p.farState.RTT
	}
	p.farState = s
	p.helperDelay.addReport(now, s)
}

// EstimateAt is the estimate at the time now.
func (p *Subflow) EstimateAt(now time.Time) Estimate {
	h := p.lastHop
	if h.SRTT == 0 {
		h.SRTT = guessRTT
	}
	if h.MinRTT == 0 {
		h.MinRTT = h.SRTT
	}
	farRTT := p.farState.RTT
	if farRTT == 0 && p.Helped {
		farRTT = max(0, p.JoinRTT-h.MinRTT)
	}
	if p.JoinRTT > 0 && p.Helped { // no report makes it shorter than what has been seen end to end
		farRTT = max(farRTT, p.arrivals.endToEndRTT(p.JoinRTT)-h.MinRTT)
	}
	th1, limited := p.nearMeter.Rate()
	n := Estimate{Th1: th1, SRTT: h.SRTT + farRTT}
	if limited && h.Cwnd > 0 {
		n.Th1 = max(th1, unit.RateOf(h.Cwnd, h.SRTT))
	}
	if n.Th1 == 0 {
		n.Th1 = guessRate
	}
	if h.PacingLimit > 0 {
		n.Th1 = min(n.Th1, h.PacingLimit)
	}
	// What TCP has in flight at an empty queue does not wait: it is what the
	// propagation delay accounts for.
	n.B1 = max(0, h.Queue-n.Th1.Bytes(h.MinRTT))
	owd1 := h.MinRTT / 2
	n.Th, n.OWD, n.RateKnown = n.Th1, owd1, !limited
	if !p.Helped {
		n.QueueTime = n.Th1.Time(n.B1)
		n.PAD = owd1 + n.QueueTime
		n.PastPAD = n.PAD
		return n
	}
	owd2 := farRTT / 2
	n.OWD += owd2
	th2 := p.farState.Rate
	if p.farLimitSeen {
		n.Th2 = th2
	} else {
		// A hop never seen at its limit is not taken for one, but its TCP begins
		// with a small window, which grows by what is acknowledged.
		window := unit.RateOf(initialWindow+unit.Bytes(p.acked), max(farRTT, time.Millisecond))
		th2 = max(th2, min(n.Th1, window))
	}
	th2 = min(th2, p.arrivals.rateBound(p.acked, max(p.JoinRTT, h.MinRTT)))
	n.Th = min(n.Th1, th2)
	// The slower hop is: the other one carries as much at least.
	n.RateKnown = p.farLimitSeen && (!limited || th2 <= n.Th1) || !limited && p.farState.Rate >= n.Th1
	// All bytes ahead of a new one, less those that are on the air of a hop: of
	// hop 1 half of what its TCP has unacknowledged, when the hop is not full.
	air1 := min(n.Th1.Bytes(owd1), h.Queue/2)
	ahead := unit.Bytes(p.sent - p.estimateReceived(now, th2))
	n.FarFlight = max(0, ahead-n.B1-air1)
	n.FarCwnd = max(initialWindow, p.farState.Rate.Bytes(p.farState.RTT))
	n.B2 = max(0, n.FarFlight-th2.Bytes(owd2))
	n.FarQueueTime = th2.Time(n.B2)
	n.QueueTime = max(n.Th1.Time(n.B1), th2.Time(max(0, ahead-n.Th.Bytes(owd1)-th2.Bytes(owd2))))
	n.PAD = n.OWD + max(n.Th1.Time(n.B1), th2.Time(n.B1+n.B2))
	n.Overdue = max(0, p.arrivals.oldestAge(now)-p.arrivals.endToEndRTT(p.JoinRTT)-ackSlack)
	n.PAD = max(n.PAD, n.Overdue)
	n.AckLate, n.ArrivalsMeasured = p.arrivals.overdueBy(now), p.arrivals.rateKnown
	if p.arrivals.rateKnown {
		n.PAD = max(n.PAD, th2.Time(ahead))
	}
	n.PastPAD = n.OWD + n.Th1.Time(n.B1) + p.helperDelay.delay
	n.TimeToAck, n.Acked = n.PAD+n.OWD+ackSlack, p.ackedBytes
	return n
}

// estimateReceived dead-reckons how much the far end has by now: it keeps receiving at
// the far hop's rate while anything is on its way.
func (p *Subflow) estimateReceived(now time.Time, th2 unit.Rate) uint64 {
	if p.ackedAt.IsZero() {
		return p.acked
	}
	age := min(max(now.Sub(p.ackedAt), 0), maxExtrapolation)
	return min(p.sent, p.acked+uint64(th2.Bytes(age)))
}
