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
	// Late is how many subframes decoding takes.
	Late int64
	Seed uint64

	cells [cell.MaxCells]*aired
}

// aired is one cell on the air.
type aired struct {
	tx    *lte.Transmitter
	rx    *lte.Receiver
	clock cell.Clock
	heard []heard // not yet told
	now   int64
	wants [][]cell.Grant // what was granted, by number
	AirCounts
}

// heard is a subframe that is told at a time.
type heard struct {
	at int64
	s  cell.Subframe
}

// AirCounts are of all cells.
type AirCounts struct {
	Subframes int // heard
	Granted   int // grants in them
	Heard     int // of which as many were heard
	Wrong     int // nobody was given that
	Unsaid    int // no message can tell them, or there was no room
}

// rates are samples a second by width.
var rates = map[int]int{6: 1_920_000, 15: 3_840_000, 25: 7_680_000, 50: 15_360_000, 75: 23_040_000, 100: 30_720_000}

// Grouped changes c so that its cells give whole groups of blocks.
func (c *Case) Grouped() {
	c.Network.Cells = slices.Clone(c.Network.Cells)
	for i := range c.Network.Cells {
		c.Network.Cells[i].Groups = true
	}
}

// Aired changes c so that its devices hear by the air.
func (c *Case) Aired(a *Air) {
	c.Grouped()
	c.also(func(x *Cell, _ []Flow) {
		before := x.Hear
		x.Hear = func(s *cell.Subframe) bool {
			if before == nil || before(s) {
				a.hear(*s, x.Tell)
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
			sum.Heard += x.Heard
			sum.Wrong += x.Wrong
			sum.Unsaid += x.tx.Unsaid + x.tx.Unplaced
		}
	}
	return sum
}

// hear sends a subframe, and tells those that were decoded by now.
func (a *Air) hear(s cell.Subframe, tell func(cell.Subframe)) {
	x := a.cells[s.Cell]
	if x == nil {
		x = a.begin(s)
		a.cells[s.Cell] = x
	}
	x.now = s.Number
	x.wants = append(x.wants, slices.Clone(s.Grants))
	x.rx.Feed(x.tx.Subframe(s.Number, s.Grants))
	n := 0
	for n < len(x.heard) && x.heard[n].at <= x.now {
		tell(x.heard[n].s)
		n++
	}
	x.heard = slices.Delete(x.heard, 0, n)
}

func (a *Air) begin(s cell.Subframe) *aired {
	c := lte.Cell{ID: int(7*s.Cell) + 1, PRB: int(s.PRB), Ports: 2, Sixths: 6}
	tx, err := lte.NewTransmitter(c, rates[c.PRB], a.Channel(s.Cell), a.Seed+uint64(s.Cell))
	rx, err2 := lte.NewReceiver(rates[c.PRB])
	if err != nil || err2 != nil {
		panic(err) // the model has no such width
	}
	x := &aired{tx: tx, rx: rx}
	x.rx.Heard = func(sub *lte.Subframe) {
		number := x.clock.Number(uint16(sub.SFN), uint8(sub.Index))
		t := cell.Subframe{Cell: s.Cell, Number: number, PRB: s.PRB}
		for i := range sub.DCIs {
			t.Grants = append(t.Grants, sub.DCIs[i].Grant())
		}
		length := int64(rates[c.PRB] / 1000)
		x.count((sub.Start+length/2)/length, t.Grants)
		x.heard = append(x.heard, heard{x.now + a.Late, t})
	}
	return x
}

// count holds what was heard in a subframe since the first against what was granted.
func (x *aired) count(since int64, got []cell.Grant) {
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
	x.Heard += right
	x.Wrong += len(got) - right
}
