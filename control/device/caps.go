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

// Bounded is what a cap is of: a link, all links of this device together, which is
// the zero Bounded, or another device.
type Bounded struct {
	Link string // its name
	Peer string // the other device's ID, whatever it is called
	// By is what counts. Of Peer: policy.ForPath, what this device carries for it by
	// the Internet, or policy.ForPipe, what comes and goes by its pipes, which is all
	// that a primary sees of what a helper carries for it. Without Peer: what is for that
	// alone; "" is all that goes by the Internet.
	By policy.Purpose
}

// has reports whether it is of what a link carries to and from a device.
func (b Bounded) has(link, peer string) bool {
	return (b.Link == "" || b.Link == link) && (b.Peer == "" || b.Peer == peer)
}

// Counts reports whether what a link carries for a purpose, to and from a device,
// counts.
func (b Bounded) Counts(p policy.Purpose, link, peer string) bool {
	return b.has(link, peer) && (p.Within(b.By) || b.By == "" && p.Internet())
}

// Caps keeps links and other devices to their caps: it looks at what they have
// carried, when a connection opens and the more often the less is left, lets less be
// on its way then, and ends the connections of one whose cap is used up, but for
// pipes, by which the two still talk. That the roles make no new ones is up to them:
// see Of. Safe for concurrent use.
type Caps struct {
	usage *Usage
	means func(name string) Bounded
	caps  func() map[string]policy.Caps
	tell  func(name string, of Bounded, before, now policy.Allowance)

	mu    sync.Mutex
	known map[string]*capped // by the name in caps
}

// capped is what was last seen of a name with caps.
type capped struct {
	of        Bounded
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
func NewCaps(u *Usage, means func(name string) Bounded, caps func() map[string]policy.Caps, tell func(name string, of Bounded, before, now policy.Allowance)) *Caps {
	return &Caps{usage: u, means: means, caps: caps, tell: tell, known: map[string]*capped{}}
}

// Of is what a link, by its own caps and those of all, or another device may still
// carry.
func (c *Caps) Of(b Bounded) policy.Allowance {
	if c == nil {
		return policy.Allowance{}
	}
	var a policy.Allowance
	for name, caps := range c.caps() {
		if of := c.of(name); of == b || of == (Bounded{}) && b.Peer == "" {
			one, _ := c.judge(of, caps)
			a = policy.Worse(a, one)
		}
	}
	return a
}

// ErrNoLink tells that nothing here has the name that a cap is for.
var ErrNoLink = errors.New("no link that is here now, or has carried something, is called so, nor is this device, one that it helps, or one that helps it")

// errNotCounted tells that caps are beyond this system.
var errNotCounted = errors.New("this system does not tell what links carry")

// Kept is why the caps of a name are not kept now, nil if they are.
func (c *Caps) Kept(name string) error {
	of := c.of(name)
	here, err := c.usage.hasLink(of.Link)
	used := c.usage.knows(of)
	switch {
	case err == nil && !used && !here && of.Link != "":
		return ErrNoLink
	case !c.usage.counts, err != nil && !used: // which link a connection uses is not known either
		return errNotCounted
	}
	return nil
}

// List is what each name with caps may still carry.
func (c *Caps) List() map[string]policy.Allowance {
	list := map[string]policy.Allowance{}
	for name, caps := range c.caps() {
		list[name], _ = c.judge(c.of(name), caps)
	}
	return list
}

// of is what a name is of.
func (c *Caps) of(name string) Bounded {
	b, link := c.means(name), Bounded{Link: name}
	if b.Peer == "" {
		return b
	}
	if here, _ := c.usage.hasLink(name); here || c.usage.knows(link) {
		return link
	}
	return b
}

// Month is the period of accounting of a link that a time is in: by its own
// monthly cap, or else by that of all links; without these the month. A nil Caps
// has none.
func (c *Caps) Month(link string, at time.Time) (from, until time.Time) {
	var caps policy.Caps
	if c != nil {
		all := c.caps()
		if caps = all[link]; caps.Monthly == 0 {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if caps.Monthly == 0 && c.of(name) == (Bounded{}) {
					caps = all[name]
				}
			}
		}
	}
	return caps.Month(at)
}

func (c *Caps) judge(of Bounded, caps policy.Caps) (policy.Allowance, measured) {
	now := c.usage.judged()
	day, _ := policy.Today(now)
	first, _ := caps.Month(now)
	m := c.usage.measure(of, day.Format(time.DateOnly), first.Format(time.DateOnly))
	return caps.Judge(now, m.today, m.month), m
}

// Run keeps to the caps until ctx ends.
func (c *Caps) Run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.usage.fresh:
		case <-t.C:
		}
		t.Reset(c.look())
	}
}

// look looks at all once, and returns when to do so again.
func (c *Caps) look() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.caps()
	var again time.Duration
	again, _ = policy.Allowance{}.Watch(0)
	for name := range c.known {
		if _, ok := all[name]; !ok {
			all[name] = policy.Caps{} // no more
		}
	}
	for name, caps := range all {
		of, k := c.of(name), c.known[name]
		if k != nil && k.of != of { // a device has been called so, or is no more
			c.keep(name, policy.Caps{}, k)
			k = nil
		}
		if k == nil {
			k = &capped{of: of}
			c.known[name] = k
		}
		again = min(again, c.keep(name, caps, k))
		if !caps.Any() {
			delete(c.known, name)
		}
	}
	return again
}

// keep keeps one to its caps.
func (c *Caps) keep(name string, caps policy.Caps, k *capped) time.Duration {
	now := time.Now() // of this process: the other clock may be set
	a, m := c.judge(k.of, caps)
	open := m.open
	var rate unit.Rate
	if carried := m.month - k.used; !k.at.IsZero() && carried > 0 {
		rate = unit.RateOf(carried, max(now.Sub(k.at), time.Millisecond))
	}
	k.at, k.used = now, m.month
	before := k.allowance
	if k.allowance = a; a.Level != before.Level {
		c.tell(name, k.of, before, a)
	}
	again, window := a.Watch(rate)
	if reached := a.Level == policy.CapReached; reached && k.of.By == policy.ForPipe {
		window = 1 // the role ends what goes by them
	} else if reached {
		for _, o := range open {
			_ = o.Abort()
		}
		k.limited = false
	}
	if len(open) == 0 {
		if k.limited = false; !m.unknown {
			again, _ = policy.Allowance{}.Watch(0)
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

// judged is the time to judge caps at.
func (u *Usage) judged() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return policy.TimeOf(u.now(), u.last)
}

// measured is what counts against a cap.
type measured struct {
	today, month unit.Bytes
	open         []Counted // connections that do
	unknown      bool      // one may: whose it is has not been told yet
}

// measure asks the connections that count what they have carried, and sums up what
// was carried since each of two days.
func (u *Usage) measure(of Bounded, day, month string) (m measured) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c, n := range u.open {
		peer := c.Peer()
		switch {
		case of.Counts(n.purpose, n.link, peer):
			u.count(c, n, false)
			m.open = append(m.open, c)
		case peer == "" && of.Counts(n.purpose, n.link, of.Peer):
			m.unknown = true
		}
	}
	for _, r := range u.used {
		if of.Counts(r.Purpose, r.Link, r.Peer) {
			m.today += r.Since(day)
			m.month += r.Since(month)
		}
	}
	return m
}

// knows reports whether something was carried of what a cap is of.
func (u *Usage) knows(of Bounded) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.used {
		if of.has(r.Link, r.Peer) {
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
