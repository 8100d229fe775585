// SPDX-License-Identifier: Apache-2.0

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

// receivedFacts is a pipe that stores what is sent on it. While it is stopped, sending blocks.
type receivedFacts struct {
	stop sync.Mutex

	mu  sync.Mutex
	all []wire.Facts
}

func (h *receivedFacts) SendFacts(f wire.Facts) error {
	h.stop.Lock()
	defer h.stop.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, f)
	return nil
}

func (h *receivedFacts) received() []wire.Facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// TestAnnouncer: in any order of events, each pipe has the newest facts last, and a removed pipe
// gets no more.
func TestAnnouncer(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	laptop, tablet := keys().primary.Public(), keys().server.Public()
	var now wire.Facts
	var paused []identity.PublicKey
	a := newAnnouncer(func() wire.Facts { return now }, func() []identity.PublicKey { return paused })
	pipes, removed := map[*receivedFacts]identity.PublicKey{}, map[*receivedFacts]int{}
	for range 500 {
		switch rng.IntN(5) {
		case 0:
			p, primary := &receivedFacts{}, []identity.PublicKey{laptop, tablet}[rng.IntN(2)]
			pipes[p] = primary
			a.addFactsPipe(p, primary)
		case 1:
			for p := range pipes {
				a.removeFactsPipe(p)
				removed[p] = len(p.received())
				delete(pipes, p)
				break
			}
		case 2:
			now.Battery = unit.Percent(float64(rng.IntN(3)))
			a.sendChanges()
		case 3:
			paused = [][]identity.PublicKey{nil, {laptop}, {tablet}}[rng.IntN(3)]
			a.sendChanges()
		case 4:
			a.sendChanges() // nothing has changed
		}
		for p, primary := range pipes {
			want, got := now, wire.Facts{}
			if slices.Contains(paused, primary) {
				want.RefusalReason = errPaused.Error()
			}
			if list := p.received(); len(list) > 0 {
				got = list[len(list)-1]
			}
			if got != want {
				t.Fatalf("%+v was sent last, want %+v", got, want)
			}
		}
	}
	for p, n := range removed {
		if got := len(p.received()); got != n {
			t.Errorf("%d facts sent on a pipe that was removed", got-n)
		}
	}
}

// TestAnnouncerBlocks: a primary that does not read blocks announcing but not the removal of pipes;
// afterwards all pipes have the newest facts.
func TestAnnouncerBlocks(t *testing.T) {
	var d deviceFacts
	d.limits = func() policy.Limits { return policy.Limits{} }
	a := newAnnouncer(d.factsToAnnounce, func() []identity.PublicKey { return nil })
	slow, other, gone := &receivedFacts{}, &receivedFacts{}, &receivedFacts{}
	for _, p := range []*receivedFacts{slow, other, gone} {
		a.addFactsPipe(p, keys().primary.Public())
	}
	slow.stop.Lock()
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			d.setDeviceFacts(facts.Facts{Battery: unit.Percent(float64(n))}, "lo", time.Now())
			a.sendChanges()
		})
	}
	a.removeFactsPipe(gone)
	slow.stop.Unlock()
	all.Wait()
	for _, p := range []*receivedFacts{slow, other} {
		if list := p.received(); len(list) == 0 || list[len(list)-1] != d.factsToAnnounce() {
			t.Errorf("%+v were sent, the newest are %+v", list, d.factsToAnnounce())
		}
	}
}

// TestSuspension: a device below its owner's limits is suspended for a minimum time, and each
// change is returned once.
func TestSuspension(t *testing.T) {
	limits := policy.Limits{BatteryFloor: 20}
	d := &deviceFacts{limits: func() policy.Limits { return limits }}
	now := time.Unix(1e9, 0)
	at := func(percent float64) facts.Facts {
		return facts.Facts{Battery: unit.Percent(percent), Power: wire.PowerBattery}
	}
	if s := d.setSharedLink("wwan0", now); s != (suspension{}) || d.factsToAnnounce() != (wire.Facts{}) {
		t.Errorf("before anything is known: %+v, %+v", s, d.factsToAnnounce())
	}
	for i, c := range []struct {
		change         func() suspension
		starts, ends   bool
		after          time.Duration
		batteryPercent int
	}{
		{func() suspension { return d.setDeviceFacts(at(20), "wwan0", now) }, false, false, 0, 20},
		{func() suspension { return d.setDeviceFacts(at(19), "wwan0", now) }, true, false, time.Second, 19},
		{func() suspension { return d.setSharedLink("wlan0", now) }, false, false, time.Second, 19},
		// for a moment only
		{func() suspension { return d.setDeviceFacts(at(60), "wlan0", now) }, false, false, time.Second, 60},
		{func() suspension { return d.reevaluate(now) }, false, true, time.Hour, 60},
		{func() suspension { return d.reevaluate(now) }, false, false, time.Second, 60},
		{func() suspension { limits.BatteryFloor = 70; return d.reevaluate(now) }, true, false, time.Second, 60},
	} {
		now = now.Add(c.after)
		s := c.change()
		if starts, ends := s.before == "" && s.now != "", s.before != "" && s.now == ""; starts != c.starts ||
			ends != c.ends {
			t.Errorf("%d: %+v", i, s)
		}
		if f := d.factsToAnnounce(); f.RefusalReason != s.now || f.Battery.Percent() != c.batteryPercent {
			t.Errorf("%d: %+v, while suspended for %q", i, f, s.now)
		}
	}
	if f := d.factsToAnnounce(); f.Link != "wlan0" {
		t.Errorf("the link is %q", f.Link)
	}
}
