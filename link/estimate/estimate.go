// SPDX-License-Identifier: Apache-2.0

// Package estimate turns measurements of a subflow's hops into the numbers that schedulers compare:
// throughput, one-way delay, backlog and, from these, the pipe-aware delay (PAD). It stands between
// the probes of package tcp and the choices of package sched. It is pure: no clock, no sockets.
//
// With the local hop, at the sender, as hop 1 and the far one as hop 2, B the bytes waiting before
// a hop, Th its throughput and OWD its one-way delay:
//
//	direct:  PAD = OWD1 + B1/Th1
//	helped:  PAD = OWD1 + OWD2 + max(B1/Th1, (B1+B2)/Th2)
//
// Source: MPBond, MobiSys 2020, section 4.2; its two cases are one formula here.
package estimate

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Tuning. The values are ours, chosen in the lab at 1 to 50 Mbit/s.
const (
	// maxExtrapolation bounds how long after the newest acknowledgement the far queue is assumed to
	// drain, so that a silent subflow does not look empty.
	maxExtrapolation = 200 * time.Millisecond
	// Before the first measurement a hop is assumed to carry 10 segments per 100 ms.
	guessRate = 10 * guessMSS * 8 * 10 * unit.Rate(1)
	guessMSS  = 1448
	guessRTT  = 100 * time.Millisecond
	// initialWindow is TCP's initial window (RFC 6928).
	initialWindow = 10 * 1448
)

// Estimate holds a subflow's estimates at one time. Th1 is the rate of the local hop. Th2 is the
// far hop's rate as reported at its limit, 0 before that and for a direct subflow. Th is the
// end-to-end throughput: the smaller rate of both hops, where guesses and bounds replace an unknown
// Th2.
type Estimate struct {
	PAD          time.Duration
	OWD          time.Duration // of both hops together
	SRTT         time.Duration // of both hops together
	MinRTT       time.Duration // the least that was measured end to end, not reported; 0 if unknown
	Th, Th1, Th2 unit.Rate
	RateKnown    bool // Th was measured while the network was the limit; otherwise Th is a guess
	// DoublingTime is the round trip in which Th may still double, as in TCP's slow start; 0 once a
	// hop was seen at its limit. Ceiling bounds this growth by the hops that were; 0 is no bound.
	DoublingTime time.Duration
	Ceiling      unit.Rate
	B1, B2       unit.Bytes
	// FarQueueTime is how long a byte sent now will wait before the far hop if that goes on at its
	// rate. Bytes in flight on hop 1 count: they join that queue first. 0 for a direct subflow.
	FarQueueTime time.Duration
	// FallenQueueTime is how long a byte sent now will wait before hop 1, if that has lately become
	// less than half as fast; 0 if it has not.
	FallenQueueTime time.Duration
	// PastPAD is PAD computed from the wait last measured at the helper instead of its present
	// backlog; see helperDelay.
	PastPAD time.Duration
	// Overdue is how much longer than a round trip the oldest missing byte has been in flight.
	Overdue time.Duration
	// TimeToAck is the time until the acknowledgement of a byte sent now is due. AckLate is how
	// long the oldest due acknowledgement has been missing; PAD includes it.
	TimeToAck, AckLate time.Duration
	// Acked counts the bytes of this subflow that the far end has acknowledged.
	Acked unit.Bytes
	// FarFlight is the number of bytes that have left hop 1 and have not been received. FarCwnd is
	// the window of the far hop. The helper reports only rate and round trip, so FarCwnd is their
	// product, but at least TCP's initial window.
	FarFlight, FarCwnd unit.Bytes
	// Forecast is the time until a packet given to the subflow now has arrived, computed segment by
	// segment (see forecast.go). Unlike PAD it does not take a hop in slow start for one of
	// constant rate. HalfArrives is the time until half of the bytes in flight have arrived. Both
	// are 0 before AddForecast.
	Forecast, HalfArrives time.Duration
	// Loss is the share of packets that hop 1 sent again lately. Spread is the mean deviation of
	// its round trip.
	Loss   float64
	Spread time.Duration
	// QueueTime is how long a byte sent now would wait in queues if hop 1 is fed no faster than the
	// whole subflow carries. Then fewer of the bytes in flight are in transit on hop 1 than PAD
	// assumes.
	QueueTime time.Duration

	hops hopState
}

// Subflow computes the estimates of one subflow in its sending direction. Byte counts are those of
// the subflow's own stream. Not safe for concurrent use.
type Subflow struct {
	Helped bool
	// JoinRTT is the end-to-end round trip of the handshake, 0 if unknown. It replaces the round
	// trip of the far hop until the helper reports that one. Without it a helped subflow would look
	// as fast as its first hop.
	JoinRTT time.Duration

	lastHop      Hop // newest sample of the local hop
	localMeter   Meter
	losses       lossMeter     // of the local hop
	farState     wire.HopState // newest report about the far hop
	helperDelay  helperDelay
	farLimitSeen bool // farState.Rate was measured at least once at the hop's limit
	arrivals     arrivals
	flight       flight
	// farWindowStart is the position from which acknowledged bytes have grown the window of hop 2
	// beyond the initial one.
	farWindowStart uint64
	// trainRate is the rate of a packet train over the whole subflow. It replaces guesses until
	// more is measured. 0 is none.
	trainRate unit.Rate

	sent   uint64
	sentAt time.Time // when bytes were last given to it
	// flightBegan is when bytes were last given to it while none were in flight.
	flightBegan time.Time
	acked       uint64 // or assumed to be acknowledged
	ackedAt     time.Time
	ackedBytes  unit.Bytes // bytes that were really acknowledged
}

// OnSent records that n more bytes were given to the subflow.
func (p *Subflow) OnSent(now time.Time, n unit.Bytes) {
	if p.Helped && n > 0 && p.arrivals.needsArrivalMark(now) {
		p.arrivals.recordSentBytes(now, p.sent)
	}
	if n > 0 {
		est := p.EstimateAt(now)
		leaves, arrives := p.forecastSegment(now, n, &est.hops)
		due := now.Add(max(est.TimeToAck-est.AckLate, arrives.Sub(now)+est.OWD+ackSlack))
		p.flight.addFlightSegment(segmentForecast{p.sent + uint64(n), leaves, arrives, due}, est.hops.late)
		p.shrinkFarWindow(now, &est.hops)
	}
	if n > 0 && p.sent == p.acked {
		p.flightBegan = now
	}
	p.sent += uint64(n)
	p.sentAt = laterOf(p.sentAt, now)
}

// SetTrain sets the rate at which a packet train arrived at the far end, and the round trip if it
// is not known yet.
func (p *Subflow) SetTrain(r unit.Rate, rtt time.Duration) {
	p.trainRate = r
	if p.JoinRTT == 0 {
		p.JoinRTT = rtt
	}
}

// OnUnsent records that the newest n bytes were not sent after all.
func (p *Subflow) OnUnsent(n unit.Bytes) {
	p.sent -= uint64(n)
	p.arrivals.dropUnsentMarks(p.sent)
	p.flight.dropUnsentSegments(p.sent)
}

// OnPause records that this process did not run for d, so that no acknowledgement is late because
// of it.
func (p *Subflow) OnPause(d time.Duration) { p.flight.postponeDue(d) }

// BytesInFlight returns the bytes that were sent and are neither known nor assumed to have arrived.
func (p *Subflow) BytesInFlight() unit.Bytes { return unit.Bytes(p.sent - p.acked) }

// LocalHop returns the newest local sample.
func (p *Subflow) LocalHop() Hop { return p.lastHop }

// OnAcked records that the far end had received total bytes at time at, and that the
// acknowledgement travelled for the given time.
func (p *Subflow) OnAcked(total uint64, at time.Time, travelled time.Duration) {
	if total >= p.acked {
		total = min(total, p.sent)
		p.ackedBytes += unit.Bytes(total - p.acked)
		p.acked, p.ackedAt = total, at
		p.flight.recordSegmentAck(total, at)
		if p.Helped {
			p.arrivals.recordArrivedBytes(at.Add(travelled), p.acked, p.sent)
			p.arrivals.addArrivalSample(at.Add(travelled), p.acked, p.BytesInFlight())
		}
	}
}

// AssumeAllReceived treats all sent bytes as received.
func (p *Subflow) AssumeAllReceived(at time.Time) {
	p.acked, p.ackedAt = p.sent, at
	p.arrivals.pending = p.arrivals.pending[:0]
	p.flight.clearSegments()
}

// FillBlindHop replaces a blind sample of hop 1 by values derived from the far end's
// acknowledgements. For a helped subflow hop 1 then represents both hops. Other samples are
// returned unchanged.
func (p *Subflow) FillBlindHop(h Hop) Hop {
	if !h.Blind {
		return h
	}
	return Hop{Blind: true, SRTT: p.JoinRTT, MinRTT: p.JoinRTT, MSS: guessMSS, Queue: p.BytesInFlight(), Acked: p.acked}
}

// AddLocalSample adds a sample of hop 1.
func (p *Subflow) AddLocalSample(now time.Time, h Hop) {
	p.lastHop = h
	p.localMeter.Add(now, h)
	p.losses.addLossSample(h)
}

// AddHelperReport adds a helper's report about hop 2 that arrived at time now. A rate measured
// while the helper had too little data only ever raises the estimate. Reports may be reordered: a
// report older than the newest one is ignored.
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
	p.helperDelay.addDelayReport(now, s)
}

// EstimateAt returns the estimate for time now, without a forecast.
func (p *Subflow) EstimateAt(now time.Time) Estimate {
	h := p.lastHop
	if h.SRTT == 0 {
		h.SRTT = guessRTT
	}
	if h.MinRTT == 0 {
		h.MinRTT = h.SRTT
	}
	n := p.estimateLocal(h)
	n.Loss, n.Spread = p.losses.share, h.RTTVar
	if p.localMeter.hasFallen(now) {
		n.FallenQueueTime = n.QueueTime
	}
	s := &n.hops
	s.hop1, s.owd1 = h, n.OWD
	switch {
	case n.RateKnown:
		s.bottleneck = n.Th1
	case p.trainRate > 0:
		s.bottleneck = max(p.trainRate, p.localMeter.rate)
	}
	s.limitBottleneck(h.PacingLimit)
	if p.Helped {
		farRTT := p.estimateFarRTT(h)
		n.SRTT += farRTT
		if n.DoublingTime > 0 {
			n.DoublingTime = n.SRTT
		}
		n.MinRTT = p.arrivals.endToEndRTT(p.JoinRTT)
		n.OWD += farRTT / 2
		th2 := p.addFarRate(&n, h, farRTT)
		p.addFarDelay(&n, now, h, farRTT/2, th2)
		s.owd2 = farRTT / 2
		switch {
		case p.farLimitSeen || p.arrivals.rateKnown:
			s.limitBottleneck(th2)
		default:
			s.farGrowing = true
			if p.trainRate > 0 {
				s.limitBottleneck(max(p.trainRate, p.farState.Rate))
			}
		}
	}
	s.late = p.flight.latenessAt(now, n.OWD+ackSlack)
	return n
}

// IsOverdue reports whether the acknowledgement of the oldest segment in flight is late.
func (p *Subflow) IsOverdue(now time.Time) bool { return p.flight.ackLateBy(now) > 0 }

// estimateFarRTT returns the round trip of hop 2, at least what is left of the one end to end.
func (p *Subflow) estimateFarRTT(h Hop) time.Duration {
	rtt := p.farState.RTT
	if rtt == 0 {
		rtt = max(0, p.JoinRTT-h.MinRTT)
	}
	if p.JoinRTT > 0 {
		rtt = max(rtt, p.arrivals.endToEndRTT(p.JoinRTT)-h.MinRTT)
	}
	return rtt
}

// estimateLocal returns the estimate of a subflow that consists of hop 1 alone.
func (p *Subflow) estimateLocal(h Hop) Estimate {
	th1, lowerBound := p.localMeter.Rate()
	n := Estimate{Th1: th1, SRTT: h.SRTT, MinRTT: h.MinRTT, OWD: h.MinRTT / 2, RateKnown: !lowerBound,
		Acked: p.ackedBytes}
	if lowerBound && h.Cwnd > 0 {
		n.Th1 = max(th1, unit.RateOf(h.Cwnd, h.SRTT))
	}
	if n.Th1 == 0 {
		n.Th1 = guessRate
	}
	if lowerBound && p.trainRate > 0 {
		n.Th1 = max(th1, min(n.Th1, p.trainRate))
	}
	if h.PacingLimit > 0 {
		n.Th1 = min(n.Th1, h.PacingLimit)
	}
	n.Th = n.Th1
	// Delayed acknowledgements of short transfers look like a queue. The rate of a train bounds
	// what such a hop may grow to.
	growing := lowerBound && (h.isRateGrowing() || h.Blind || h.SlowStart && p.trainRate > 0)
	switch {
	case h.PacingLimit > 0:
		n.Ceiling = h.PacingLimit
	case !growing:
		n.Ceiling = n.Th1
	case p.trainRate > 0:
		n.Ceiling = max(p.trainRate, n.Th1)
	}
	if growing && n.Ceiling != n.Th1 {
		n.DoublingTime = n.SRTT
	}
	// What TCP keeps in flight with an empty queue does not wait: the propagation delay accounts
	// for it.
	n.B1 = max(0, h.Queue-n.Th1.Bytes(h.MinRTT))
	n.QueueTime = n.Th1.Time(n.B1)
	n.PAD = n.OWD + n.QueueTime
	n.PastPAD = n.PAD
	return n
}

// addFarRate adds the rate of hop 2, and what both hops may grow to, to an estimate of hop 1. It
// returns the rate up to which hop 2 is used. Arrivals bound what a helper reports.
func (p *Subflow) addFarRate(n *Estimate, h Hop, farRTT time.Duration) (th2 unit.Rate) {
	localKnown := n.RateKnown
	th2 = p.farState.Rate
	if p.farLimitSeen {
		n.Th2 = th2
	} else {
		// A hop never seen at its limit is not taken as the limit. But its TCP begins with a small
		// window, which grows with the acknowledged bytes.
		th2 = max(th2, min(n.Th1, unit.RateOf(initialWindow+unit.Bytes(p.acked), max(farRTT, time.Millisecond))))
		if p.trainRate > 0 {
			th2 = max(p.farState.Rate, min(th2, p.trainRate))
		}
	}
	th2 = min(th2, p.arrivals.helperRateBound(p.acked, max(p.JoinRTT, h.MinRTT)))
	n.Th = min(n.Th1, th2)
	// The slower hop must be known. The other one carries at least as much.
	n.RateKnown = p.farLimitSeen && (!localKnown || th2 <= n.Th1) || localKnown && p.farState.Rate >= n.Th1
	if p.farLimitSeen || p.arrivals.rateKnown {
		if n.Ceiling == 0 || th2 < n.Ceiling {
			n.Ceiling = th2
		}
	} else {
		n.DoublingTime = n.SRTT
		if p.trainRate > 0 {
			n.Ceiling = max(p.trainRate, th2)
			if localKnown {
				n.Ceiling = min(n.Ceiling, n.Th1)
			}
			if h.PacingLimit > 0 {
				n.Ceiling = min(n.Ceiling, h.PacingLimit)
			}
		}
	}
	if n.Ceiling > 0 && n.Th >= n.Ceiling {
		n.DoublingTime = 0
	}
	return th2
}

// addFarDelay adds the bytes on hop 2, which carries th2, and the delays over both hops to an
// estimate of hop 1. It counts all bytes ahead of a new one, except those in transit on a hop. On
// hop 1 that is at most half of what its TCP has unacknowledged.
func (p *Subflow) addFarDelay(n *Estimate, now time.Time, h Hop, owd2 time.Duration, th2 unit.Rate) {
	owd1 := n.OWD - owd2
	air1 := min(n.Th1.Bytes(owd1), h.Queue/2)
	ahead := unit.Bytes(p.sent - p.estimateReceived(now, n.OWD, th2))
	n.FarFlight = max(0, ahead-n.B1-air1)
	n.FarCwnd = max(initialWindow, p.farState.Rate.Bytes(p.farState.RTT))
	n.B2 = max(0, n.FarFlight-th2.Bytes(owd2))
	n.QueueTime = max(n.QueueTime, th2.Time(max(0, ahead-n.Th.Bytes(owd1)-th2.Bytes(owd2))))
	// While the bytes on hop 1 arrive, the far hop sends at its own rate.
	n.FarQueueTime = th2.Time(n.B2) + max(0, th2.Time(n.B1+air1)-n.Th1.Time(n.B1+air1))
	n.PAD = n.OWD + max(n.Th1.Time(n.B1), th2.Time(n.B1+n.B2))
	n.Overdue = max(0, p.arrivals.oldestMissingAge(now)-p.arrivals.endToEndRTT(p.JoinRTT)-ackSlack)
	if p.arrivals.rateKnown {
		n.PAD = max(n.PAD, th2.Time(ahead))
	}
	n.AckLate = p.helperAckLateness(now)
	n.PAD += n.AckLate
	n.PastPAD = n.OWD + n.Th1.Time(n.B1) + p.helperDelay.delay
	n.TimeToAck = n.PAD + n.OWD + ackSlack
}

// estimateReceived extrapolates how much the far end has received by now. It assumes that the far
// hop delivers at its rate from when the first byte in flight can have arrived.
func (p *Subflow) estimateReceived(now time.Time, owd time.Duration, th2 unit.Rate) uint64 {
	if p.ackedAt.IsZero() {
		return p.acked
	}
	age := min(max(now.Sub(laterOf(p.ackedAt, p.flightBegan.Add(owd))), 0), maxExtrapolation)
	return min(p.sent, p.acked+uint64(th2.Bytes(age)))
}
