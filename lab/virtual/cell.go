// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"time"

	"mpbond/lab/lte"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// Cell is a network of package lte as a Link, with the monitors of its listening users.
type Cell struct {
	*lte.Network
	// UserOf returns the user of a flow.
	UserOf func(flow int) int
	// Filter, if set, gets each subframe before the monitors. It may change the subframe, or return
	// false to drop it.
	Filter func(s *cell.Subframe) bool
	// ArrivalStep, if set, is the time in whose multiples modems pass packets on, as monitors see it.
	ArrivalStep time.Duration
	// AfterStep, if set, is called after each subframe.
	AfterStep func(now time.Duration)

	monitors     []*cell.Monitor // by user; nil for users that do not listen
	devices      []cc.Device     // by user
	fusions      []*cell.Fusion
	capacities   []cachedCapacity // by user
	nextSubframe time.Duration
	deliveries   []lte.Delivery
}

// cachedCapacity is the capacity computed for a subframe.
type cachedCapacity struct {
	subframe time.Duration
	capacity cc.CellRates
}

// NewCell creates the link. listens[u] reports whether user u monitors its cells.
func NewCell(cfg lte.Config, user func(flow int) int, listens ...bool) *Cell {
	c := &Cell{
		Network:      lte.New(cfg),
		UserOf:       user,
		nextSubframe: time.Millisecond,
		devices:      make([]cc.Device, len(cfg.Users)),
		capacities:   make([]cachedCapacity, len(cfg.Users)),
	}
	for i, u := range cfg.Users {
		if i >= len(listens) || !listens[i] {
			c.monitors, c.fusions = append(c.monitors, nil), append(c.fusions, nil)
			continue
		}
		m := cell.NewMonitor()
		m.CompareArrivals(true)
		var ids []cell.ID
		for _, x := range u.Cells {
			m.AddCell(cell.ID(x), u.RNTI, cell.DefaultErrorRate)
			ids = append(ids, cell.ID(x))
		}
		c.monitors, c.fusions = append(c.monitors, m), append(c.fusions, cell.NewFusion(ids...))
	}
	return c
}

// Monitor returns the monitor of user u, nil if the user does not listen.
func (c *Cell) Monitor(u int) *cell.Monitor { return c.monitors[u] }

// Offer implements Link.
func (c *Cell) Offer(now time.Duration, p *Packet) bool {
	return c.Network.Offer(c.UserOf(p.Flow), &lte.Item{Size: p.Size, Tag: p})
}

// Next implements Link. Every subframe has grants and control messages.
func (c *Cell) Next() time.Duration { return c.nextSubframe }

// Leave implements Link.
func (c *Cell) Leave(now time.Duration, out []*Packet) []*Packet {
	c.nextSubframe += time.Millisecond
	c.deliveries = c.Step(c.deliveries[:0], c.onSubframe)
	if c.AfterStep != nil {
		c.AfterStep(now)
	}
	for _, o := range c.deliveries {
		if !o.Lost {
			out = append(out, o.Item.Tag.(*Packet))
		}
	}
	return out
}

// onSubframe passes a subframe through Filter to the monitors.
func (c *Cell) onSubframe(s cell.Subframe) {
	if c.Filter == nil || c.Filter(&s) {
		c.FeedMonitors(s)
	}
}

// FeedMonitors passes a subframe to the monitors.
func (c *Cell) FeedMonitors(s cell.Subframe) {
	for i, f := range c.fusions {
		if f != nil {
			f.Add(s, c.monitors[i].Add)
		}
	}
}

// FlowFeedback returns the feedback function of a PBE-CC flow to user u. It sets the window of the
// user's monitor to the RTT in the flow's packets.
func (c *Cell) FlowFeedback(u int) func(time.Duration, *Packet) cc.CellFeedback {
	r := c.devices[u].AddReceiver()
	return func(now time.Duration, p *Packet) cc.CellFeedback {
		if p.RTprop > 0 {
			c.monitors[u].SetWindow(p.RTprop)
		}
		step := max(c.ArrivalStep, time.Millisecond)
		c.monitors[u].AddArrival(int64((now+step-1)/step*step/time.Millisecond), p.Size)
		return r.OnPacket(now, now-p.Sent, c.capacityOf(u))
	}
}

// capacityOf returns the capacity of user u, computed once for each subframe.
func (c *Cell) capacityOf(u int) cc.CellRates {
	if k := &c.capacities[u]; k.subframe != c.nextSubframe {
		e := c.monitors[u].Estimate()
		*k = cachedCapacity{subframe: c.nextSubframe}
		if k.capacity = (cc.CellRates{Invalid: e.SelfStale}); !e.SelfStale {
			k.capacity = cc.CellRates{
				Transport: e.Transport,
				Fair:      e.FairTransport,
				Activated: e.Activated,
				Inactive:  e.Inactive,
				Full:      e.Full,
			}
		}
	}
	return c.capacities[u].capacity
}
