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

// carrier names a device that carries subflows: a helper by its key, else an interface of
// this device by its name.
type carrier struct {
	helper identity.PublicKey // zero for an own interface
	link   string
}

// isOwnLink reports whether it is an interface of this device.
func (c carrier) isOwnLink() bool { return c.helper == identity.PublicKey{} }

// standings decides of each helper, and of each own interface, whether it may carry
// anything now and in which tier, from the rules in force, what the device reports of
// itself (facts), its owner's pause and the caps. Nothing happens by itself: review, called
// each second and when something was learnt, brings all up to date, logs and reports
// changes and wakes who waits in await. Safe for concurrent use. Its lock is held while
// rules, caps and the trust file are asked and while events are reported; none of these
// calls back.
type standings struct {
	names   deviceNames
	rules   func() *policy.Rules
	metered []string                                 // devices whose data costs money, as configured
	allowed func(of device.Bounded) policy.Allowance // nil: there are no caps
	log     *slog.Logger
	rec     *trace.Recorder

	mu  sync.Mutex
	own facts.Facts // of this device
	all map[carrier]*standing
}

// standing is what is known of one device. standings.mu must be held.
type standing struct {
	name     string     // by which rules mean it
	id       string     // of a helper's key
	facts    wire.Facts // that a helper has reported
	paused   bool       // by the owner of this device
	resting  policy.Resting
	excluded string        // it carries nothing: resting, paused or its cap is used up; "": it may
	awake    chan struct{} // closed and replaced when it may carry again
}

// pausedHere is why a device rests that was paused at this one.
const pausedHere = "paused by its owner"

// resting is why a device has no subflow: it shall rest.
type resting string

func (r resting) Error() string { return "it rests: " + string(r) }

// setHelper makes a helper known, or what the trust file says of it now.
func (s *standings) setHelper(key identity.PublicKey, name string, paused bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := carrier{helper: key}
	one := s.all[c]
	if one == nil {
		one = &standing{id: key.ID().String()}
		s.all[c] = one
	}
	one.name, one.paused = name, paused
	s.updateOne(now, c, one)
}

// forgetHelper is for one that is trusted no longer.
func (s *standings) forgetHelper(key identity.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, carrier{helper: key})
}

// setFacts takes what a helper reports of itself, and reports whether it carries again
// what it refused before.
func (s *standings) setFacts(key identity.PublicKey, f wire.Facts, now time.Time) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := carrier{helper: key}
	one := s.all[c]
	if one == nil {
		return false
	}
	again = one.facts.Refuses != "" && f.Refuses == ""
	one.facts = f
	s.updateOne(now, c, one)
	return again
}

// setOwnFacts takes what is known of this device itself.
func (s *standings) setOwnFacts(f facts.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = f
}

// factsOf returns what a helper has reported of itself.
func (s *standings) factsOf(key identity.PublicKey) wire.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.all[carrier{helper: key}]; one != nil {
		return one.facts
	}
	return wire.Facts{}
}

// stateOf returns the tier of a device, and why it may not carry anything now, "" if it may.
func (s *standings) stateOf(c carrier) (tier wire.Tier, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[c]
	if one == nil && !c.isOwnLink() {
		return wire.TierPrimary, ""
	}
	tier, _ = s.tierOf(c)
	if one != nil {
		why = one.excluded
	}
	return tier, why
}

// errStanding asks for another attempt at once, with other terms.
var errStanding = errors.New("its tier has changed")

// endReason returns why a subflow by a device, which has joined in a tier, is to end now; nil
// if it goes on.
func (s *standings) endReason(c carrier, joined wire.Tier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[c]
	if one != nil && one.excluded != "" {
		return resting(one.excluded)
	}
	if one == nil && !c.isOwnLink() {
		return nil // it is trusted no longer, and ends by that
	}
	if tier, _ := s.tierOf(c); tier != joined {
		return errStanding
	}
	return nil
}

// completeTerms adds the tier, the cost and, unless it is known, the radio to the terms of a
// subflow by a device.
func (s *standings) completeTerms(t *wire.Terms, by carrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Tier, t.Metered = s.tierOf(by)
	if t.Radio == wire.RadioNone {
		t.Radio = s.currentFacts(by).Radio
	}
}

// costsByDefault reports whether an own interface costs money, unless a rule gives it a tier.
func (s *standings) costsByDefault(link string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := carrier{link: link}
	_, metered := s.tierOf(c)
	return (metered || slices.Contains(s.metered, link)) && s.limitsOf(c).Tier == nil
}

// limitsOf returns what policy says of a device by its name, and of an own interface else by
// a name of this device. mu must be held.
func (s *standings) limitsOf(c carrier) policy.Limits {
	rules := s.rules()
	l := rules.Device(s.nameOf(c)).Limits
	if !c.isOwnLink() {
		return l
	}
	for _, own := range s.names.allNames() {
		if l == (policy.Limits{}) {
			l = rules.Device(own).Limits
		}
	}
	return l
}

// nameOf returns the name by which rules mean a device. mu must be held.
func (s *standings) nameOf(c carrier) string {
	if one := s.all[c]; one != nil && !c.isOwnLink() {
		return one.name
	}
	return c.link
}

// currentFacts returns those of a helper, or of this device with an own interface. mu must be held.
func (s *standings) currentFacts(c carrier) wire.Facts {
	if c.isOwnLink() {
		return s.own.Of(c.link)
	}
	if one := s.all[c]; one != nil {
		return one.facts
	}
	return wire.Facts{}
}

// tierOf returns when a device is used, and whether its data costs money. mu must be held.
func (s *standings) tierOf(c carrier) (wire.Tier, bool) {
	tier, metered, _ := policy.TierOf(s.limitsOf(c), s.currentFacts(c), slices.Contains(s.metered, s.nameOf(c)))
	return tier, metered
}

// review brings all standings up to date.
func (s *standings) review(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, one := range s.all {
		s.updateOne(now, c, one)
	}
}

// updateOne brings one standing up to date. mu must be held.
func (s *standings) updateOne(now time.Time, c carrier, one *standing) {
	before, name := one.excluded, s.nameOf(c)
	one.resting = one.resting.Next(now, s.limitsOf(c), s.currentFacts(c))
	switch one.excluded = one.resting.Reason; {
	case one.paused:
		one.excluded = pausedHere
	case one.excluded == "" && !c.isOwnLink():
		one.excluded = s.usedUp(one.id)
	}
	switch after := one.excluded; {
	case before == "" && after != "":
		s.log.Info("device rests", "device", name, "reason", after)
		s.rec.Add(trace.Event{Kind: trace.DeviceRests, Device: name, Reason: after})
	case before != "" && after == "":
		s.log.Info("device may carry again", "device", name)
		s.rec.Add(trace.Event{Kind: trace.DeviceAllowed, Device: name, Reason: "it rested: " + before})
		if one.awake != nil {
			close(one.awake)
			one.awake = nil
		}
	}
}

// usedUp returns why a helper may carry nothing more for this device, "" if it may.
func (s *standings) usedUp(id string) string {
	if s.allowed == nil {
		return ""
	}
	if a := s.allowed(device.Bounded{Peer: id, By: policy.ForPipe}); a.Level == policy.CapReached {
		return a.String()
	}
	return ""
}

// awaitAllowed waits until a device may carry something, ctx ends, or one of two channels, which
// may be nil, is closed. An own interface is watched from now on. report is called, without
// the lock, with the reason for each wait.
func (s *standings) awaitAllowed(ctx context.Context, c carrier, report func(error), broken, gone <-chan struct{}) {
	for {
		why, awake := s.watch(c)
		if why == "" {
			return
		}
		report(resting(why))
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

// watch returns why a device may not carry anything, and a channel that is closed when it may.
func (s *standings) watch(c carrier) (why string, awake <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[c]
	switch {
	case one == nil && !c.isOwnLink():
		return "", nil // it is trusted no longer
	case one == nil:
		one = &standing{}
		s.all[c] = one
		s.updateOne(time.Now(), c, one)
	}
	if one.excluded != "" && one.awake == nil {
		one.awake = make(chan struct{})
	}
	return one.excluded, one.awake
}
