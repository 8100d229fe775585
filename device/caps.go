package device

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"mpbond/policy"
	"mpbond/unit"
)

// Caps keeps links to their caps: it looks at what they have carried, when a
// connection opens and the more often the less is left, lets less be on its way
// then, and ends the connections over a link whose cap is used up. That the roles
// make no new ones is up to them: see Of. Safe for concurrent use.
type Caps struct {
	usage *Usage
	self  func(name string) bool // a name of this device, whose caps are of all links together
	caps  func() map[string]policy.Caps
	tell  func(link string, before, now policy.Allowance)

	mu    sync.Mutex
	known map[string]*capped // by the name in caps
}

// capped is what was last seen of a name with caps.
type capped struct {
	allowance policy.Allowance
	at        time.Time
	used      unit.Bytes // of the month
	limited   bool       // windows are
}

// NewCaps makes one. Caps tells those that hold now, by the name of a link, or by
// a name that self takes for this device, for all links together; names of neither
// do no harm: see Kept. Tell is called, by one goroutine at a time, when the level
// of one has changed, with link "" for all of them, before connections are ended
// for it; it must not wait for long.
func NewCaps(u *Usage, self func(name string) bool, caps func() map[string]policy.Caps, tell func(link string, before, now policy.Allowance)) *Caps {
	return &Caps{usage: u, self: self, caps: caps, tell: tell, known: map[string]*capped{}}
}

// Of is what a link may still carry.
func (c *Caps) Of(link string) policy.Allowance {
	if c == nil {
		return policy.Allowance{}
	}
	var a policy.Allowance
	for name, caps := range c.caps() {
		if of := c.link(name); of == "" || of == link {
			one, _, _ := c.judge(of, caps)
			a = policy.Worse(a, one)
		}
	}
	return a
}

// ErrNoLink tells that nothing here has the name that a cap is for.
var ErrNoLink = errors.New("no link that is here now, or has carried something, is called so, nor is this device")

// errNotCounted tells that caps are beyond this system.
var errNotCounted = errors.New("this system does not tell what links carry")

// Kept is why the caps of a name are not kept now, nil if they are.
func (c *Caps) Kept(name string) error {
	link := c.link(name)
	links, err := c.usage.interfaces()
	used := c.usage.knows(link)
	here := link == "" || used || slices.ContainsFunc(links, func(i net.Interface) bool { return i.Name == link })
	switch {
	case err == nil && !here:
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
		list[name], _, _ = c.judge(c.link(name), caps)
	}
	return list
}

// link is the link of a name, "" for all.
func (c *Caps) link(name string) string {
	if c.self(name) {
		return ""
	}
	return name
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
				if caps.Monthly == 0 && c.self(name) {
					caps = all[name]
				}
			}
		}
	}
	return caps.Month(at)
}

func (c *Caps) judge(link string, caps policy.Caps) (a policy.Allowance, month unit.Bytes, open []Counted) {
	now := c.usage.judged()
	day, _ := policy.Today(now)
	first, _ := caps.Month(now)
	today, month, open := c.usage.measure(link, day.Format(time.DateOnly), first.Format(time.DateOnly))
	return caps.Judge(now, today, month), month, open
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

// look looks at all links once, and returns when to do so again.
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
		k := c.known[name]
		if k == nil {
			k = &capped{}
			c.known[name] = k
		}
		again = min(again, c.keep(c.link(name), caps, k))
		if !caps.Any() {
			delete(c.known, name)
		}
	}
	return again
}

// keep keeps one to its caps.
func (c *Caps) keep(link string, caps policy.Caps, k *capped) time.Duration {
	now := time.Now() // of this process: the other clock may be set
	a, month, open := c.judge(link, caps)
	var rate unit.Rate
	if carried := month - k.used; !k.at.IsZero() && carried > 0 {
		rate = unit.RateOf(carried, max(now.Sub(k.at), time.Millisecond))
	}
	k.at, k.used = now, month
	before := k.allowance
	if k.allowance = a; a.Level != before.Level {
		c.tell(link, before, a)
	}
	if a.Level == policy.CapReached {
		for _, o := range open {
			_ = o.Abort()
		}
		k.limited = false
	}
	again, window := a.Watch(rate)
	if len(open) == 0 {
		again, _ = policy.Allowance{}.Watch(0)
		k.limited = false
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

// measure asks the connections over a link, "" for all, what they have carried,
// and sums up what it has carried by the Internet since each of two days. Open are
// these connections.
func (u *Usage) measure(link string, day, month string) (today, sum unit.Bytes, open []Counted) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c, n := range u.open {
		if n.purpose.Internet() && (link == "" || n.link == link) {
			u.count(c, n, false)
			open = append(open, c)
		}
	}
	for _, r := range u.used {
		if link != "" && r.Link != link {
			continue
		}
		today += r.Since(day)
		sum += r.Since(month)
	}
	return today, sum, open
}

// knows reports whether a link, "" for any, has carried something.
func (u *Usage) knows(link string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.used {
		if link == "" || r.Link == link {
			return true
		}
	}
	return false
}
