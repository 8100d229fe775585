package census

import "mpbond/pbe/cell"

// Column is one subframe of a Grid.
type Column struct {
	Number int64
	// Received is false of a subframe that was missed.
	Received bool
	// HasPositions says that the messages named their resource blocks. Else blocks are stacked
	// from the first on, in the order of messages: how many they are is right.
	HasPositions bool
	// Users has who was given each resource block for receiving, 0 for nobody; in the
	// first slot, of those who have others in the second.
	Users [cell.MaxPRB]cell.RNTI
}

// Grid has who was given which resource blocks in the last subframes of one cell.
type Grid struct {
	// PRB is the width of the cell, 0 before the first subframe.
	PRB  int
	ring []Column
	head int // the oldest of n
	n    int
}

// NewGrid keeps so many subframes.
func NewGrid(subframes int) *Grid { return &Grid{ring: make([]Column, subframes)} }

// Len is how many subframes there are, with those that were missed.
func (g *Grid) Len() int { return g.n }

// At is the i-th of them, from the oldest on. It holds until the next Add.
func (g *Grid) At(i int) *Column { return &g.ring[(g.head+i)%len(g.ring)] }

// Add takes the next subframe. With one that is not after the last, or further ahead
// than the grid is long, or of another width, it begins anew.
func (g *Grid) Add(s Subframe) {
	if !s.isValid() {
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
