// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

// CapTarget is the link or device that a cap applies to. The zero CapTarget is all links of this
// device together.
type CapTarget struct {
	Link string // name of the link
	Peer string // ID of the other device
	// Purpose selects the traffic that counts. With Peer: policy.ForHSPath for traffic that this
	// device carries for it over the Internet, or policy.ForPipe for traffic over its pipes, which
	// is all that a primary sees of a helper. Without Peer: that purpose only, or all Internet
	// traffic if "".
	Purpose policy.Purpose
}

// coversTraffic reports whether traffic of a link and peer belongs to the target.
func (t CapTarget) coversTraffic(link, peer string) bool {
	return (t.Link == "" || t.Link == link) && (t.Peer == "" || t.Peer == peer)
}

// CountsTraffic reports whether traffic of a purpose, link and peer counts for the target.
func (t CapTarget) CountsTraffic(p policy.Purpose, link, peer string) bool {
	return t.coversTraffic(link, peer) && (p.CountsAs(t.Purpose) || t.Purpose == "" && p.UsesInternet())
}

// Caps enforces the caps of links and other devices. It checks their usage when a connection opens,
// and more often the less is left. Near the cap it limits receive windows. At the cap it ends the
// connections, except pipes, which the devices need to communicate. The roles must not open new
// ones: see AllowanceOf. Safe for concurrent use.
type Caps struct {
	usage        *Usage
	resolveName  func(name string) CapTarget
	currentCaps  func() map[string]policy.Caps
	levelChanged func(name string, of CapTarget, before, now policy.Allowance)

	mu     sync.Mutex
	states map[string]*capState // by name of the cap
}

// capState is the last state of one cap.
type capState struct {
	target    CapTarget
	allowance policy.Allowance
	at        time.Time
	used      unit.Bytes // in this month
	limited   bool       // receive windows are limited
}

// NewCaps returns a Caps that counts with u. currentCaps returns the current caps, by name.
// resolveName returns the target of a name: this device, another device, or else the link of that
// name. A link that exists takes precedence over another device; an unknown name does no harm, see
// CheckEnforced. levelChanged is called when the level of a cap changes, by one goroutine at a time
// and before connections end for it. It must not block for long.
func NewCaps(u *Usage, resolveName func(name string) CapTarget, currentCaps func() map[string]policy.Caps,
	levelChanged func(name string, of CapTarget, before, now policy.Allowance)) *Caps {
	return &Caps{usage: u, resolveName: resolveName, currentCaps: currentCaps, levelChanged: levelChanged,
		states: map[string]*capState{}}
}

// AllowanceOf returns the allowance of a link, by its own caps and those of all links, or of
// another device.
func (c *Caps) AllowanceOf(b CapTarget) policy.Allowance {
	if c == nil {
		return policy.Allowance{}
	}
	var a policy.Allowance
	for name, caps := range c.currentCaps() {
		if of := c.capTargetOfName(name); of == b || of == (CapTarget{}) && b.Peer == "" {
			one, _ := c.evaluateCap(of, caps)
			a = policy.Stricter(a, one)
		}
	}
	return a
}

// ErrNoLink reports that the name of a cap is unknown here.
var ErrNoLink = errors.New("no link, helper or primary has this name, nor this device")

// errNotCounted reports that the system does not support caps.
var errNotCounted = errors.New("this system does not count the bytes of links")

// CheckEnforced returns why the caps of a name are not enforced now, nil if they are.
func (c *Caps) CheckEnforced(name string) error {
	of := c.capTargetOfName(name)
	here, err := c.usage.linkExistsNow(of.Link)
	used := c.usage.hasRecords(of)
	switch {
	case err == nil && !used && !here && of.Link != "":
		return ErrNoLink
	case !c.usage.countsBytes, err != nil && !used: // the link of a connection is unknown too
		return errNotCounted
	}
	return nil
}

// ListAllowances returns the allowance of each name with caps.
func (c *Caps) ListAllowances() map[string]policy.Allowance {
	list := map[string]policy.Allowance{}
	for name, caps := range c.currentCaps() {
		list[name], _ = c.evaluateCap(c.capTargetOfName(name), caps)
	}
	return list
}

// capTargetOfName returns the target of a name.
func (c *Caps) capTargetOfName(name string) CapTarget {
	b, link := c.resolveName(name), CapTarget{Link: name}
	if b.Peer == "" {
		return b
	}
	if here, _ := c.usage.linkExistsNow(name); here || c.usage.hasRecords(link) {
		return link
	}
	return b
}

// AccountingPeriod returns the accounting period of a link that contains at: that of its own
// monthly cap, else that of all links, else the calendar month. A nil Caps has no caps.
func (c *Caps) AccountingPeriod(link string, at time.Time) (from, until time.Time) {
	var caps policy.Caps
	if c != nil {
		all := c.currentCaps()
		if caps = all[link]; caps.Monthly == 0 {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if caps.Monthly == 0 && c.capTargetOfName(name) == (CapTarget{}) {
					caps = all[name]
				}
			}
		}
	}
	return caps.Period(at)
}

// evaluateCap returns the allowance of a target under caps, and its usage.
func (c *Caps) evaluateCap(of CapTarget, caps policy.Caps) (policy.Allowance, measuredUse) {
	now := c.usage.capEvaluationTime()
	day, _ := policy.Today(now)
	first, _ := caps.Period(now)
	m := c.usage.measureTarget(of, day.Format(time.DateOnly), first.Format(time.DateOnly))
	return caps.Evaluate(now, m.today, m.month), m
}

// Run enforces the caps until ctx ends.
func (c *Caps) Run(ctx context.Context) {
	t := c.usage.clock.NewTicker(c.enforceAll())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.usage.connOpened:
		case <-t.C:
		}
		t.Reset(c.enforceAll())
	}
}

// enforceAll enforces all caps once and returns when to do so again.
func (c *Caps) enforceAll() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.currentCaps()
	var again time.Duration
	again, _ = policy.Allowance{}.Enforcement(0)
	for name := range c.states {
		if _, ok := all[name]; !ok {
			all[name] = policy.Caps{} // the cap was removed
		}
	}
	for name, caps := range all {
		of, k := c.capTargetOfName(name), c.states[name]
		if k != nil && k.target != of { // the name now means another target
			c.enforceCap(name, policy.Caps{}, k)
			k = nil
		}
		if k == nil {
			k = &capState{target: of}
			c.states[name] = k
		}
		again = min(again, c.enforceCap(name, caps, k))
		if !caps.HasCap() {
			delete(c.states, name)
		}
	}
	return again
}

// enforceCap enforces one cap and returns when to do so again.
func (c *Caps) enforceCap(name string, caps policy.Caps, k *capState) time.Duration {
	now := time.Now() // of this process: the clock of evaluateCap may be set
	a, m := c.evaluateCap(k.target, caps)
	open := m.open
	var rate unit.Rate
	if carried := m.month - k.used; !k.at.IsZero() && carried > 0 {
		rate = unit.RateOf(carried, max(now.Sub(k.at), time.Millisecond))
	}
	k.at, k.used = now, m.month
	before := k.allowance
	if k.allowance = a; a.Level != before.Level {
		c.levelChanged(name, k.target, before, a)
	}
	again, window := a.Enforcement(rate)
	if reached := a.Level == policy.CapReached; reached && k.target.Purpose == policy.ForPipe {
		window = 1 // the role ends the traffic over pipes
	} else if reached {
		for _, o := range open {
			_ = o.Abort()
		}
		k.limited = false
	}
	if len(open) == 0 {
		if k.limited = false; !m.unknown {
			again, _ = policy.Allowance{}.Enforcement(0)
		}
		return again
	}
	if window > 0 || k.limited {
		k.limited = window > 0
		for _, o := range open {
			each := unit.GB
			if k.limited {
				h, _ := o.Probe()
				each = a.ConnWindow(window, len(open), h.MinRTT)
			}
			_ = o.LimitWindow(each) // a connection that fails is about to end
		}
	}
	return again
}

// capEvaluationTime returns the time for which caps are evaluated.
func (u *Usage) capEvaluationTime() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return policy.CapTime(u.now(), u.lastDay)
}

// measuredUse is the usage that counts against a cap.
type measuredUse struct {
	today, month unit.Bytes
	open         []CountedConn // open connections that count
	unknown      bool          // an open connection may count: its peer is still unknown
}

// measureTarget updates the connections of a target and sums up its usage since each of two days.
func (u *Usage) measureTarget(of CapTarget, day, month string) (m measuredUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c, n := range u.open {
		peer := c.Peer()
		switch {
		case of.CountsTraffic(n.purpose, n.link, peer):
			u.countConnBytes(c, n, false)
			m.open = append(m.open, c)
		case peer == "" && of.CountsTraffic(n.purpose, n.link, of.Peer):
			m.unknown = true
		}
	}
	for _, r := range u.used {
		if of.CountsTraffic(r.Purpose, r.Link, r.Peer) {
			m.today += r.BytesSince(day)
			m.month += r.BytesSince(month)
		}
	}
	return m
}

// hasRecords reports whether traffic of a target was recorded.
func (u *Usage) hasRecords(of CapTarget) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.used {
		if of.coversTraffic(r.Link, r.Peer) {
			return true
		}
	}
	return false
}

// linkExistsNow reports whether a link exists now.
func (u *Usage) linkExistsNow(name string) (bool, error) {
	links, err := u.interfaces()
	return slices.ContainsFunc(links, func(i net.Interface) bool { return i.Name == name }), err
}
