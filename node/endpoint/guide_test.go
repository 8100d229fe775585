// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/subflow"
	"mpbond/link/wire"
)

// secondOnly allows helped subflows and records the terms it was asked about.
type secondOnly struct{ seen []wire.Terms }

func (c *secondOnly) Costs(t wire.Terms) bool { return t.Radio != wire.RadioNone }
func (c *secondOnly) AllowSubflows(list []Candidate, d bond.Demand) string {
	c.seen = nil
	for i := range list {
		list[i].Allowed = list[i].Helped
		c.seen = append(c.seen, list[i].Terms)
	}
	return "helped only"
}

// TestGuide: the guide gets the terms of each subflow, and its answer is applied.
func TestGuide(t *testing.T) {
	wifi := wire.Terms{Radio: wire.RadioWiFi}
	c := &secondOnly{}
	g := &bondGuide{
		guide: c,
		subflows: map[wire.SubflowID]*attachedSubflow{
			1: {sf: &subflow.Subflow{ID: 1, Terms: wifi}},
			2: {sf: &subflow.Subflow{ID: 2, Helped: true}},
		},
	}
	for range 2 {
		paths := []bond.GuideSubflow{{ID: 1, Allowed: true}, {ID: 2}, {ID: 3}}
		if why := g.AllowSubflows(paths, bond.Demand{}); why != "helped only" || paths[0].Allowed ||
			!paths[1].Allowed ||
			paths[2].Allowed {
			t.Errorf("%q, %+v", why, paths)
		}
		if len(c.seen) != 3 || c.seen[0] != wifi {
			t.Errorf("it saw %+v", c.seen)
		}
	}
}

func TestSteady(t *testing.T) {
	var r rateHistory
	now := time.Unix(1e9, 0)
	for i := range 20 { // 1 Mbit/s, with a pause, then 8 Mbit/s
		now = now.Add(100 * time.Millisecond)
		rx := uint64(i) * 12500
		if i >= 14 {
			now = now.Add(time.Duration(max(0, 15-i)) * 300 * time.Millisecond)
			rx = 14*12500 + uint64(i-14)*100_000
		}
		r.addRateSample(now, rx, 0)
	}
	of := func(i int) uint64 { return r.list[i%len(r.list)].rx }
	if got := r.steadyRecentRate(now, of); got < 79e5 || got > 81e5 {
		t.Errorf("%v, want 8 Mbit/s", got)
	}
	if got := r.steadyRecentRate(now, func(i int) uint64 { return r.list[i%len(r.list)].tx }); got != 0 {
		t.Errorf("%v of nothing", got)
	}
	if got := r.steadyRecentRate(now.Add(time.Minute), of); got != 0 {
		t.Errorf("%v after a minute", got)
	}
}

// TestSteadyShort checks short bursts, of bytes in each tenth of a second: TCP's window grows in the
// first one, and the last one may be a pause for the most part.
func TestSteadyShort(t *testing.T) {
	for _, c := range []struct {
		name    string
		carried []uint64
		want    unit.Rate
	}{
		{"0.1 s", []uint64{30_000}, 0},
		{"0.2 s", []uint64{30_000, 100_000}, 8 * unit.Mbps},
		{"0.13 s", []uint64{70_000, 30_000}, 0},
		{"0.23 s", []uint64{30_000, 100_000, 30_000}, 8 * unit.Mbps},
		{"a link that becomes slow", []uint64{30_000, 100_000, 30_000, 30_000, 30_000}, 2400 * unit.Kbps},
	} {
		var r rateHistory
		now, rx := time.Unix(1e9, 0), uint64(0)
		r.addRateSample(now, rx, 0)
		now = now.Add(5 * time.Second)
		r.addRateSample(now, rx, 0) // the first bytes arrive
		for _, n := range c.carried {
			now, rx = now.Add(100*time.Millisecond), rx+n
			r.addRateSample(now, rx, 0)
		}
		of := func(i int) uint64 { return r.list[i%len(r.list)].rx }
		if got := r.steadyRecentRate(now, of); got < c.want*99/100 || got > c.want*101/100 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// sleepyGuide reports the wake delay of helped subflows.
type sleepyGuide struct{ secondOnly }

func (*sleepyGuide) WakeDelay(c Candidate) time.Duration {
	if c.Helped {
		return time.Second
	}
	return 0
}

// TestGuideWakeDelay: the bond gets the wake delay that the guide reports for a subflow with its terms.
func TestGuideWakeDelay(t *testing.T) {
	subflows := map[wire.SubflowID]*attachedSubflow{1: {sf: &subflow.Subflow{}}, 2: {sf: &subflow.Subflow{Helped: true}}}
	for id, want := range map[wire.SubflowID]time.Duration{1: 0, 2: time.Second} {
		if got := (&bondGuide{guide: &sleepyGuide{}, subflows: subflows}).WakeDelay(bond.GuideSubflow{ID: id}); got != want {
			t.Errorf("subflow %d: %v, want %v", id, got, want)
		}
		if got := (&bondGuide{guide: &secondOnly{}, subflows: subflows}).WakeDelay(bond.GuideSubflow{ID: id}); got != 0 {
			t.Errorf("subflow %d, of a guide that knows no radios: %v", id, got)
		}
	}
}
