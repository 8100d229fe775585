package virtual

import (
	"time"

	"mpbond/lab/lte"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// Cell is a network of package lte as a Link, with the monitors of those of its
// users who listen.
type Cell struct {
	*lte.Network
	// UserOf says which user a flow sends to.
	UserOf func(flow int) int
	// Filter, if set, is given each subframe before the monitors, and may change it
	// or say that it was missed.
	Filter func(s *cell.Subframe) bool
	// AfterStep, if set, is called after each subframe.
	AfterStep func(now time.Duration)

	monitors     []*cell.Monitor // by user; nil for who does not listen
	devices      []cc.Device     // by user
	fusions      []*cell.Fusion
	capacities   []cachedCapacity // by user
	nextSubframe time.Duration
	deliveries   []lte.Delivery
}

// cachedCapacity is a capacity before the subframe at a time.
type cachedCapacity struct {
	subframe time.Duration
	capacity cc.Capacity
}

// NewCell makes the link; listens[u] says that user u monitors its cells.
func NewCell(cfg lte.Config, user func(flow int) int, listens ...bool) *Cell {
	c := &Cell{Network: lte.New(cfg), UserOf: user, nextSubframe: time.Millisecond, devices: make([]cc.Device, len(cfg.Users)), capacities: make([]cachedCapacity, len(cfg.Users))}
	for i, u := range cfg.Users {
		if i >= len(listens) || !listens[i] {
			c.monitors, c.fusions = append(c.monitors, nil), append(c.fusions, nil)
			continue
		}
		m := cell.NewMonitor()
		var ids []cell.ID
		for _, x := range u.Cells {
			m.AddCell(cell.ID(x), u.RNTI, cell.DefaultErrorRate)
			ids = append(ids, cell.ID(x))
		}
		c.monitors, c.fusions = append(c.monitors, m), append(c.fusions, cell.NewFusion(ids...))
	}
	return c
}

// Monitor is that of user u, nil if it does not listen.
func (c *Cell) Monitor(u int) *cell.Monitor { return c.monitors[u] }

// Offer implements Link.
func (c *Cell) Offer(now time.Duration, p *Packet) bool {
	return c.Network.Offer(c.UserOf(p.Flow), &lte.Item{Size: p.Size, Tag: p})
}

// Next implements Link: cells give grants, and are listened to, in every
// subframe.
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

func (c *Cell) onSubframe(s cell.Subframe) {
	if c.Filter == nil || c.Filter(&s) {
		c.FeedMonitors(s)
	}
}

// FeedMonitors gives the monitors a subframe.
func (c *Cell) FeedMonitors(s cell.Subframe) {
	for i, f := range c.fusions {
		if f != nil {
			f.Add(s, c.monitors[i].Add)
		}
	}
}

// FlowFeedback makes the feedback of a flow to user u that is sent by PBE-CC. The window
// of its monitor is the round trip that the flow's packets tell.
func (c *Cell) FlowFeedback(u int) func(time.Duration, *Packet) cc.Radio {
	r := c.devices[u].AddReceiver()
	return func(now time.Duration, p *Packet) cc.Radio {
		if p.RTprop > 0 {
			c.monitors[u].SetWindow(p.RTprop)
		}
		return r.OnPacket(now, now-p.Sent, c.capacityOf(u))
	}
}

// capacityOf is what user u hears, made once for each subframe.
func (c *Cell) capacityOf(u int) cc.Capacity {
	if k := &c.capacities[u]; k.subframe != c.nextSubframe {
		e := c.monitors[u].Estimate()
		*k = cachedCapacity{c.nextSubframe, cc.Capacity{Transport: e.Transport, Fair: e.FairTransport, Activated: e.Activated, Full: e.Full}}
	}
	return c.capacities[u].capacity
}
