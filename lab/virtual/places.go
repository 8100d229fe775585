// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cell"
)

// Parts are properties of real networks that Location leaves out. Each can be switched off, to see what it does.
type Parts struct {
	Uplink    bool // acknowledgements wait for grants
	Blocks    bool // errors follow from a signal that fades, a tenth of the blocks; few users a subframe; whole groups
	Carriers  bool // a second carrier comes when the first is used to 97 %
	Handovers bool // to other cells, with gaps, other RNTIs and other routes
	Wire      bool // a wired part with cross traffic, at one place in five a policer
	Loss      bool // at random in the wired part
}

// AllParts has everything.
var AllParts = Parts{true, true, true, true, true, true}

// Choices of Place. Where no source is named, they are ours.
const (
	// Handovers follow one another after handoverEvery in the mean, as on a drive through a town. The gap is 30 to 80
	// ms; one in five does not forward the queue. The route changes by up to
	// routeStep.
	handoverEvery          = 10 * time.Second
	minGap, maxGap         = 30, 80
	notForwarded           = 0.2
	routeStep              = 15 * time.Millisecond
	policed                = 0.2
	minWire, maxWire       = 0.9, 4.0 // times what the cells carry
	minWireQueue           = 5 * time.Millisecond
	maxWireQueue           = 100 * time.Millisecond
	minLossLog, maxLossLog = -6, -2 // logarithms of the loss (section 6.1 of the paper)
	crossPart              = 0.25   // mean part of the wire that cross traffic has
)

// Place returns a case with a device at a random place, with a flow of 20 s. Places of a seed differ by number, runs of
// one place in signals, losses, traffic and handovers. Each part draws its own numbers, so that it is the same with and
// without the others. Nothing is fitted to a controller.
func Place(seed, number, run uint64, has Parts) Case {
	r := rand.New(rand.NewPCG(seed, 100+number))
	c := Location(r.Uint64()>>8, run)
	runSeed := c.Seed ^ run<<40
	mean, loss := 6+16*r.Float64(), drawLoss(r)
	if has.Blocks {
		c.drawSignals(rand.New(rand.NewPCG(seed, 300+number)), mean, runSeed)
	}
	c.addParts(has, rand.New(rand.NewPCG(seed, 500+number)), runSeed, loss)
	return c
}

// drawLoss draws the loss of a wired part.
func drawLoss(r *rand.Rand) float64 {
	return math.Pow(10, minLossLog+(maxLossLog-minLossLog)*r.Float64())
}

// AddParts adds parts to a case that lacks them. Its seed decides their properties.
func (c *Case) AddParts(has Parts) {
	r := rand.New(rand.NewPCG(c.Seed, 500))
	c.addParts(has, r, c.Seed, drawLoss(r))
}

// addParts adds parts. r draws the wired part, and runSeed what happens in the run.
func (c *Case) addParts(has Parts, r *rand.Rand, runSeed uint64, loss float64) {
	c.Network.CarriersByUse = has.Carriers
	if has.Loss {
		for i := range c.Flows {
			if c.Flows[i].Rate == nil {
				c.Flows[i].Loss = loss
			}
		}
	}
	if has.Blocks {
		c.addBlocks(runSeed)
	}
	if has.Wire {
		c.addWire(r, runSeed)
	}
	if has.Uplink {
		c.appendChange(func(_ *Cell, flows []Flow) {
			uplinks := map[int]*lte.Uplink{}
			for i := range flows {
				u := c.UserOf(i)
				if flows[i].Rate != nil || u == noUser {
					continue
				}
				if uplinks[u] == nil {
					uplinks[u] = lte.NewUplink(runSeed + uint64(u))
				}
				flows[i].Uplink = uplinks[u]
			}
		})
	}
	if has.Handovers {
		c.addHandovers(runSeed)
	}
}

// drawSignals gives users other signals: of the first it wanders about mean.
func (c *Case) drawSignals(r *rand.Rand, mean float64, runSeed uint64) {
	for u := range c.Network.Users {
		c.Network.Users[u].SINR = wanderingSignal(runSeed, mean)
		if u > 0 {
			c.Network.Users[u].SINR = SteadySignal(6 + 16*r.Float64())
		}
	}
}

// addBlocks makes errors follow from signals, which also fade, and serves few users a subframe.
func (c *Case) addBlocks(runSeed uint64) {
	n := &c.Network
	n.Scheduler = lte.ProportionalFair
	for i := range n.Cells {
		n.Cells[i].Groups = true
	}
	for u := range n.Users {
		level, fading := n.Users[u].SINR, Fading(runSeed+uint64(u), 0, lte.FadingDeviation)
		n.Users[u].Adapts = true
		n.Users[u].SINR = func(number int64) float64 { return level(number) + fading(number) }
	}
	for i, f := range c.Flows {
		if u := c.UserOf(i); f.Rate == nil && u != noUser {
			n.Users[u].Sleeps = true
		}
	}
}

// addWire adds a wired part before the cells, with cross traffic.
func (c *Case) addWire(r *rand.Rand, runSeed uint64) {
	part := minWire * math.Pow(maxWire/minWire, r.Float64())
	queue := time.Duration(float64(minWireQueue) * math.Pow(float64(maxWireQueue)/float64(minWireQueue), r.Float64()))
	isPoliced := r.Float64() < policed
	carries := 0.0
	for _, x := range c.Network.Cells {
		carries += x.Bits(15) * 1000
	}
	rate := unit.Rate(part * carries)
	c.OthersSkipWire = true
	before := c.Wire
	c.Wire = func() (l Link) {
		l = NewWire(SteadyRate(rate), rate.Bytes(queue))
		if isPoliced {
			l = newPolicer(rate, rate.Bytes(queue))
		}
		if before != nil {
			l = Chain(l, before())
		}
		return l
	}
	users := make([]int, len(c.Flows))
	for i := range users {
		users[i] = c.UserOf(i)
	}
	// Half of the time at twice the mean.
	c.Users = append(users, noUser)
	c.Flows = append(c.Flows, Flow{DelayToLink: 10 * ms,
		Rate: Bursts(runSeed, unit.Rate(2*crossPart*float64(rate)), 400*ms, 400*ms)})
}

// addHandovers moves the first user to other cells from time to time.
func (c *Case) addHandovers(runSeed uint64) {
	var r *rand.Rand
	var next, extra time.Duration
	var name cell.RNTI
	c.appendChange(func(_ *Cell, flows []Flow) { // each run begins anew
		r, name, extra = rand.New(rand.NewPCG(runSeed, 15)), 0x6000, 0
		next = time.Duration(r.ExpFloat64() * float64(handoverEvery))
		for i := range flows {
			if c.UserOf(i) == 0 {
				flows[i].ExtraDelay = func(time.Duration) time.Duration { return extra }
			}
		}
	})
	c.OnSubframe(func(x *Cell) {
		if time.Duration(x.Number())*ms < next {
			return
		}
		gap := minGap + r.Int64N(maxGap-minGap+1)
		name++
		x.Handover(0, gap, name, r.Float64() >= notForwarded)
		extra = time.Duration(r.Int64N(int64(routeStep)))
		next += time.Duration(gap)*ms + time.Duration(r.ExpFloat64()*float64(handoverEvery))
	})
}
