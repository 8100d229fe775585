package allowance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rules are an operator's: of one cell, or of all.
type Rules struct {
	// Threshold is the load from which on nothing is granted, 0 to 1.
	Threshold float64
	// Life is how long a permit holds.
	Life time.Duration
	// MaxPermits is how many permits of a cell may hold at once: what all of them begin within
	// a moment shows in its load only later.
	MaxPermits int
}

const (
	// maxLoadAge is how old what is known of a cell may be.
	maxLoadAge = 30 * time.Second
	// maxTurnLives is for how many lives a device may have a permit while others wait for one.
	maxTurnLives = 4
)

// Issuer is an operator's service: it knows cells and their loads, and who has a permit.
type Issuer struct {
	rules Rules
	cells map[string]*cellState
}

type cellState struct {
	load        float64
	loadTime    time.Time             // of load; zero: not known
	permits     map[string]HeldPermit // by device
	lastWaiting time.Time             // when one last found no place
}

// NewIssuer makes one for cells of these names.
func NewIssuer(rules Rules, cells ...string) *Issuer {
	i := &Issuer{rules, map[string]*cellState{}}
	for _, name := range cells {
		i.cells[name] = &cellState{permits: map[string]HeldPermit{}}
	}
	return i
}

// SetLoad takes the load of a cell at a time, 0 to 1.
func (i *Issuer) SetLoad(cell string, load float64, at time.Time) {
	if c := i.cells[cell]; c != nil && load >= 0 && load <= 1 {
		c.load, c.loadTime = load, at
	}
}

// Answer is what a device is told.
type Answer struct {
	Granted    bool
	Cell       string
	Load       float64       // of the cell
	Life       time.Duration // of the permit
	Since      time.Time     // the device has had one without a pause
	Reason     string        // it is refused
	RetryAfter time.Duration // when to ask again, 0: no use
}

// RequestPermit answers a device that is in a cell; "" is the only one.
func (i *Issuer) RequestPermit(now time.Time, device, cell string) Answer {
	if cell == "" && len(i.cells) == 1 {
		for cell = range i.cells {
		}
	}
	c := i.cells[cell]
	if c == nil {
		return Answer{Cell: cell, Reason: "the operator knows no such cell", RetryAfter: maxBackoff}
	}
	for d, h := range c.permits {
		if !now.Before(h.Until) || h.Until.Sub(now) > i.rules.Life { // the clock was set
			delete(c.permits, d)
		}
	}
	a := Answer{Cell: cell, Load: c.load, RetryAfter: i.rules.Life / 4}
	h, has := c.permits[device]
	if !has {
		h = HeldPermit{Device: device, Cell: cell, Since: now}
	}
	known, shut := i.checkLoad(c, now)
	if !known {
		a.Load = 0
	}
	switch {
	case shut != "":
		a.Reason = shut
	case has && len(c.permits) >= i.rules.MaxPermits && now.Sub(h.Since) >= maxTurnLives*i.rules.Life && now.Sub(c.lastWaiting) < i.rules.Life:
		a.Reason, a.RetryAfter = "it is the turn of others that wait", i.rules.Life
	case !has && len(c.permits) >= i.rules.MaxPermits:
		c.lastWaiting = now
		a.Reason = fmt.Sprintf("%d devices have a permit for the cell already", len(c.permits))
	default:
		h.Until = now.Add(i.rules.Life)
		c.permits[device] = h
		a.Granted, a.Life, a.Since, a.RetryAfter = true, i.rules.Life, h.Since, 0
		return a
	}
	return a // a permit that it has keeps its place: this answer may be lost
}

// Revoke takes the permit of a device back if its cell is loaded, and returns the answer
// that the device gets. A load that is not known takes nothing back.
func (i *Issuer) Revoke(now time.Time, device, cell string) (a Answer, revoked bool) {
	c := i.cells[cell]
	if c == nil {
		return a, false
	}
	known, why := i.checkLoad(c, now)
	if _, has := c.permits[device]; !has || !known || why == "" {
		return a, false
	}
	delete(c.permits, device)
	return Answer{Cell: cell, Load: c.load, Reason: why, RetryAfter: i.rules.Life / 4}, true
}

// checkLoad tells whether a cell's load is known, and why nothing is granted whoever asks, ""
// if something may be.
func (i *Issuer) checkLoad(c *cellState, now time.Time) (known bool, shut string) {
	switch age := now.Sub(c.loadTime); {
	case c.loadTime.IsZero() || age > maxLoadAge || age < -maxLoadAge:
		return false, "the load of the cell is not known"
	case c.load >= i.rules.Threshold:
		shut = fmt.Sprintf("the cell is loaded by %.0f %%, and nothing is granted from %.0f %% on", 100*c.load, 100*i.rules.Threshold)
	}
	return true, shut
}

// Cell is how a cell is.
type Cell struct {
	Name      string
	Load      float64
	LoadKnown bool         // Load is
	Reason    string       // nothing is granted, whoever asks; "": something may be
	Permits   []HeldPermit // of it, by device
}

// Cells are how all cells are, by name, and the rules.
func (i *Issuer) Cells(now time.Time) (list []Cell, rules Rules) {
	held := i.HeldPermits(now)
	for _, name := range slices.Sorted(maps.Keys(i.cells)) {
		one := Cell{Name: name, Load: i.cells[name].load}
		if one.LoadKnown, one.Reason = i.checkLoad(i.cells[name], now); !one.LoadKnown {
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

// HeldPermit is one permit that holds.
type HeldPermit struct {
	Device string    `json:"device"`
	Cell   string    `json:"cell"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// Restore takes permits that were kept, so that who has one counts.
func (i *Issuer) Restore(now time.Time, list []HeldPermit) {
	for _, h := range list {
		if c := i.cells[h.Cell]; c != nil && h.Until.After(now) && h.Until.Sub(now) <= i.rules.Life {
			c.permits[h.Device] = h
		}
	}
}

// HeldPermits are the permits that hold, by cell and device.
func (i *Issuer) HeldPermits(now time.Time) (list []HeldPermit) {
	for _, c := range i.cells {
		for _, h := range c.permits {
			if now.Before(h.Until) {
				list = append(list, h)
			}
		}
	}
	slices.SortFunc(list, func(a, b HeldPermit) int { return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Device, b.Device)) })
	return list
}
