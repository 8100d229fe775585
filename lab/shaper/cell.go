package shaper

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Cell is capacity that several lines share, as devices share that of a radio
// cell: at each moment every user that has something to send gets the same rate,
// and what a line's own rate does not let it take is the others' (max-min
// fairness). That is round robin with turns that are short beside a packet: LTE
// deals out its capacity each millisecond. A line is one user. Besides lines a
// cell has users that are only counted, Setting.Others, who always have
// something to send. Like lines a cell has no clock and is not safe for
// concurrent use; its lines move each other, and must be used with the same
// clock.
type Cell struct {
	player    programPlayer
	startTime time.Duration // of the program's tracks
	lines     []*Line
	busyLines []*Line // those with something to send, at the last division
}

// CheckCell says what is wrong with a program as a cell's, if anything: of its
// setting only Rate and Others count.
func (p Program) CheckCell() error {
	switch {
	case len(p.Grants) > 0:
		return fmt.Errorf("a cell's trace must tell rates (seconds,rate), not packets")
	case p.Base.Rate == Unlimited:
		return fmt.Errorf("a cell needs a rate")
	}
	for _, t := range p.Tracks {
		for _, ch := range t.Changes {
			if (ch != Change{At: ch.At, Rate: ch.Rate, Others: ch.Others}) {
				return fmt.Errorf("a cell has a rate and others, and nothing else that could change")
			}
		}
	}
	return p.checkTimes()
}

// NewCell makes a cell that follows p and has no lines.
func NewCell(p Program) *Cell { return &Cell{player: newPlayer(&p)} }

// Add puts a line into the cell, for ever. Nothing may be on the line yet, and
// its program must have no grants.
func (c *Cell) Add(l *Line) {
	l.cell = c
	c.lines = append(c.lines, l)
}

// StartAt makes now so long after the time zero of the cell's program, and plays it
// from there.
func (c *Cell) StartAt(now, into time.Duration) {
	c.Rewind(now)
	c.player.playing, c.startTime = true, now-into
	c.advanceTo(now)
}

// Rewind returns to the program's base and stops playing it.
func (c *Cell) Rewind(now time.Duration) {
	c.advanceTo(now)
	c.changeAndDivide(now, func() { c.player = newPlayer(c.player.program) })
}

// nextEvent says when something happens next, and on which line; nil: to the cell.
func (c *Cell) nextEvent() (at time.Duration, l *Line, what eventKind) {
	at = never
	if t, track := c.player.peekChange(); track >= 0 {
		at = c.startTime + t
	}
	for _, line := range c.lines {
		if t, w := line.nextEvent(); t < at {
			at, l, what = t, line, w
		}
	}
	return at, l, what
}

// advanceTo makes everything happen that happens up to now, on all lines, in order.
func (c *Cell) advanceTo(now time.Duration) {
	for {
		at, l, what := c.nextEvent()
		if at > now {
			return
		}
		c.changeAndDivide(at, func() {
			if l != nil {
				l.handleEvent(at, what)
				return
			}
			_, track := c.player.peekChange()
			c.player.applyChange(track)
		})
	}
}

// changeAndDivide makes a change, and divides the capacity anew from then on.
func (c *Cell) changeAndDivide(now time.Duration, change func()) {
	for _, l := range c.lines {
		l.accountSent(now)
	}
	change()
	c.busyLines = c.busyLines[:0]
	for _, l := range c.lines {
		if l.queue.len() > 0 {
			c.busyLines = append(c.busyLines, l)
		}
	}
	slices.SortFunc(c.busyLines, func(a, b *Line) int { return cmp.Compare(a.player.setting.Rate, b.player.setting.Rate) })
	left, users := float64(c.player.setting.Rate), len(c.busyLines)+c.player.setting.Others
	for _, l := range c.busyLines { // the slowest first: it may leave something
		l.cellShare = min(left/float64(users), float64(l.player.setting.Rate))
		left, users = left-l.cellShare, users-1
	}
}

// NewCellShare starts at time zero of a cell's program, and adds up what so many of its
// lines carry in all while they have something to send, where no line is slower
// than its share.
func NewCellShare(p *Program, lines int) *Capacity {
	c := NewCapacity(p)
	c.lines = lines
	return c
}

// lineRate is the part of a rate that lines of a cell get beside its other users.
func (c *Capacity) lineRate(r unit.Rate) float64 {
	if c.lines == 0 {
		return float64(r)
	}
	return float64(r) * float64(c.lines) / float64(c.lines+c.player.setting.Others)
}
