package lte

import "math"

// cceStats is what is known of a CCE's soft bits before they are decoded. They are
// log likelihood ratios if the reference signals say all: if the channel makes a bit
// of power γ times the noise's, its soft bit is 2γ in the mean, with a variance of 4γ.
type cceStats struct {
	// meanWeight is the mean of the soft bits' weight, clean that of a full element without
	// noise, and noise that of an empty one.
	meanWeight, cleanWeight, noiseWeight float64
	// gammas are those of the groups of eight bits, of which n are known.
	gammas [regsPerCCE]float64
	groups int
	// What a sight is the sum of.
	power, energy, weight float64
}

// addGroup counts one group of eight bits whose γ is known.
func (e *cceStats) addGroup(gamma float64, soft []float32) {
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

// flippedBitWeight are the mean and the variance of the weight of a bit of γ that noise turned
// round: of zero, if it did not.
func flippedBitWeight(gamma float64) (mean, variance float64) {
	// Of a straight line between two of the table it differs by less than .0002.
	at := math.Sqrt(gamma) * flippedBitSteps
	if i := int(at); at < float64(len(flippedBitTable)-1) {
		a, b, f := &flippedBitTable[i], &flippedBitTable[i+1], at-float64(i)
		return a[0] + f*(b[0]-a[0]), a[1] + f*(b[1]-a[1])
	}
	return 0, 0
}

// flippedBitTable is turned by the square root of γ, flippedBitSteps to 1. After it noise turns
// one bit in two millions round.
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

// isOccupied tells whether the element can have been sent: whether it is stronger than noise
// alone by two deviations.
func (e *cceStats) isOccupied() bool {
	const noise = 1.2 // its weight varies by three quarters, that of a CCE's bits by .09
	return e.meanWeight >= max(minOccupiedWeight*e.cleanWeight, min(noise*e.noiseWeight, surelyOccupiedWeight*e.cleanWeight))
}
