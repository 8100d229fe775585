package cc

import (
	"math/rand/v2"
	"time"

	"mpbond/unit"
)

// Specification of BBR, version 1: draft-cardwell-iccrg-bbr-congestion-control-00,
// sections 4.3.1 to 4.3.4. The same constants are in Linux (net/ipv4/tcp_bbr.c);
// where the two differ, as in the aggregation of acknowledgements that Linux
// added later, the draft is followed.
const (
	bbrHigh       = 2.885 // 2/ln 2: fills a pipe of unknown size in log2 BDP rounds
	bbrDrain      = 1 / bbrHigh
	bbrWindow     = 2.0 // cwnd_gain in ProbeBW
	bbrRounds     = 10  // of the bandwidth filter
	bbrRTTFor     = 10 * time.Second
	bbrProbeRTT   = 200 * time.Millisecond
	bbrMinWindow  = 4 * MSS
	bbrFullGrowth = 1.25
	bbrFullRounds = 3
	bbrStart      = 10 * MSS // RFC 6928
)

var bbrCycle = [8]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

type bbrState uint8

const (
	bbrStartup bbrState = iota
	bbrDraining
	bbrProbeBW
	bbrProbingRTT
)

// BBR is version 1 of that controller.
type BBR struct {
	state bbrState
	rnd   *rand.Rand

	bw     extreme // by round
	rounds int64
	rtt    time.Duration // RTprop
	rttAt  time.Duration
	hasRTT bool

	full       unit.Rate
	fullRounds int
	filled     bool

	phase   int
	phaseAt time.Duration
	lost    bool // since the phase began

	probeUntil  time.Duration // end of ProbeRTT, 0 while in flight is too much
	probeRound  bool
	window      unit.Bytes
	priorWindow unit.Bytes
	recovery    time.Duration // sending time of the newest loss: until that is acknowledged, the window does not grow past what is delivered
	inRecovery  bool

	// cap bounds the probing rate from above, 0 for not: PBE-CC's probe in its
	// internet-bottleneck state.
	cap unit.Rate
}

// NewBBR starts as for a new flow; seed chooses the first phase of its cycle.
func NewBBR(seed uint64) *BBR {
	return &BBR{rnd: rand.New(rand.NewPCG(seed, 0)), window: bbrStart, bw: extreme{}}
}

// OnSent implements Controller.
func (b *BBR) OnSent(now time.Duration, size, inFlight unit.Bytes) {}

// OnLoss implements Controller. BBR takes a loss for no sign of a full queue;
// the window keeps to what is delivered for a round.
func (b *BBR) OnLoss(l Loss) {
	b.lost = true
	if l.Timeout {
		b.priorWindow = max(b.priorWindow, b.window)
		b.window = MSS
		b.inRecovery, b.recovery = true, l.Now
		return
	}
	if !b.inRecovery {
		b.inRecovery, b.recovery = true, l.Now
		b.priorWindow = max(b.priorWindow, b.window)
		b.window = max(l.InFlight+MSS, bbrMinWindow)
	}
}

// OnAck implements Controller.
func (b *BBR) OnAck(a Ack) {
	if a.Round {
		b.rounds++
	}
	if a.Rate > 0 && (!a.AppLimited || int64(a.Rate) >= b.bw.get()) {
		b.bw.add(b.rounds, int64(a.Rate), bbrRounds-1)
	} else {
		b.bw.trim(b.rounds, bbrRounds-1)
	}
	b.checkFull(a)
	b.step(a)
	b.checkRTT(a)
	b.setWindow(a)
}

func (b *BBR) checkFull(a Ack) {
	if b.filled || !a.Round || a.AppLimited {
		return
	}
	if bw := b.rate(); float64(bw) >= float64(b.full)*bbrFullGrowth {
		b.full, b.fullRounds = bw, 0
		return
	}
	if b.fullRounds++; b.fullRounds >= bbrFullRounds {
		b.filled = true
	}
}

func (b *BBR) step(a Ack) {
	switch b.state {
	case bbrStartup:
		if b.filled {
			b.state = bbrDraining
		}
	case bbrDraining:
		if a.InFlight <= b.inflight(1) {
			b.probeBW(a.Now)
		}
	case bbrProbeBW:
		if b.phaseOver(a) {
			b.phase = (b.phase + 1) % len(bbrCycle)
			b.phaseAt, b.lost = a.Now, false
		}
	}
}

func (b *BBR) probeBW(now time.Duration) {
	b.state = bbrProbeBW
	// Any phase but the one that drains (draft, BBREnterProbeBW).
	b.phase = (len(bbrCycle) - b.rnd.IntN(len(bbrCycle)-1)) % len(bbrCycle)
	b.phaseAt, b.lost = now, false
}

func (b *BBR) phaseOver(a Ack) bool {
	passed := a.Now-b.phaseAt > b.rtt
	prior := a.InFlight + a.Bytes
	switch gain := bbrCycle[b.phase]; {
	case gain > 1:
		return passed && (b.lost || prior >= b.inflight(gain) || b.cap > 0 && scale(b.rate(), gain) > b.cap)
	case gain < 1:
		return passed || prior <= b.inflight(1)
	}
	return passed
}

func (b *BBR) checkRTT(a Ack) {
	expired := b.hasRTT && a.Now > b.rttAt+bbrRTTFor
	if a.RTT > 0 && (!b.hasRTT || a.RTT <= b.rtt || expired) {
		b.rtt, b.rttAt, b.hasRTT = a.RTT, a.Now, true
	}
	if expired && b.state != bbrProbingRTT {
		b.state = bbrProbingRTT
		b.priorWindow = max(b.priorWindow, b.window)
		b.probeUntil, b.probeRound = 0, false
	}
	if b.state != bbrProbingRTT {
		return
	}
	if b.probeUntil == 0 {
		if a.InFlight <= bbrMinWindow {
			b.probeUntil, b.probeRound = a.Now+bbrProbeRTT, false
		}
		return
	}
	b.probeRound = b.probeRound || a.Round
	if b.probeRound && a.Now >= b.probeUntil {
		b.rttAt = a.Now
		b.window = max(b.window, b.priorWindow)
		b.priorWindow = 0
		if b.filled {
			b.probeBW(a.Now)
		} else {
			b.state = bbrStartup
		}
	}
}

func (b *BBR) setWindow(a Ack) {
	target := b.inflight(b.windowGain())
	if b.inRecovery {
		if a.Sent > b.recovery {
			b.inRecovery = false
			if b.state != bbrProbingRTT {
				b.window, b.priorWindow = max(b.window, b.priorWindow), 0
			}
		} else {
			b.window = max(b.window, a.InFlight+a.Bytes)
		}
	}
	if !b.inRecovery {
		if b.filled {
			b.window = min(b.window+a.Bytes, target)
		} else if b.window < target || a.Delivered < bbrStart {
			b.window += a.Bytes
		}
	}
	b.window = max(b.window, bbrMinWindow)
	if b.state == bbrProbingRTT {
		b.window = min(b.window, bbrMinWindow)
	}
}

// inflight is BBRInflight: gain times the BDP, with three packets for pieces that
// are sent and acknowledged at once.
func (b *BBR) inflight(gain float64) unit.Bytes {
	if !b.hasRTT || b.bw.empty() {
		return bbrStart
	}
	return unit.Bytes(gain*float64(b.rate().Bytes(b.rtt))) + 3*MSS
}

func (b *BBR) windowGain() float64 {
	switch b.state {
	case bbrProbeBW:
		return bbrWindow
	case bbrProbingRTT:
		return 1
	}
	return bbrHigh
}

func (b *BBR) pacingGain() float64 {
	switch b.state {
	case bbrStartup:
		return bbrHigh
	case bbrDraining:
		return bbrDrain
	case bbrProbeBW:
		return bbrCycle[b.phase]
	}
	return 1
}

// rate is BtlBw.
func (b *BBR) rate() unit.Rate { return unit.Rate(b.bw.get()) }

// Limits implements Controller.
func (b *BBR) Limits(now time.Duration) Limits {
	r := scale(b.rate(), b.pacingGain())
	if b.bw.empty() {
		// Nothing is measured: the first window within a guessed round of 1 ms
		// at most (draft, BBRInitPacingRate).
		first := time.Millisecond
		if b.hasRTT {
			first = max(b.rtt, first)
		}
		r = scale(unit.RateOf(bbrStart, first), bbrHigh)
	}
	if b.cap > 0 && b.pacingGain() > 1 && r > b.cap {
		r = max(b.cap, b.rate())
	}
	return Limits{Rate: r, Window: b.window}
}
