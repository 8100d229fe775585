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
}

const (
	// maxLoadAge bounds the age of a load.
	maxLoadAge = 30 * time.Second
	// maxTurnLives is for how many lives a device may renew its permit while others wait.
	maxTurnLives = 4
)

// Issuer decides on permits for an operator. It knows the cells, their loads and the valid permits.
type Issuer struct {
	rules Rules
	cells map[string]*cellState
}

// cellState is the state of one cell.
type cellState struct {
	load        float64
	loadTime    time.Time             // zero: load is unknown
	permits     map[string]HeldPermit // by device
	lastWaiting time.Time             // when a device was last refused for lack of permits
}

// NewIssuer returns an issuer for the cells of the given names.
func NewIssuer(rules Rules, cells ...string) *Issuer {
	i := &Issuer{rules, map[string]*cellState{}}
	for _, name := range cells {
		i.cells[name] = &cellState{permits: map[string]HeldPermit{}}
	}
	return i
}

// SetLoad sets the load of a cell at a time, 0 to 1. It ignores other values and unknown cells.
func (i *Issuer) SetLoad(cell string, load float64, at time.Time) {
	if c := i.cells[cell]; c != nil && load >= 0 && load <= 1 {
		c.load, c.loadTime = load, at
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

// RequestPermit answers a request of a device in a cell; "" is the only cell.
func (i *Issuer) RequestPermit(now time.Time, device, cell string) Answer {
	if cell == "" && len(i.cells) == 1 {
		for cell = range i.cells {
		}
	}
	c := i.cells[cell]
	if c == nil {
		return Answer{Cell: cell, Reason: "the operator does not know the cell", RetryAfter: maxBackoff}
	}
	for d, h := range c.permits {
		// expired, or the clock was set back
		if !now.Before(h.Until) || h.Until.Sub(now) > i.rules.Life {
			delete(c.permits, d)
		}
	}
	a := Answer{Cell: cell, Load: c.load, RetryAfter: i.rules.Life / 4}
	h, has := c.permits[device]
	if !has {
		h = HeldPermit{Device: device, Cell: cell, Since: now}
	}
	known, shut := i.checkCellLoad(c, now)
	if !known {
		a.Load = 0
	}
	switch {
	case shut != "":
		a.Reason = shut
	case has && len(c.permits) >= i.rules.MaxPermits && now.Sub(h.Since) >= maxTurnLives*i.rules.Life &&
		now.Sub(c.lastWaiting) < i.rules.Life:
		a.Reason, a.RetryAfter = "other devices are waiting for a permit", i.rules.Life
	case !has && len(c.permits) >= i.rules.MaxPermits:
		c.lastWaiting = now
		a.Reason = fmt.Sprintf("%d devices already have a permit for the cell", len(c.permits))
	default:
		h.Until = now.Add(i.rules.Life)
		c.permits[device] = h
		a.Granted, a.Life, a.Since, a.RetryAfter = true, i.rules.Life, h.Since, 0
		return a
	}
	return a // an existing permit keeps counting, since this answer may be lost
}

// Revoke revokes the permit of a device if its cell is loaded, and returns the answer for the
// device. With an unknown load it revokes nothing.
func (i *Issuer) Revoke(now time.Time, device, cell string) (a Answer, revoked bool) {
	c := i.cells[cell]
	if c == nil {
		return a, false
	}
	known, why := i.checkCellLoad(c, now)
	if _, has := c.permits[device]; !has || !known || why == "" {
		return a, false
	}
	delete(c.permits, device)
	return Answer{Cell: cell, Load: c.load, Reason: why, RetryAfter: i.rules.Life / 4}, true
}

// checkCellLoad reports whether the load of a cell is known, and why the cell grants nothing to any
// device, or "".
func (i *Issuer) checkCellLoad(c *cellState, now time.Time) (known bool, shut string) {
	switch age := now.Sub(c.loadTime); {
	case c.loadTime.IsZero() || age > maxLoadAge || age < -maxLoadAge:
		return false, "the load of the cell is unknown"
	case c.load >= i.rules.Threshold:
		shut = fmt.Sprintf("the load of the cell is %.0f %%, and no permits are granted from %.0f %% on",
			100*c.load, 100*i.rules.Threshold)
	}
	return true, shut
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
		one := Cell{Name: name, Load: i.cells[name].load}
		if one.LoadKnown, one.Reason = i.checkCellLoad(i.cells[name], now); !one.LoadKnown {
			one.Load = 0
		}
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
