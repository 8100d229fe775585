package lte

import "math"

// element is what is known of a CCE's soft bits before they are decoded. They are
// log likelihood ratios: if the channel makes a bit of power γ times the noise's,
// its soft bit is 2γ in the mean, with a variance of 4γ.
type element struct {
	// fill is the mean of the soft bits' weight, clean that of a full element without
	// noise, and noise that of an empty one.
	fill, clean, noise float64
	// lost and spread are the mean and the variance of the weight of those bits that
	// noise turned round, if it is full.
	lost, spread float64
}

// add counts one group of eight bits whose γ is known.
func (e *element) add(gamma float64, soft []float32) {
	n := float64(len(soft)) / cceBits
	for _, s := range soft {
		e.fill += math.Abs(float64(s)) / cceBits
	}
	e.clean += 2 * gamma * n
	e.noise += 2 * math.Sqrt(gamma*2/math.Pi) * n
	mean, sd, t := 2*gamma, 2*math.Sqrt(gamma), math.Sqrt(gamma)
	tail, density := 0.5*math.Erfc(t/math.Sqrt2), math.Exp(-gamma/2)/math.Sqrt(2*math.Pi)
	lost := sd*density - mean*tail
	e.lost += lost * float64(len(soft))
	e.spread += ((mean*mean+sd*sd)*tail - mean*sd*density - lost*lost) * float64(len(soft))
}

// full tells whether the element can have been sent.
func (e *element) full() bool {
	return e.fill >= max(leastFill*e.clean, min(1.4*e.noise, 0.7*e.clean))
}
