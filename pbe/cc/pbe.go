package cc

import (
	"time"

	"mpbond/base/unit"
)

// Specification of PBE-CC's sender (Xie, Yi, Jamieson: PBE-CC, SIGCOMM 2020,
// section 4).
const (
	pbeApproach = 3   // round trips to the fair share, linearly (4.1)
	pbeDrain    = 0.5 // of BtlBw, for one RTprop, when the bottleneck moves (4.2.3)
	pbeMinDelay = 10 * time.Second
	pbeFloor    = 2 * MSS // in flight, whatever the capacity
)

// Choices of ours, by experiment.
const (
	// pbeHeld is how much longer than RTprop bytes may be in flight (the paper has
	// RTprop alone): the cell hands on in order, so all is held back while a block
	// comes again, up to three times, after 8 ms each. docs/pbe.md has what less, and
	// more, comes to.
	pbeHeld = 3 * 8 * time.Millisecond
	// pbeStale is how long the last feedback counts when none comes: the decoder
	// has lost its cells.
	pbeStale = 500 * time.Millisecond
	// pbeNear is the part of the fair share from which on the sender has come to
	// it: acknowledgements of a cell never show all of it.
	pbeNear = 0.95
	// A receiver that reports more than gets through is not believed: for pbeRounds
	// round trips the rate delivered stays under pbeDoubt of what is reported, while
	// round trips are longer than any retransmission makes them; or more than pbeLossy
	// is lost, where what is too much is dropped instead of waiting (a policer, a short
	// queue). A cell itself loses far less: HARQ and RLC bring over what comes wrong.
	pbeDoubt  = 0.85
	pbeLossy  = 0.1
	pbeRounds = 5
	// pbeJudged is what must have come or be lost before that is judged; where it
	// is more than a round trip has, several count as one.
	pbeJudged = 20 * MSS
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

var pbeNames = [...]string{"approach", "wireless", "drain", "internet"}

// String is a word for the state.
func (s PBEState) String() string { return pbeNames[s] }

// PBE is PBE-CC's sender. Without feedback it is BBR.
type PBE struct {
	bbr     *BBR
	passive bool // another controller decides: BBR measures, and does not probe
	state   PBEState
	radio   Radio
	heard   bool          // radio is true
	told    time.Duration // when it came

	rtt    extreme // RTprop: the least of 10 s
	rtprop time.Duration

	from    unit.Rate // Approach: from here, since then
	since   time.Duration
	drained time.Duration // end of Drain
	active  uint8

	doubts  int
	doubted bool      // the receiver reported more than gets through
	best    unit.Rate // delivered, this round
	// Acknowledged and lost, this round.
	acked, lost unit.Bytes

	spent [4]time.Duration // in each state
	last  time.Duration
}

// NewPBE starts as for a new flow; seed is for BBR's cycle.
func NewPBE(seed uint64) *PBE {
	return &PBE{bbr: NewBBR(seed), rtt: extreme{less: true}}
}

// State is where the sender stands, and how long it has stood in each state.
func (p *PBE) State() (now PBEState, spent [4]time.Duration) { return p.state, p.spent }

// Doubted tells whether the receiver once reported a capacity that did not get
// through.
func (p *PBE) Doubted() bool { return p.doubted }

// PBEStatus is what PBE-CC's sender goes by.
type PBEStatus struct {
	// Told is the newest feedback, zero before the first.
	Told Radio
	// Fresh says that it is followed; else the sender is BBR.
	Fresh bool
	// Doubted says that what is reported does not get through, so that it is
	// followed no further than BBR's own measurements.
	Doubted bool
	State   PBEState
}

// Status tells what the sender goes by now.
func (p *PBE) Status() PBEStatus {
	return PBEStatus{Told: p.radio, Fresh: p.heard, Doubted: p.heard && p.doubts >= pbeRounds, State: p.state}
}

// OnSent implements Controller.
func (p *PBE) OnSent(now time.Duration, size, inFlight unit.Bytes) { p.bbr.OnSent(now, size, inFlight) }

// OnLoss implements Controller. In the states that know the capacity losses are
// none of its signs, but where they are so many that there is reason to doubt it; and
// where nothing comes back, neither does feedback.
func (p *PBE) OnLoss(l Loss) {
	p.bbr.OnLoss(l)
	if l.Timeout {
		p.deaf()
		return
	}
	p.lost += l.Bytes
}

// deaf goes on as BBR, with what that has measured.
func (p *PBE) deaf() { p.heard, p.bbr.cap = false, 0 }

// OnAck implements Controller.
func (p *PBE) OnAck(a Ack) {
	p.bbr.led = p.passive || p.heard && p.state != Internet
	p.bbr.OnAck(a)
	if a.RTT > 0 {
		p.rtt.add(int64(a.Now), int64(a.RTT), int64(pbeMinDelay))
		p.rtprop = time.Duration(p.rtt.get())
	}
	p.spent[p.state] += a.Now - p.last
	p.last = a.Now
	p.acked += a.Bytes
	if a.Radio.Capacity <= 0 || p.rtprop == 0 {
		if p.heard && a.Now > p.told+pbeStale {
			p.deaf()
		}
		return
	}
	first := !p.heard
	p.radio, p.heard, p.told = a.Radio, true, a.Now
	p.bbr.cap = p.radio.Fair
	if first {
		p.active = a.Radio.Activated
		p.acked, p.lost = 0, 0
		p.approach(a.Now, min(p.bbr.rate(), p.radio.Fair))
	}
	p.doubt(a)
	internet := p.radio.Internet || p.doubts >= pbeRounds
	switch p.state {
	case Approach, Wireless:
		switch {
		case internet:
			p.state, p.drained = Drain, a.Now+p.rtprop
		case p.active != a.Radio.Activated:
			p.approach(a.Now, p.rate(a.Now))
		case p.state == Approach && a.Now >= p.since+pbeApproach*p.rtprop:
			p.state = Wireless
		}
	case Drain:
		if a.Now >= p.drained {
			p.state = Internet
			p.bbr.filled = true
			p.bbr.probeBW(a.Now)
		}
	case Internet:
		// Back when there is no queue and the rate has come to the fair share
		// (4.2.3).
		if !internet && p.bbr.rate() >= scale(p.radio.Fair, pbeNear) {
			p.state = Wireless
		}
	}
	p.active = a.Radio.Activated
}

// approach begins to go from a rate to the fair share.
func (p *PBE) approach(now time.Duration, from unit.Rate) {
	p.state, p.since, p.from = Approach, now, from
}

// doubt compares what is delivered with what is reported, by round trips.
func (p *PBE) doubt(a Ack) {
	p.best = max(p.best, a.Rate)
	if !a.Round || p.acked+p.lost < pbeJudged {
		return
	}
	late := a.RTT > p.rtprop+pbeHeld+Threshold
	lossy := float64(p.lost) > pbeLossy*float64(p.acked+p.lost)
	switch short := p.best < scale(p.radio.Capacity, pbeDoubt); {
	case lossy, short && late && p.state != Approach && !a.AppLimited:
		if p.doubts = min(p.doubts+1, 4*pbeRounds); p.doubts == pbeRounds {
			p.doubted = true
			p.doubts = 4 * pbeRounds // believed again only after as many good rounds
		}
	case !short:
		p.doubts = max(0, p.doubts-1)
	case p.doubts < pbeRounds:
		p.doubts = 0
	}
	p.best, p.acked, p.lost = 0, 0, 0
}

// rate is what is paced to in the states that know the capacity.
func (p *PBE) rate(now time.Duration) unit.Rate {
	if p.state != Approach {
		return p.radio.Capacity
	}
	part := min(1, float64(now-p.since)/float64(pbeApproach*p.rtprop))
	return p.from + scale(p.radio.Fair-p.from, part)
}

// Limits implements Controller.
func (p *PBE) Limits(now time.Duration) Limits {
	if !p.heard {
		return p.bbr.Limits(now)
	}
	// What BBR measured may be of a time when the cell had more: then the queue
	// that changed the state was the cell's.
	most := max(p.radio.Capacity, p.radio.Fair)
	switch p.state {
	case Internet:
		l := p.bbr.Limits(now)
		return Limits{Rate: min(l.Rate, most), Window: min(l.Window, max(2*most.Bytes(p.rtprop), 2*pbeFloor))}
	case Drain:
		r := min(p.bbr.rate(), most)
		return Limits{Rate: max(scale(r, pbeDrain), unit.RateOf(pbeFloor, p.rtprop)), Window: max(r.Bytes(p.rtprop), pbeFloor)}
	}
	r := max(p.rate(now), unit.RateOf(pbeFloor, p.rtprop))
	return Limits{Rate: r, Window: max(r.Bytes(p.rtprop+pbeHeld), 2*pbeFloor)}
}
