package lte

import "math"

// element is what is known of a CCE's soft bits before they are decoded. They are
// log likelihood ratios if the reference signals say all: if the channel makes a bit
// of power γ times the noise's, its soft bit is 2γ in the mean, with a variance of 4γ.
type element struct {
	// fill is the mean of the soft bits' weight, clean that of a full element without
	// noise, and noise that of an empty one.
	fill, clean, noise float64
	// gammas are those of the groups of eight bits, of which n are known.
	gammas [cceREGs]float64
	n      int
	// What a sight is the sum of.
	power, energy, weight float64
}

// add counts one group of eight bits whose γ is known.
func (e *element) add(gamma float64, soft []float32) {
	var weight, square float64
	for _, s := range soft {
		x := float64(s)
		weight += math.Abs(x)
		square += x * x
	}
	n := float64(len(soft))
	e.fill += weight / cceBits
	e.clean += 2 * gamma * n / cceBits
	e.noise += 2 * math.Sqrt(gamma*2/math.Pi) * n / cceBits
	e.gammas[e.n] = gamma
	e.n++
	e.power += gamma * n
	e.energy += square / (4 * gamma)
	e.weight += weight / 2
}

// turned are the mean and the variance of the weight of a bit of γ that noise turned
// round: of zero, if it did not.
func turned(gamma float64) (mean, variance float64) {
	// Of a straight line between two of the table it differs by less than .0002.
	at := math.Sqrt(gamma) * turnedSteps
	if i := int(at); at < float64(len(turnedTable)-1) {
		a, b, f := &turnedTable[i], &turnedTable[i+1], at-float64(i)
		return a[0] + f*(b[0]-a[0]), a[1] + f*(b[1]-a[1])
	}
	return 0, 0
}

// turnedTable is turned by the square root of γ, turnedSteps to 1. After it noise turns
// one bit in two millions round.
var turnedTable = func() (all [5*turnedSteps + 1][2]float64) {
	for i := range all {
		t := float64(i) / turnedSteps
		mean, sd := 2*t*t, 2*t
		tail, density := 0.5*math.Erfc(t/math.Sqrt2), math.Exp(-t*t/2)/math.Sqrt(2*math.Pi)
		lost := sd*density - mean*tail
		all[i] = [2]float64{lost, (mean*mean+sd*sd)*tail - mean*sd*density - lost*lost}
	}
	return
}()

const turnedSteps = 64

// full tells whether the element can have been sent: whether it is stronger than noise
// alone by two deviations.
func (e *element) full() bool {
	const noise = 1.2 // its weight varies by three quarters, that of a CCE's bits by .09
	return e.fill >= max(leastFill*e.clean, min(noise*e.noise, mostFill*e.clean))
}
