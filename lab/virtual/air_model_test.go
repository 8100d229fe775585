// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"slices"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Air lets devices decode control messages from samples: each subframe of each cell passes through
// an lte.Transmitter, a channel and an lte.Receiver. Grants must be representable by messages
// (lab/lte.CellConfig.Groups).
type Air struct {
	// Channel returns the channel of a cell.
	Channel func(cell.ID) lte.Channel
	// DecodingDelay is the decoding time in subframes.
	DecodingDelay int64
	Seed          uint64

	cells [cell.MaxCells]*cellOnAir
}

// cellOnAir is the radio chain of one cell.
type cellOnAir struct {
	tx    *lte.Transmitter
	rx    *lte.Receiver
	clock cell.Clock
	heard []delayedSubframe // decoded but not yet passed on
	now   int64
	wants [][]cell.Grant // what was granted, by number
	AirCounts
}

// delayedSubframe is passed on at a subframe.
type delayedSubframe struct {
	at int64
	s  cell.Subframe
}

// AirCounts are sums over all cells.
type AirCounts struct {
	Subframes   int // decoded
	Granted     int // grants in them
	Received    int // grants decoded correctly
	Wrong       int // decoded but not granted
	NotSendable int // grants without a message or without room for it
}

// rates are samples a second by width.
var rates = map[int]int{6: 1_920_000, 15: 3_840_000, 25: 7_680_000, 50: 15_360_000, 75: 23_040_000, 100: 30_720_000}

// UseBlockGroups makes the cells grant whole groups of blocks.
func (c *Case) UseBlockGroups() {
	c.Network.Cells = slices.Clone(c.Network.Cells)
	for i := range c.Network.Cells {
		c.Network.Cells[i].Groups = true
	}
}

// ListenOverAir makes devices decode samples.
func (c *Case) ListenOverAir(a *Air) {
	c.UseBlockGroups()
	c.appendChange(func(x *Cell, _ []Flow) {
		before := x.Filter
		x.Filter = func(s *cell.Subframe) bool {
			if before == nil || before(s) {
				a.sendSubframe(*s, x.FeedMonitors)
			}
			return false
		}
	})
}

// Counts returns the counts of all cells so far.
func (a *Air) Counts() (sum AirCounts) {
	for _, x := range a.cells {
		if x != nil {
			sum.Subframes += x.Subframes
			sum.Granted += x.Granted
			sum.Received += x.Received
			sum.Wrong += x.Wrong
			sum.NotSendable += x.tx.Unencodable + x.tx.Unplaced
		}
	}
	return sum
}

// sendSubframe sends a subframe and passes on those decoded by now.
func (a *Air) sendSubframe(s cell.Subframe, tell func(cell.Subframe)) {
	x := a.cells[s.Cell]
	if x == nil {
		x = a.addCell(s)
		a.cells[s.Cell] = x
	}
	x.now = s.Number
	x.wants = append(x.wants, slices.Clone(s.Grants))
	x.rx.Feed(x.tx.SendGrants(s.Number, s.Grants))
	n := 0
	for n < len(x.heard) && x.heard[n].at <= x.now {
		tell(x.heard[n].s)
		n++
	}
	x.heard = slices.Delete(x.heard, 0, n)
}

func (a *Air) addCell(s cell.Subframe) *cellOnAir {
	c := lte.Cell{ID: int(7*s.Cell) + 1, PRB: int(s.PRB), Ports: 2, PHICHSixths: 6}
	tx, err := lte.NewTransmitter(c, rates[c.PRB], a.Channel(s.Cell), a.Seed+uint64(s.Cell))
	rx, err2 := lte.NewReceiver(rates[c.PRB])
	if err != nil || err2 != nil {
		panic(err) // the model has no such width
	}
	x := &cellOnAir{tx: tx, rx: rx}
	x.rx.OnSubframe = func(sub *lte.Subframe) {
		number := x.clock.Number(uint16(sub.SFN), uint8(sub.Index))
		t := cell.Subframe{Cell: s.Cell, Number: number, PRB: s.PRB}
		for i := range sub.DCIs {
			t.Grants = append(t.Grants, sub.DCIs[i].Grant())
		}
		length := int64(rates[c.PRB] / 1000)
		x.compareGrants((sub.Start+length/2)/length, t.Grants)
		x.heard = append(x.heard, delayedSubframe{x.now + a.DecodingDelay, t})
	}
	return x
}

// compareGrants compares the grants decoded in a subframe with those sent.
func (x *cellOnAir) compareGrants(since int64, got []cell.Grant) {
	x.Subframes++
	wants := x.wants[since]
	x.Granted += len(wants)
	right := 0
	for _, w := range wants {
		if w.N == 2 && w.Blocks[1] == (cell.Block{RV: 1}) {
			w.N, w.Blocks[1] = 1, cell.Block{} // disabled: decoded as one block
		}
		if slices.Contains(got, w) {
			right++
		}
	}
	x.Received += right
	x.Wrong += len(got) - right
}
