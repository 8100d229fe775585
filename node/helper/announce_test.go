package helper

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// heardFacts is a pipe that keeps what is sent on it; while it is stopped, sending blocks.
type heardFacts struct {
	stop sync.Mutex

	mu  sync.Mutex
	all []wire.Facts
}

func (h *heardFacts) SendFacts(f wire.Facts) error {
	h.stop.Lock()
	defer h.stop.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, f)
	return nil
}

func (h *heardFacts) heard() []wire.Facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// TestAnnouncer: whatever happens in which order, each pipe has the newest facts last;
// one that was removed gets nothing more.
func TestAnnouncer(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	laptop, tablet := keys().primary.Public(), keys().server.Public()
	var now wire.Facts
	var paused []identity.PublicKey
	a := newAnnouncer(func() wire.Facts { return now }, func() []identity.PublicKey { return paused })
	pipes, removed := map[*heardFacts]identity.PublicKey{}, map[*heardFacts]int{}
	for range 500 {
		switch rng.IntN(5) {
		case 0:
			p, primary := &heardFacts{}, []identity.PublicKey{laptop, tablet}[rng.IntN(2)]
			pipes[p] = primary
			a.add(p, primary)
		case 1:
			for p := range pipes {
				a.remove(p)
				removed[p] = len(p.heard())
				delete(pipes, p)
				break
			}
		case 2:
			now.Battery = unit.Percent(float64(rng.IntN(3)))
			a.announce()
		case 3:
			paused = [][]identity.PublicKey{nil, {laptop}, {tablet}}[rng.IntN(3)]
			a.announce()
		case 4:
			a.announce() // nothing has changed
		}
		for p, primary := range pipes {
			want, got := now, wire.Facts{}
			if slices.Contains(paused, primary) {
				want.Refuses = errPaused.Error()
			}
			if list := p.heard(); len(list) > 0 {
				got = list[len(list)-1]
			}
			if got != want {
				t.Fatalf("%+v was sent last, want %+v", got, want)
			}
		}
	}
	for p, n := range removed {
		if got := len(p.heard()); got != n {
			t.Errorf("%d facts sent on a pipe that was removed", got-n)
		}
	}
}

// TestAnnouncerBlocks: a primary that does not read holds up who announces, and nobody who
// removes a pipe; afterwards all pipes have the newest facts.
func TestAnnouncerBlocks(t *testing.T) {
	var d deviceFacts
	d.limits = func() policy.Limits { return policy.Limits{} }
	a := newAnnouncer(d.current, func() []identity.PublicKey { return nil })
	slow, other, gone := &heardFacts{}, &heardFacts{}, &heardFacts{}
	for _, p := range []*heardFacts{slow, other, gone} {
		a.add(p, keys().primary.Public())
	}
	slow.stop.Lock()
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			d.set(facts.Facts{Battery: unit.Percent(float64(n))}, "lo", time.Now())
			a.announce()
		})
	}
	a.remove(gone)
	slow.stop.Unlock()
	all.Wait()
	for _, p := range []*heardFacts{slow, other} {
		if list := p.heard(); len(list) == 0 || list[len(list)-1] != d.current() {
			t.Errorf("%+v were sent, the newest are %+v", list, d.current())
		}
	}
}

// TestSuspension: a device is suspended below its owner's limits, for a while at least, and
// each change is returned once.
func TestSuspension(t *testing.T) {
	limits := policy.Limits{BatteryFloor: 20}
	d := &deviceFacts{limits: func() policy.Limits { return limits }}
	now := time.Unix(1e9, 0)
	at := func(percent float64) facts.Facts {
		return facts.Facts{Battery: unit.Percent(percent), Power: wire.PowerBattery}
	}
	if s := d.setLink("wwan0", now); s != (suspension{}) || d.current() != (wire.Facts{}) {
		t.Errorf("before anything is known: %+v, %+v", s, d.current())
	}
	for i, c := range []struct {
		change         func() suspension
		starts, ends   bool
		after          time.Duration
		batteryPercent int
	}{
		{func() suspension { return d.set(at(20), "wwan0", now) }, false, false, 0, 20},
		{func() suspension { return d.set(at(19), "wwan0", now) }, true, false, time.Second, 19},
		{func() suspension { return d.setLink("wlan0", now) }, false, false, time.Second, 19},
		{func() suspension { return d.set(at(60), "wlan0", now) }, false, false, time.Second, 60}, // for a moment only
		{func() suspension { return d.review(now) }, false, true, time.Hour, 60},
		{func() suspension { return d.review(now) }, false, false, time.Second, 60},
		{func() suspension { limits.BatteryFloor = 70; return d.review(now) }, true, false, time.Second, 60},
	} {
		now = now.Add(c.after)
		s := c.change()
		if starts, ends := s.before == "" && s.now != "", s.before != "" && s.now == ""; starts != c.starts || ends != c.ends {
			t.Errorf("%d: %+v", i, s)
		}
		if f := d.current(); f.Refuses != s.now || f.Battery.Percent() != c.batteryPercent {
			t.Errorf("%d: %+v, while suspended for %q", i, f, s.now)
		}
	}
	if f := d.current(); f.Link != "wlan0" {
		t.Errorf("the link is %q", f.Link)
	}
}
