package virtual

import "time"

// chain is two links in a row.
type chain struct{ first, second Link }

// Chain makes one link of two: what leaves the first comes to the second at once.
func Chain(first, second Link) Link { return &chain{first, second} }

// Offer implements Link.
func (c *chain) Offer(now time.Duration, p *Packet) bool { return c.first.Offer(now, p) }

// Next implements Link.
func (c *chain) Next() time.Duration { return min(c.first.Next(), c.second.Next()) }

// Leave implements Link.
func (c *chain) Leave(now time.Duration, out []*Packet) []*Packet {
	if c.first.Next() <= now {
		for _, p := range c.first.Leave(now, nil) {
			c.second.Offer(now, p)
		}
	}
	if c.second.Next() <= now {
		out = c.second.Leave(now, out)
	}
	return out
}
