// SPDX-License-Identifier: Apache-2.0

package lte

import "math"

// Every word has an RNTI, since the RNTI is the part of its CRC that the content does not explain.
// So the best word for any soft bits looks like a message, if its location is in the search space
// of that RNTI and its fields are valid. A likelihood-ratio test decides: the log-likelihood gain
// of the soft bits if the word was sent, less the logarithm of the number of words to choose from.
// The test does not trust the noise and channel power of the reference signals: these only weight
// the soft bits of one location against each other. Whatever was not sent, be it noise or a word of
// another cell, has log odds below 0, at any level, size and power.

// acceptOdds is the least log odds of an accepted word: at most one in ten of the words that just
// reach it is a chance word.
var acceptOdds = math.Log(10)

// Few of all RNTIs address no single user, and few belong to known users. A chance word has one of
// them correspondingly rarely.
const (
	rntiLogOdds   = 16 * math.Ln2
	reservedRNTIs = float64(maxRARNTI + 2)
)

// minCandidateOdds is the least log odds of a word that any user may send.
var minCandidateOdds = acceptOdds - rntiLogOdds

// burstAllowance is the part of a word's weight that may be against it although all soft bits look
// alike: interference of another cell is not spread evenly, as noise is. It only saves time.
const burstAllowance = 0.03

// locationStats summarises the soft bits of a location, whatever word they hold. A soft bit has
// mean 2αγ and variance 4γν. γ is known from the reference signals; α and ν would be 1 if these
// were exact.
type locationStats struct {
	bits   float64
	power  float64 // sum of γ
	energy float64 // sum of the squares over 4γ
	weight float64 // half the sum of the weights
}

// measureLocation returns the sums of the statistics of elements.
func measureLocation(elements []cceStats) (s locationStats) {
	for i := range elements {
		e := &elements[i]
		s.bits += bitsPerCCE
		s.power += e.power
		s.energy += e.energy
		s.weight += e.weight
	}
	return s
}

// expectedFit returns the least part of the weight that a sent word explains. The uniformity of the
// soft bits shows how many of them noise flipped: if it can be none, a word that contradicts many
// was not sent.
func (s *locationStats) expectedFit(elements []cceStats) float64 {
	uniformity := s.weight / math.Sqrt(s.power*s.energy)
	uniformity = 1 - (1-uniformity)*(1+2*math.Sqrt(2/s.bits)) // by two deviations
	scale := s.bits / (s.power * noiseForUniformity(uniformity))
	var lost, spread, all float64
	for i := range elements {
		for _, gamma := range &elements[i].gammas {
			l, v := flippedBitWeight(gamma * scale)
			lost += l
			spread += v
			all += gamma*scale + l
		}
	}
	// Four deviations. The weight of few bits is not normally distributed, so allow one more wrong
	// bit, as large as one in fifty is.
	return 1 - (8*lost+4*math.Sqrt(8*spread)+8)/(8*all) - 2*burstAllowance
}

// noiseForUniformity returns the noise of bits of power 1 with a mean absolute value of this part
// of their root mean square.
func noiseForUniformity(uniformity float64) float64 {
	at := (1 - uniformity) * float64(len(uniformityTable)-1) / (1 - noiseUniformity)
	if i := int(at); at >= 0 && i < len(uniformityTable)-1 {
		return uniformityTable[i] + (at-float64(i))*(uniformityTable[i+1]-uniformityTable[i])
	}
	return maxBitNoise // also for NaN
}

// noiseUniformity is the uniformity of pure noise. Bits in more noise than maxBitNoise are
// indistinguishable from it.
const (
	noiseUniformity = 0.79788456 // the root of 2/π
	maxBitNoise     = 100.0
)

// uniformityTable has noiseForUniformity from 1 down to noiseUniformity.
var uniformityTable = func() (all [257]float64) {
	for i := range all {
		alike := 1 - (1-noiseUniformity)*float64(i)/float64(len(all)-1)
		low, high := 0.0, maxBitNoise
		for range 40 {
			noise := (low + high) / 2
			if lost, _ := flippedBitWeight(1 / noise); (1/noise+lost)*noise/math.Sqrt(1+noise) > alike {
				low = noise
			} else {
				high = noise
			}
		}
		all[i] = high
	}
	return
}()

// requiredFit returns the least part of the weight that a word must explain for that much evidence,
// if all the rest is noise.
func (s *locationStats) requiredFit(evidence float64) float64 {
	return math.Sqrt((1-math.Exp(-2*max(evidence, 0)/s.bits))*s.power*s.energy) / s.weight
}

// likelihoodGain returns the log-likelihood ratio of the soft bits between the word being sent and
// each bit being random, at the power and noise that make the word likeliest: at most ln 2 per bit.
// coded are the word's bits in some order; agreement is the part of the weight that they explain.
//
// It returns 0 unless both halves support the word: otherwise half the location holds the word, and
// the rest something else.
func (s *locationStats) likelihoodGain(soft []float32, coded []byte, order []int, agreement float64) (sum float64) {
	fit := agreement * s.weight
	alpha := fit / s.power
	noise := max(s.energy-alpha*fit, 1e-9*s.energy) / s.bits
	scale := alpha / noise
	at, n := 0, len(soft)/2
	for _, part := range [...][]float32{soft[:n], soft[n:]} {
		var half float64
		for _, b := range part {
			x := float64(b) * scale
			if coded[order[at]] == 1 {
				x = -x
			}
			half += bitLikelihoodGain(x)
			if at++; at == len(order) {
				at = 0
			}
		}
		if len(soft) > bitsPerCCE && !(half >= acceptOdds) {
			return 0
		}
		sum += half
	}
	return sum
}

// bitLikelihoodGain returns the log-likelihood gain over a random bit of a bit with log-likelihood
// ratio x.
func bitLikelihoodGain(x float64) float64 {
	at := (x + maxBitLLR) * bitGainSteps
	if !(at >= 0) {
		return math.Ln2 + x
	}
	if i := int(min(at, float64(len(bitGainTable)))); i < len(bitGainTable)-1 {
		return bitGainTable[i] + (at-float64(i))*(bitGainTable[i+1]-bitGainTable[i])
	}
	return math.Ln2
}

const (
	maxBitLLR    = 16 // linear beyond it
	bitGainSteps = 32 // per 1: the error of hundreds of bits is a hundredth
)

var bitGainTable = func() (all [2*maxBitLLR*bitGainSteps + 1]float64) {
	for i := range all {
		all[i] = math.Ln2 - math.Log1p(math.Exp(maxBitLLR-float64(i)/bitGainSteps))
	}
	return
}()

// logAlternatives returns the logarithm of the number of words of that many bits at a location,
// divided by the probability that one was sent: an occupied location holds something, equally
// likely of any level and size.
func (b *blindDecoder) logAlternatives(bits int, at cceLocation) float64 {
	// probability that the location is in a user's search space
	users := min(1, float64(candidateCount(at.level))/float64(at.cces/at.level))
	return float64(bits)*math.Ln2 + math.Log(users*float64(len(aggregationLevels)*len(b.candidateSizes)))
}
