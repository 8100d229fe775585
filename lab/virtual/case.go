// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// Case is a network of cells with its flows, but without congestion controllers: comparisons run
// the same case with each controller. It is not safe for concurrent use, because signals may be
// drawn on demand.
type Case struct {
	Network lte.Config
	Flows   []Flow
	Users   []int // user of each flow, noUser if it ends before the cells; nil: flow i goes to user i
	Length  time.Duration
	Seed    uint64 // for network, controllers and losses
	// Strict selects the paper's estimate of C_p (cell.Monitor.Strict).
	Strict bool
	// Wire, if set, creates a link that all flows pass before the cells. With OthersSkipWire, flows of a given rate to
	// users come another way.
	Wire           func() Link
	OthersSkipWire bool
	// Change, if set, changes cells and flows just before a run.
	Change func(c *Cell, flows []Flow)
}

// Outcome is the result of a Case.
type Outcome struct {
	Flows []Result
	Names []string  // of the flows' controllers
	PBE   []*cc.PBE // controllers of the flows with PBE-CC, else nil
	Cell  *Cell
}

// Run runs the case. Flows without Rate get controllers by name (cc.New) in turn. The last name
// applies to all remaining flows.
func (c Case) Run(names ...string) Outcome {
	flows, chosen := slices.Clone(c.Flows), make([]string, len(c.Flows))
	listens := make([]bool, len(c.Network.Users))
	for i := range flows {
		if flows[i].Rate != nil {
			continue
		}
		chosen[i] = names[0]
		names = names[min(1, len(names)-1):]
		if u := c.UserOf(i); u != noUser {
			listens[u] = listens[u] || chosen[i] == "pbe"
		}
	}
	c.Network.Seed = c.Seed
	o := Outcome{Names: chosen, PBE: make([]*cc.PBE, len(flows)), Cell: NewCell(c.Network, c.UserOf, listens...)}
	for u, l := range listens {
		if l {
			if o.Cell.Monitor(u).Strict = c.Strict; c.Strict {
				o.Cell.Monitor(u).UserFilter = cell.FilterByPRB
			}
		}
	}
	for i := range flows {
		f := &flows[i]
		if f.Rate != nil {
			continue
		}
		f.Controller = cc.New(chosen[i], c.Seed+uint64(i))
		if p, ok := f.Controller.(*cc.PBE); ok && c.UserOf(i) != noUser {
			o.PBE[i] = p
			f.Feedback = o.Cell.FlowFeedback(c.UserOf(i))
		}
	}
	if c.Change != nil {
		c.Change(o.Cell, flows)
	}
	link := Link(o.Cell)
	if c.Wire != nil {
		link = &chain{first: c.Wire(), second: link,
			endsAfterFirst: func(p *Packet) bool { return c.UserOf(p.Flow) == noUser },
			skipsFirst: func(p *Packet) bool {
				return c.OthersSkipWire && flows[p.Flow].Rate != nil && c.UserOf(p.Flow) != noUser
			}}
	}
	o.Flows = Run(link, c.Length, c.Seed, flows...)
	return o
}

// noUser is the user of a flow that ends behind the wire: cross traffic.
const noUser = -1

// UserOf returns the user of a flow, noUser if it ends before the cells.
func (c Case) UserOf(flow int) int {
	if c.Users == nil {
		return flow
	}
	return c.Users[flow]
}

// appendChange appends to Change.
func (c *Case) appendChange(change func(*Cell, []Flow)) {
	before := c.Change
	c.Change = func(cell *Cell, flows []Flow) {
		if before != nil {
			before(cell, flows)
		}
		change(cell, flows)
	}
}

// filterSubframes adds a filter of the subframes that monitors get. It runs after earlier filters.
func (c *Case) filterSubframes(change func(*cell.Subframe) bool) {
	c.appendChange(func(x *Cell, _ []Flow) {
		before := x.Filter
		x.Filter = func(s *cell.Subframe) bool { return (before == nil || before(s)) && change(s) }
	})
}

// OnSubframe adds a function that is called after each subframe.
func (c *Case) OnSubframe(each func(*Cell)) {
	c.appendChange(func(cell *Cell, _ []Flow) {
		stepped := cell.AfterStep
		cell.AfterStep = func(now time.Duration) {
			if stepped != nil {
				stepped(now)
			}
			each(cell)
		}
	})
}

// Available returns the rate of user u if it alone always has data. Network and seed are the same,
// but the demand changes the random draws: the subframes differ.
func (c Case) Available(u int) unit.Rate { return c.carriedRate(u, u) }

// Share returns the rate of user u if all users always have data.
func (c Case) Share(u int) unit.Rate {
	all := make([]int, len(c.Network.Users))
	for i := range all {
		all[i] = i
	}
	return c.carriedRate(u, all...)
}

// carriedRate returns the rate of user u if the busy users always have data.
func (c Case) carriedRate(u int, busy ...int) unit.Rate {
	c.Network.Seed = c.Seed
	n := lte.New(c.Network)
	var got unit.Bytes
	var out []lte.Delivery
	for range c.Length / time.Millisecond {
		for _, b := range busy {
			for n.Waiting(b) < 500_000 && n.Offer(b, &lte.Item{Size: cc.MSS}) {
			}
		}
		out = n.Step(out[:0], nil)
		for _, o := range out {
			if o.User == u {
				got += cc.MSS
			}
		}
	}
	return unit.RateOf(got, c.Length)
}

// Jain returns Jain's fairness index of rates. It is 1 if all are equal.
func Jain(rates ...float64) float64 {
	sum, squares := 0.0, 0.0
	for _, r := range rates {
		sum, squares = sum+r, squares+r*r
	}
	return sum * sum / (float64(len(rates)) * squares)
}
