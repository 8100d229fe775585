package primary

import (
	"context"
	"errors"
	"slices"
	"time"

	"mpbond/base/identity"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// gate keeps a helper, or an own interface that is named, from carrying anything
// while it shall rest. Guarded by Primary.mu.
type gate struct {
	rest   policy.Resting
	paused bool          // by the owner of this device
	why    string        // it carries nothing, by either or since its cap is used up; "": it may
	awake  chan struct{} // closed and replaced when it may carry again
}

// pausedHere is why a device rests that was paused at this one.
const pausedHere = "paused by its owner"

// errStanding asks for another attempt at once, with other terms.
var errStanding = errors.New("its tier has changed")

// resting is why a device has no subflow: it shall rest.
type resting string

func (r resting) Error() string { return "it rests: " + string(r) }

// factsCame takes what a helper tells of itself.
func (p *Primary) factsCame(helper identity.PublicKey, f wire.Facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := p.helpers[helper]; slot != nil {
		if slot.facts.Refuses != "" && f.Refuses == "" { // it carries again
			p.demand.retryRefused()
		}
		slot.facts = f
		p.look(time.Now(), &slot.gate, slot.name, slot)
	}
}

// FactsChanged takes what is known of this device itself.
func (p *Primary) FactsChanged(f facts.Facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facts = f
}

// FactsOf is what a helper has told of itself.
func (p *Primary) FactsOf(helper identity.PublicKey) wire.Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := p.helpers[helper]; slot != nil {
		return slot.facts
	}
	return wire.Facts{}
}

// StandingOf is when a helper is used, and why it rests, "" if it does not.
func (p *Primary) StandingOf(helper identity.PublicKey) (tier wire.Tier, rests string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := p.helpers[helper]
	if slot == nil {
		return wire.TierPrimary, ""
	}
	tier, _ = p.tierOf(slot.name, slot)
	return tier, slot.why
}

// specOf is what policy says of a helper by its name, or of an own interface: by
// that, else by a name of this device. Mu is held.
func (p *Primary) specOf(name string, slot *helperSlot) policy.Limits {
	rules := p.policy.Rules()
	s := rules.Device(name).Limits
	if slot != nil {
		return s
	}
	for _, own := range p.ownNames() {
		if s == (policy.Limits{}) {
			s = rules.Device(own).Limits
		}
	}
	return s
}

// ownNames are those by which policy means this device, the first before others:
// what it is called, what its host is called and, if only that has a name,
// "primary". What is a helper's name too means the helper, unless this device was
// called so.
func (p *Primary) ownNames() (names []string) {
	for _, name := range []string{p.cfg.Name, p.host, p.deviceName()} {
		peer, ok := p.trust.LookupName(name)
		if name != "" && (name == p.cfg.Name || !ok || !peer.Is(identity.RoleHelper)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Owns reports whether policy means this device, all its interfaces together, by
// a name.
func (p *Primary) Owns(name string) bool { return slices.Contains(p.ownNames(), name) }

// factsFor are those of a helper, or of this device with an own interface. Mu is
// held.
func (p *Primary) factsFor(name string, slot *helperSlot) wire.Facts {
	if slot != nil {
		return slot.facts
	}
	return p.facts.Of(name)
}

// tierOf is when a helper, or an own interface, is used, and whether its data
// costs money. Mu is held.
func (p *Primary) tierOf(name string, slot *helperSlot) (wire.Tier, bool) {
	tier, metered, _ := policy.TierOf(p.specOf(name, slot), p.factsFor(name, slot), slices.Contains(p.cfg.Metered, name))
	return tier, metered
}

// stand completes the terms of a subflow by a helper, or, if slot is nil, by an own
// interface.
func (p *Primary) stand(t *wire.Terms, by string, slot *helperSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot != nil {
		by = slot.name
	}
	t.Tier, t.Metered = p.tierOf(by, slot)
	if t.Radio == wire.RadioNone {
		t.Radio = p.factsFor(by, slot).Radio
	}
}

// review lets devices rest, and carry again, as policy says, and has subflows made
// anew whose tier has changed. It is called each second.
func (p *Primary) review(now time.Time) {
	type end struct {
		id  wire.PathID
		why error
	}
	var ends []end
	p.mu.Lock()
	s := p.cur
	for _, slot := range p.helpers {
		p.look(now, &slot.gate, slot.name, slot)
	}
	for name, g := range p.links {
		p.look(now, g, name, nil)
	}
	for id, n := range s.names {
		by, g := n.link, p.links[n.link]
		if n.helper != nil {
			by, g = n.helper.name, &n.helper.gate
		}
		tier, _ := p.tierOf(by, n.helper)
		switch {
		case g != nil && g.why != "":
			ends = append(ends, end{id, resting(g.why)})
		case tier != n.tier:
			ends = append(ends, end{id, errStanding})
		}
	}
	p.mu.Unlock()
	for _, e := range ends {
		if s.e.Detach(e.id) {
			p.ended(s, e.id, e.why)
		}
	}
}

// look brings a gate up to date. Mu is held.
func (p *Primary) look(now time.Time, g *gate, name string, slot *helperSlot) {
	before := g.why
	g.rest = g.rest.Next(now, p.specOf(name, slot), p.factsFor(name, slot))
	switch g.why = g.rest.Reason; {
	case g.paused:
		g.why = pausedHere
	case g.why == "" && slot != nil:
		g.why = p.usedUp(slot)
	}
	switch after := g.why; {
	case before == "" && after != "":
		p.log.Info("device rests", "device", name, "reason", after)
		p.rec.Add(trace.Event{Kind: trace.DeviceRests, Device: name, Reason: after})
	case before != "" && after == "":
		p.log.Info("device may carry again", "device", name)
		p.rec.Add(trace.Event{Kind: trace.DeviceAllowed, Device: name, Reason: "it rested: " + before})
		if g.awake != nil {
			close(g.awake)
			g.awake = nil
		}
	}
}

// awaitHelper is awaitAwake for a helper with a pipe that waits.
func (p *Primary) awaitHelper(ctx context.Context, slot *helperSlot, w *pipe.Waiting) {
	hold := func(w *pipe.Waiting) {
		p.mu.Lock()
		defer p.mu.Unlock()
		slot.held = w
	}
	hold(w)
	defer hold(nil)
	p.awaitAwake(ctx, &slot.gate, p.nameOf(slot), w.Done(), slot.revoked)
}

// awaitAwake waits until a device may carry something, ctx ends, or one of two
// channels, which may be nil, is closed. It tells the status why it waits.
func (p *Primary) awaitAwake(ctx context.Context, g *gate, device string, broken, gone <-chan struct{}) {
	for {
		p.mu.Lock()
		why := g.why
		if why != "" && g.awake == nil {
			g.awake = make(chan struct{})
		}
		awake := g.awake
		p.mu.Unlock()
		if why == "" {
			return
		}
		p.setError(device, resting(why))
		select {
		case <-awake:
		case <-broken:
			return
		case <-gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// link is the gate of an own interface that is named.
func (p *Primary) link(name string) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.links[name]
	if g == nil {
		g = &gate{}
		if p.links == nil {
			p.links = map[string]*gate{}
		}
		p.links[name] = g
		p.look(time.Now(), g, name, nil)
	}
	return g
}
