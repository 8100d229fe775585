// SPDX-License-Identifier: Apache-2.0

package cc

import "math"

// Specification of PCC Vivace: Dong and others: PCC Vivace: Online-Learning
// Congestion Control, NSDI 2018, sections 4 and 5.
const (
	vivacePower         = 0.9
	vivaceRTT           = 900.0 // b
	vivaceLoss          = 11.35 // c
	vivaceEpsilon       = 0.05
	vivaceStep          = 1.0  // θ0: Mbit/s for a gradient of 1
	vivaceBound         = 0.05 // ω0: of the rate
	vivaceBoundaryStep  = 0.1  // δ of the boundary
	vivaceNoiseGradient = 0.01 // smaller RTT gradients count as noise
	vivaceStartNoise    = 0.2  // the same before the first probe, as in the authors' code of 2018
	vivacePairs         = 3    // as in the authors' later code; the paper has one
)

// Vivace is PCC Vivace. It follows the gradient of its utility.
type Vivace struct {
	pcc
	direction float64
	sameSteps int // consecutive steps in one direction: the confidence amplifier
	boundary  int // k
}

// NewVivace returns a controller that starts with ten packets in 100 ms. seed orders its trials.
func NewVivace(seed uint64) *Vivace {
	c := &Vivace{pcc: newPCC(seed)}
	c.pairs, c.epsilon = vivacePairs, vivaceEpsilon
	c.intervalRTTs = func() float64 { return 1 + 0.1*c.random.Float64() }
	c.utility = func(m *monitorInterval) float64 {
		x, s, flat := m.sendingRate(), m.rttGradient(), vivaceNoiseGradient
		if c.state == pccStarting {
			flat = vivaceStartNoise
		}
		if math.Abs(s) < flat {
			s = 0
		}
		return math.Pow(x, vivacePower) - vivaceRTT*x*s - vivaceLoss*x*m.intervalLossRate()
	}
	c.applyOutcomes = c.climbGradient
	return c
}

// climbGradient makes one step of section 5.
func (c *Vivace) climbGradient(list []intervalOutcome) {
	votes, gradient := 0, [2]float64{}
	for i := 0; i < len(list); i += 2 {
		up, down := list[i], list[i+1]
		if !up.up {
			up, down = down, up
		}
		if up.rate <= down.rate {
			return // the sending rates differ from the intended ones
		}
		g := (up.utility - down.utility) / (up.rate - down.rate) / vivacePairs
		if g > 0 {
			votes++
			gradient[1] += g
		} else {
			gradient[0] -= g
		}
	}
	dir, step := 1.0, gradient[1]
	switch {
	case votes == 0:
		dir, step = -1, gradient[0]
	case 2*votes <= vivacePairs:
		c.sameSteps = 0
		return // the pairs disagree
	}
	if dir != c.direction {
		c.direction, c.sameSteps, c.boundary = dir, 0, 0
	}
	c.sameSteps++
	amplifier := float64(c.sameSteps)
	if c.sameSteps > 3 {
		amplifier = float64(2*c.sameSteps - 3)
	}
	step *= amplifier * vivaceStep
	bound := func() float64 { return (vivaceBound + vivaceBoundaryStep*float64(c.boundary)) * float64(c.rate) / 1e6 }
	if step > bound() {
		step = bound()
		c.boundary++
	} else {
		for c.boundary > 0 && step < bound() {
			c.boundary--
		}
	}
	c.rate += scaleRate(1e6, dir*step)
}
