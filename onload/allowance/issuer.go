// SPDX-License-Identifier: Apache-2.0

package allowance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rules are the rules of an operator for its cells.
type Rules struct {
	// Threshold is the load from which on nothing is granted, 0 to 1.
	Threshold float64
	// Life is how long a permit holds.
	Life time.Duration
	// MaxPermits is how many permits of a cell may be valid at once: new load of their devices
	// shows only after a while.
	MaxPermits int
	// ClockTolerance is how much the clocks of issuers that share permits may differ; 0: this one
	// shares none. A permit counts that much longer than it holds.
	ClockTolerance time.Duration
}

const (
	// maxLoadAge bounds the age of a load.
	maxLoadAge = 30 * time.Second
	// maxTurnLives is for how many lives a device may renew its permit while others wait.
	maxTurnLives = 4
	// maxSources bounds the sources of the load of a cell.
	maxSources = 64
)

// Issuer decides on permits for an operator. It knows the cells, their loads and the valid permits.
// Several issuers give together what one would give if each calls SetCellPermits before
// RequestPermit, and nobody else writes the permits until the next CellPermits is written.
type Issuer struct {
	rules Rules
	cells map[string]*cellState
}

// cellState is the state of one cell.
type cellState struct {
	loads       map[string]timedLoad  // by source; "" is the issuer's own
	permits     map[string]HeldPermit // by device
	lastWaiting time.Time             // when a device was last refused for lack of permits
}

// timedLoad is a load of a cell at a time.
type timedLoad struct {
	load float64
	at   time.Time
}

// isRecent reports whether the load may still be used.
func (l timedLoad) isRecent(now time.Time) bool {
	age := now.Sub(l.at)
	return age <= maxLoadAge && age >= -maxLoadAge
}

// NewIssuer returns an issuer for the cells of the given names.
func NewIssuer(rules Rules, cells ...string) *Issuer {
	i := &Issuer{rules, map[string]*cellState{}}
	for _, name := range cells {
		i.cells[name] = &cellState{loads: map[string]timedLoad{}, permits: map[string]HeldPermit{}}
	}
	return i
}

// SetLoad sets the load of a cell at a time, 0 to 1. It ignores other values and unknown cells.
func (i *Issuer) SetLoad(cell string, load float64, at time.Time) { i.SetLoadFrom("", cell, load, at) }

// SetLoadFrom is SetLoad for a load that another source knows. The highest load counts.
func (i *Issuer) SetLoadFrom(source, cell string, load float64, at time.Time) {
	c := i.cells[cell]
	if c == nil || !(load >= 0 && load <= 1) {
		return
	}
	for s, l := range c.loads {
		if at.Sub(l.at) > maxLoadAge {
			delete(c.loads, s)
		}
	}
	if _, known := c.loads[source]; known || source == "" || len(c.loads) < maxSources {
		c.loads[source] = timedLoad{load, at}
	}
}

// Answer is the response to a request for a permit.
type Answer struct {
	Granted    bool
	Cell       string
	Load       float64       // of the cell
	Life       time.Duration // of the permit
	Since      time.Time     // start of uninterrupted permits of the device
	Reason     string        // of a refusal
	RetryAfter time.Duration // when to ask again; 0: no need
}

// RefuseAny returns the refusal that a cell has for every device now, and false if it has none. It
// needs no permits. "" is the only cell; the answer names it.
func (i *Issuer) RefuseAny(now time.Time, cell string) (a Answer, refused bool) {
	if cell == "" && len(i.cells) == 1 {
		for cell = range i.cells {
		}
	}
	c := i.cells[cell]
	if c == nil {
		return Answer{Cell: cell, Reason: "the operator does not know the cell", RetryAfter: maxBackoff}, true
	}
	a = Answer{Cell: cell, RetryAfter: i.rules.Life / 4}
	a.Load, _, a.Reason = i.checkCellLoad(c, now)
	return a, a.Reason != ""
}

// RequestPermit answers a request of a device in a cell; "" is the only cell.
func (i *Issuer) RequestPermit(now time.Time, device, cell string) Answer {
	a, refused := i.RefuseAny(now, cell)
	c := i.cells[a.Cell]
	if c == nil {
		return a
	}
	for d, h := range c.permits {
		// expired, or the clock was set back
		if !now.Before(h.Until) || h.Until.Sub(now) > i.maxValidity() {
			delete(c.permits, d)
		}
	}
	if refused {
		return a // an existing permit keeps counting, since this answer may be lost
	}
	h, has := c.permits[device]
	if !has {
		h = HeldPermit{Device: device, Cell: a.Cell, Since: now}
	}
	switch {
	case has && len(c.permits) >= i.rules.MaxPermits && now.Sub(h.Since) >= maxTurnLives*i.rules.Life &&
		now.Sub(c.lastWaiting) < i.rules.Life:
		a.Reason, a.RetryAfter = "other devices are waiting for a permit", i.rules.Life
	case !has && len(c.permits) >= i.rules.MaxPermits:
		c.lastWaiting = now
		a.Reason = fmt.Sprintf("%d devices already have a permit for the cell", len(c.permits))
	default:
		h.Until = now.Add(i.rules.Life + i.rules.ClockTolerance)
		c.permits[device] = h
		a.Granted, a.Life, a.Since, a.RetryAfter = true, i.rules.Life, h.Since, 0
	}
	return a // as above
}

// maxValidity returns for how long a permit can be valid. Other issuers may have another Life.
func (i *Issuer) maxValidity() time.Duration {
	if i.rules.ClockTolerance > 0 {
		return MaxLife + i.rules.ClockTolerance
	}
	return i.rules.Life
}

// Revoke revokes the permit of a device if its cell is loaded, and returns the answer for the
// device. With an unknown load it revokes nothing.
func (i *Issuer) Revoke(now time.Time, device, cell string) (a Answer, revoked bool) {
	c := i.cells[cell]
	if c == nil {
		return a, false
	}
	load, known, why := i.checkCellLoad(c, now)
	if _, has := c.permits[device]; !has || !known || why == "" {
		return a, false
	}
	delete(c.permits, device)
	return Answer{Cell: cell, Load: load, Reason: why, RetryAfter: i.rules.Life / 4}, true
}

// checkCellLoad returns the load of a cell, whether it is known, and why the cell grants nothing to
// any device, or "".
func (i *Issuer) checkCellLoad(c *cellState, now time.Time) (load float64, known bool, shut string) {
	for _, l := range c.loads {
		if l.isRecent(now) {
			load, known = max(load, l.load), true
		}
	}
	switch {
	case !known:
		return 0, false, "the load of the cell is unknown"
	case load >= i.rules.Threshold:
		shut = fmt.Sprintf("the load of the cell is %.0f %%, and no permits are granted from %.0f %% on",
			100*load, 100*i.rules.Threshold)
	}
	return load, true, shut
}

// Cell is the state of a cell.
type Cell struct {
	Name      string
	Load      float64
	LoadKnown bool         // Load is
	Reason    string       // why it grants nothing to any device, or ""
	Permits   []HeldPermit // valid ones, by device
}

// Cells returns the state of all cells, sorted by name, and the rules.
func (i *Issuer) Cells(now time.Time) (list []Cell, rules Rules) {
	held := i.HeldPermits(now)
	for _, name := range slices.Sorted(maps.Keys(i.cells)) {
		one := Cell{Name: name}
		one.Load, one.LoadKnown, one.Reason = i.checkCellLoad(i.cells[name], now)
		for _, h := range held {
			if h.Cell == name {
				one.Permits = append(one.Permits, h)
			}
		}
		list = append(list, one)
	}
	return list, i.rules
}

// HeldPermit is a valid permit.
type HeldPermit struct {
	Device string    `json:"device"`
	Cell   string    `json:"cell"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// Restore restores stored permits, so that they count.
func (i *Issuer) Restore(now time.Time, list []HeldPermit) {
	for _, h := range list {
		if c := i.cells[h.Cell]; c != nil && h.Until.After(now) && h.Until.Sub(now) <= i.rules.Life {
			c.permits[h.Device] = h
		}
	}
}

// HeldPermits returns the valid permits, sorted by cell and device.
func (i *Issuer) HeldPermits(now time.Time) (list []HeldPermit) {
	for _, c := range i.cells {
		for _, h := range c.permits {
			if now.Before(h.Until) {
				list = append(list, h)
			}
		}
	}
	slices.SortFunc(list,
		func(a, b HeldPermit) int { return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Device, b.Device)) })
	return list
}

// CellPermits are the permits of one cell, as issuers share them.
type CellPermits struct {
	Permits []HeldPermit `json:"permits"` // by device
	// LastWaiting is when a device was last refused for lack of permits.
	LastWaiting time.Time `json:"last_waiting,omitzero"`
}

// CellPermits returns the valid permits of a cell.
func (i *Issuer) CellPermits(now time.Time, cell string) (p CellPermits) {
	c := i.cells[cell]
	if c == nil {
		return p
	}
	for _, h := range c.permits {
		if now.Before(h.Until) {
			h.Since, h.Until = h.Since.UTC(), h.Until.UTC()
			p.Permits = append(p.Permits, h)
		}
	}
	slices.SortFunc(p.Permits, func(a, b HeldPermit) int { return cmp.Compare(a.Device, b.Device) })
	p.LastWaiting = c.lastWaiting.UTC()
	return p
}

// SetCellPermits replaces the permits of a cell by those that another issuer may have written. None
// counts for longer than a permit can hold, whatever the other one's clock or file says.
func (i *Issuer) SetCellPermits(now time.Time, cell string, p CellPermits) {
	c := i.cells[cell]
	if c == nil {
		return
	}
	latest := now.Add(i.maxValidity())
	clear(c.permits)
	for _, h := range p.Permits {
		if h.Cell = cell; h.Until.After(latest) {
			h.Until = latest
		}
		if now.Before(h.Until) {
			c.permits[h.Device] = h
		}
	}
	if c.lastWaiting = p.LastWaiting; c.lastWaiting.After(now) {
		c.lastWaiting = now
	}
}
