// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"slices"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Air has devices hear their cells by samples instead of being told: each subframe of
// each cell goes through an lte.Transmitter, a channel and an lte.Receiver. Grants must
// be such as messages can tell (lab/lte.CellConfig.Groups).
type Air struct {
	// Channel is that of a cell.
	Channel func(cell.ID) lte.Channel
	// DecodingDelay is how many subframes decoding takes.
	DecodingDelay int64
	Seed          uint64

	cells [cell.MaxCells]*cellOnAir
}

// cellOnAir is one cell on the air.
type cellOnAir struct {
	tx    *lte.Transmitter
	rx    *lte.Receiver
	clock cell.Clock
	heard []delayedSubframe // not yet told
	now   int64
	wants [][]cell.Grant // what was granted, by number
	AirCounts
}

// delayedSubframe is a subframe that is told at a time.
type delayedSubframe struct {
	at int64
	s  cell.Subframe
}

// AirCounts are of all cells.
type AirCounts struct {
	Subframes   int // heard
	Granted     int // grants in them
	Received    int // of which as many were heard
	Wrong       int // nobody was given that
	NotSendable int // no message can tell them, or there was no room
}

// rates are samples a second by width.
var rates = map[int]int{6: 1_920_000, 15: 3_840_000, 25: 7_680_000, 50: 15_360_000, 75: 23_040_000, 100: 30_720_000}

// UseBlockGroups changes c so that its cells give whole groups of blocks.
func (c *Case) UseBlockGroups() {
	c.Network.Cells = slices.Clone(c.Network.Cells)
	for i := range c.Network.Cells {
		c.Network.Cells[i].Groups = true
	}
}

// ListenOverAir changes c so that its devices hear by the air.
func (c *Case) ListenOverAir(a *Air) {
	c.UseBlockGroups()
	c.addChange(func(x *Cell, _ []Flow) {
		before := x.Filter
		x.Filter = func(s *cell.Subframe) bool {
			if before == nil || before(s) {
				a.sendSubframe(*s, x.FeedMonitors)
			}
			return false
		}
	})
}

// Counts are of all cells so far.
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

// sendSubframe sends a subframe, and tells those that were decoded by now.
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

// compareGrants holds what was heard in a subframe since the first against what was granted.
func (x *cellOnAir) compareGrants(since int64, got []cell.Grant) {
	x.Subframes++
	wants := x.wants[since]
	x.Granted += len(wants)
	right := 0
	for _, w := range wants {
		if w.N == 2 && w.Blocks[1] == (cell.Block{RV: 1}) {
			w.N, w.Blocks[1] = 1, cell.Block{} // disabled, as who hears it says it
		}
		if slices.Contains(got, w) {
			right++
		}
	}
	x.Received += right
	x.Wrong += len(got) - right
}
