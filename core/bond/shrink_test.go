// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"time"
)

// clone is a copy that shares nothing with the original.
func (sc *scenario) clone() *scenario {
	c := *sc
	c.subflows = slices.Clone(sc.subflows)
	for i := range c.subflows {
		c.subflows[i].hops = slices.Clone(c.subflows[i].hops)
		for j := range c.subflows[i].hops {
			c.subflows[i].hops[j].faults = slices.Clone(c.subflows[i].hops[j].faults)
		}
	}
	c.streams = slices.Clone(sc.streams)
	c.freezes = slices.Clone(sc.freezes)
	c.flows = slices.Clone(sc.flows)
	c.plans = slices.Clone(sc.plans)
	c.classChanges = slices.Clone(sc.classChanges)
	return &c
}

// smaller lists scenarios that are simpler by one thing.
func (sc *scenario) smaller() (list []*scenario) {
	with := func(change func(c *scenario)) {
		c := sc.clone()
		change(c)
		list = append(list, c)
	}
	for i := len(sc.streams) - 1; i >= 0 && len(sc.streams) > 1; i-- {
		with(func(c *scenario) { c.streams = slices.Delete(c.streams, i, i+1) })
	}
	for i := len(sc.subflows) - 1; i > 0; i-- {
		with(func(c *scenario) { c.subflows = slices.Delete(c.subflows, i, i+1) })
	}
	for i := range sc.flows {
		with(func(c *scenario) { c.flows = slices.Delete(c.flows, i, i+1) })
	}
	if sc.guide {
		with(func(c *scenario) { c.guide = false })
	}
	for i := range len(sc.plans) - 1 {
		with(func(c *scenario) { c.plans = slices.Delete(c.plans, i, i+1) })
	}
	for i := range sc.classChanges {
		with(func(c *scenario) { c.classChanges = slices.Delete(c.classChanges, i, i+1) })
	}
	for i := range sc.freezes {
		with(func(c *scenario) { c.freezes = slices.Delete(c.freezes, i, i+1) })
	}
	for i := range sc.subflows {
		p := &sc.subflows[i]
		for j := range p.hops {
			h := &p.hops[j]
			if len(h.faults) > 1 {
				with(func(c *scenario) { c.subflows[i].hops[j].faults = nil })
			}
			for k := len(h.faults) - 1; k >= 0; k-- {
				with(func(c *scenario) {
					g := &c.subflows[i].hops[j]
					g.faults = slices.Delete(g.faults, k, k+1)
				})
			}
			if h.loss > 0 {
				with(func(c *scenario) { c.subflows[i].hops[j].loss = 0 })
			}
		}
		if len(p.hops) > 1 {
			with(func(c *scenario) { c.subflows[i].hops = c.subflows[i].hops[1:] })
		}
		if p.leave[0] > 0 {
			with(func(c *scenario) { c.subflows[i].leave = [2]time.Duration{} })
		}
		if p.join[0] > 0 {
			with(func(c *scenario) { c.subflows[i].join = [2]time.Duration{} })
		}
	}
	for i := range sc.streams {
		for d := range 2 {
			t := sc.streams[i].talk[d]
			if plain := (talk{Bytes: t.Bytes}); t != plain {
				with(func(c *scenario) { c.streams[i].talk[d] = plain })
			}
			if t.Bytes > 1 {
				with(func(c *scenario) { c.streams[i].talk[d].Bytes /= 2 })
			}
		}
	}
	return list
}

// shrinkEvents bounds how much is tried to make a scenario smaller: some 20 s with
// the race detector on one slow processor. It counts events and not time, so
// that a seed is made as small on any machine.
const shrinkEvents = 1_000_000

// shrink finds the simplest scenario that still fails, in any way. It returns the number of its
// events.
func shrink(sc *scenario, spoil func(*simNet)) (small *scenario, events int) {
	for again := true; again; {
		again = false
		for _, c := range sc.smaller() {
			if events >= shrinkEvents {
				return sc, events
			}
			l := simulation{most: shrinkEvents - events}
			out := l.run(c, nil, spoil)
			events += out.events
			if out.failed != nil {
				sc, again = c, true
				break
			}
		}
	}
	return sc, events
}
