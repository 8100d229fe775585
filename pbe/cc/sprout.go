package cc

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// Specification of Sprout: Winstein, Sivaraman, Balakrishnan: Stochastic
// Forecasts Achieve High Throughput and Low Delay over Cellular Networks, NSDI
// 2013, section 3.
const (
	sproutTick    = 20 * time.Millisecond
	sproutBins    = 256
	sproutMost    = 1000.0 // packets a second: it knows no link of more than 12 Mbit/s
	sproutSigma   = 200.0  // packets a second, by the square root of a second
	sproutEscape  = 1.0    // λz: rate of leaving an outage, a second
	sproutHorizon = 5      // ticks: what is sent now shall have left in 100 ms
	sproutPart    = 0.05   // the percentile of the forecast
)

// Choices of ours.
const (
	sproutStart  = 10 // packets, before anything is known (RFC 6928)
	sproutCounts = 160
	// sproutQueued is how much longer than the least a round trip is of packets that
	// have waited in a queue.
	sproutQueued = 1.05
)

// Sprout forecasts how much a varying link delivers surely, and has no more in
// flight. The inference is the receiver's in the paper; here it runs where the
// acknowledgements come, which tell the same counts a way back later.
type Sprout struct {
	p      [sproutBins]float64 // distribution of the rate
	next   [sproutBins]float64
	kernel []float64 // of one tick's Brownian step, by distance
	// surely[i][k] is the probability that k packets at most are delivered within
	// the horizon, if the rate is that of bin i now.
	surely [][sproutCounts]float64
	begun  bool
	tick   time.Duration // end of the current tick
	count  float64       // packets in it
	queued bool          // the last acknowledgement had waited in a queue
	idle   bool          // there was none at a moment of the tick: the count is a lower bound
	window unit.Bytes
	minRTT time.Duration
}

// NewSprout knows nothing of the link: all rates are as likely. It takes some
// 50 ms to make its tables.
func NewSprout() *Sprout {
	s := &Sprout{window: sproutStart * MSS}
	for i := range s.p {
		s.p[i] = 1.0 / sproutBins
	}
	sd := sproutSigma * math.Sqrt(sproutTick.Seconds()) / (sproutMost / sproutBins) // in bins
	for d := 0; float64(d) < 4*sd; d++ {
		s.kernel = append(s.kernel, math.Exp(-float64(d*d)/(2*sd*sd)))
	}
	s.tables()
	return s
}

// steps calls f with where the rate of bin i is a tick later, and how probably: a
// Brownian step, but from an outage, bin 0, only at λz.
func (s *Sprout) steps(i int, f func(j int, p float64)) {
	stay := 0.0
	if i == 0 {
		stay = math.Exp(-sproutEscape * sproutTick.Seconds())
		f(0, stay)
	}
	lo, hi := max(0, i-len(s.kernel)+1), min(sproutBins-1, i+len(s.kernel)-1)
	sum := 0.0
	for j := lo; j <= hi; j++ {
		sum += s.kernel[max(i-j, j-i)]
	}
	for j := lo; j <= hi; j++ {
		f(j, (1-stay)*s.kernel[max(i-j, j-i)]/sum)
	}
}

// tables makes surely, from the end of the horizon to its beginning: what t+1
// ticks deliver from a rate is what the rate a tick later delivers in that tick,
// and then in t more.
func (s *Sprout) tables() {
	after := make([][sproutCounts]float64, sproutBins) // probabilities of counts in t ticks
	for i := range after {
		after[i][0] = 1
	}
	for range sproutHorizon {
		sum := make([][sproutCounts]float64, sproutBins)
		for j := range sum {
			m := binRate(j)
			q := math.Exp(-m)
			for k := 0; k < sproutCounts && q > 1e-9 || float64(k) < m; k++ {
				for l := 0; k+l < sproutCounts; l++ {
					sum[j][k+l] += q * after[j][l]
				}
				q *= m / float64(k+1)
			}
		}
		next := make([][sproutCounts]float64, sproutBins)
		for i := range next {
			s.steps(i, func(j int, p float64) {
				if p < 1e-6 {
					return
				}
				for k := range next[i] {
					next[i][k] += p * sum[j][k]
				}
			})
		}
		after = next
	}
	for i := range after {
		for k := 1; k < sproutCounts; k++ {
			after[i][k] += after[i][k-1]
		}
	}
	s.surely = after
}

// OnSent implements Controller.
func (s *Sprout) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	s.advance(now)
	if !s.begun {
		s.begun, s.tick = true, now+sproutTick
	}
	if inFlight <= size {
		s.queued, s.idle = false, true
	}
}

// OnAck implements Controller.
func (s *Sprout) OnAck(a Ack) {
	s.advance(a.Now)
	s.count += float64(a.Bytes) / float64(MSS)
	if a.RTT > 0 && (s.minRTT == 0 || a.RTT < s.minRTT) {
		s.minRTT = a.RTT
	}
	// A flow that keeps less in flight than the link holds without a queue hears
	// less than the link could do: a lower bound only. (In the paper the sender says
	// so in its packets, and such ticks are left out.)
	s.queued = float64(a.RTT) > sproutQueued*float64(s.minRTT)
	s.idle = s.idle || !s.queued
}

// OnLoss implements Controller: losses say nothing to Sprout.
func (s *Sprout) OnLoss(Loss) {}

// advance ends the ticks that are over.
func (s *Sprout) advance(now time.Duration) {
	for s.begun && now >= s.tick {
		s.evolve()
		s.observe(s.count, s.idle)
		s.count, s.idle = 0, !s.queued
		s.tick += sproutTick
		if now-s.tick > time.Second { // long silence: one forecast is enough
			s.tick = now
		}
		if now < s.tick {
			s.forecast()
		}
	}
}

// binRate is the rate of bin i in packets a tick.
func binRate(i int) float64 {
	return (float64(i) + 0.5) * sproutMost / sproutBins * sproutTick.Seconds()
}

// evolve is a tick without knowing more.
func (s *Sprout) evolve() {
	clear(s.next[:])
	for i, v := range s.p {
		if v > 1e-12 {
			s.steps(i, func(j int, p float64) { s.next[j] += v * p })
		}
	}
	s.p = s.next
}

// observe multiplies by the likelihood of k packets in a tick (Poisson), or of k
// at least.
func (s *Sprout) observe(k float64, atLeast bool) {
	sum := 0.0
	lg, _ := math.Lgamma(k + 1)
	for i := range s.p {
		m := binRate(i)
		l := 1.0
		if !atLeast {
			l = math.Exp(k*math.Log(m) - m - lg)
		} else if k > 0 {
			l = 1 - poissonBelow(k, m)
		}
		s.p[i] *= max(l, 1e-12)
		sum += s.p[i]
	}
	for i := range s.p {
		s.p[i] /= sum
	}
}

// poissonBelow is the probability of less than k at mean m.
func poissonBelow(k, m float64) float64 {
	sum, term := 0.0, math.Exp(-m)
	for i := 0.0; i < k; i++ {
		sum += term
		term *= m / (i + 1)
	}
	return min(sum, 1)
}

// forecast sets the window to what is delivered within the horizon with a
// probability of 95 %.
func (s *Sprout) forecast() {
	lo, hi := 0, sproutCounts-1
	for lo < hi {
		k, below := (lo+hi)/2, 0.0
		for i, v := range s.p {
			below += v * s.surely[i][k]
		}
		if below >= sproutPart {
			hi = k
		} else {
			lo = k + 1
		}
	}
	s.window = max(unit.Bytes(lo), 1) * MSS
}

// Limits implements Controller. Packets are not paced: the window is 100 ms of
// what the link surely does.
func (s *Sprout) Limits(now time.Duration) Limits {
	s.advance(now)
	return Limits{Window: s.window, Until: s.tick}
}
