// SPDX-License-Identifier: Apache-2.0

package census

import "mpbond/pbe/cell"

// Column is one subframe of a Grid.
type Column struct {
	Number int64
	// Received is false if the subframe was missed.
	Received bool
	// HasPositions reports that the messages name their resource blocks. Otherwise blocks are
	// stacked from the first one up, in the order of messages: only their number is right.
	HasPositions bool
	// Users has the downlink user of each resource block in the first slot, 0 if it is free.
	Users [cell.MaxPRB]cell.RNTI
}

// Grid has the users of the resource blocks in the last subframes of one cell.
type Grid struct {
	// PRB is the width of the cell, 0 before the first subframe.
	PRB  int
	ring []Column
	head int // the oldest of n
	n    int
}

// NewGrid returns a grid of that many subframes.
func NewGrid(subframes int) *Grid { return &Grid{ring: make([]Column, subframes)} }

// Len returns the number of subframes, including missed ones.
func (g *Grid) Len() int { return g.n }

// At returns subframe i, from the oldest on. It is valid until the next Add.
func (g *Grid) At(i int) *Column { return &g.ring[(g.head+i)%len(g.ring)] }

// Add adds the next subframe. A subframe that is not after the last one, leaves a gap longer than
// the grid, or has another width, restarts the grid.
func (g *Grid) Add(s Subframe) {
	if !s.fitsTableRanges() {
		return
	}
	if g.n > 0 {
		last := g.At(g.n - 1).Number
		if int(s.PRB) != g.PRB || s.Number <= last || s.Number-last > int64(len(g.ring)) {
			g.head, g.n = 0, 0
		}
		for n := last + 1; g.n > 0 && n < s.Number; n++ {
			*g.pushColumn() = Column{Number: n}
		}
	}
	g.PRB = int(s.PRB)
	c := g.pushColumn()
	*c = Column{Number: s.Number, Received: true, HasPositions: true}
	next := 0
	for i := range s.DCIs {
		d := &s.DCIs[i]
		if !isDownlink(d) {
			continue
		}
		if d.Level == 0 {
			c.HasPositions = false
			for end := min(next+d.PRB, g.PRB); next < end; next++ {
				c.Users[next] = d.RNTI
			}
			continue
		}
		for prb := range g.PRB {
			if d.PRBs.Has(prb) {
				c.Users[prb] = d.RNTI
			}
		}
	}
}

func (g *Grid) pushColumn() *Column {
	if g.n < len(g.ring) {
		g.n++
	} else {
		g.head = (g.head + 1) % len(g.ring)
	}
	return g.At(g.n - 1)
}
