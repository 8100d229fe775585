package cc

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Specification of BBR, version 1: draft-cardwell-iccrg-bbr-congestion-control-00,
// sections 4.1 to 4.4, whose names are in parentheses below. The same constants are
// in Linux (net/ipv4/tcp_bbr.c); where the two differ the draft is followed, but for bbrMargin.
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

	// bbrMargin is Linux', not the draft's: paced is 1 % less than the bandwidth. The
	// largest of many samples over real sockets is half a percent to one more than the
	// link has, and as the queue that this makes is emptied for one round trip in eight
	// only, it came to 40 ms at 50 ms there and back.
	bbrMargin = 0.99

	// BBRSetSendQuantum: one packet, from bbrQuantum2 on two, from bbrQuantumMs on
	// what leaves in a millisecond.
	bbrQuantum2   = 1200 * unit.Kbps
	bbrQuantumMs  = 24 * unit.Mbps
	bbrMaxQuantum = 64 << 10
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
	pace   unit.Rate // least pacing rate of Startup

	full       unit.Rate
	fullRounds int
	filled     bool

	phase   int
	phaseAt time.Duration
	lost    unit.Bytes // told since the last acknowledgement

	probeUntil time.Duration // end of ProbeRTT, 0 while in flight is too much
	probeAt    time.Duration // then in flight was little enough
	probeRound bool
	low        lowSamples

	window      unit.Bytes
	priorWindow unit.Bytes
	recovery    bbrRecovery
	since       time.Duration // sending time of the newest loss at the beginning of recovery
	regain      unit.Bytes    // after a timeout: what of that lost then has not arrived

	sentAt time.Duration // of the newest packet
	idle   bool          // nothing was in flight, and no acknowledgement came since

	// cap bounds the probing rate from above, 0 for not: PBE-CC's probe in its
	// internet-bottleneck state. led says that PBE-CC or another decides and BBR only
	// measures: then there is no ProbeRTT, which waits for a window that is not BBR's.
	cap unit.Rate
	led bool
}

// bbrRecovery is what BBR does about losses.
type bbrRecovery uint8

const (
	bbrOpen     bbrRecovery = iota
	bbrConserve             // a round of no more than is delivered
	bbrRegain               // after a timeout, from one packet on
)

// lowSamples are those that ProbeRTT makes low: the draft marks them as
// app-limited. They begin with what is sent in it, and end with what is sent when
// all that was in flight at its end has arrived.
type lowSamples struct {
	until    unit.Bytes // marks are made until so much is delivered, 0 for none
	from, to time.Duration
}

// mark is told of each acknowledgement of ProbeRTT.
func (l *lowSamples) mark(a Ack) {
	if l.until == 0 {
		l.from = a.Now
	}
	l.until, l.to = max(a.Delivered+a.InFlight, 1), 0
}

// has tells whether the sample of an acknowledgement is one of them.
func (l *lowSamples) has(a Ack) bool {
	if l.until > 0 && a.Delivered > l.until {
		l.until, l.to = 0, a.Now
	}
	return (l.until > 0 || l.to > 0) && a.Sent >= l.from && (l.to == 0 || a.Sent < l.to)
}

// NewBBR starts as for a new flow; seed chooses the first phase of its cycle, and
// should be another one for each flow, so that flows do not probe together.
func NewBBR(seed uint64) *BBR {
	return &BBR{rnd: rand.New(rand.NewPCG(seed, 0)), window: bbrStart, bw: extreme{}}
}

// OnSent implements Controller. Sending again after a pause (BBRHandleRestartFromIdle)
// is what finds nothing in flight though the pacer would have let a packet go.
func (b *BBR) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	if inFlight <= size && b.recovery != bbrRegain && b.hasRTT && now > b.sentAt+max(2*b.Limits(now).Rate.Time(size), time.Millisecond) {
		b.idle = true
	}
	b.sentAt = now
}

// OnLoss implements Controller. BBR takes a loss for no sign of a full queue: what
// is in flight keeps to what is delivered for a round (BBRModulateCwndForRecovery).
func (b *BBR) OnLoss(l Loss) {
	b.lost += l.Bytes
	if l.Timeout {
		b.priorWindow = max(b.priorWindow, b.window)
		b.window = MSS
		if b.recovery != bbrRegain {
			b.regain = 0
		}
		b.recovery, b.since, b.regain = bbrRegain, l.Now, max(b.regain, l.Bytes)
		return
	}
	if b.recovery == bbrOpen {
		b.recovery, b.since = bbrConserve, l.Now
		b.priorWindow = max(b.priorWindow, b.window)
		b.window = l.InFlight + MSS
		return
	}
	b.window = max(b.window-l.Bytes, MSS)
}

// OnAck implements Controller (BBRUpdateOnACK).
func (b *BBR) OnAck(a Ack) {
	if a.Round {
		b.rounds++
	}
	// Samples of less than the network has neither raise the maximum nor let it age
	// (BBRUpdateBtlBw).
	low := b.low.has(a)
	if a.Rate > 0 && (!a.AppLimited && !low || int64(a.Rate) >= b.bw.get()) {
		b.bw.add(b.rounds, int64(a.Rate), bbrRounds-1)
	}
	b.checkPhase(a)
	b.checkFull(a, low)
	b.checkDrain(a)
	b.checkRTT(a)
	b.setPace()
	b.setWindow(a)
	b.idle, b.lost = false, 0
}

func (b *BBR) checkFull(a Ack, low bool) {
	if b.filled || !a.Round || a.AppLimited || low {
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

func (b *BBR) checkDrain(a Ack) {
	if b.state == bbrStartup && b.filled {
		b.state = bbrDraining
	}
	if b.state == bbrDraining && a.InFlight <= b.inflight(1) {
		b.probeBW(a.Now)
	}
}

func (b *BBR) checkPhase(a Ack) {
	if b.state == bbrProbeBW && b.phaseOver(a) {
		b.phase = (b.phase + 1) % len(bbrCycle)
		b.phaseAt = a.Now
	}
}

func (b *BBR) probeBW(now time.Duration) {
	b.state = bbrProbeBW
	// Any phase but the one that drains (BBREnterProbeBW).
	b.phase = (len(bbrCycle) - b.rnd.IntN(len(bbrCycle)-1)) % len(bbrCycle)
	b.phaseAt = now
}

func (b *BBR) phaseOver(a Ack) bool {
	passed := a.Now-b.phaseAt > b.rtt
	prior := a.InFlight + a.Bytes + b.lost
	switch gain := bbrCycle[b.phase]; {
	case gain > 1:
		return passed && (b.lost > 0 || prior >= b.inflight(gain) || b.cap > 0 && scale(b.rate(), gain) > b.cap)
	case gain < 1:
		return passed || prior <= b.inflight(1)
	}
	return passed
}

// checkRTT is BBRUpdateRTprop, BBRCheckProbeRTT and BBRHandleProbeRTT.
func (b *BBR) checkRTT(a Ack) {
	expired := b.hasRTT && a.Now > b.rttAt+bbrRTTFor
	if a.RTT > 0 && (!b.hasRTT || a.RTT <= b.rtt || expired) {
		if !b.hasRTT {
			b.pace = scale(unit.RateOf(bbrStart, a.RTT), bbrMargin*bbrHigh) // BBRInitPacingRate
		}
		b.rtt, b.rttAt, b.hasRTT = a.RTT, a.Now, true
	}
	if expired && b.state != bbrProbingRTT && !b.idle && !b.led {
		b.state = bbrProbingRTT
		b.priorWindow = max(b.priorWindow, b.window)
		b.probeUntil = 0
	}
	if b.state != bbrProbingRTT {
		return
	}
	if b.led {
		b.leaveRTT(a.Now)
		return
	}
	b.low.mark(a)
	if b.probeUntil == 0 {
		if a.InFlight <= bbrMinWindow {
			b.probeUntil, b.probeAt, b.probeRound = a.Now+bbrProbeRTT, a.Now, false
		}
		return
	}
	b.probeRound = b.probeRound || a.Sent >= b.probeAt
	if b.probeRound && a.Now > b.probeUntil {
		b.rttAt = a.Now
		b.leaveRTT(a.Now)
	}
}

// leaveRTT is BBRExitProbeRTT.
func (b *BBR) leaveRTT(now time.Duration) {
	b.window, b.priorWindow = max(b.window, b.priorWindow), 0
	if b.filled {
		b.probeBW(now)
	} else {
		b.state = bbrStartup
	}
}

// setPace has the rate never fall before the pipe was filled
// (BBRSetPacingRateWithGain).
func (b *BBR) setPace() {
	if !b.filled {
		b.pace = max(b.pace, scale(b.rate(), bbrMargin*b.pacingGain()))
	}
}

// setWindow is BBRSetCwnd.
func (b *BBR) setWindow(a Ack) {
	switch {
	case b.recovery == bbrConserve && a.Sent > b.since:
		b.restore()
	case b.recovery == bbrRegain && a.Sent > b.since:
		if b.regain -= a.Bytes; b.regain <= 0 {
			b.restore()
		}
	}
	if b.recovery == bbrConserve {
		b.window = max(b.window, a.InFlight+a.Bytes)
	} else {
		target := b.inflight(b.windowGain())
		if b.filled {
			b.window = min(b.window+a.Bytes, target)
		} else if b.window < target || a.Delivered < bbrStart {
			b.window += a.Bytes
		}
		b.window = max(b.window, bbrMinWindow)
	}
	if b.state == bbrProbingRTT {
		b.window = min(b.window, bbrMinWindow)
	}
}

// restore ends recovery (BBRRestoreCwnd). In ProbeRTT the window waits for its end.
func (b *BBR) restore() {
	b.recovery = bbrOpen
	if b.state != bbrProbingRTT {
		b.window, b.priorWindow = max(b.window, b.priorWindow), 0
	}
}

// inflight is BBRInflight: gain times the BDP, with three quanta for what is sent,
// received and acknowledged at once.
func (b *BBR) inflight(gain float64) unit.Bytes {
	if !b.hasRTT || b.bw.empty() {
		return bbrStart
	}
	return unit.Bytes(gain*float64(b.rate().Bytes(b.rtt))) + 3*b.quantum()
}

// quantum is what is sent at once by the draft. Our transports send packet by packet,
// or what a pacer lets go within 2 ms.
func (b *BBR) quantum() unit.Bytes {
	switch r := b.pacing(); {
	case r < bbrQuantum2:
		return MSS
	case r < bbrQuantumMs:
		return 2 * MSS
	default:
		return min(r.Bytes(time.Millisecond), bbrMaxQuantum)
	}
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
		if b.idle {
			return 1 // no queue is there to drain, and none to be made
		}
		return bbrCycle[b.phase]
	}
	return 1
}

// rate is BtlBw.
func (b *BBR) rate() unit.Rate { return unit.Rate(b.bw.get()) }

// pacing is the pacing rate.
func (b *BBR) pacing() unit.Rate {
	if !b.hasRTT {
		// Nothing is measured: the first window in a guessed round of 1 ms.
		return scale(unit.RateOf(bbrStart, time.Millisecond), bbrMargin*bbrHigh)
	}
	r := scale(b.rate(), bbrMargin*b.pacingGain())
	if !b.filled {
		return max(r, b.pace)
	}
	return r
}

// Limits implements Controller.
func (b *BBR) Limits(now time.Duration) Limits {
	r := b.pacing()
	if b.cap > 0 && b.pacingGain() > 1 && r > b.cap {
		r = max(b.cap, b.rate())
	}
	return Limits{Rate: r, Window: b.window}
}
