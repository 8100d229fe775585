// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// newTestStates returns states with their own rules.
func newTestStates(t *testing.T, rules string, names deviceNames) *deviceStates {
	t.Helper()
	r, err := ParsePolicy("policy.toml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	if names.trust == nil {
		names.trust, _ = newTrustWith(t)
	}
	return &deviceStates{
		names:    names,
		rules:    func() *policy.Rules { return r },
		log:      slog.New(slog.DiscardHandler),
		byDevice: map[deviceRef]*deviceState{},
	}
}

// recordEvents collects the events about devices.
func (s *deviceStates) recordEvents(events *[]string) {
	s.rec = (*trace.Recorder)(nil).NotifyChanges("laptop", func(e trace.Event) {
		if strings.HasPrefix(string(e.Kind), "device_") {
			*events = append(*events, string(e.Kind)+" "+e.Device)
		}
	})
}

// startWaiting waits for a device. waits reports whether it still waits, and why is the reason.
func (s *deviceStates) startWaiting(t *testing.T, c deviceRef) (waits func() bool, why *string) {
	done, why := false, new(string)
	go func() {
		s.awaitAllowed(t.Context(), c, func(err error) { *why = err.Error() }, nil, nil)
		done = true
	}()
	return func() bool { synctest.Wait(); return !done }, why
}

var phoneKey, tabletKey = identity.PublicKey{1}, identity.PublicKey{2}

// TestStandingOfLink: a suspended local interface waits, its waiter gets the reason, and it goes on
// when allowed.
func TestStandingOfLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStates(t, "[device.wwan0]\nbattery_floor = 30\n", deviceNames{configured: "laptop"})
		var events []string
		s.recordEvents(&events)
		low := facts.Facts{Battery: unit.Percent(20), Power: wire.PowerBattery}
		s.setOwnFacts(low)
		waits, why := s.startWaiting(t, deviceRef{iface: "wwan0"})
		if !waits() || !strings.Contains(*why, "suspended: its battery is at 20 %") {
			t.Errorf("at 20 %%: %q", *why)
		}
		low.Power = wire.PowerExternal
		s.setOwnFacts(low)
		time.Sleep(10 * time.Second)
		if s.updateAllStates(time.Now()); !waits() {
			t.Error("it goes on after 10 s")
		}
		time.Sleep(21 * time.Second)
		if s.updateAllStates(time.Now()); waits() {
			t.Error("it does not go on when it is plugged in")
		}
		if want := []string{"device_suspended wwan0", "device_unsuspended wwan0"}; !slices.Equal(events, want) {
			t.Errorf("events %q", events)
		}
	})
}

// TestStandingOfHelper: a paused helper is suspended at once, whatever else it does; a helper that
// carries again what it refused is reported.
func TestStandingOfHelper(t *testing.T) {
	s := newTestStates(t, "", deviceNames{})
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		paused  bool
		refuses string
		why     string
		again   bool
	}{{true, "", pausedHere, false}, {true, "no", pausedHere, false}, {false, "no", "it refuses: no", false},
		{true, "", pausedHere, true}, {false, "", "", false}} {
		s.addOrUpdateHelper(phoneKey, "phone", c.paused, now)
		if again := s.storeHelperFacts(phoneKey, wire.Facts{RefusalReason: c.refuses}, now); again != c.again {
			t.Errorf("%+v: it carries again: %v", c, again)
		}
		if _, rests := s.stateOfDevice(deviceRef{helper: phoneKey}); rests != c.why {
			t.Errorf("%+v: suspended: %q", c, rests)
		}
		if err := s.subflowEndReason(deviceRef{helper: phoneKey}, wire.TierPrimary); (err != nil) != (c.why != "") {
			t.Errorf("%+v: its subflow ends with %v", c, err)
		}
	}
	s.forgetHelper(phoneKey)
	if s.storeHelperFacts(phoneKey, wire.Facts{RefusalReason: "no"}, now); s.factsOfHelper(phoneKey).RefusalReason != "" ||
		s.subflowEndReason(deviceRef{helper: phoneKey}, wire.TierBackup) != nil {
		t.Error("one that is not trusted is known")
	}
}

// TestTiers: tiers follow from policy, facts and the configuration.
func TestTiers(t *testing.T) {
	s := newTestStates(
		t,
		"[device.wwan0]\nbattery_floor = 30\n[device.laptop]\ntier = 'backup'\n[device.phone]\nmetered = false\n",
		deviceNames{configured: "laptop"},
	)
	s.metered = []string{"wwan0", "usb0"}
	now := time.Unix(1e9, 0)
	for key, name := range map[identity.PublicKey]string{phoneKey: "phone", tabletKey: "tablet"} {
		s.addOrUpdateHelper(key, name, false, now)
		s.storeHelperFacts(key, wire.Facts{Metered: wire.MeteredYes, Radio: wire.RadioCellular}, now)
	}
	for _, c := range []struct {
		by   deviceRef
		want wire.Terms
	}{
		{deviceRef{iface: "eth0"}, wire.Terms{Tier: wire.TierBackup}},
		{deviceRef{iface: "wwan0"}, wire.Terms{Tier: wire.TierBackup, Metered: true}}, // as configured
		{deviceRef{helper: phoneKey}, wire.Terms{Radio: wire.RadioCellular}},
		{deviceRef{helper: tabletKey}, wire.Terms{Radio: wire.RadioCellular, Tier: wire.TierSecondary, Metered: true}},
	} {
		var got wire.Terms
		if s.completeTerms(&got, c.by); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.by, got, c.want)
		}
		if tier, _ := s.stateOfDevice(c.by); tier != c.want.Tier {
			t.Errorf("%+v is %v", c.by, tier)
		}
		if err := s.subflowEndReason(c.by, c.want.Tier); err != nil {
			t.Errorf("%+v: its subflow ends: %v", c.by, err)
		}
		if err := s.subflowEndReason(c.by, c.want.Tier+1); err != errTierChanged {
			t.Errorf("%+v: a subflow of another tier goes on: %v", c.by, err)
		}
	}
	for link, want := range map[string]bool{"wwan0": true, "usb0": false, "eth0": false} { // usb0 has a tier
		if got := s.isMeteredByDefault(link); got != want {
			t.Errorf("%s costs money: %v", link, got)
		}
	}
}

// TestCapOfHelper: a helper whose cap here is used up is suspended, others are not, and it goes on
// when the cap allows it.
func TestCapOfHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStates(t, "", deviceNames{})
		var events []string
		s.recordEvents(&events)
		spent := false
		s.allowed = func(of device.CapTarget) policy.Allowance {
			if !spent || of.Peer != phoneKey.ID().String() || of.Purpose != policy.ForPipe {
				return policy.Allowance{}
			}
			return policy.Caps{Monthly: 20e6}.Evaluate(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
		}
		s.addOrUpdateHelper(phoneKey, "phone", false, time.Now())
		s.addOrUpdateHelper(tabletKey, "tablet", false, time.Now())
		spent = true
		s.updateAllStates(time.Now())
		for key, want := range map[identity.PublicKey]string{
			phoneKey: "the monthly cap of 20 MB is used up, until 2026-12-01 00:00", tabletKey: ""} {
			if _, rests := s.stateOfDevice(deviceRef{helper: key}); rests != want {
				t.Errorf("%v rests: %q, want %q", key[0], rests, want)
			}
		}
		waits, _ := s.startWaiting(t, deviceRef{helper: phoneKey})
		if !waits() {
			t.Error("it goes on")
		}
		spent = false
		if s.updateAllStates(time.Now()); waits() {
			t.Error("it does not go on")
		}
		if want := []string{"device_suspended phone", "device_unsuspended phone"}; !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

// TestAwaitEnds: in any order of events, a waiter for a device returns when that may carry, and not
// before.
func TestAwaitEnds(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			s := newTestStates(t, "", deviceNames{})
			paused := true
			s.addOrUpdateHelper(phoneKey, "phone", paused, time.Now())
			waits, _ := s.startWaiting(t, deviceRef{helper: phoneKey})
			for range 20 {
				if got := waits(); got != paused {
					t.Fatalf("paused %v, it waits %v", paused, got)
				}
				if !paused {
					waits, _ = s.startWaiting(t, deviceRef{helper: phoneKey})
					if waits() {
						t.Fatal("it waits for nothing")
					}
				}
				switch r.IntN(3) {
				case 0:
					paused = !paused
				case 1:
					s.storeHelperFacts(phoneKey, wire.Facts{Link: "wlan0"}, time.Now())
				case 2:
					s.updateAllStates(time.Now())
				}
				s.addOrUpdateHelper(phoneKey, "phone", paused, time.Now())
				if paused {
					waits, _ = s.startWaiting(t, deviceRef{helper: phoneKey})
				}
			}
			s.addOrUpdateHelper(phoneKey, "phone", false, time.Now())
		})
	}
}
