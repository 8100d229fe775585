package primary

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// deviceRef names a device that carries subflows: a helper by its key, else an interface of
// this device by its name.
type deviceRef struct {
	helper identity.PublicKey // zero for an own interface
	link   string
}

// isOwnLink reports whether it is an interface of this device.
func (c deviceRef) isOwnLink() bool { return c.helper == identity.PublicKey{} }

// deviceStates decides of each helper, and of each own interface, whether it may carry
// anything now and in which tier, from the rules in force, what the device reports of
// itself (facts), its owner's pause and the caps. Nothing happens by itself: review, called
// each second and when something was learnt, brings all up to date, logs and reports
// changes and wakes who waits in await. Safe for concurrent use. Its lock is held while
// rules, caps and the trust file are asked and while events are reported; none of these
// calls back.
type deviceStates struct {
	names   deviceNames
	rules   func() *policy.Rules
	metered []string                                   // devices whose data costs money, as configured
	allowed func(of device.CapTarget) policy.Allowance // nil: there are no caps
	log     *slog.Logger
	rec     *trace.Recorder

	mu       sync.Mutex
	ownFacts facts.Facts // of this device
	byDevice map[deviceRef]*deviceState
}

// deviceState is what is known of one device. standings.mu must be held.
type deviceState struct {
	name      string     // by which rules mean it
	id        string     // of a helper's key
	facts     wire.Facts // that a helper has reported
	paused    bool       // by the owner of this device
	limits    policy.Suspension
	suspended string        // it carries nothing: resting, paused or its cap is used up; "": it may
	allowed   chan struct{} // closed and replaced when it may carry again
}

// pausedHere is why a device rests that was paused at this one.
const pausedHere = "paused by its owner"

// suspendedError is why a device has no subflow: it shall rest.
type suspendedError string

func (r suspendedError) Error() string { return "suspended: " + string(r) }

// setHelper makes a helper known, or what the trust file says of it now.
func (s *deviceStates) setHelper(key identity.PublicKey, name string, paused bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := deviceRef{helper: key}
	one := s.byDevice[c]
	if one == nil {
		one = &deviceState{id: key.ID().String()}
		s.byDevice[c] = one
	}
	one.name, one.paused = name, paused
	s.updateOne(now, c, one)
}

// forgetHelper is for one that is trusted no longer.
func (s *deviceStates) forgetHelper(key identity.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byDevice, deviceRef{helper: key})
}

// setFacts takes what a helper reports of itself, and reports whether it carries again
// what it refused before.
func (s *deviceStates) setFacts(key identity.PublicKey, f wire.Facts, now time.Time) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := deviceRef{helper: key}
	one := s.byDevice[c]
	if one == nil {
		return false
	}
	again = one.facts.RefusalReason != "" && f.RefusalReason == ""
	one.facts = f
	s.updateOne(now, c, one)
	return again
}

// setOwnFacts takes what is known of this device itself.
func (s *deviceStates) setOwnFacts(f facts.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownFacts = f
}

// factsOf returns what a helper has reported of itself.
func (s *deviceStates) factsOf(key identity.PublicKey) wire.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.byDevice[deviceRef{helper: key}]; one != nil {
		return one.facts
	}
	return wire.Facts{}
}

// stateOf returns the tier of a device, and why it may not carry anything now, "" if it may.
func (s *deviceStates) stateOf(c deviceRef) (tier wire.Tier, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byDevice[c]
	if one == nil && !c.isOwnLink() {
		return wire.TierPrimary, ""
	}
	tier, _ = s.tierOf(c)
	if one != nil {
		why = one.suspended
	}
	return tier, why
}

// errTierChanged asks for another attempt at once, with other terms.
var errTierChanged = errors.New("its tier has changed")

// endReason returns why a subflow by a device, which has joined in a tier, is to end now; nil
// if it goes on.
func (s *deviceStates) endReason(c deviceRef, joined wire.Tier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byDevice[c]
	if one != nil && one.suspended != "" {
		return suspendedError(one.suspended)
	}
	if one == nil && !c.isOwnLink() {
		return nil // it is trusted no longer, and ends by that
	}
	if tier, _ := s.tierOf(c); tier != joined {
		return errTierChanged
	}
	return nil
}

// completeTerms adds the tier, the cost and, unless it is known, the radio to the terms of a
// subflow by a device.
func (s *deviceStates) completeTerms(t *wire.Terms, by deviceRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Tier, t.Metered = s.tierOf(by)
	if t.Radio == wire.RadioNone {
		t.Radio = s.currentFacts(by).Radio
	}
}

// isMeteredByDefault reports whether an own interface costs money, unless a rule gives it a tier.
func (s *deviceStates) isMeteredByDefault(link string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := deviceRef{link: link}
	_, metered := s.tierOf(c)
	return (metered || slices.Contains(s.metered, link)) && s.limitsOf(c).Tier == nil
}

// limitsOf returns what policy says of a device by its name, and of an own interface else by
// a name of this device. mu must be held.
func (s *deviceStates) limitsOf(c deviceRef) policy.Limits {
	rules := s.rules()
	l := rules.Device(s.nameOf(c)).Limits
	if !c.isOwnLink() {
		return l
	}
	for _, own := range s.names.policyNames() {
		if l == (policy.Limits{}) {
			l = rules.Device(own).Limits
		}
	}
	return l
}

// nameOf returns the name by which rules mean a device. mu must be held.
func (s *deviceStates) nameOf(c deviceRef) string {
	if one := s.byDevice[c]; one != nil && !c.isOwnLink() {
		return one.name
	}
	return c.link
}

// currentFacts returns those of a helper, or of this device with an own interface. mu must be held.
func (s *deviceStates) currentFacts(c deviceRef) wire.Facts {
	if c.isOwnLink() {
		return s.ownFacts.ForLink(c.link)
	}
	if one := s.byDevice[c]; one != nil {
		return one.facts
	}
	return wire.Facts{}
}

// tierOf returns when a device is used, and whether its data costs money. mu must be held.
func (s *deviceStates) tierOf(c deviceRef) (wire.Tier, bool) {
	tier, metered, _ := policy.TierOf(s.limitsOf(c), s.currentFacts(c), slices.Contains(s.metered, s.nameOf(c)))
	return tier, metered
}

// updateAll brings all standings up to date.
func (s *deviceStates) updateAll(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, one := range s.byDevice {
		s.updateOne(now, c, one)
	}
}

// updateOne brings one standing up to date. mu must be held.
func (s *deviceStates) updateOne(now time.Time, c deviceRef, one *deviceState) {
	before, name := one.suspended, s.nameOf(c)
	one.limits = one.limits.Update(now, s.limitsOf(c), s.currentFacts(c))
	switch one.suspended = one.limits.Reason; {
	case one.paused:
		one.suspended = pausedHere
	case one.suspended == "" && !c.isOwnLink():
		one.suspended = s.capReason(one.id)
	}
	switch after := one.suspended; {
	case before == "" && after != "":
		s.log.Info("device rests", "device", name, "reason", after)
		s.rec.Add(trace.Event{Kind: trace.DeviceSuspended, Device: name, Reason: after})
	case before != "" && after == "":
		s.log.Info("device may carry again", "device", name)
		s.rec.Add(trace.Event{Kind: trace.DeviceUnsuspended, Device: name, Reason: "was suspended: " + before})
		if one.allowed != nil {
			close(one.allowed)
			one.allowed = nil
		}
	}
}

// capReason returns why a helper may carry nothing more for this device, "" if it may.
func (s *deviceStates) capReason(id string) string {
	if s.allowed == nil {
		return ""
	}
	if a := s.allowed(device.CapTarget{Peer: id, Purpose: policy.ForPipe}); a.Level == policy.CapReached {
		return a.String()
	}
	return ""
}

// awaitAllowed waits until a device may carry something, ctx ends, or one of two channels, which
// may be nil, is closed. An own interface is watched from now on. report is called, without
// the lock, with the reason for each wait.
func (s *deviceStates) awaitAllowed(ctx context.Context, c deviceRef, report func(error), broken, gone <-chan struct{}) {
	for {
		why, awake := s.watchDevice(c)
		if why == "" {
			return
		}
		report(suspendedError(why))
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

// watchDevice returns why a device may not carry anything, and a channel that is closed when it may.
func (s *deviceStates) watchDevice(c deviceRef) (why string, awake <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byDevice[c]
	switch {
	case one == nil && !c.isOwnLink():
		return "", nil // it is trusted no longer
	case one == nil:
		one = &deviceState{}
		s.byDevice[c] = one
		s.updateOne(time.Now(), c, one)
	}
	if one.suspended != "" && one.allowed == nil {
		one.allowed = make(chan struct{})
	}
	return one.suspended, one.allowed
}
