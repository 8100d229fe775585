// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"time"

	"mpbond/base/unit"
)

// Specification of PBE-CC's sender (Xie, Yi, Jamieson: PBE-CC, SIGCOMM 2020,
// section 4).
const (
	pbeApproachRTTs = 3   // round trips of linear growth to the fair share (4.1)
	pbeDrainGain    = 0.5 // of BtlBw, for one RTprop, when the bottleneck moves (4.2.3)
	pbeMinRTTWindow = 10 * time.Second
	pbeMinInFlight  = 2 * MSS // whatever the capacity
)

// Our choices, from experiments.
const (
	// pbeReorderingDelay is added to RTprop for the window (the paper uses RTprop alone). A cell
	// delivers in order: it holds all packets back while a block is retransmitted, up to three
	// times and 8 ms each. docs/explanation/pbe.md compares other values.
	pbeReorderingDelay = 3 * 8 * time.Millisecond
	// Where acknowledgements come in larger bursts than the capacity delivers within pbeReorderingDelay, those of
	// pbeBurstMemory count instead, up to pbeMaxHeld.
	pbeBurstMemory = 300 * time.Millisecond
	pbeMaxHeld     = 60 * time.Millisecond
	// A probe for another carrier lasts longer than the half second for which networks want the present ones to be
	// full. It adds pbeCarrierQueue of queue, at pbeCarrierGain of the rate. The next one follows after
	// pbeCarrierWait, and then after twice as long each time, up to pbeMaxCarrierWait.
	pbeCarrierProbe   = 700 * time.Millisecond
	pbeCarrierQueue   = 40 * time.Millisecond
	pbeCarrierGain    = 1.25
	pbeCarrierWait    = 10 * time.Second
	pbeMaxCarrierWait = 80 * time.Second
	// pbeFeedbackTimeout is how long the last feedback stays valid. Without newer feedback the
	// decoder has lost its cells.
	pbeFeedbackTimeout = 500 * time.Millisecond
	// pbeFairShareReached is the part of the fair share that counts as reached. Acknowledgements
	// never show all that a cell delivers.
	pbeFairShareReached = 0.95
	// Feedback is doubted if a receiver reports more than is delivered. For pbeDoubtRounds rounds
	// the delivered rate stays below pbeMinDeliveredShare of the reported one, while round trips
	// are longer than retransmissions explain. Or more than pbeMaxLoss of pbeLossEvidence is lost: a policer or a
	// short queue drops the excess. A cell loses far less, because HARQ and RLC retransmit; paths lose up to 1 %
	// at random (section 6.1 of the paper). Each pbeHeavyLoss counts as a round.
	pbeMinDeliveredShare = 0.85
	pbeMaxLoss           = 0.04
	pbeLossEvidence      = 200 * MSS
	pbeHeavyLoss         = 0.1
	pbeDoubtRounds       = 5
	// A round trip that is at most pbeMinRTTSlack over RTprop confirms it: cells deliver in steps of a
	// millisecond. If none did for pbeMinRTTWindow, the queue before the cell is emptied to measure RTprop
	// again, at pbeDrainGain of the rate. Otherwise each standing queue would count as propagation from
	// then on, and the window would allow another one.
	pbeMinRTTSlack = 3 * time.Millisecond
	// pbeMinEvidence is the number of acknowledged and lost bytes needed for such a decision.
	// Several short rounds count as one.
	pbeMinEvidence = 20 * MSS
)

// PBEState is a state of PBE-CC's sender.
type PBEState uint8

// States.
const (
	// Approach grows linearly to the fair share.
	Approach PBEState = iota
	// Wireless sends at the capacity that the receiver reports.
	Wireless
	// Drain empties the queue before the cell.
	Drain
	// Internet is BBR's ProbeBW limited to the fair share.
	Internet
)

var pbeStateNames = [...]string{"approach", "wireless", "drain", "internet"}

// String returns the name of the state.
func (s PBEState) String() string { return pbeStateNames[s] }

// PBE is PBE-CC's sender. Without feedback it is BBR.
type PBE struct {
	bbr          *BBR
	passive      bool // another controller decides: BBR measures and does not probe
	state        PBEState
	cells        CellFeedback
	hasFeedback  bool          // cells is valid
	feedbackTime time.Duration // when cells arrived

	minRTT        time.Duration // RTprop
	confirmedTime time.Duration // of the last round trip that confirmed it
	probe         minRTTProbe

	burst   ackBurst
	carrier carrierProbe

	approachFrom  unit.Rate // rate and time at which Approach began
	approachStart time.Duration
	drainEnd      time.Duration // end of Drain
	activated     uint8

	doubtRounds int
	goodRounds  int       // since the losses were judged last
	doubted     bool      // feedback was once doubted
	bestRate    unit.Rate // maximum delivered rate in this round
	recent      lossCount // of the last pbeLossEvidence
	// acked and lost count bytes in this round.
	acked, lost unit.Bytes

	timeInState [4]time.Duration // in each state
	lastAckTime time.Duration
}

// NewPBE returns a controller of a new flow. seed is for BBR's cycle.
func NewPBE(seed uint64) *PBE {
	return &PBE{bbr: NewBBR(seed)}
}

// State returns the sender's state and the time spent in each state.
func (p *PBE) State() (now PBEState, timeInState [4]time.Duration) { return p.state, p.timeInState }

// Doubted reports whether feedback was ever doubted because the reported capacity was not
// delivered.
func (p *PBE) Doubted() bool { return p.doubted }

// PBEStatus is the state of PBE-CC's sender.
type PBEStatus struct {
	// Feedback is the newest feedback, zero before the first.
	Feedback CellFeedback
	// Fresh reports that feedback is used. Otherwise the sender is BBR.
	Fresh bool
	// Doubted reports that the reported capacity is not delivered. Feedback then only bounds BBR's
	// own measurements.
	Doubted bool
	State   PBEState
}

// Status returns the current status.
func (p *PBE) Status() PBEStatus {
	return PBEStatus{
		Feedback: p.cells,
		Fresh:    p.hasFeedback,
		Doubted:  p.hasFeedback && p.doubtRounds >= pbeDoubtRounds,
		State:    p.state,
	}
}

// OnSent implements Controller.
func (p *PBE) OnSent(now time.Duration, size, inFlight unit.Bytes) { p.bbr.OnSent(now, size, inFlight) }

// OnLoss implements Controller. In states that know the capacity, a loss is no sign of congestion.
// Many losses make the feedback doubtful. After a timeout the feedback is invalid.
func (p *PBE) OnLoss(l Loss) {
	p.bbr.OnLoss(l)
	if l.PersistentCongestion {
		p.fallBackToBBR()
		return
	}
	if p.state == Approach && l.Sent < p.approachStart {
		return // sent by other rules
	}
	p.lost += l.Bytes
	// While the rate rises, each round trip of waiting loses as much again.
	if p.state == Approach && p.hasFeedback && p.lost >= pbeMinEvidence/2 &&
		float64(p.lost) > pbeHeavyLoss*float64(p.acked+p.lost) {
		p.doubtFeedback(pbeDoubtRounds)
	}
}

// fallBackToBBR continues as BBR with its own measurements.
func (p *PBE) fallBackToBBR() { p.hasFeedback, p.bbr.probeRateCap = false, 0 }

// OnAck implements Controller.
func (p *PBE) OnAck(a Ack) {
	p.bbr.measureOnly = p.passive || p.hasFeedback && p.state != Internet
	p.bbr.OnAck(a)
	p.measureMinRTT(a)
	if p.hasFeedback {
		p.burst.addAck(a, p.cells.TransportRate, p.minRTT)
	}
	p.timeInState[p.state] += a.Now - p.lastAckTime
	p.lastAckTime = a.Now
	p.acked += a.Bytes
	if a.Cells.TransportRate <= 0 || p.minRTT == 0 {
		if p.hasFeedback && (a.Cells.Invalid || a.Now > p.feedbackTime+pbeFeedbackTimeout) {
			p.fallBackToBBR()
		}
		return
	}
	first := !p.hasFeedback
	p.cells, p.hasFeedback, p.feedbackTime = a.Cells, true, a.Now
	p.bbr.probeRateCap = p.cells.FairRate
	if first {
		p.activated = a.Cells.Activated
		p.acked, p.lost, p.recent, p.burst = 0, 0, lossCount{}, ackBurst{}
		p.beginApproach(a.Now, min(p.bbr.bottleneckRate(), p.cells.FairRate))
	}
	p.checkFeedback(a)
	internet := p.cells.Internet || p.doubtRounds >= pbeDoubtRounds
	if p.activated != a.Cells.Activated {
		p.carrier = carrierProbe{}
	}
	p.carrier.beginIfDue(a.Now, p.cells.Inactive && p.state == Wireless && !a.AppLimited)
	switch p.state {
	case Approach, Wireless:
		switch {
		case internet:
			p.state, p.drainEnd = Drain, a.Now+p.minRTT
		case p.activated != a.Cells.Activated:
			p.beginApproach(a.Now, p.targetRate(a.Now))
		case p.state == Approach && a.Now >= p.approachStart+pbeApproachRTTs*p.minRTT:
			p.state = Wireless
		}
	case Drain:
		if a.Now >= p.drainEnd {
			p.state = Internet
			p.bbr.filledPipe = true
			p.bbr.enterProbeBW(a.Now)
		}
	case Internet:
		// Section 4.2.3: return when the queue is gone and the rate has reached the fair share.
		if !internet && p.bbr.bottleneckRate() >= scaleRate(p.cells.FairRate, pbeFairShareReached) {
			p.state = Wireless
		}
	}
	p.activated = a.Cells.Activated
}

// minRTTProbe is a measurement of RTprop while the queue leaves. The zero value is none.
type minRTTProbe struct {
	start    time.Duration
	deadline time.Duration // when it ends; 0: there is none
	least    time.Duration // round trip of what was sent since start
	isOwn    bool          // PBE-CC empties the queue; otherwise the controller that decides does from time to time
}

const (
	// pbeMaxProbe bounds a probe: a queue of seconds is not emptied by one.
	pbeMaxProbe = 2 * time.Second
	// pbeIdle is the time without acknowledgements after which round trips before say nothing about the queue.
	pbeIdle = time.Second
)

// measureMinRTT updates RTprop. It falls at once. It rises only by a probe: then the queue is gone, and the
// path is longer than before.
func (p *PBE) measureMinRTT(a Ack) {
	if a.RTT <= 0 {
		return
	}
	if a.Now-p.lastAckTime > pbeIdle {
		p.confirmedTime, p.probe = a.Now, minRTTProbe{}
	}
	if p.minRTT == 0 || a.RTT <= p.minRTT+pbeMinRTTSlack {
		p.confirmedTime, p.probe = a.Now, minRTTProbe{}
		if p.minRTT == 0 || a.RTT < p.minRTT {
			p.minRTT = a.RTT
		}
		return
	}
	q, isOwn := &p.probe, p.state == Wireless && p.hasFeedback && !p.passive
	switch {
	case q.deadline > 0 && q.isOwn != isOwn:
		*q = minRTTProbe{} // the queue may have stayed
	case q.deadline == 0 && a.Now-p.confirmedTime >= pbeMinRTTWindow:
		*q = minRTTProbe{start: a.Now, isOwn: isOwn, deadline: a.Now + 2*a.RTT}
		if !isOwn {
			q.deadline += pbeMinRTTWindow
		}
	case q.deadline > 0 && a.Sent >= q.start:
		if q.least == 0 || a.RTT < q.least { // the queue still leaves
			q.least = a.RTT
			q.deadline = min(max(q.deadline, a.Now+2*a.RTT), q.start+max(pbeMaxProbe, q.deadline-q.start))
		}
		if a.Now >= q.deadline {
			p.minRTT, p.confirmedTime, p.probe = q.least, a.Now, minRTTProbe{}
		}
	}
}

// ackBurst measures by how much acknowledgements run ahead of the capacity: they come in bursts after a pause, in which
// the cell held packets back, served others, or granted no uplink. What is in flight must last for the pause.
type ackBurst struct {
	start  time.Duration // of the count
	acked  unit.Bytes    // since start
	excess windowedExtreme
}

// addAck counts an acknowledgement at a capacity. After a round trip it counts anew, since the capacity may be a
// little wrong.
func (b *ackBurst) addAck(a Ack, capacity unit.Rate, rtprop time.Duration) {
	expected := capacity.Bytes(a.Now - b.start)
	if b.acked <= expected || a.Now-b.start > rtprop {
		b.start, b.acked, expected = a.Now, 0, 0
	}
	b.acked += a.Bytes
	b.excess.addSampleAt(int64(a.Now), int64(b.acked-expected), int64(pbeBurstMemory))
}

// largestBurst returns the largest burst of pbeBurstMemory.
func (b *ackBurst) largestBurst() unit.Bytes { return unit.Bytes(b.excess.extremeValue()) }

// carrierProbe keeps the cells full for a while, so that the network activates another carrier: it does when those
// that serve the device are fully used, which a sender with short queues does not always achieve. The zero value is
// ready.
type carrierProbe struct {
	next, end time.Duration // of the next probe, and of this one
	wait      time.Duration // after the last one
}

// beginIfDue begins a probe if it is due. useful reports that the cells set the rate, and that one is inactive.
func (c *carrierProbe) beginIfDue(now time.Duration, useful bool) {
	switch {
	case !useful:
		c.end = 0
	case now >= c.next:
		c.wait = min(max(2*c.wait, pbeCarrierWait), pbeMaxCarrierWait)
		c.end, c.next = now+pbeCarrierProbe, now+c.wait
	}
}

func (c *carrierProbe) isProbing(now time.Duration) bool { return now < c.end }

// isProbing reports whether the sender empties the queue to measure RTprop.
func (p *PBE) isProbing() bool { return p.probe.deadline > 0 && p.probe.isOwn && p.state == Wireless }

// beginApproach starts to grow from a rate to the fair share.
func (p *PBE) beginApproach(now time.Duration, from unit.Rate) {
	p.state, p.approachStart, p.approachFrom = Approach, now, from
}

// checkFeedback compares the delivered with the reported rate once a round.
func (p *PBE) checkFeedback(a Ack) {
	p.bestRate = max(p.bestRate, a.Rate)
	if p.isProbing() {
		p.bestRate, p.acked, p.lost = 0, 0, 0 // less is sent than reported
		return
	}
	if p.carrier.isProbing(a.Now) { // more is sent than reported
		if p.acked+p.lost >= pbeMinEvidence && float64(p.lost) > pbeMaxLoss*float64(p.acked+p.lost) {
			p.carrier.end = a.Now // the bottleneck may be before the cells
		}
		if a.Round {
			p.bestRate, p.acked, p.lost = 0, 0, 0
		}
		return
	}
	if !a.Round || p.acked+p.lost < pbeMinEvidence {
		return
	}
	late := a.RTT > p.minRTT+pbeReorderingDelay+DelayThreshold
	heavy := int(float64(p.lost) / float64(p.acked+p.lost) / pbeHeavyLoss)
	lossy, decided := p.recent.addRound(p.acked, p.lost)
	switch short := p.bestRate < scaleRate(p.cells.TransportRate, pbeMinDeliveredShare); {
	case lossy, heavy > 0, short && late && p.state != Approach && !a.AppLimited:
		p.doubtFeedback(max(1, heavy))
	case !short:
		if p.goodRounds++; decided {
			p.doubtRounds, p.goodRounds = max(0, p.doubtRounds-p.goodRounds), 0
		}
	case p.doubtRounds < pbeDoubtRounds:
		p.doubtRounds = 0
	}
	p.bestRate, p.acked, p.lost = 0, 0, 0
}

// lossCount counts acknowledged and lost bytes.
type lossCount struct{ acked, lost unit.Bytes }

// addRound adds a round. With pbeLossEvidence, it reports whether too much of it was lost, and begins anew.
func (l *lossCount) addRound(acked, lost unit.Bytes) (lossy, decided bool) {
	l.acked, l.lost = l.acked+acked, l.lost+lost
	all := l.acked + l.lost
	if all < pbeLossEvidence {
		return false, false
	}
	lossy = float64(l.lost) > pbeMaxLoss*float64(all)
	*l = lossCount{}
	return lossy, true
}

// doubtFeedback counts rounds in which less is delivered than reported.
func (p *PBE) doubtFeedback(rounds int) {
	p.goodRounds = 0
	before := p.doubtRounds
	if p.doubtRounds = min(before+rounds, 4*pbeDoubtRounds); before < pbeDoubtRounds && p.doubtRounds >= pbeDoubtRounds {
		p.doubted = true
		p.doubtRounds = 4 * pbeDoubtRounds // trusted again after 3*pbeDoubtRounds+1 good rounds
	}
}

// targetRate returns the pacing rate in states that know the capacity.
func (p *PBE) targetRate(now time.Duration) unit.Rate {
	if p.state != Approach {
		return p.cells.TransportRate
	}
	part := min(1, float64(now-p.approachStart)/float64(pbeApproachRTTs*p.minRTT))
	return p.approachFrom + scaleRate(p.cells.FairRate-p.approachFrom, part)
}

// Limits implements Controller.
func (p *PBE) Limits(now time.Duration) Limits {
	if !p.hasFeedback {
		return p.bbr.Limits(now)
	}
	// BBR may have measured at a time when the cell had more capacity. Then the queue that changed
	// the state was in the cell.
	most := max(p.cells.TransportRate, p.cells.FairRate)
	switch p.state {
	case Internet:
		l := p.bbr.Limits(now)
		return Limits{Rate: min(l.Rate, most), Window: min(l.Window, max(2*most.Bytes(p.minRTT), 2*pbeMinInFlight))}
	case Drain:
		r := min(p.bbr.bottleneckRate(), most)
		return Limits{
			Rate:   max(scaleRate(r, pbeDrainGain), unit.RateOf(pbeMinInFlight, p.minRTT)),
			Window: max(r.Bytes(p.minRTT), pbeMinInFlight),
		}
	}
	r := max(p.targetRate(now), unit.RateOf(pbeMinInFlight, p.minRTT))
	if p.isProbing() {
		return Limits{Rate: max(scaleRate(r, pbeDrainGain), unit.RateOf(pbeMinInFlight, p.minRTT)),
			Window: max(r.Bytes(p.minRTT), 2*pbeMinInFlight)}
	}
	// The packet that is being delivered is no queue.
	held := min(max(r.Bytes(pbeReorderingDelay), p.burst.largestBurst()), r.Bytes(pbeMaxHeld))
	if p.carrier.isProbing(now) {
		held, r = held+r.Bytes(pbeCarrierQueue), scaleRate(r, pbeCarrierGain)
	}
	return Limits{Rate: r, Window: max(r.Bytes(p.minRTT)+held-MSS, 2*pbeMinInFlight)}
}
