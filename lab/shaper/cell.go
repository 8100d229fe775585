// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Cell is capacity that several lines share, like the devices of a radio cell. At each moment every
// user with data gets the same rate. What a line cannot use because of its own rate goes to the
// others (max-min fairness). This is round robin with turns that are short relative to a packet, as
// LTE schedules each millisecond. A line is one user. Setting.Others adds users that always have
// data. A Cell has no clock and is not safe for concurrent use. Its lines affect each other and
// must use the same clock.
type Cell struct {
	player    programPlayer
	startTime time.Duration // of the program's tracks
	lines     []*Line
	busyLines []*Line // lines with data, at the last division
}

// CheckCell returns an error if the program does not suit a cell, which uses only Rate and Others
// of a setting.
func (p Program) CheckCell() error {
	switch {
	case len(p.Grants) > 0:
		return fmt.Errorf("a cell's trace must have rates (seconds,rate), not packets")
	case p.Base.Rate == Unlimited:
		return fmt.Errorf("a cell needs a rate")
	}
	for _, t := range p.Tracks {
		for _, ch := range t.Changes {
			if (ch != Change{At: ch.At, Rate: ch.Rate, Others: ch.Others}) {
				return fmt.Errorf("a cell can change only its rate and others")
			}
		}
	}
	return p.checkTimes()
}

// NewCell returns a cell that follows p and has no lines.
func NewCell(p Program) *Cell { return &Cell{player: newProgramPlayer(&p)} }

// Add adds a line for ever. The line must be empty, and its program must have no grants.
func (c *Cell) Add(l *Line) {
	l.cell = c
	c.lines = append(c.lines, l)
}

// StartAt starts the cell's program. Time now is so far into the program.
func (c *Cell) StartAt(now, into time.Duration) {
	c.Rewind(now)
	c.player.playing, c.startTime = true, now-into
	c.advanceCellTo(now)
}

// Rewind stops the program and returns to its base.
func (c *Cell) Rewind(now time.Duration) {
	c.advanceCellTo(now)
	c.changeAndDivide(now, func() { c.player = newProgramPlayer(c.player.program) })
}

// nextCellEvent returns the time, line and kind of the next event. A nil line means the cell
// itself.
func (c *Cell) nextCellEvent() (at time.Duration, l *Line, what eventKind) {
	at = never
	if t, track := c.player.peekChange(); track >= 0 {
		at = c.startTime + t
	}
	for _, line := range c.lines {
		if t, w := line.nextLineEvent(); t < at {
			at, l, what = t, line, w
		}
	}
	return at, l, what
}

// advanceCellTo handles all events up to now, on all lines, in order.
func (c *Cell) advanceCellTo(now time.Duration) {
	for {
		at, l, what := c.nextCellEvent()
		if at > now {
			return
		}
		c.changeAndDivide(at, func() {
			if l != nil {
				l.handleLineEvent(at, what)
				return
			}
			_, track := c.player.peekChange()
			c.player.applyNextChange(track)
		})
	}
}

// changeAndDivide makes a change and divides the capacity again from then on.
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
	for _, l := range c.busyLines { // the slowest first, because it may leave capacity to others
		l.cellShare = min(left/float64(users), float64(l.player.setting.Rate))
		left, users = left-l.cellShare, users-1
	}
}

// NewCellShare starts at time zero of a cell's program. It adds up the capacity of that many lines
// with data, if none of them is slower than its share.
func NewCellShare(p *Program, lines int) *Capacity {
	c := NewCapacity(p)
	c.lines = lines
	return c
}

// rateForLines returns the part of a rate that lines of a cell get beside its other users.
func (c *Capacity) rateForLines(r unit.Rate) float64 {
	if c.lines == 0 {
		return float64(r)
	}
	return float64(r) * float64(c.lines) / float64(c.lines+c.player.setting.Others)
}
