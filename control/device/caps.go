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

// CapTarget is what a cap is of: a link, all links of this device together, which is
// the zero Bounded, or another device.
type CapTarget struct {
	Link string // its name
	Peer string // the other device's ID, whatever it is called
	// Purpose is what counts. Of Peer: policy.ForPath, what this device carries for it by
	// the Internet, or policy.ForPipe, what comes and goes by its pipes, which is all
	// that a primary sees of what a helper carries for it. Without Peer: what is for that
	// alone; "" is all that goes by the Internet.
	Purpose policy.Purpose
}

// covers reports whether it is of what a link carries to and from a device.
func (b CapTarget) covers(link, peer string) bool {
	return (b.Link == "" || b.Link == link) && (b.Peer == "" || b.Peer == peer)
}

// CountsTraffic reports whether what a link carries for a purpose, to and from a device,
// counts.
func (b CapTarget) CountsTraffic(p policy.Purpose, link, peer string) bool {
	return b.covers(link, peer) && (p.CountsAs(b.Purpose) || b.Purpose == "" && p.UsesInternet())
}

// Caps keeps links and other devices to their caps: it looks at what they have
// carried, when a connection opens and the more often the less is left, lets less be
// on its way then, and ends the connections of one whose cap is used up, but for
// pipes, by which the two still talk. That the roles make no new ones is up to them:
// see Of. Safe for concurrent use.
type Caps struct {
	usage        *Usage
	resolveName  func(name string) CapTarget
	currentCaps  func() map[string]policy.Caps
	levelChanged func(name string, of CapTarget, before, now policy.Allowance)

	mu     sync.Mutex
	states map[string]*capState // by the name in caps
}

// capState is what was last seen of a name with caps.
type capState struct {
	target    CapTarget
	allowance policy.Allowance
	at        time.Time
	used      unit.Bytes // of the month
	limited   bool       // windows are
}

// NewCaps makes one. Caps tells those that hold now, by name. Means tells what a name
// is of: of this device, of another one, or else the name of a link; a link that is
// there goes before another device, and a name of nothing does no harm: see Kept. Tell
// is called, by one goroutine at a time, when the level of one has changed, before
// connections are ended for it; it must not wait for long.
func NewCaps(u *Usage, means func(name string) CapTarget, caps func() map[string]policy.Caps, tell func(name string, of CapTarget, before, now policy.Allowance)) *Caps {
	return &Caps{usage: u, resolveName: means, currentCaps: caps, levelChanged: tell, states: map[string]*capState{}}
}

// AllowanceOf is what a link, by its own caps and those of all, or another device may still
// carry.
func (c *Caps) AllowanceOf(b CapTarget) policy.Allowance {
	if c == nil {
		return policy.Allowance{}
	}
	var a policy.Allowance
	for name, caps := range c.currentCaps() {
		if of := c.targetOf(name); of == b || of == (CapTarget{}) && b.Peer == "" {
			one, _ := c.evaluateCap(of, caps)
			a = policy.Stricter(a, one)
		}
	}
	return a
}

// ErrNoLink tells that nothing here has the name that a cap is for.
var ErrNoLink = errors.New("no link that is here now, or has carried something, is called so, nor is this device, one that it helps, or one that helps it")

// errNotCounted tells that caps are beyond this system.
var errNotCounted = errors.New("this system does not tell what links carry")

// CheckEnforced is why the caps of a name are not kept now, nil if they are.
func (c *Caps) CheckEnforced(name string) error {
	of := c.targetOf(name)
	here, err := c.usage.hasLink(of.Link)
	used := c.usage.hasRecords(of)
	switch {
	case err == nil && !used && !here && of.Link != "":
		return ErrNoLink
	case !c.usage.countsBytes, err != nil && !used: // which link a connection uses is not known either
		return errNotCounted
	}
	return nil
}

// ListAllowances is what each name with caps may still carry.
func (c *Caps) ListAllowances() map[string]policy.Allowance {
	list := map[string]policy.Allowance{}
	for name, caps := range c.currentCaps() {
		list[name], _ = c.evaluateCap(c.targetOf(name), caps)
	}
	return list
}

// targetOf is what a name is of.
func (c *Caps) targetOf(name string) CapTarget {
	b, link := c.resolveName(name), CapTarget{Link: name}
	if b.Peer == "" {
		return b
	}
	if here, _ := c.usage.hasLink(name); here || c.usage.hasRecords(link) {
		return link
	}
	return b
}

// AccountingPeriod is the period of accounting of a link that a time is in: by its own
// monthly cap, or else by that of all links; without these the month. A nil Caps
// has none.
func (c *Caps) AccountingPeriod(link string, at time.Time) (from, until time.Time) {
	var caps policy.Caps
	if c != nil {
		all := c.currentCaps()
		if caps = all[link]; caps.Monthly == 0 {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if caps.Monthly == 0 && c.targetOf(name) == (CapTarget{}) {
					caps = all[name]
				}
			}
		}
	}
	return caps.Period(at)
}

func (c *Caps) evaluateCap(of CapTarget, caps policy.Caps) (policy.Allowance, measuredUse) {
	now := c.usage.capTime()
	day, _ := policy.Today(now)
	first, _ := caps.Period(now)
	m := c.usage.measureTarget(of, day.Format(time.DateOnly), first.Format(time.DateOnly))
	return caps.Evaluate(now, m.today, m.month), m
}

// Run keeps to the caps until ctx ends.
func (c *Caps) Run(ctx context.Context) {
	t := time.NewTimer(0)
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

// enforceAll looks at all once, and returns when to do so again.
func (c *Caps) enforceAll() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.currentCaps()
	var again time.Duration
	again, _ = policy.Allowance{}.Enforcement(0)
	for name := range c.states {
		if _, ok := all[name]; !ok {
			all[name] = policy.Caps{} // no more
		}
	}
	for name, caps := range all {
		of, k := c.targetOf(name), c.states[name]
		if k != nil && k.target != of { // a device has been called so, or is no more
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

// enforceCap keeps one to its caps.
func (c *Caps) enforceCap(name string, caps policy.Caps, k *capState) time.Duration {
	now := time.Now() // of this process: the other clock may be set
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
		window = 1 // the role ends what goes by them
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
		each := unit.GB
		if k.limited = window > 0; k.limited {
			each = max(window/unit.Bytes(len(open)), 1)
		}
		for _, o := range open {
			_ = o.LimitWindow(each) // one that fails is about to end
		}
	}
	return again
}

// capTime is the time to judge caps at.
func (u *Usage) capTime() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return policy.CapTime(u.now(), u.lastDay)
}

// measuredUse is what counts against a cap.
type measuredUse struct {
	today, month unit.Bytes
	open         []CountedConn // connections that do
	unknown      bool          // one may: whose it is has not been told yet
}

// measureTarget asks the connections that count what they have carried, and sums up what
// was carried since each of two days.
func (u *Usage) measureTarget(of CapTarget, day, month string) (m measuredUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c, n := range u.open {
		peer := c.Peer()
		switch {
		case of.CountsTraffic(n.purpose, n.link, peer):
			u.countConn(c, n, false)
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

// hasRecords reports whether something was carried of what a cap is of.
func (u *Usage) hasRecords(of CapTarget) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.used {
		if of.covers(r.Link, r.Peer) {
			return true
		}
	}
	return false
}

// hasLink reports whether a link is there now.
func (u *Usage) hasLink(name string) (bool, error) {
	links, err := u.interfaces()
	return slices.ContainsFunc(links, func(i net.Interface) bool { return i.Name == name }), err
}
