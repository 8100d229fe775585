package helper

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// errRests is why subflows end and none is made: the device shall rest.
var errRests = errors.New("the helper rests")

// errPaused is why a primary gets no subflow: its owner here wants it so.
var errPaused = errors.New("this device is paused there")

// FactsChanged takes what is known of this device now, and tells the primaries,
// on pipes that wait and on those that carry subflows.
func (h *Helper) FactsChanged(f facts.Facts) {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	h.all = &f
	h.relate()
}

// relate takes what is known of this device as it is of the link that it lends now.
// FactsMu is held.
func (h *Helper) relate() {
	if h.all == nil {
		return // nothing is known
	}
	now := h.all.Of(h.link())
	if now.Radio == wire.RadioNone {
		now.Radio = device.RadioOf(now.Link)
	}
	h.known = now
	h.review(time.Now())
}

// roamed is for when this device's addresses have changed: it may lend another link.
func (h *Helper) roamed() {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	h.relate()
}

// reviewFacts is for time that has passed: a rest may end by that, and the limits
// may be others now.
func (h *Helper) reviewFacts(now time.Time) {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	h.review(now)
}

// review lets this device rest, or carry again, by its owner's word, and tells
// primaries what has changed. FactsMu is held.
func (h *Helper) review(at time.Time) {
	before := h.rest.Reason
	h.rest = h.rest.Next(at, h.limits(), h.known)
	now := h.known
	now.Refuses = h.rest.Reason
	switch {
	case before == "" && now.Refuses != "":
		h.log.Info("this device rests", "reason", now.Refuses)
		h.rec.Add(trace.Event{Kind: trace.DeviceRests, Device: h.name, Reason: now.Refuses})
	case before != "" && now.Refuses == "":
		h.log.Info("this device may carry again")
		h.rec.Add(trace.Event{Kind: trace.DeviceAllowed, Device: h.name, Reason: "it rested: " + before})
	}
	if now == h.facts {
		return
	}
	h.facts = now
	if now.Refuses != "" {
		h.relays.closeWhere(func(*subflow) error { return errRests })
	}
	h.tellAll()
}

// told is where a primary is told facts: a pipe that waits, or carries a subflow.
type told struct {
	on      interface{ SendFacts(wire.Facts) error }
	primary identity.PublicKey
}

// tellAll tells the facts on all pipes. FactsMu is held.
func (h *Helper) tellAll() {
	var all []told
	h.mu.Lock()
	for o, f := range h.offers {
		all = append(all, told{o, f.primary})
	}
	h.mu.Unlock()
	for _, s := range h.relays.list() {
		all = append(all, told{s.pipe, s.primary.Key})
	}
	for _, t := range all {
		_ = t.on.SendFacts(h.factsFor(t.primary)) // a pipe that broke is noticed by who waits on it
	}
}

// factsFor are what a primary is told: one that is paused, that this device refuses.
// FactsMu is held.
func (h *Helper) factsFor(primary identity.PublicKey) wire.Facts {
	f := h.facts
	if h.trust.Paused(primary) {
		f.Refuses = errPaused.Error()
	}
	return f
}

// tellPauses tells primaries if one was paused or resumed.
func (h *Helper) tellPauses() {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	var paused []identity.PublicKey
	for _, p := range h.trust.ByRole(identity.RolePrimary) {
		if p.Paused {
			paused = append(paused, p.Key)
		}
	}
	if !slices.Equal(paused, h.paused) {
		h.paused = paused
		h.tellAll()
	}
}

// limits are what this device's owner wants of it: as the configuration says, else
// as the policy file does.
func (h *Helper) limits() policy.Limits {
	var l policy.Limits
	if h.cfg.Limits != nil {
		l = h.cfg.Limits()
	}
	return policy.Limits{BatteryFloor: cmp.Or(h.cfg.BatteryFloor, l.BatteryFloor), MaxTemperature: cmp.Or(h.cfg.MaxTemperature, l.MaxTemperature)}
}

// tellFacts tells a primary what is known of this device, on a pipe that is in
// h.offers or h.relays from now on.
func (h *Helper) tellFacts(on interface{ SendFacts(wire.Facts) error }, primary identity.PublicKey) {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	if f := h.factsFor(primary); f != (wire.Facts{}) {
		_ = on.SendFacts(f)
	}
}

// Facts are what primaries are told of this device.
func (h *Helper) Facts() wire.Facts {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	return h.facts
}

// link is the interface by which servers are reached, "" where that is not
// known.
func (h *Helper) link() string {
	if h.cfg.HSInterface != "" {
		return h.cfg.HSInterface
	}
	if local := h.relays.lastLocalAddr(); local != nil {
		if name := device.InterfaceOf(local); name != "" {
			return name
		}
	}
	if names, err := device.Uplinks(); err == nil && len(names) > 0 {
		return names[0]
	}
	return ""
}
