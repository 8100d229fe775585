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
	// User says which user a flow sends to.
	User func(flow int) int
	// Hear, if set, is given each subframe before the monitors, and may change it
	// or say that it was missed.
	Hear func(s *cell.Subframe) bool
	// Stepped, if set, is called after each subframe.
	Stepped func(now time.Duration)

	monitors []*cell.Monitor // by user; nil for who does not listen
	devices  []cc.Device     // by user
	fusions  []*cell.Fusion
	known    []known // by user
	next     time.Duration
	outs     []lte.Out
}

// known is a capacity before the subframe at a time.
type known struct {
	at       time.Duration
	capacity cc.Capacity
}

// NewCell makes the link; listens[u] says that user u monitors its cells.
func NewCell(cfg lte.Config, user func(flow int) int, listens ...bool) *Cell {
	c := &Cell{Network: lte.New(cfg), User: user, next: time.Millisecond, devices: make([]cc.Device, len(cfg.Users)), known: make([]known, len(cfg.Users))}
	for i, u := range cfg.Users {
		if i >= len(listens) || !listens[i] {
			c.monitors, c.fusions = append(c.monitors, nil), append(c.fusions, nil)
			continue
		}
		m := cell.NewMonitor()
		var ids []cell.ID
		for _, x := range u.Cells {
			m.Listen(cell.ID(x), u.RNTI, cell.DefaultErrorRate)
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
	return c.Network.Offer(c.User(p.Flow), &lte.Item{Size: p.Size, Tag: p})
}

// Next implements Link: cells give grants, and are listened to, in every
// subframe.
func (c *Cell) Next() time.Duration { return c.next }

// Leave implements Link.
func (c *Cell) Leave(now time.Duration, out []*Packet) []*Packet {
	c.next += time.Millisecond
	c.outs = c.Step(c.outs[:0], c.hear)
	if c.Stepped != nil {
		c.Stepped(now)
	}
	for _, o := range c.outs {
		if !o.Lost {
			out = append(out, o.Item.Tag.(*Packet))
		}
	}
	return out
}

func (c *Cell) hear(s cell.Subframe) {
	if c.Hear == nil || c.Hear(&s) {
		c.Tell(s)
	}
}

// Tell gives the monitors a subframe.
func (c *Cell) Tell(s cell.Subframe) {
	for i, f := range c.fusions {
		if f != nil {
			f.Add(s, c.monitors[i].Add)
		}
	}
}

// Radio makes the feedback of a flow to user u that is sent by PBE-CC. The window
// of its monitor is the round trip that the flow's packets tell.
func (c *Cell) Radio(u int) func(time.Duration, *Packet) cc.Radio {
	r := c.devices[u].Receiver()
	return func(now time.Duration, p *Packet) cc.Radio {
		if p.RTprop > 0 {
			c.monitors[u].SetWindow(p.RTprop)
		}
		return r.OnPacket(now, now-p.Sent, c.capacity(u))
	}
}

// capacity is what user u hears, made once for each subframe.
func (c *Cell) capacity(u int) cc.Capacity {
	if k := &c.known[u]; k.at != c.next {
		e := c.monitors[u].Estimate()
		*k = known{c.next, cc.Capacity{Transport: e.Transport, Fair: e.FairTransport, Activated: e.Activated, Full: e.Full}}
	}
	return c.known[u].capacity
}
