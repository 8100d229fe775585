// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Specification of Verus: Zaki and others: Adaptive Congestion Control for Unpredictable Cellular
// Networks, SIGCOMM 2015, sections 4 and 5. Where the paper and the authors' code
// (github.com/yzaki/verus; no line of it is used) differ, this follows the code, as marked.
const (
	verusEpoch         = 5 * time.Millisecond
	verusMaxDelayRatio = 6.0                  // R of D_max/D_min; the paper evaluates 2, 4 and 6
	verusDown          = time.Millisecond     // δ1
	verusUp            = 2 * time.Millisecond // δ2
	verusSmooth        = 0.2                  // weight of the old D_max (code)
	verusDelayWeight   = 0.875                // weight of the old delay of a window
	verusFitInterval   = time.Second
	verusLossFactor    = 0.7                    // M, of the window in which packets were lost (code; 0.5 in the paper)
	verusSlowStartRTT  = 500 * time.Millisecond // an RTT above it ends slow start (code)
	verusMinLossWindow = 20                     // packets; a loss at a smaller window does not end slow start (code)
	// added to D_min if nothing is in flight and delays are still too long (code)
	verusMinDelayStep = 10 * time.Millisecond
	verusMaxWindow    = 40000
)

// Verus learns the delay of each window as a curve. Its target delay rises and falls with observed
// delays. The window is the curve's value for the target delay.
type Verus struct {
	window     float64 // W
	slowStart  bool
	inRecovery bool // from a loss until packets sent with a smaller window are acknowledged

	epochEnd    time.Duration // of the current epoch; 0 before the first packet
	lastAckTime time.Duration // last acknowledgement
	epochMaxRTT time.Duration // longest RTT in this epoch; 0: none
	maxDelay    time.Duration // D_max, smoothed
	minDelay    time.Duration // D_min
	srtt        ewma
	targetDelay time.Duration // D_est
	sendCredit  float64       // packets that may still be sent in this epoch
	inFlight    unit.Bytes
	sentWindows []sentWindow // of packets in flight, oldest first

	delayProfile []time.Duration // by window in packets; 0: unknown
	curve        []float64       // fitted to delayProfile, in seconds, never falling
	slope        float64         // of the curve beyond its end
	fitTime      time.Duration
}

// sentWindow is the window with which a packet was sent.
type sentWindow struct {
	sentTime time.Duration
	window   float64
}

// NewVerus returns a controller in slow start.
func NewVerus() *Verus { return &Verus{window: 1, slowStart: true} }

// OnSent implements Controller.
func (v *Verus) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	v.endEpochsUntil(now)
	if v.epochEnd == 0 {
		v.epochEnd, v.lastAckTime = now+verusEpoch, now
	}
	v.sendCredit = max(0, v.sendCredit-1)
	v.inFlight = inFlight
	v.sentWindows = append(v.sentWindows, sentWindow{now, v.window})
}

// windowWhenSent returns the window with which a packet was sent. Later calls must not ask for
// older packets.
func (v *Verus) windowWhenSent(sent time.Duration) float64 {
	i := 0
	for i < len(v.sentWindows)-1 && v.sentWindows[i].sentTime < sent {
		i++
	}
	if i > 64 || i == len(v.sentWindows)-1 { // not in each call
		v.sentWindows = append(v.sentWindows[:0], v.sentWindows[i:]...)
		i = 0
	}
	if len(v.sentWindows) == 0 {
		return v.window
	}
	return v.sentWindows[i].window
}

// OnAck implements Controller.
func (v *Verus) OnAck(a Ack) {
	v.endEpochsUntil(a.Now)
	v.inFlight, v.lastAckTime = a.InFlight, a.Now
	if a.RTT <= 0 {
		return
	}
	w := v.windowWhenSent(a.Sent)
	v.srtt.addWeightedDelay(a.RTT, 0.125)
	if v.minDelay == 0 || a.RTT < v.minDelay {
		v.minDelay = a.RTT
	}
	v.epochMaxRTT = max(v.epochMaxRTT, a.RTT)
	n := float64(a.Bytes) / float64(MSS)
	if v.inRecovery {
		v.window += n / v.window
		if w <= v.window {
			v.inRecovery, v.targetDelay = false, v.curveDelayFor(v.window)
		}
	} else {
		v.recordDelay(int(w), a.RTT)
	}
	if v.slowStart {
		v.window += n
		if a.RTT > verusSlowStartRTT {
			v.leaveSlowStart(a.Now, w)
		}
	}
}

// leaveSlowStart ends slow start after a loss, or a long delay, of a packet sent with window w.
func (v *Verus) leaveSlowStart(now time.Duration, w float64) {
	v.slowStart, v.inRecovery, v.sendCredit = false, true, 0
	if n := max(100, int(w)) + 1; n < len(v.delayProfile) {
		v.delayProfile = v.delayProfile[:n] // larger windows filled the queue
	}
	v.fitDelayCurve(now)
	v.window = max(1, min(v.window, verusLossFactor*w))
	v.maxDelay = 0
}

// recordDelay adds a delay of window w to the profile.
func (v *Verus) recordDelay(w int, d time.Duration) {
	if w < 1 || w > verusMaxWindow {
		return
	}
	for len(v.delayProfile) <= w {
		v.delayProfile = append(v.delayProfile, 0)
	}
	if old := v.delayProfile[w]; old > 0 {
		d = time.Duration(verusDelayWeight*float64(old) + (1-verusDelayWeight)*float64(d))
	}
	v.delayProfile[w] = d
}

// fitDelayCurve fits the best curve that never falls: neighbors that would fall are pooled. Between
// known windows it is straight. The authors fit a smooth spline, which may fall.
func (v *Verus) fitDelayCurve(now time.Duration) {
	type pool struct {
		from, to int // windows
		sum, n   float64
	}
	v.fitTime = now
	var pools []pool
	for w, d := range v.delayProfile {
		if d == 0 {
			continue
		}
		p := pool{w, w, d.Seconds(), 1}
		for n := len(pools); n > 0 && pools[n-1].sum/pools[n-1].n >= p.sum/p.n; n = len(pools) {
			q := pools[n-1]
			p = pool{q.from, p.to, p.sum + q.sum, p.n + q.n}
			pools = pools[:n-1]
		}
		pools = append(pools, p)
	}
	last := v.minDelay.Seconds()
	v.curve = append(v.curve[:0], last)
	for _, p := range pools {
		d := max(p.sum/p.n, last)
		for from := len(v.curve); len(v.curve) < p.from; {
			part := float64(len(v.curve)-from+1) / float64(p.from-from+1)
			v.curve = append(v.curve, last+part*(d-last))
		}
		for len(v.curve) <= p.to {
			v.curve = append(v.curve, d)
		}
		last = d
	}
	// Beyond the known windows the curve continues with its mean slope.
	if n := len(v.curve); n > 0 {
		v.slope = max((v.curve[n-1]-v.minDelay.Seconds())/float64(n), v.minDelay.Seconds()/float64(2*n))
	}
}

// curveDelayFor returns the curve's delay for a window.
func (v *Verus) curveDelayFor(w float64) time.Duration {
	n := len(v.curve)
	if n == 0 {
		return v.minDelay
	}
	d := v.curve[min(max(int(w), 0), n-1)]
	if beyond := w - float64(n-1); beyond > 0 {
		d += beyond * v.slope
	}
	return time.Duration(d * float64(time.Second))
}

// curveWindowFor returns the largest window, at least 1, with a delay of at most d.
func (v *Verus) curveWindowFor(d time.Duration) float64 {
	n := len(v.curve)
	if n == 0 {
		return v.window
	}
	s := d.Seconds()
	if s >= v.curve[n-1] {
		return min(float64(n-1)+(s-v.curve[n-1])/v.slope, verusMaxWindow)
	}
	i, _ := slices.BinarySearchFunc(v.curve, s, func(c, s float64) int {
		if c <= s {
			return -1
		}
		return 1
	})
	return max(1, float64(i-1))
}

// endEpochsUntil ends the epochs up to now (section 4.3).
func (v *Verus) endEpochsUntil(now time.Duration) {
	for v.epochEnd > 0 && now >= v.epochEnd {
		at := v.epochEnd
		v.epochEnd += verusEpoch
		if now-v.epochEnd > time.Second { // nothing was sent for long
			v.epochEnd = now + verusEpoch
		}
		if !v.slowStart && v.minDelay > 0 {
			v.endCurrentEpoch(at)
		}
	}
}

// endCurrentEpoch sets target delay, window and credit at the end of an epoch.
func (v *Verus) endCurrentEpoch(now time.Duration) {
	worst := v.epochMaxRTT
	if worst == 0 {
		worst = max(v.maxDelay, now-v.lastAckTime)
	}
	v.epochMaxRTT = 0
	if v.maxDelay == 0 {
		v.maxDelay = worst
	}
	if now-v.fitTime >= verusFitInterval {
		v.fitDelayCurve(now)
	}
	stop := false
	switch {
	case v.inRecovery: // section 4.5: only acknowledgements grow the window
	case float64(v.maxDelay) > verusMaxDelayRatio*float64(v.minDelay):
		v.targetDelay = max(v.minDelay, v.targetDelay-verusUp)
		if stop = v.targetDelay == v.minDelay; stop && v.inFlight < 2*MSS {
			v.minDelay += verusMinDelayStep
			stop = false
		}
	case worst > v.maxDelay:
		v.targetDelay = max(v.minDelay, v.targetDelay-verusDown)
	default:
		v.targetDelay += verusUp
	}
	v.maxDelay = time.Duration(verusSmooth*float64(v.maxDelay) + (1-verusSmooth)*float64(worst))
	if !v.inRecovery {
		v.window = max(1, v.curveWindowFor(v.targetDelay))
	}
	if stop {
		return
	}
	// Equation 5, with the bytes in flight as the last window (code).
	flight := float64(v.inFlight) / float64(MSS)
	s := v.window - flight
	if n := math.Ceil(v.srtt.value.Seconds() / verusEpoch.Seconds()); n > 1 {
		s = v.window + flight*(2-n)/(n-1)
	}
	v.sendCredit = max(0, math.Floor(s))
}

// OnLoss implements Controller.
func (v *Verus) OnLoss(l Loss) {
	v.inFlight = l.InFlight
	if l.PersistentCongestion {
		v.sentWindows = v.sentWindows[:0]
		if v.slowStart {
			v.leaveSlowStart(l.Now, v.window)
		}
		v.inRecovery, v.window, v.sendCredit = true, max(1, v.curveWindowFor(v.minDelay)), 1
		return
	}
	w := v.windowWhenSent(l.Sent)
	if v.slowStart {
		if w > verusMinLossWindow {
			v.leaveSlowStart(l.Now, w)
		}
		return
	}
	if !v.inRecovery {
		v.inRecovery = true
		v.window = max(1, min(v.window, verusLossFactor*w))
	}
}

// Limits implements Controller.
func (v *Verus) Limits(now time.Duration) Limits {
	v.endEpochsUntil(now)
	if v.slowStart {
		return Limits{Window: unit.Bytes(v.window) * MSS}
	}
	// The credit of this epoch, in addition to the bytes in flight.
	return Limits{Window: v.inFlight + unit.Bytes(v.sendCredit)*MSS, Until: v.epochEnd}
}
