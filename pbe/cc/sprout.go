// SPDX-License-Identifier: Apache-2.0

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
	sproutMaxRate    = 1000.0 // packets a second, about 12 Mbit/s
	sproutSigma      = 200.0  // packets a second, by the square root of a second
	sproutEscapeRate = 1.0    // λz: rate of leaving an outage, a second
	sproutHorizon    = 5      // ticks: packets sent now must leave the queue within 100 ms
	sproutPercentile = 0.05   // percentile of the forecast
)

// Our choices.
const (
	sproutInitialWindow = 10 // packets, before any forecast (RFC 6928)
	sproutMaxCount      = 160
	// sproutQueueFactor times the minimum RTT is the RTT from which on a packet has waited in a
	// queue.
	sproutQueueFactor = 1.05
)

// Sprout forecasts how much a varying link delivers with 95 % probability, and keeps no more in
// flight. In the paper the receiver makes the forecast. Here the sender makes it from
// acknowledgements, which show the same counts one return delay later.
type Sprout struct {
	probability [sproutBins]float64 // distribution of the rate
	scratch     [sproutBins]float64
	kernel      []float64 // Brownian step of one tick, by distance
	// deliveryCDF[i][k] is the probability that at most k packets are delivered within the horizon
	// if the rate is that of bin i now.
	deliveryCDF   [][sproutMaxCount]float64
	started       bool
	tickEnd       time.Duration // end of the current tick
	count         float64       // packets acknowledged in the tick
	queued        bool          // the last acknowledged packet had waited in a queue
	hadEmptyQueue bool          // the queue was empty at times: count is a lower bound
	window        unit.Bytes
	minRTT        time.Duration
}

// NewSprout returns a controller for which all rates are equally likely. It takes about 50 ms to
// compute its tables.
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

// forEachStep calls f with each possible bin one tick after bin i, and its probability. A step is
// Brownian, but bin 0, an outage, is left only at rate λz.
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

// buildTables computes deliveryCDF backwards from the end of the horizon. Deliveries of t+1 ticks
// are those of the next tick at its rate plus those of t more ticks.
func (s *Sprout) buildTables() {
	after := make([][sproutMaxCount]float64, sproutBins) // probabilities of counts in t ticks
	for i := range after {
		after[i][0] = 1
	}
	for range sproutHorizon {
		sum := make([][sproutMaxCount]float64, sproutBins)
		for j := range sum {
			m := sproutBinRate(j)
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
	s.completeTicksUntil(now)
	if !s.started {
		s.started, s.tickEnd = true, now+sproutTick
	}
	if inFlight <= size {
		s.queued, s.hadEmptyQueue = false, true
	}
}

// OnAck implements Controller.
func (s *Sprout) OnAck(a Ack) {
	s.completeTicksUntil(a.Now)
	s.count += float64(a.Bytes) / float64(MSS)
	if a.RTT > 0 && (s.minRTT == 0 || a.RTT < s.minRTT) {
		s.minRTT = a.RTT
	}
	// A flow without a queue sees fewer packets than the link could deliver. Its count is a lower
	// bound. (In the paper the sender marks such ticks, and the receiver skips them.)
	s.queued = float64(a.RTT) > sproutQueueFactor*float64(s.minRTT)
	s.hadEmptyQueue = s.hadEmptyQueue || !s.queued
}

// OnLoss implements Controller. Sprout ignores losses.
func (s *Sprout) OnLoss(Loss) {}

// completeTicksUntil completes the ticks up to now.
func (s *Sprout) completeTicksUntil(now time.Duration) {
	for s.started && now >= s.tickEnd {
		s.evolveRate()
		s.observeCount(s.count, s.hadEmptyQueue)
		s.count, s.hadEmptyQueue = 0, !s.queued
		s.tickEnd += sproutTick
		if now-s.tickEnd > time.Second { // one forecast is enough after a long silence
			s.tickEnd = now
		}
		if now < s.tickEnd {
			s.forecastWindow()
		}
	}
}

// sproutBinRate returns the rate of bin i in packets a tick.
func sproutBinRate(i int) float64 {
	return (float64(i) + 0.5) * sproutMaxRate / sproutBins * sproutTick.Seconds()
}

// evolveRate advances the distribution by one tick without an observation.
func (s *Sprout) evolveRate() {
	clear(s.scratch[:])
	for i, v := range s.probability {
		if v > 1e-12 {
			s.forEachStep(i, func(j int, p float64) { s.scratch[j] += v * p })
		}
	}
	s.probability = s.scratch
}

// observeCount multiplies the distribution by the likelihood of k packets in a tick (Poisson), or
// of at least k.
func (s *Sprout) observeCount(k float64, atLeast bool) {
	sum := 0.0
	lg, _ := math.Lgamma(k + 1)
	for i := range s.probability {
		m := sproutBinRate(i)
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

// poissonBelow returns the probability of less than k at mean m.
func poissonBelow(k, m float64) float64 {
	sum, term := 0.0, math.Exp(-m)
	for i := 0.0; i < k; i++ {
		sum += term
		term *= m / (i + 1)
	}
	return min(sum, 1)
}

// forecastWindow sets the window to the packets delivered within the horizon with 95 % probability.
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

// Limits implements Controller. Packets are not paced: the window covers 100 ms.
func (s *Sprout) Limits(now time.Duration) Limits {
	s.completeTicksUntil(now)
	return Limits{Window: s.window, Until: s.tickEnd}
}
