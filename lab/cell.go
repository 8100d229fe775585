// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"mpbond/lab/shaper"
)

// RadioCell is capacity that links of a topology share, separately for each direction (see
// shaper.Cell). Up and Down replace the settings for both directions.
type RadioCell struct {
	CellSettings
	Up   *CellSettings `toml:"up" json:"up,omitempty"`
	Down *CellSettings `toml:"down" json:"down,omitempty"`
}

// CellSettings are the settings of one direction of a cell, or of both.
type CellSettings struct {
	Rate string `toml:"rate" json:"rate,omitempty"` // of IP bytes, for all users
	// Others is the number of users besides the links that always have data to send.
	Others   int      `toml:"others" json:"others,omitempty"`
	Schedule []string `toml:"schedule" json:"schedule,omitempty"` // "at 2s: rate 1Mbit/s, others 3"
	Loop     string   `toml:"loop" json:"loop,omitempty"`         // the schedule repeats at this interval
}

// Program returns the program of one direction of the cell.
func (c *RadioCell) Program(dir Direction) (shaper.Program, error) {
	d := c.CellSettings
	if over := [...]*CellSettings{c.Up, c.Down}[dir]; over != nil {
		d = *over
	}
	p := shaper.Program{Base: shaper.Setting{Rate: shaper.Unlimited}}
	base := shaper.Change{}
	if d.Rate != "" {
		if err := base.Set("rate", d.Rate); err != nil {
			return p, err
		}
	}
	if err := base.Set("others", strconv.Itoa(d.Others)); err != nil {
		return p, err
	}
	p.Base = base.Apply(p.Base)
	if err := (LinkSettings{Schedule: d.Schedule, Loop: d.Loop}).addProgramTracks(&p); err != nil {
		return p, err
	}
	return p, p.CheckCell()
}

// checkCells returns the first error in the programs of all cells.
func (t *Topology) checkCells() error {
	for _, name := range slices.Sorted(maps.Keys(t.Cell)) {
		for _, d := range []Direction{Uplink, Downlink} {
			if _, err := t.Cell[name].Program(d); err != nil {
				return fmt.Errorf("cell %s, %v: %w", name, d, err)
			}
		}
	}
	return nil
}

// checkCellMember returns what is wrong with the cell of a link that has the program p.
func (t *Topology) checkCellMember(l *Link, p shaper.Program) error {
	switch {
	case t.Cell[l.Cell] == nil:
		return fmt.Errorf("no cell %q (write [cell.%s])", l.Cell, l.Cell)
	case len(p.Grants) > 0:
		return fmt.Errorf("a trace of packets cannot share a cell: use a trace of rates")
	case p.Base.Queue == DefaultQueue(shaper.Unlimited):
		return fmt.Errorf("a link of a cell without a rate needs a queue, like queue = \"200KB\"")
	}
	return nil
}
