// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Specification of BBR version 1: draft-cardwell-iccrg-bbr-congestion-control-00, sections 4.1 to
// 4.4. Comments have its names in parentheses. Linux has the same constants (net/ipv4/tcp_bbr.c).
// Where the two differ, this follows the draft, except for bbrPacingMargin.
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

	// bbrPacingMargin is from Linux: the pacing rate is 1 % below the bandwidth. Over real sockets
	// the maximum of many samples is 0.5 to 1 % above the link's rate. The draft empties the
	// resulting queue only one round trip in eight: it grew to 40 ms at an RTT of 50 ms.
	bbrPacingMargin = 0.99

	// BBRSetSendQuantum: one packet; two from rate bbrQuantum2 on; the bytes of a millisecond from
	// rate bbrQuantumMs on.
	bbrQuantum2   = 1200 * unit.Kbps
	bbrQuantumMs  = 24 * unit.Mbps
	bbrMaxQuantum = 64 << 10
)

// bbrGainCycle are the pacing gains of ProbeBW.
var bbrGainCycle = [8]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

// bbrState is a state of BBR.
type bbrState uint8

const (
	bbrStartup bbrState = iota
	bbrDraining
	bbrProbeBW
	bbrProbingRTT
)

// BBR is BBR version 1.
type BBR struct {
	state bbrState
	rnd   *rand.Rand

	bwFilter    windowedExtreme // BtlBw: maximum by round
	roundCount  int64
	rtProp      time.Duration // RTprop
	rtPropTime  time.Duration
	hasRTProp   bool
	startupRate unit.Rate // minimum pacing rate in Startup

	fullBW      unit.Rate
	fullBWCount int
	filledPipe  bool

	cycleIndex int
	cycleTime  time.Duration
	lost       unit.Bytes // bytes lost since the last acknowledgement

	probeRTTEnd       time.Duration // end of ProbeRTT; 0 while too much is in flight
	probeRTTStart     time.Duration // when little enough was in flight
	probeRTTRoundDone bool
	probeRTTSamples   sampleRange

	cwnd          unit.Bytes
	priorCwnd     unit.Bytes
	recovery      bbrRecovery
	recoveryStart time.Duration // the acknowledgement of a packet sent later ends recovery
	timeoutLoss   unit.Bytes    // after a timeout: lost bytes that have not arrived yet

	lastSentTime time.Duration // of the newest packet
	idleRestart  bool          // nothing was in flight, and no acknowledgement has arrived since

	// probeRateCap bounds the probing rate, 0 for no bound: the cap of PBE-CC's internet-bottleneck
	// state. With measureOnly another controller decides, and BBR only measures. It then skips
	// ProbeRTT, which would wait for a window that is not BBR's.
	probeRateCap unit.Rate
	measureOnly  bool
}

// bbrRecovery is the reaction to losses.
type bbrRecovery uint8

const (
	bbrNoRecovery      bbrRecovery = iota
	bbrConservation                // packet conservation for one round
	bbrTimeoutRecovery             // grows from one packet after a timeout
)

// sampleRange marks the delivery-rate samples that ProbeRTT lowers. The draft marks them as
// app-limited. The range begins with packets sent in ProbeRTT. It ends with packets sent when all
// that was in flight at the end of ProbeRTT has arrived.
type sampleRange struct {
	until    unit.Bytes // extend the range until so many bytes are delivered; 0: no
	from, to time.Duration
}

// extendInProbeRTT handles an acknowledgement in ProbeRTT.
func (l *sampleRange) extendInProbeRTT(a Ack) {
	if l.until == 0 {
		l.from = a.Now
	}
	l.until, l.to = max(a.Delivered+a.InFlight, 1), 0
}

// containsSample reports whether the sample of an acknowledgement is in the range.
func (l *sampleRange) containsSample(a Ack) bool {
	if l.until > 0 && a.Delivered > l.until {
		l.until, l.to = 0, a.Now
	}
	return (l.until > 0 || l.to > 0) && a.Sent >= l.from && (l.to == 0 || a.Sent < l.to)
}

// NewBBR returns a controller of a new flow. seed chooses the first phase of its cycle. It should
// differ between flows, so that they do not probe together.
func NewBBR(seed uint64) *BBR {
	return &BBR{rnd: rand.New(rand.NewPCG(seed, 0)), cwnd: bbrInitialCwnd, bwFilter: windowedExtreme{}}
}

// SetWindow sets the congestion window of a new controller that continues a connection.
func (b *BBR) SetWindow(n unit.Bytes) { b.cwnd = max(n, bbrMinCwnd) }

// OnSent implements Controller. A packet after a pause, with nothing else in flight although the
// pacer would have allowed packets, restarts from idle (BBRHandleRestartFromIdle).
func (b *BBR) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	if inFlight <= size && b.recovery != bbrTimeoutRecovery && b.hasRTProp &&
		now > b.lastSentTime+max(2*b.Limits(now).Rate.Time(size), time.Millisecond) {
		b.idleRestart = true
	}
	b.lastSentTime = now
}

// OnLoss implements Controller. BBR does not take a loss for a full queue. For one round it sends
// no more than is delivered (BBRModulateCwndForRecovery).
func (b *BBR) OnLoss(l Loss) {
	b.lost += l.Bytes
	if l.PersistentCongestion {
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
	// Samples below the capacity neither raise the maximum nor let it expire (BBRUpdateBtlBw).
	low := b.probeRTTSamples.containsSample(a)
	if a.Rate > 0 && (!a.AppLimited && !low || int64(a.Rate) >= b.bwFilter.extremeValue()) {
		b.bwFilter.addSampleAt(b.roundCount, int64(a.Rate), bbrFilterRounds-1)
	}
	b.checkCyclePhase(a)
	b.checkFullPipe(a, low)
	b.checkDrain(a)
	b.checkProbeRTT(a)
	b.updateStartupRate()
	b.setCwnd(a)
	b.idleRestart, b.lost = false, 0
}

// checkFullPipe is BBRCheckFullPipe.
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

// checkDrain is BBRCheckDrain.
func (b *BBR) checkDrain(a Ack) {
	if b.state == bbrStartup && b.filledPipe {
		b.state = bbrDraining
	}
	if b.state == bbrDraining && a.InFlight <= b.inflightTarget(1) {
		b.enterProbeBW(a.Now)
	}
}

// checkCyclePhase is BBRCheckCyclePhase.
func (b *BBR) checkCyclePhase(a Ack) {
	if b.state == bbrProbeBW && b.isNextPhase(a) {
		b.cycleIndex = (b.cycleIndex + 1) % len(bbrGainCycle)
		b.cycleTime = a.Now
	}
}

// enterProbeBW is BBREnterProbeBW. It starts in any phase but the one that drains.
func (b *BBR) enterProbeBW(now time.Duration) {
	b.state = bbrProbeBW
	b.cycleIndex = (len(bbrGainCycle) - b.rnd.IntN(len(bbrGainCycle)-1)) % len(bbrGainCycle)
	b.cycleTime = now
}

// isNextPhase is BBRIsNextCyclePhase.
func (b *BBR) isNextPhase(a Ack) bool {
	passed := a.Now-b.cycleTime > b.rtProp
	prior := a.InFlight + a.Bytes + b.lost
	switch gain := bbrGainCycle[b.cycleIndex]; {
	case gain > 1:
		capped := b.probeRateCap > 0 && scaleRate(b.bottleneckRate(), gain) > b.probeRateCap
		return passed && (b.lost > 0 || prior >= b.inflightTarget(gain) || capped)
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
			// BBRInitPacingRate
			b.startupRate = scaleRate(unit.RateOf(bbrInitialCwnd, a.RTT), bbrPacingMargin*bbrHighGain)
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
	b.probeRTTSamples.extendInProbeRTT(a)
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

// updateStartupRate raises the minimum pacing rate until the pipe is full
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

// restoreCwnd ends recovery (BBRRestoreCwnd). ProbeRTT restores the window at its own end.
func (b *BBR) restoreCwnd() {
	b.recovery = bbrNoRecovery
	if b.state != bbrProbingRTT {
		b.cwnd, b.priorCwnd = max(b.cwnd, b.priorCwnd), 0
	}
}

// inflightTarget is BBRInflight: gain times the BDP, plus three quanta for packets sent, received
// and acknowledged at once.
func (b *BBR) inflightTarget(gain float64) unit.Bytes {
	if !b.hasRTProp || b.bwFilter.hasNoSamples() {
		return bbrInitialCwnd
	}
	return unit.Bytes(gain*float64(b.bottleneckRate().Bytes(b.rtProp))) + 3*b.sendQuantum()
}

// sendQuantum is the quantum of the draft. Our transports send single packets, or what a pacer
// releases within 2 ms.
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

// cwndGain returns cwnd_gain of the state.
func (b *BBR) cwndGain() float64 {
	switch b.state {
	case bbrProbeBW:
		return bbrCwndGain
	case bbrProbingRTT:
		return 1
	}
	return bbrHighGain
}

// pacingGain returns pacing_gain of the state.
func (b *BBR) pacingGain() float64 {
	switch b.state {
	case bbrStartup:
		return bbrHighGain
	case bbrDraining:
		return bbrDrainGain
	case bbrProbeBW:
		if b.idleRestart {
			return 1 // no queue to drain, and none to create
		}
		return bbrGainCycle[b.cycleIndex]
	}
	return 1
}

// bottleneckRate returns BtlBw.
func (b *BBR) bottleneckRate() unit.Rate { return unit.Rate(b.bwFilter.extremeValue()) }

// pacingRate returns the pacing rate.
func (b *BBR) pacingRate() unit.Rate {
	if !b.hasRTProp {
		// Without an RTT sample: the initial window in an assumed RTT of 1 ms.
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
