// SPDX-License-Identifier: Apache-2.0

package lte

import "math"

// cceStats describes a CCE's soft bits before decoding. They are log-likelihood ratios as far as
// the reference signals are right: if the channel gives a bit γ times the noise power, its soft bit
// has mean 2γ and variance 4γ.
type cceStats struct {
	// meanWeight is the mean absolute soft bit, cleanWeight that of an occupied element without
	// noise, and noiseWeight that of an empty one.
	meanWeight, cleanWeight, noiseWeight float64
	// gammas[:groups] are the γ of the groups of eight bits.
	gammas [regsPerCCE]float64
	groups int
	// power, energy and weight are the terms of locationStats.
	power, energy, weight float64
}

// addBitGroup adds a group of eight bits with known γ.
func (e *cceStats) addBitGroup(gamma float64, soft []float32) {
	var weight, square float64
	for _, s := range soft {
		x := float64(s)
		weight += math.Abs(x)
		square += x * x
	}
	n := float64(len(soft))
	e.meanWeight += weight / bitsPerCCE
	e.cleanWeight += 2 * gamma * n / bitsPerCCE
	e.noiseWeight += 2 * math.Sqrt(gamma*2/math.Pi) * n / bitsPerCCE
	e.gammas[e.groups] = gamma
	e.groups++
	e.power += gamma * n
	e.energy += square / (4 * gamma)
	e.weight += weight / 2
}

// flippedBitWeight returns the mean and variance of the absolute value of a soft bit of γ whose
// sign noise has flipped; bits that kept their sign count as 0.
func flippedBitWeight(gamma float64) (mean, variance float64) {
	// Linear interpolation is wrong by less than 0.0002.
	at := math.Sqrt(gamma) * flippedBitSteps
	if i := int(at); at < float64(len(flippedBitTable)-1) {
		a, b, f := &flippedBitTable[i], &flippedBitTable[i+1], at-float64(i)
		return a[0] + f*(b[0]-a[0]), a[1] + f*(b[1]-a[1])
	}
	return 0, 0
}

// flippedBitTable has flippedBitWeight by the square root of γ, in steps of 1/flippedBitSteps.
// Beyond its end noise flips one bit in two million.
var flippedBitTable = func() (all [5*flippedBitSteps + 1][2]float64) {
	for i := range all {
		t := float64(i) / flippedBitSteps
		mean, sd := 2*t*t, 2*t
		tail, density := 0.5*math.Erfc(t/math.Sqrt2), math.Exp(-t*t/2)/math.Sqrt(2*math.Pi)
		lost := sd*density - mean*tail
		all[i] = [2]float64{lost, (mean*mean+sd*sd)*tail - mean*sd*density - lost*lost}
	}
	return
}()

const flippedBitSteps = 64

// isOccupied reports whether the element may have been sent: whether it is stronger than noise
// alone by two deviations.
func (e *cceStats) isOccupied() bool {
	const noise = 1.2 // a weight varies by three quarters, the mean of a CCE's bits by 0.09
	return e.meanWeight >= max(minOccupiedWeight*e.cleanWeight,
		min(noise*e.noiseWeight, surelyOccupiedWeight*e.cleanWeight))
}
