package cc

import "mpbond/base/unit"

// Specification of PCC Allegro: Dong and others: PCC: Re-architecting Congestion
// Control for Consistent High Performance, NSDI 2015, sections 3.1 and 3.2.
const (
	allegroLoss  = 0.05 // where the sigmoid cuts off
	allegroSteep = 100  // α of the sigmoid
	allegroLeast = 0.01 // ε_min
	allegroMost  = 0.05 // ε_max
	allegroRTTs  = 1.7  // an interval lasts 1.7 to 2.2 round trips
	allegroMore  = 0.5
	allegroPairs = 2
)

// Allegro tries rates and goes on where the utility is higher: throughput, as
// long as less than a twentieth is lost.
type Allegro struct {
	pcc
	dir   float64
	steps int
	back  unit.Rate // the rate before the last step
}

// NewAllegro starts with ten packets in 100 ms; seed orders its trials.
func NewAllegro(seed uint64) *Allegro {
	c := &Allegro{pcc: newPCC(seed)}
	c.pairs, c.eps = allegroPairs, allegroLeast
	c.rtts = func() float64 { return allegroRTTs + allegroMore*c.rnd.Float64() }
	c.utility = func(m *interval) float64 {
		x, l := m.throughput(), m.loss()
		return x*(1-l)*sigmoid(allegroSteep*(l-allegroLoss)) - x*l
	}
	c.learn = c.step
	return c
}

// step is section 3.2: both pairs must agree on a direction; then steps of 1, 2, 3
// … ε_min that way while the utility grows, and back by one when it falls.
func (c *Allegro) step(list []outcome) {
	if c.state == pccMove {
		o := list[0]
		if o.utility < c.last.utility {
			c.state, c.rate = pccProbe, c.back
			return
		}
		c.last, c.back = o, c.rate
		c.steps++
		c.rate = scale(c.rate, 1+c.dir*float64(c.steps)*allegroLeast)
		return
	}
	votes := 0
	var best outcome
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
		c.eps = min(c.eps+allegroLeast, allegroMost)
		return
	}
	c.dir = -1
	if votes > 0 {
		c.dir = 1
	}
	c.last, c.steps = best, 1
	c.back = scale(c.rate, 1+c.dir*c.eps)
	c.rate = scale(c.back, 1+c.dir*allegroLeast)
	c.state, c.eps = pccMove, allegroLeast
}
