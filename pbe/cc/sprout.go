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
	sproutTick       = 20 * time.Millisecond
	sproutBins       = 256
	sproutMaxRate    = 1000.0 // packets a second: it knows no link of more than 12 Mbit/s
	sproutSigma      = 200.0  // packets a second, by the square root of a second
	sproutEscapeRate = 1.0    // λz: rate of leaving an outage, a second
	sproutHorizon    = 5      // ticks: what is sent now shall have left in 100 ms
	sproutPercentile = 0.05   // the percentile of the forecast
)

// Choices of ours.
const (
	sproutInitialWindow = 10 // packets, before anything is known (RFC 6928)
	sproutMaxCount      = 160
	// sproutQueueFactor is how much longer than the least a round trip is of packets that
	// have waited in a queue.
	sproutQueueFactor = 1.05
)

// Sprout forecasts how much a varying link delivers surely, and has no more in
// flight. The inference is the receiver's in the paper; here it runs where the
// acknowledgements come, which tell the same counts a way back later.
type Sprout struct {
	probability [sproutBins]float64 // distribution of the rate
	scratch     [sproutBins]float64
	kernel      []float64 // of one tick's Brownian step, by distance
	// deliveryCDF[i][k] is the probability that k packets at most are delivered within
	// the horizon, if the rate is that of bin i now.
	deliveryCDF   [][sproutMaxCount]float64
	started       bool
	tickEnd       time.Duration // end of the current tick
	count         float64       // packets in it
	queued        bool          // the last acknowledgement had waited in a queue
	hadEmptyQueue bool          // there was none at a moment of the tick: the count is a lower bound
	window        unit.Bytes
	minRTT        time.Duration
}

// NewSprout knows nothing of the link: all rates are as likely. It takes some
// 50 ms to make its tables.
func NewSprout() *Sprout {
	s := &Sprout{window: sproutInitialWindow * MSS}
	for i := range s.probability {
		s.probability[i] = 1.0 / sproutBins
	}
	sd := sproutSigma * math.Sqrt(sproutTick.Seconds()) / (sproutMaxRate / sproutBins) // in bins
	for d := 0; float64(d) < 4*sd; d++ {
		s.kernel = append(s.kernel, math.Exp(-float64(d*d)/(2*sd*sd)))
	}
	s.buildTables()
	return s
}

// forEachStep calls f with where the rate of bin i is a tick later, and how probably: a
// Brownian step, but from an outage, bin 0, only at λz.
func (s *Sprout) forEachStep(i int, f func(j int, p float64)) {
	stay := 0.0
	if i == 0 {
		stay = math.Exp(-sproutEscapeRate * sproutTick.Seconds())
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

// buildTables makes surely, from the end of the horizon to its beginning: what t+1
// ticks deliver from a rate is what the rate a tick later delivers in that tick,
// and then in t more.
func (s *Sprout) buildTables() {
	after := make([][sproutMaxCount]float64, sproutBins) // probabilities of counts in t ticks
	for i := range after {
		after[i][0] = 1
	}
	for range sproutHorizon {
		sum := make([][sproutMaxCount]float64, sproutBins)
		for j := range sum {
			m := binRate(j)
			q := math.Exp(-m)
			for k := 0; k < sproutMaxCount && q > 1e-9 || float64(k) < m; k++ {
				for l := 0; k+l < sproutMaxCount; l++ {
					sum[j][k+l] += q * after[j][l]
				}
				q *= m / float64(k+1)
			}
		}
		next := make([][sproutMaxCount]float64, sproutBins)
		for i := range next {
			s.forEachStep(i, func(j int, p float64) {
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
		for k := 1; k < sproutMaxCount; k++ {
			after[i][k] += after[i][k-1]
		}
	}
	s.deliveryCDF = after
}

// OnSent implements Controller.
func (s *Sprout) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	s.advanceTo(now)
	if !s.started {
		s.started, s.tickEnd = true, now+sproutTick
	}
	if inFlight <= size {
		s.queued, s.hadEmptyQueue = false, true
	}
}

// OnAck implements Controller.
func (s *Sprout) OnAck(a Ack) {
	s.advanceTo(a.Now)
	s.count += float64(a.Bytes) / float64(MSS)
	if a.RTT > 0 && (s.minRTT == 0 || a.RTT < s.minRTT) {
		s.minRTT = a.RTT
	}
	// A flow that keeps less in flight than the link holds without a queue hears
	// less than the link could do: a lower bound only. (In the paper the sender says
	// so in its packets, and such ticks are left out.)
	s.queued = float64(a.RTT) > sproutQueueFactor*float64(s.minRTT)
	s.hadEmptyQueue = s.hadEmptyQueue || !s.queued
}

// OnLoss implements Controller: losses say nothing to Sprout.
func (s *Sprout) OnLoss(Loss) {}

// advanceTo ends the ticks that are over.
func (s *Sprout) advanceTo(now time.Duration) {
	for s.started && now >= s.tickEnd {
		s.evolveRate()
		s.observeCount(s.count, s.hadEmptyQueue)
		s.count, s.hadEmptyQueue = 0, !s.queued
		s.tickEnd += sproutTick
		if now-s.tickEnd > time.Second { // long silence: one forecast is enough
			s.tickEnd = now
		}
		if now < s.tickEnd {
			s.forecastWindow()
		}
	}
}

// binRate is the rate of bin i in packets a tick.
func binRate(i int) float64 {
	return (float64(i) + 0.5) * sproutMaxRate / sproutBins * sproutTick.Seconds()
}

// evolveRate is a tick without knowing more.
func (s *Sprout) evolveRate() {
	clear(s.scratch[:])
	for i, v := range s.probability {
		if v > 1e-12 {
			s.forEachStep(i, func(j int, p float64) { s.scratch[j] += v * p })
		}
	}
	s.probability = s.scratch
}

// observeCount multiplies by the likelihood of k packets in a tick (Poisson), or of k
// at least.
func (s *Sprout) observeCount(k float64, atLeast bool) {
	sum := 0.0
	lg, _ := math.Lgamma(k + 1)
	for i := range s.probability {
		m := binRate(i)
		l := 1.0
		if !atLeast {
			l = math.Exp(k*math.Log(m) - m - lg)
		} else if k > 0 {
			l = 1 - poissonBelow(k, m)
		}
		s.probability[i] *= max(l, 1e-12)
		sum += s.probability[i]
	}
	for i := range s.probability {
		s.probability[i] /= sum
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

// forecastWindow sets the window to what is delivered within the horizon with a
// probability of 95 %.
func (s *Sprout) forecastWindow() {
	lo, hi := 0, sproutMaxCount-1
	for lo < hi {
		k, below := (lo+hi)/2, 0.0
		for i, v := range s.probability {
			below += v * s.deliveryCDF[i][k]
		}
		if below >= sproutPercentile {
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
	s.advanceTo(now)
	return Limits{Window: s.window, Until: s.tickEnd}
}
