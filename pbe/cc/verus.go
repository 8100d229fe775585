package cc

import (
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Specification of Verus: Zaki and others: Adaptive Congestion Control for
// Unpredictable Cellular Networks, SIGCOMM 2015, sections 4 and 5. Where the paper
// and the authors' code (github.com/yzaki/verus, of which no line is here) differ,
// the code is followed, as this says.
const (
	verusEpoch  = 5 * time.Millisecond
	verusRatio  = 6.0                  // R of D_max/D_min; the paper evaluates 2, 4 and 6
	verusDown   = time.Millisecond     // δ1
	verusUp     = 2 * time.Millisecond // δ2
	verusSmooth = 0.2                  // of the old D_max (code)
	verusLearn  = 0.875                // of the old delay of a window
	verusRefit  = time.Second
	verusLoss   = 0.7                    // M, of the window at which packets were lost (code; 0.5 in the paper)
	verusSlow   = 500 * time.Millisecond // a round trip that ends slow start (code)
	verusEnough = 20                     // packets: below, a loss does not end it (code)
	verusRaise  = 10 * time.Millisecond  // of D_min when nothing is in flight and delays are still too long (code)
	verusMost   = 40000
)

// Verus learns which window has which delay and goes by that curve: a target
// delay that rises and falls with what is observed, and the window that the
// curve has for it.
type Verus struct {
	window float64 // W
	slow   bool
	losing bool // from a loss until what was sent with a smaller window is acknowledged

	epoch   time.Duration // end of the current one, 0 before the first packet
	heard   time.Duration // last acknowledgement
	worst   time.Duration // longest round trip in this epoch, 0 for none
	max     time.Duration // D_max, smoothed
	least   time.Duration // D_min
	srtt    smooth
	target  time.Duration // D_est
	credit  float64       // packets that may still be sent
	flight  unit.Bytes
	windows []sentWith // of what is in flight, the oldest first

	profile []time.Duration // by window in packets, 0 unknown
	curve   []float64       // fitted to it, in seconds, never falling
	slope   float64         // of it beyond its end
	fitted  time.Duration
}

// sentWith is the window with which a packet was sent.
type sentWith struct {
	at     time.Duration
	window float64
}

// NewVerus starts in slow start.
func NewVerus() *Verus { return &Verus{window: 1, slow: true} }

// OnSent implements Controller.
func (v *Verus) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	v.advance(now)
	if v.epoch == 0 {
		v.epoch, v.heard = now+verusEpoch, now
	}
	v.credit = max(0, v.credit-1)
	v.flight = inFlight
	v.windows = append(v.windows, sentWith{now, v.window})
}

// with is the window with which a packet was sent; older ones are not asked for
// any more.
func (v *Verus) with(sent time.Duration) float64 {
	i := 0
	for i < len(v.windows)-1 && v.windows[i].at < sent {
		i++
	}
	if i > 64 || i == len(v.windows)-1 { // not each time
		v.windows = append(v.windows[:0], v.windows[i:]...)
		i = 0
	}
	if len(v.windows) == 0 {
		return v.window
	}
	return v.windows[i].window
}

// OnAck implements Controller.
func (v *Verus) OnAck(a Ack) {
	v.advance(a.Now)
	v.flight, v.heard = a.InFlight, a.Now
	if a.RTT <= 0 {
		return
	}
	w := v.with(a.Sent)
	v.srtt.add(a.RTT, 0.125)
	if v.least == 0 || a.RTT < v.least {
		v.least = a.RTT
	}
	v.worst = max(v.worst, a.RTT)
	n := float64(a.Bytes) / float64(MSS)
	if v.losing {
		v.window += n / v.window
		if w <= v.window {
			v.losing, v.target = false, v.delay(v.window)
		}
	} else {
		v.learn(int(w), a.RTT)
	}
	if v.slow {
		v.window += n
		if a.RTT > verusSlow {
			v.leave(a.Now, w)
		}
	}
}

// leave ends slow start at a loss, or a long delay, of a packet that was sent with
// a window.
func (v *Verus) leave(now time.Duration, w float64) {
	v.slow, v.losing, v.credit = false, true, 0
	if n := max(100, int(w)) + 1; n < len(v.profile) {
		v.profile = v.profile[:n] // what came after is of a queue that was full
	}
	v.fit(now)
	v.window = max(1, min(v.window, verusLoss*w))
	v.max = 0
}

// learn notes the delay of a window.
func (v *Verus) learn(w int, d time.Duration) {
	if w < 1 || w > verusMost {
		return
	}
	for len(v.profile) <= w {
		v.profile = append(v.profile, 0)
	}
	if old := v.profile[w]; old > 0 {
		d = time.Duration(verusLearn*float64(old) + (1-verusLearn)*float64(d))
	}
	v.profile[w] = d
}

// fit draws the curve: the best one that never falls (neighbours that would are
// pooled), straight between windows that are known. The authors fit a smooth
// spline, which falls here and there.
func (v *Verus) fit(now time.Duration) {
	type pool struct {
		from, to int // windows
		sum, n   float64
	}
	v.fitted = now
	var pools []pool
	for w, d := range v.profile {
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
	last := v.least.Seconds()
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
	// Beyond what is known: as steep as it was from the beginning.
	if n := len(v.curve); n > 0 {
		v.slope = max((v.curve[n-1]-v.least.Seconds())/float64(n), v.least.Seconds()/float64(2*n))
	}
}

// delay is what the curve has for a window.
func (v *Verus) delay(w float64) time.Duration {
	n := len(v.curve)
	if n == 0 {
		return v.least
	}
	d := v.curve[min(max(int(w), 0), n-1)]
	if beyond := w - float64(n-1); beyond > 0 {
		d += beyond * v.slope
	}
	return time.Duration(d * float64(time.Second))
}

// windowFor is the largest window whose delay is no more than d, 1 at least.
func (v *Verus) windowFor(d time.Duration) float64 {
	n := len(v.curve)
	if n == 0 {
		return v.window
	}
	s := d.Seconds()
	if s >= v.curve[n-1] {
		return min(float64(n-1)+(s-v.curve[n-1])/v.slope, verusMost)
	}
	i, _ := slices.BinarySearchFunc(v.curve, s, func(c, s float64) int {
		if c <= s {
			return -1
		}
		return 1
	})
	return max(1, float64(i-1))
}

// advance ends epochs that are over (section 4.3).
func (v *Verus) advance(now time.Duration) {
	for v.epoch > 0 && now >= v.epoch {
		at := v.epoch
		v.epoch += verusEpoch
		if now-v.epoch > time.Second { // nothing was sent for long
			v.epoch = now + verusEpoch
		}
		if !v.slow && v.least > 0 {
			v.decide(at)
		}
	}
}

// decide is one epoch.
func (v *Verus) decide(now time.Duration) {
	worst := v.worst
	if worst == 0 {
		worst = max(v.max, now-v.heard)
	}
	v.worst = 0
	if v.max == 0 {
		v.max = worst
	}
	if now-v.fitted >= verusRefit {
		v.fit(now)
	}
	stop := false
	switch {
	case v.losing: // section 4.5: the window grows with acknowledgements only
	case float64(v.max) > verusRatio*float64(v.least):
		v.target = max(v.least, v.target-verusUp)
		if stop = v.target == v.least; stop && v.flight < 2*MSS {
			v.least += verusRaise
			stop = false
		}
	case worst > v.max:
		v.target = max(v.least, v.target-verusDown)
	default:
		v.target += verusUp
	}
	v.max = time.Duration(verusSmooth*float64(v.max) + (1-verusSmooth)*float64(worst))
	if !v.losing {
		v.window = max(1, v.windowFor(v.target))
	}
	if stop {
		return
	}
	// Equation 5, with what is in flight for the last window (code).
	flight := float64(v.flight) / float64(MSS)
	s := v.window - flight
	if n := math.Ceil(v.srtt.v.Seconds() / verusEpoch.Seconds()); n > 1 {
		s = v.window + flight*(2-n)/(n-1)
	}
	v.credit = max(0, math.Floor(s))
}

// OnLoss implements Controller.
func (v *Verus) OnLoss(l Loss) {
	v.flight = l.InFlight
	if l.Timeout {
		v.windows = v.windows[:0]
		if v.slow {
			v.leave(l.Now, v.window)
		}
		v.losing, v.window, v.credit = true, max(1, v.windowFor(v.least)), 1
		return
	}
	w := v.with(l.Sent)
	if v.slow {
		if w > verusEnough {
			v.leave(l.Now, w)
		}
		return
	}
	if !v.losing {
		v.losing = true
		v.window = max(1, min(v.window, verusLoss*w))
	}
}

// Limits implements Controller.
func (v *Verus) Limits(now time.Duration) Limits {
	v.advance(now)
	if v.slow {
		return Limits{Window: unit.Bytes(v.window) * MSS}
	}
	// What this epoch may still send, on top of what is in flight.
	return Limits{Window: v.flight + unit.Bytes(v.credit)*MSS, Until: v.epoch}
}
