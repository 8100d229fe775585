// SPDX-License-Identifier: Apache-2.0

package cc

import "mpbond/base/unit"

// Specification of PCC Allegro: Dong and others: PCC: Re-architecting Congestion
// Control for Consistent High Performance, NSDI 2015, sections 3.1 and 3.2.
const (
	allegroLoss      = 0.05 // center of the sigmoid
	allegroSteep     = 100  // α of the sigmoid
	allegroMinStep   = 0.01 // ε_min
	allegroMaxStep   = 0.05 // ε_max
	allegroRTTs      = 1.7  // an interval lasts 1.7 to 2.2 round trips
	allegroRTTSpread = 0.5
	allegroPairs     = 2
)

// Allegro is PCC Allegro. It tries rates and moves towards higher utility: throughput, as long as
// less than a twentieth of the packets is lost.
type Allegro struct {
	pcc
	direction    float64
	steps        int
	previousRate unit.Rate // rate before the last step
}

// NewAllegro returns a controller that starts with ten packets in 100 ms. seed orders its trials.
func NewAllegro(seed uint64) *Allegro {
	c := &Allegro{pcc: newPCC(seed)}
	c.pairs, c.epsilon = allegroPairs, allegroMinStep
	c.intervalRTTs = func() float64 { return allegroRTTs + allegroRTTSpread*c.random.Float64() }
	c.utility = func(m *monitorInterval) float64 {
		x, l := m.sendingRate(), m.intervalLossRate()
		return x*(1-l)*sigmoid(allegroSteep*(l-allegroLoss)) - x*l
	}
	c.applyOutcomes = c.stepSendingRate
	return c
}

// stepSendingRate implements section 3.2. If both pairs agree on a direction, the rate moves that
// way by steps of 1, 2, 3 … ε_min. When the utility falls, it returns to the previous rate.
func (c *Allegro) stepSendingRate(list []intervalOutcome) {
	if c.state == pccMoving {
		o := list[0]
		if o.utility < c.lastOutcome.utility {
			c.state, c.rate = pccProbing, c.previousRate
			return
		}
		c.lastOutcome, c.previousRate = o, c.rate
		c.steps++
		c.rate = scaleRate(c.rate, 1+c.direction*float64(c.steps)*allegroMinStep)
		return
	}
	votes := 0
	var best intervalOutcome
	for i := 0; i < len(list); i += 2 {
		o := list[i]
		if list[i+1].utility > o.utility {
			o = list[i+1]
		}
		if o.up {
			votes++
		}
		best = o
	}
	if votes != 0 && votes != c.pairs {
		c.epsilon = min(c.epsilon+allegroMinStep, allegroMaxStep)
		return
	}
	c.direction = -1
	if votes > 0 {
		c.direction = 1
	}
	c.lastOutcome, c.steps = best, 1
	c.previousRate = scaleRate(c.rate, 1+c.direction*c.epsilon)
	c.rate = scaleRate(c.previousRate, 1+c.direction*allegroMinStep)
	c.state, c.epsilon = pccMoving, allegroMinStep
}
