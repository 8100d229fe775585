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

// newStandings returns standings with rules of their own.
func newStandings(t *testing.T, rules string, names deviceNames) *standings {
	t.Helper()
	r, err := ParsePolicy("policy.toml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	if names.trust == nil {
		names.trust, _ = trusting(t)
	}
	return &standings{names: names, rules: func() *policy.Rules { return r }, log: slog.New(slog.DiscardHandler), all: map[carrier]*standing{}}
}

// record keeps the events about devices.
func (s *standings) record(events *[]string) {
	s.rec = (*trace.Recorder)(nil).Tell("laptop", func(e trace.Event) {
		if strings.HasPrefix(string(e.Kind), "device_") {
			*events = append(*events, string(e.Kind)+" "+e.Device)
		}
	})
}

// awaits reports whether a device has been waited for in vain, and why it rests.
func (s *standings) awaits(t *testing.T, c carrier) (waits func() bool, why *string) {
	done, why := false, new(string)
	go func() {
		s.awaitAllowed(t.Context(), c, func(err error) { *why = err.Error() }, nil, nil)
		done = true
	}()
	return func() bool { synctest.Wait(); return !done }, why
}

var phoneKey, tabletKey = identity.PublicKey{1}, identity.PublicKey{2}

// TestStandingOfLink: an own interface that shall rest waits, its waiter hears why, and it
// goes on when it may.
func TestStandingOfLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandings(t, "[device.wwan0]\nbattery_floor = 30\n", deviceNames{configured: "laptop"})
		var events []string
		s.record(&events)
		low := facts.Facts{Battery: unit.Percent(20), Power: wire.PowerBattery}
		s.setOwnFacts(low)
		waits, why := s.awaits(t, carrier{link: "wwan0"})
		if !waits() || !strings.Contains(*why, "it rests: its battery is at 20 %") {
			t.Errorf("at 20 %%: %q", *why)
		}
		low.Power = wire.PowerExternal
		s.setOwnFacts(low)
		time.Sleep(10 * time.Second)
		if s.review(time.Now()); !waits() {
			t.Error("it goes on after 10 s")
		}
		time.Sleep(21 * time.Second)
		if s.review(time.Now()); waits() {
			t.Error("it does not go on when it is plugged in")
		}
		if want := []string{"device_rests wwan0", "device_allowed wwan0"}; !slices.Equal(events, want) {
			t.Errorf("events %q", events)
		}
	})
}

// TestStandingOfHelper: one that is paused rests from now on, however short, and whatever
// else it does; one that carries again what it refused is told of.
func TestStandingOfHelper(t *testing.T) {
	s := newStandings(t, "", deviceNames{})
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		paused  bool
		refuses string
		why     string
		again   bool
	}{{true, "", pausedHere, false}, {true, "no", pausedHere, false}, {false, "no", "it refuses: no", false}, {true, "", pausedHere, true}, {false, "", "", false}} {
		s.setHelper(phoneKey, "phone", c.paused, now)
		if again := s.setFacts(phoneKey, wire.Facts{Refuses: c.refuses}, now); again != c.again {
			t.Errorf("%+v: it carries again: %v", c, again)
		}
		if _, rests := s.stateOf(carrier{helper: phoneKey}); rests != c.why {
			t.Errorf("%+v: it rests: %q", c, rests)
		}
		if err := s.endReason(carrier{helper: phoneKey}, wire.TierPrimary); (err != nil) != (c.why != "") {
			t.Errorf("%+v: its subflow ends with %v", c, err)
		}
	}
	s.forgetHelper(phoneKey)
	if s.setFacts(phoneKey, wire.Facts{Refuses: "no"}, now); s.factsOf(phoneKey).Refuses != "" || s.endReason(carrier{helper: phoneKey}, wire.TierBackup) != nil {
		t.Error("one that is not trusted is known")
	}
}

// TestTiers follow from policy, facts and the configuration.
func TestTiers(t *testing.T) {
	s := newStandings(t, "[device.wwan0]\nbattery_floor = 30\n[device.laptop]\ntier = 'backup'\n[device.phone]\nmetered = false\n", deviceNames{configured: "laptop"})
	s.metered = []string{"wwan0", "usb0"}
	now := time.Unix(1e9, 0)
	for key, name := range map[identity.PublicKey]string{phoneKey: "phone", tabletKey: "tablet"} {
		s.setHelper(key, name, false, now)
		s.setFacts(key, wire.Facts{Metered: wire.MeteredYes, Radio: wire.RadioCellular}, now)
	}
	for _, c := range []struct {
		by   carrier
		want wire.Terms
	}{
		{carrier{link: "eth0"}, wire.Terms{Tier: wire.TierBackup}},
		{carrier{link: "wwan0"}, wire.Terms{Tier: wire.TierBackup, Metered: true}}, // as configured
		{carrier{helper: phoneKey}, wire.Terms{Radio: wire.RadioCellular}},
		{carrier{helper: tabletKey}, wire.Terms{Radio: wire.RadioCellular, Tier: wire.TierSecondary, Metered: true}},
	} {
		var got wire.Terms
		if s.completeTerms(&got, c.by); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.by, got, c.want)
		}
		if tier, _ := s.stateOf(c.by); tier != c.want.Tier {
			t.Errorf("%+v is %v", c.by, tier)
		}
		if err := s.endReason(c.by, c.want.Tier); err != nil {
			t.Errorf("%+v: its subflow ends: %v", c.by, err)
		}
		if err := s.endReason(c.by, c.want.Tier+1); err != errStanding {
			t.Errorf("%+v: a subflow of another tier goes on: %v", c.by, err)
		}
	}
	for link, want := range map[string]bool{"wwan0": true, "usb0": false, "eth0": false} { // usb0 has a tier
		if got := s.costsByDefault(link); got != want {
			t.Errorf("%s costs money: %v", link, got)
		}
	}
}

// TestCapOfHelper: a helper whose cap here is used up rests, others do not, and it goes on
// when it may carry again.
func TestCapOfHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandings(t, "", deviceNames{})
		var events []string
		s.record(&events)
		spent := false
		s.allowed = func(of device.Bounded) policy.Allowance {
			if !spent || of.Peer != phoneKey.ID().String() || of.By != policy.ForPipe {
				return policy.Allowance{}
			}
			return policy.Caps{Monthly: 20e6}.Judge(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
		}
		s.setHelper(phoneKey, "phone", false, time.Now())
		s.setHelper(tabletKey, "tablet", false, time.Now())
		spent = true
		s.review(time.Now())
		for key, want := range map[identity.PublicKey]string{phoneKey: "the monthly cap of 20 MB is used up, until 2026-12-01 00:00", tabletKey: ""} {
			if _, rests := s.stateOf(carrier{helper: key}); rests != want {
				t.Errorf("%v rests: %q, want %q", key[0], rests, want)
			}
		}
		waits, _ := s.awaits(t, carrier{helper: phoneKey})
		if !waits() {
			t.Error("it goes on")
		}
		spent = false
		if s.review(time.Now()); waits() {
			t.Error("it does not go on")
		}
		if want := []string{"device_rests phone", "device_allowed phone"}; !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

// TestAwaitEnds: whatever happens in whatever order, who waits for a device returns when
// that may carry something, and not before.
func TestAwaitEnds(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			s := newStandings(t, "", deviceNames{})
			paused := true
			s.setHelper(phoneKey, "phone", paused, time.Now())
			waits, _ := s.awaits(t, carrier{helper: phoneKey})
			for range 20 {
				if got := waits(); got != paused {
					t.Fatalf("paused %v, it waits %v", paused, got)
				}
				if !paused {
					waits, _ = s.awaits(t, carrier{helper: phoneKey})
					if waits() {
						t.Fatal("it waits for nothing")
					}
				}
				switch r.IntN(3) {
				case 0:
					paused = !paused
				case 1:
					s.setFacts(phoneKey, wire.Facts{Link: "wlan0"}, time.Now())
				case 2:
					s.review(time.Now())
				}
				s.setHelper(phoneKey, "phone", paused, time.Now())
				if paused {
					waits, _ = s.awaits(t, carrier{helper: phoneKey})
				}
			}
			s.setHelper(phoneKey, "phone", false, time.Now())
		})
	}
}
