package cc

import (
	"time"

	"mpbond/base/unit"
)

// Specification of PBE-CC's sender (Xie, Yi, Jamieson: PBE-CC, SIGCOMM 2020,
// section 4).
const (
	pbeApproachRTTs = 3   // round trips to the fair share, linearly (4.1)
	pbeDrainGain    = 0.5 // of BtlBw, for one RTprop, when the bottleneck moves (4.2.3)
	pbeMinRTTWindow = 10 * time.Second
	pbeMinInFlight  = 2 * MSS // in flight, whatever the capacity
)

// Choices of ours, by experiment.
const (
	// pbeReorderingDelay is how much longer than RTprop bytes may be in flight (the paper has
	// RTprop alone): the cell hands on in order, so all is held back while a block
	// comes again, up to three times, after 8 ms each. docs/explanation/pbe.md has what less, and
	// more, comes to.
	pbeReorderingDelay = 3 * 8 * time.Millisecond
	// pbeFeedbackTimeout is how long the last feedback counts when none comes: the decoder
	// has lost its cells.
	pbeFeedbackTimeout = 500 * time.Millisecond
	// pbeFairShareReached is the part of the fair share from which on the sender has come to
	// it: acknowledgements of a cell never show all of it.
	pbeFairShareReached = 0.95
	// A receiver that reports more than gets through is not believed: for pbeDoubtRounds
	// round trips the rate delivered stays under pbeMinDeliveredShare of what is reported, while
	// round trips are longer than any retransmission makes them; or more than pbeMaxLoss
	// is lost, where what is too much is dropped instead of waiting (a policer, a short
	// queue). A cell itself loses far less: HARQ and RLC bring over what comes wrong.
	pbeMinDeliveredShare = 0.85
	pbeMaxLoss           = 0.1
	pbeDoubtRounds       = 5
	// pbeMinEvidence is what must have come or be lost before that is judged; where it
	// is more than a round trip has, several count as one.
	pbeMinEvidence = 20 * MSS
)

// PBEState is where PBE-CC's sender stands.
type PBEState uint8

// States.
const (
	// Approach goes linearly to the fair share.
	Approach PBEState = iota
	// Wireless sends at the capacity that the receiver reports.
	Wireless
	// Drain lets the queue before the cell run empty.
	Drain
	// Internet is BBR's ProbeBW, which probes no further than the fair share.
	Internet
)

var pbeStateNames = [...]string{"approach", "wireless", "drain", "internet"}

// String is a word for the state.
func (s PBEState) String() string { return pbeStateNames[s] }

// PBE is PBE-CC's sender. Without feedback it is BBR.
type PBE struct {
	bbr          *BBR
	passive      bool // another controller decides: BBR measures, and does not probe
	state        PBEState
	radio        Radio
	hasFeedback  bool          // radio is true
	feedbackTime time.Duration // when it came

	minRTTFilter windowedExtreme // RTprop: the least of 10 s
	minRTT       time.Duration

	approachFrom  unit.Rate // Approach: from here, since then
	approachStart time.Duration
	drainEnd      time.Duration // end of Drain
	activated     uint8

	doubtRounds int
	doubted     bool      // the receiver reported more than gets through
	bestRate    unit.Rate // delivered, this round
	// Acknowledged and lost, this round.
	acked, lost unit.Bytes

	timeInState [4]time.Duration // in each state
	lastAckTime time.Duration
}

// NewPBE starts as for a new flow; seed is for BBR's cycle.
func NewPBE(seed uint64) *PBE {
	return &PBE{bbr: NewBBR(seed), minRTTFilter: windowedExtreme{keepsLeast: true}}
}

// State is where the sender stands, and how long it has stood in each state.
func (p *PBE) State() (now PBEState, timeInState [4]time.Duration) { return p.state, p.timeInState }

// Doubted tells whether the receiver once reported a capacity that did not get
// through.
func (p *PBE) Doubted() bool { return p.doubted }

// PBEStatus is what PBE-CC's sender goes by.
type PBEStatus struct {
	// Feedback is the newest feedback, zero before the first.
	Feedback Radio
	// Fresh says that it is followed; else the sender is BBR.
	Fresh bool
	// Doubted says that what is reported does not get through, so that it is
	// followed no further than BBR's own measurements.
	Doubted bool
	State   PBEState
}

// Status tells what the sender goes by now.
func (p *PBE) Status() PBEStatus {
	return PBEStatus{Feedback: p.radio, Fresh: p.hasFeedback, Doubted: p.hasFeedback && p.doubtRounds >= pbeDoubtRounds, State: p.state}
}

// OnSent implements Controller.
func (p *PBE) OnSent(now time.Duration, size, inFlight unit.Bytes) { p.bbr.OnSent(now, size, inFlight) }

// OnLoss implements Controller. In the states that know the capacity losses are
// none of its signs, but where they are so many that there is reason to doubt it; and
// where nothing comes back, neither does feedback.
func (p *PBE) OnLoss(l Loss) {
	p.bbr.OnLoss(l)
	if l.Timeout {
		p.fallBackToBBR()
		return
	}
	p.lost += l.Bytes
}

// fallBackToBBR goes on as BBR, with what that has measured.
func (p *PBE) fallBackToBBR() { p.hasFeedback, p.bbr.probeRateCap = false, 0 }

// OnAck implements Controller.
func (p *PBE) OnAck(a Ack) {
	p.bbr.measureOnly = p.passive || p.hasFeedback && p.state != Internet
	p.bbr.OnAck(a)
	if a.RTT > 0 {
		p.minRTTFilter.addSample(int64(a.Now), int64(a.RTT), int64(pbeMinRTTWindow))
		p.minRTT = time.Duration(p.minRTTFilter.value())
	}
	p.timeInState[p.state] += a.Now - p.lastAckTime
	p.lastAckTime = a.Now
	p.acked += a.Bytes
	if a.Radio.Capacity <= 0 || p.minRTT == 0 {
		if p.hasFeedback && a.Now > p.feedbackTime+pbeFeedbackTimeout {
			p.fallBackToBBR()
		}
		return
	}
	first := !p.hasFeedback
	p.radio, p.hasFeedback, p.feedbackTime = a.Radio, true, a.Now
	p.bbr.probeRateCap = p.radio.Fair
	if first {
		p.activated = a.Radio.Activated
		p.acked, p.lost = 0, 0
		p.beginApproach(a.Now, min(p.bbr.bottleneckRate(), p.radio.Fair))
	}
	p.checkFeedback(a)
	internet := p.radio.Internet || p.doubtRounds >= pbeDoubtRounds
	switch p.state {
	case Approach, Wireless:
		switch {
		case internet:
			p.state, p.drainEnd = Drain, a.Now+p.minRTT
		case p.activated != a.Radio.Activated:
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
		// Back when there is no queue and the rate has come to the fair share
		// (4.2.3).
		if !internet && p.bbr.bottleneckRate() >= scaleRate(p.radio.Fair, pbeFairShareReached) {
			p.state = Wireless
		}
	}
	p.activated = a.Radio.Activated
}

// beginApproach begins to go from a rate to the fair share.
func (p *PBE) beginApproach(now time.Duration, from unit.Rate) {
	p.state, p.approachStart, p.approachFrom = Approach, now, from
}

// checkFeedback compares what is delivered with what is reported, by round trips.
func (p *PBE) checkFeedback(a Ack) {
	p.bestRate = max(p.bestRate, a.Rate)
	if !a.Round || p.acked+p.lost < pbeMinEvidence {
		return
	}
	late := a.RTT > p.minRTT+pbeReorderingDelay+DelayThreshold
	lossy := float64(p.lost) > pbeMaxLoss*float64(p.acked+p.lost)
	switch short := p.bestRate < scaleRate(p.radio.Capacity, pbeMinDeliveredShare); {
	case lossy, short && late && p.state != Approach && !a.AppLimited:
		if p.doubtRounds = min(p.doubtRounds+1, 4*pbeDoubtRounds); p.doubtRounds == pbeDoubtRounds {
			p.doubted = true
			p.doubtRounds = 4 * pbeDoubtRounds // believed again only after as many good rounds
		}
	case !short:
		p.doubtRounds = max(0, p.doubtRounds-1)
	case p.doubtRounds < pbeDoubtRounds:
		p.doubtRounds = 0
	}
	p.bestRate, p.acked, p.lost = 0, 0, 0
}

// targetRate is what is paced to in the states that know the capacity.
func (p *PBE) targetRate(now time.Duration) unit.Rate {
	if p.state != Approach {
		return p.radio.Capacity
	}
	part := min(1, float64(now-p.approachStart)/float64(pbeApproachRTTs*p.minRTT))
	return p.approachFrom + scaleRate(p.radio.Fair-p.approachFrom, part)
}

// Limits implements Controller.
func (p *PBE) Limits(now time.Duration) Limits {
	if !p.hasFeedback {
		return p.bbr.Limits(now)
	}
	// What BBR measured may be of a time when the cell had more: then the queue
	// that changed the state was the cell's.
	most := max(p.radio.Capacity, p.radio.Fair)
	switch p.state {
	case Internet:
		l := p.bbr.Limits(now)
		return Limits{Rate: min(l.Rate, most), Window: min(l.Window, max(2*most.Bytes(p.minRTT), 2*pbeMinInFlight))}
	case Drain:
		r := min(p.bbr.bottleneckRate(), most)
		return Limits{Rate: max(scaleRate(r, pbeDrainGain), unit.RateOf(pbeMinInFlight, p.minRTT)), Window: max(r.Bytes(p.minRTT), pbeMinInFlight)}
	}
	r := max(p.targetRate(now), unit.RateOf(pbeMinInFlight, p.minRTT))
	return Limits{Rate: r, Window: max(r.Bytes(p.minRTT+pbeReorderingDelay), 2*pbeMinInFlight)}
}
