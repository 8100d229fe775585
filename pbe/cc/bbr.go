package cc

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Specification of BBR, version 1: draft-cardwell-iccrg-bbr-congestion-control-00,
// sections 4.1 to 4.4, whose names are in parentheses below. The same constants are
// in Linux (net/ipv4/tcp_bbr.c); where the two differ the draft is followed, but for bbrPacingMargin.
const (
	bbrHighGain       = 2.885 // 2/ln 2: fills a pipe of unknown size in log2 BDP rounds
	bbrDrainGain      = 1 / bbrHighGain
	bbrCwndGain       = 2.0 // cwnd_gain in ProbeBW
	bbrFilterRounds   = 10  // of the bandwidth filter
	bbrRTPropLifetime = 10 * time.Second
	bbrProbeRTTTime   = 200 * time.Millisecond
	bbrMinCwnd        = 4 * MSS
	bbrFullGrowth     = 1.25
	bbrFullRounds     = 3
	bbrInitialCwnd    = 10 * MSS // RFC 6928

	// bbrPacingMargin is Linux', not the draft's: paced is 1 % less than the bandwidth. The
	// largest of many samples over real sockets is half a percent to one more than the
	// link has, and as the queue that this makes is emptied for one round trip in eight
	// only, it came to 40 ms at 50 ms there and back.
	bbrPacingMargin = 0.99

	// BBRSetSendQuantum: one packet, from bbrQuantum2 on two, from bbrQuantumMs on
	// what leaves in a millisecond.
	bbrQuantum2   = 1200 * unit.Kbps
	bbrQuantumMs  = 24 * unit.Mbps
	bbrMaxQuantum = 64 << 10
)

var bbrGainCycle = [8]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

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

	bwFilter    windowedExtreme // by round
	roundCount  int64
	rtProp      time.Duration // RTprop
	rtPropTime  time.Duration
	hasRTProp   bool
	startupRate unit.Rate // least pacing rate of Startup

	fullBW      unit.Rate
	fullBWCount int
	filledPipe  bool

	cycleIndex int
	cycleTime  time.Duration
	lost       unit.Bytes // told since the last acknowledgement

	probeRTTEnd       time.Duration // end of ProbeRTT, 0 while in flight is too much
	probeRTTStart     time.Duration // then in flight was little enough
	probeRTTRoundDone bool
	probeRTTSamples   sampleRange

	cwnd          unit.Bytes
	priorCwnd     unit.Bytes
	recovery      bbrRecovery
	recoveryStart time.Duration // sending time of the newest loss at the beginning of recovery
	timeoutLoss   unit.Bytes    // after a timeout: what of that lost then has not arrived

	lastSentTime time.Duration // of the newest packet
	idleRestart  bool          // nothing was in flight, and no acknowledgement came since

	// probeRateCap bounds the probing rate from above, 0 for not: PBE-CC's probe in its
	// internet-bottleneck state. led says that PBE-CC or another decides and BBR only
	// measures: then there is no ProbeRTT, which waits for a window that is not BBR's.
	probeRateCap unit.Rate
	measureOnly  bool
}

// bbrRecovery is what BBR does about losses.
type bbrRecovery uint8

const (
	bbrNoRecovery      bbrRecovery = iota
	bbrConservation                // a round of no more than is delivered
	bbrTimeoutRecovery             // after a timeout, from one packet on
)

// sampleRange are those that ProbeRTT makes low: the draft marks them as
// app-limited. They begin with what is sent in it, and end with what is sent when
// all that was in flight at its end has arrived.
type sampleRange struct {
	until    unit.Bytes // marks are made until so much is delivered, 0 for none
	from, to time.Duration
}

// extend is told of each acknowledgement of ProbeRTT.
func (l *sampleRange) extend(a Ack) {
	if l.until == 0 {
		l.from = a.Now
	}
	l.until, l.to = max(a.Delivered+a.InFlight, 1), 0
}

// contains tells whether the sample of an acknowledgement is one of them.
func (l *sampleRange) contains(a Ack) bool {
	if l.until > 0 && a.Delivered > l.until {
		l.until, l.to = 0, a.Now
	}
	return (l.until > 0 || l.to > 0) && a.Sent >= l.from && (l.to == 0 || a.Sent < l.to)
}

// NewBBR starts as for a new flow; seed chooses the first phase of its cycle, and
// should be another one for each flow, so that flows do not probe together.
func NewBBR(seed uint64) *BBR {
	return &BBR{rnd: rand.New(rand.NewPCG(seed, 0)), cwnd: bbrInitialCwnd, bwFilter: windowedExtreme{}}
}

// OnSent implements Controller. Sending again after a pause (BBRHandleRestartFromIdle)
// is what finds nothing in flight though the pacer would have let a packet go.
func (b *BBR) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	if inFlight <= size && b.recovery != bbrTimeoutRecovery && b.hasRTProp && now > b.lastSentTime+max(2*b.Limits(now).Rate.Time(size), time.Millisecond) {
		b.idleRestart = true
	}
	b.lastSentTime = now
}

// OnLoss implements Controller. BBR takes a loss for no sign of a full queue: what
// is in flight keeps to what is delivered for a round (BBRModulateCwndForRecovery).
func (b *BBR) OnLoss(l Loss) {
	b.lost += l.Bytes
	if l.Timeout {
		b.priorCwnd = max(b.priorCwnd, b.cwnd)
		b.cwnd = MSS
		if b.recovery != bbrTimeoutRecovery {
			b.timeoutLoss = 0
		}
		b.recovery, b.recoveryStart, b.timeoutLoss = bbrTimeoutRecovery, l.Now, max(b.timeoutLoss, l.Bytes)
		return
	}
	if b.recovery == bbrNoRecovery {
		b.recovery, b.recoveryStart = bbrConservation, l.Now
		b.priorCwnd = max(b.priorCwnd, b.cwnd)
		b.cwnd = l.InFlight + MSS
		return
	}
	b.cwnd = max(b.cwnd-l.Bytes, MSS)
}

// OnAck implements Controller (BBRUpdateOnACK).
func (b *BBR) OnAck(a Ack) {
	if a.Round {
		b.roundCount++
	}
	// Samples of less than the network has neither raise the maximum nor let it age
	// (BBRUpdateBtlBw).
	low := b.probeRTTSamples.contains(a)
	if a.Rate > 0 && (!a.AppLimited && !low || int64(a.Rate) >= b.bwFilter.value()) {
		b.bwFilter.addSample(b.roundCount, int64(a.Rate), bbrFilterRounds-1)
	}
	b.checkCyclePhase(a)
	b.checkFullPipe(a, low)
	b.checkDrain(a)
	b.checkProbeRTT(a)
	b.updateStartupRate()
	b.setCwnd(a)
	b.idleRestart, b.lost = false, 0
}

func (b *BBR) checkFullPipe(a Ack, low bool) {
	if b.filledPipe || !a.Round || a.AppLimited || low {
		return
	}
	if bw := b.bottleneckRate(); float64(bw) >= float64(b.fullBW)*bbrFullGrowth {
		b.fullBW, b.fullBWCount = bw, 0
		return
	}
	if b.fullBWCount++; b.fullBWCount >= bbrFullRounds {
		b.filledPipe = true
	}
}

func (b *BBR) checkDrain(a Ack) {
	if b.state == bbrStartup && b.filledPipe {
		b.state = bbrDraining
	}
	if b.state == bbrDraining && a.InFlight <= b.inflightTarget(1) {
		b.enterProbeBW(a.Now)
	}
}

func (b *BBR) checkCyclePhase(a Ack) {
	if b.state == bbrProbeBW && b.isNextPhase(a) {
		b.cycleIndex = (b.cycleIndex + 1) % len(bbrGainCycle)
		b.cycleTime = a.Now
	}
}

func (b *BBR) enterProbeBW(now time.Duration) {
	b.state = bbrProbeBW
	// Any phase but the one that drains (BBREnterProbeBW).
	b.cycleIndex = (len(bbrGainCycle) - b.rnd.IntN(len(bbrGainCycle)-1)) % len(bbrGainCycle)
	b.cycleTime = now
}

func (b *BBR) isNextPhase(a Ack) bool {
	passed := a.Now-b.cycleTime > b.rtProp
	prior := a.InFlight + a.Bytes + b.lost
	switch gain := bbrGainCycle[b.cycleIndex]; {
	case gain > 1:
		return passed && (b.lost > 0 || prior >= b.inflightTarget(gain) || b.probeRateCap > 0 && scaleRate(b.bottleneckRate(), gain) > b.probeRateCap)
	case gain < 1:
		return passed || prior <= b.inflightTarget(1)
	}
	return passed
}

// checkProbeRTT is BBRUpdateRTprop, BBRCheckProbeRTT and BBRHandleProbeRTT.
func (b *BBR) checkProbeRTT(a Ack) {
	expired := b.hasRTProp && a.Now > b.rtPropTime+bbrRTPropLifetime
	if a.RTT > 0 && (!b.hasRTProp || a.RTT <= b.rtProp || expired) {
		if !b.hasRTProp {
			b.startupRate = scaleRate(unit.RateOf(bbrInitialCwnd, a.RTT), bbrPacingMargin*bbrHighGain) // BBRInitPacingRate
		}
		b.rtProp, b.rtPropTime, b.hasRTProp = a.RTT, a.Now, true
	}
	if expired && b.state != bbrProbingRTT && !b.idleRestart && !b.measureOnly {
		b.state = bbrProbingRTT
		b.priorCwnd = max(b.priorCwnd, b.cwnd)
		b.probeRTTEnd = 0
	}
	if b.state != bbrProbingRTT {
		return
	}
	if b.measureOnly {
		b.exitProbeRTT(a.Now)
		return
	}
	b.probeRTTSamples.extend(a)
	if b.probeRTTEnd == 0 {
		if a.InFlight <= bbrMinCwnd {
			b.probeRTTEnd, b.probeRTTStart, b.probeRTTRoundDone = a.Now+bbrProbeRTTTime, a.Now, false
		}
		return
	}
	b.probeRTTRoundDone = b.probeRTTRoundDone || a.Sent >= b.probeRTTStart
	if b.probeRTTRoundDone && a.Now > b.probeRTTEnd {
		b.rtPropTime = a.Now
		b.exitProbeRTT(a.Now)
	}
}

// exitProbeRTT is BBRExitProbeRTT.
func (b *BBR) exitProbeRTT(now time.Duration) {
	b.cwnd, b.priorCwnd = max(b.cwnd, b.priorCwnd), 0
	if b.filledPipe {
		b.enterProbeBW(now)
	} else {
		b.state = bbrStartup
	}
}

// updateStartupRate has the rate never fall before the pipe was filled
// (BBRSetPacingRateWithGain).
func (b *BBR) updateStartupRate() {
	if !b.filledPipe {
		b.startupRate = max(b.startupRate, scaleRate(b.bottleneckRate(), bbrPacingMargin*b.pacingGain()))
	}
}

// setCwnd is BBRSetCwnd.
func (b *BBR) setCwnd(a Ack) {
	switch {
	case b.recovery == bbrConservation && a.Sent > b.recoveryStart:
		b.restoreCwnd()
	case b.recovery == bbrTimeoutRecovery && a.Sent > b.recoveryStart:
		if b.timeoutLoss -= a.Bytes; b.timeoutLoss <= 0 {
			b.restoreCwnd()
		}
	}
	if b.recovery == bbrConservation {
		b.cwnd = max(b.cwnd, a.InFlight+a.Bytes)
	} else {
		target := b.inflightTarget(b.cwndGain())
		if b.filledPipe {
			b.cwnd = min(b.cwnd+a.Bytes, target)
		} else if b.cwnd < target || a.Delivered < bbrInitialCwnd {
			b.cwnd += a.Bytes
		}
		b.cwnd = max(b.cwnd, bbrMinCwnd)
	}
	if b.state == bbrProbingRTT {
		b.cwnd = min(b.cwnd, bbrMinCwnd)
	}
}

// restoreCwnd ends recovery (BBRRestoreCwnd). In ProbeRTT the window waits for its end.
func (b *BBR) restoreCwnd() {
	b.recovery = bbrNoRecovery
	if b.state != bbrProbingRTT {
		b.cwnd, b.priorCwnd = max(b.cwnd, b.priorCwnd), 0
	}
}

// inflightTarget is BBRInflight: gain times the BDP, with three quanta for what is sent,
// received and acknowledged at once.
func (b *BBR) inflightTarget(gain float64) unit.Bytes {
	if !b.hasRTProp || b.bwFilter.isEmpty() {
		return bbrInitialCwnd
	}
	return unit.Bytes(gain*float64(b.bottleneckRate().Bytes(b.rtProp))) + 3*b.sendQuantum()
}

// sendQuantum is what is sent at once by the draft. Our transports send packet by packet,
// or what a pacer lets go within 2 ms.
func (b *BBR) sendQuantum() unit.Bytes {
	switch r := b.pacingRate(); {
	case r < bbrQuantum2:
		return MSS
	case r < bbrQuantumMs:
		return 2 * MSS
	default:
		return min(r.Bytes(time.Millisecond), bbrMaxQuantum)
	}
}

func (b *BBR) cwndGain() float64 {
	switch b.state {
	case bbrProbeBW:
		return bbrCwndGain
	case bbrProbingRTT:
		return 1
	}
	return bbrHighGain
}

func (b *BBR) pacingGain() float64 {
	switch b.state {
	case bbrStartup:
		return bbrHighGain
	case bbrDraining:
		return bbrDrainGain
	case bbrProbeBW:
		if b.idleRestart {
			return 1 // no queue is there to drain, and none to be made
		}
		return bbrGainCycle[b.cycleIndex]
	}
	return 1
}

// bottleneckRate is BtlBw.
func (b *BBR) bottleneckRate() unit.Rate { return unit.Rate(b.bwFilter.value()) }

// pacingRate is the pacing rate.
func (b *BBR) pacingRate() unit.Rate {
	if !b.hasRTProp {
		// Nothing is measured: the first window in a guessed round of 1 ms.
		return scaleRate(unit.RateOf(bbrInitialCwnd, time.Millisecond), bbrPacingMargin*bbrHighGain)
	}
	r := scaleRate(b.bottleneckRate(), bbrPacingMargin*b.pacingGain())
	if !b.filledPipe {
		return max(r, b.startupRate)
	}
	return r
}

// Limits implements Controller.
func (b *BBR) Limits(now time.Duration) Limits {
	r := b.pacingRate()
	if b.probeRateCap > 0 && b.pacingGain() > 1 && r > b.probeRateCap {
		r = max(b.probeRateCap, b.bottleneckRate())
	}
	return Limits{Rate: r, Window: b.cwnd}
}
