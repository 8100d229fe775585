// SPDX-License-Identifier: Apache-2.0

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

// deviceRef identifies a device that carries subflows: a helper by its key, or an interface of this
// device by its name.
type deviceRef struct {
	helper identity.PublicKey // zero for a local interface
	iface  string             // name of a local interface, else ""
}

// isLocalInterface reports whether the device is an interface of this device.
func (d deviceRef) isLocalInterface() bool { return d.helper == identity.PublicKey{} }

// deviceStates decides for each helper and each local interface whether it may carry traffic now,
// and in which tier. It considers the rules in force, the facts that the device reports, a pause by
// its owner, and the caps. States change only in updateAllStates, which is called each second, and
// when something is learnt. Each change is logged and recorded, and wakes awaitAllowed. Safe for
// concurrent use. mu is held while rules, caps and the trust file are read and events are recorded;
// none of these calls back.
type deviceStates struct {
	names   deviceNames
	rules   func() *policy.Rules
	metered []string                                   // devices with paid data, by configuration
	allowed func(of device.CapTarget) policy.Allowance // nil: no caps
	log     *slog.Logger
	rec     *trace.Recorder

	mu       sync.Mutex
	ownFacts facts.Facts // of this device
	byDevice map[deviceRef]*deviceState
}

// deviceState is the state of one device. deviceStates.mu must be held.
type deviceState struct {
	name      string     // that rules use
	id        string     // of a helper's key
	facts     wire.Facts // as a helper reported
	paused    bool       // by the owner of this device
	limits    policy.Suspension
	suspended string        // why it carries nothing: by its limits, paused, or cap used up; "" if it may
	allowed   chan struct{} // closed and replaced when it may carry again
}

// pausedHere is the reason for the suspension of a device that was paused here.
const pausedHere = "paused by its owner"

// suspendedError is why a suspended device has no subflow.
type suspendedError string

func (e suspendedError) Error() string { return "suspended: " + string(e) }

// addOrUpdateHelper adds a helper, or updates its entry of the trust file.
func (s *deviceStates) addOrUpdateHelper(key identity.PublicKey, name string, paused bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := deviceRef{helper: key}
	one := s.byDevice[c]
	if one == nil {
		one = &deviceState{id: key.ID().String()}
		s.byDevice[c] = one
	}
	one.name, one.paused = name, paused
	s.updateDeviceState(now, c, one)
}

// forgetHelper removes a helper that is no longer trusted.
func (s *deviceStates) forgetHelper(key identity.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byDevice, deviceRef{helper: key})
}

// storeHelperFacts stores the facts that a helper reports. again reports that the helper refused
// traffic before and now carries it.
func (s *deviceStates) storeHelperFacts(key identity.PublicKey, f wire.Facts, now time.Time) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := deviceRef{helper: key}
	one := s.byDevice[c]
	if one == nil {
		return false
	}
	again = one.facts.RefusalReason != "" && f.RefusalReason == ""
	one.facts = f
	s.updateDeviceState(now, c, one)
	return again
}

// setOwnFacts sets the facts of this device.
func (s *deviceStates) setOwnFacts(f facts.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownFacts = f
}

// deviceFacts returns the facts of this device.
func (s *deviceStates) deviceFacts() facts.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownFacts
}

// factsOfHelper returns the facts that a helper has reported.
func (s *deviceStates) factsOfHelper(key identity.PublicKey) wire.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.byDevice[deviceRef{helper: key}]; one != nil {
		return one.facts
	}
	return wire.Facts{}
}

// stateOfDevice returns the tier of a device and why it may not carry traffic now, "" if it may.
func (s *deviceStates) stateOfDevice(c deviceRef) (tier wire.Tier, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byDevice[c]
	if one == nil && !c.isLocalInterface() {
		return wire.TierPrimary, ""
	}
	tier, _ = s.tierOfDevice(c)
	if one != nil {
		why = one.suspended
	}
	return tier, why
}

// errTierChanged asks the supervisor for another attempt at once, with new terms.
var errTierChanged = errors.New("its tier has changed")

// subflowEndReason returns why a subflow of a device, which joined in a tier, must end now, or nil.
func (s *deviceStates) subflowEndReason(c deviceRef, joined wire.Tier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byDevice[c]
	if one != nil && one.suspended != "" {
		return suspendedError(one.suspended)
	}
	if one == nil && !c.isLocalInterface() {
		return nil // no longer trusted; revoke ends it
	}
	if tier, _ := s.tierOfDevice(c); tier != joined {
		return errTierChanged
	}
	return nil
}

// completeTerms sets the tier, the cost and, unless known, the radio in the terms of a subflow.
func (s *deviceStates) completeTerms(t *wire.Terms, by deviceRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Tier, t.Metered = s.tierOfDevice(by)
	if t.Radio == wire.RadioNone {
		t.Radio = s.factsOfDevice(by).Radio
	}
}

// isMeteredByDefault reports whether data over a local interface costs money, unless a rule sets
// its tier.
func (s *deviceStates) isMeteredByDefault(iface string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := deviceRef{iface: iface}
	_, metered := s.tierOfDevice(c)
	return (metered || slices.Contains(s.metered, iface)) && s.limitsOfDevice(c).Tier == nil
}

// limitsOfDevice returns the policy limits of a device. For a local interface without limits it
// uses those of a name of this device. mu must be held.
func (s *deviceStates) limitsOfDevice(c deviceRef) policy.Limits {
	rules := s.rules()
	l := rules.Device(s.ruleNameOfDevice(c)).Limits
	if !c.isLocalInterface() {
		return l
	}
	for _, own := range s.names.policyNames() {
		if l == (policy.Limits{}) {
			l = rules.Device(own).Limits
		}
	}
	return l
}

// ruleNameOfDevice returns the name that rules use for a device. mu must be held.
func (s *deviceStates) ruleNameOfDevice(c deviceRef) string {
	if one := s.byDevice[c]; one != nil && !c.isLocalInterface() {
		return one.name
	}
	return c.iface
}

// factsOfDevice returns the facts of a helper, or of this device with a local interface. mu must be
// held.
func (s *deviceStates) factsOfDevice(c deviceRef) wire.Facts {
	if c.isLocalInterface() {
		return s.ownFacts.ForLink(c.iface)
	}
	if one := s.byDevice[c]; one != nil {
		return one.facts
	}
	return wire.Facts{}
}

// tierOfDevice returns the tier of a device and whether its data costs money. mu must be held.
func (s *deviceStates) tierOfDevice(c deviceRef) (wire.Tier, bool) {
	tier, metered, _ := policy.TierOf(s.limitsOfDevice(c), s.factsOfDevice(c), slices.Contains(s.metered,
		s.ruleNameOfDevice(c)))
	return tier, metered
}

// updateAllStates updates all states.
func (s *deviceStates) updateAllStates(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, one := range s.byDevice {
		s.updateDeviceState(now, c, one)
	}
}

// updateDeviceState updates one state. mu must be held.
func (s *deviceStates) updateDeviceState(now time.Time, c deviceRef, one *deviceState) {
	before, name := one.suspended, s.ruleNameOfDevice(c)
	one.limits = one.limits.Update(now, s.limitsOfDevice(c), s.factsOfDevice(c))
	switch one.suspended = one.limits.Reason; {
	case one.paused:
		one.suspended = pausedHere
	case one.suspended == "" && !c.isLocalInterface():
		one.suspended = s.exhaustedCapReason(one.id)
	}
	switch after := one.suspended; {
	case before == "" && after != "":
		s.log.Info("device suspended", "device", name, "reason", after)
		s.rec.Add(trace.Event{Kind: trace.DeviceSuspended, Device: name, Reason: after})
	case before != "" && after == "":
		s.log.Info("device no longer suspended", "device", name)
		s.rec.Add(trace.Event{Kind: trace.DeviceUnsuspended, Device: name, Reason: "was suspended: " + before})
		if one.allowed != nil {
			close(one.allowed)
			one.allowed = nil
		}
	}
}

// exhaustedCapReason returns why a helper's cap at this device forbids traffic, "" if it does not.
func (s *deviceStates) exhaustedCapReason(id string) string {
	if s.allowed == nil {
		return ""
	}
	if a := s.allowed(device.CapTarget{Peer: id, Purpose: policy.ForPipe}); a.Level == policy.CapReached {
		return a.String()
	}
	return ""
}

// awaitAllowed waits until a device may carry traffic, ctx ends, or broken or gone, which may be
// nil, is closed. It starts watching a local interface. It calls report, without mu, with the
// reason for each wait.
func (s *deviceStates) awaitAllowed(
	ctx context.Context,
	c deviceRef,
	report func(error),
	broken, gone <-chan struct{},
) {
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

// watchDevice returns why a device may not carry traffic, and a channel that is closed when it may.
func (s *deviceStates) watchDevice(c deviceRef) (why string, awake <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byDevice[c]
	switch {
	case one == nil && !c.isLocalInterface():
		return "", nil // no longer trusted
	case one == nil:
		one = &deviceState{}
		s.byDevice[c] = one
		s.updateDeviceState(time.Now(), c, one)
	}
	if one.suspended != "" && one.allowed == nil {
		one.allowed = make(chan struct{})
	}
	return one.suspended, one.allowed
}
