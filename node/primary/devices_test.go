package primary

import (
	"log/slog"
	"mpbond/api"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// TestOwnNames: policy means this device by what it is called, by its host's name
// and, where nobody has called it anything, by "primary"; but a helper's name means
// the helper.
func TestOwnNames(t *testing.T) {
	for _, c := range []struct {
		name, helper, want string
	}{
		{"", "phone", "laptop primary"},
		{"", "laptop", "primary"},
		{"", "primary", "laptop"},
		{"desk", "phone", "desk laptop"},
		{"desk", "laptop", "desk"},
		{"desk", "desk", "desk laptop"},
		{"laptop", "phone", "laptop"},
	} {
		trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
		if err != nil {
			t.Fatal(err)
		}
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: c.helper, Roles: []identity.Role{identity.RoleHelper}, Key: key.Public()})
		}
		if err != nil {
			t.Fatal(err)
		}
		p := &Primary{cfg: Config{Name: c.name}, host: "laptop", trust: trust, log: slog.New(slog.DiscardHandler), policy: newPolicy(policy.Modes{}, nil, slog.New(slog.DiscardHandler), nil)}
		own := strings.Fields(c.want)
		if got := p.routeNames("x", &linkName{own: true, link: "wlan0"}); !slices.Equal(got, slices.Concat([]string{"x"}, own, []string{"wlan0"})) {
			t.Errorf("%+v: rules may say %q", c, got)
		}
		if got := p.routeNames("x", &linkName{}); !slices.Equal(got, []string{"x"}) {
			t.Errorf("%+v: of a helper rules may say %q", c, got)
		}
		for _, name := range []string{"", "laptop", "desk", "primary", "phone"} {
			means := slices.Contains(own, name)
			rules, err := ParsePolicy("policy.toml", []byte("[device.'"+name+"']\nbattery_floor = 30\n"))
			if err != nil {
				t.Fatal(err)
			}
			p.policy.file.force.Store(newInForce(rules, nil))
			if limited := p.specOf("wlan0", nil).BatteryFloor == 30; p.Owns(name) != means || limited != means {
				t.Errorf("%+v: %q means this device: %v, its limits hold: %v", c, name, p.Owns(name), limited)
			}
			if p.specOf(name, &helperSlot{}).BatteryFloor != 30 || p.specOf("other", &helperSlot{}).BatteryFloor != 0 {
				t.Errorf("%+v: %q at a helper", c, name)
			}
		}
	}
}

// TestGate: what shall rest waits, the status says why, and it goes on when it
// may; tiers follow from policy and facts.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "policy.toml")
		const text = "[device.wwan0]\nbattery_floor = 30\nmax_temperature = 45\n[device.laptop]\ntier = 'backup'\n[device.phone]\nmetered = false\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var events []string
		trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
		if err != nil {
			t.Fatal(err)
		}
		p := &Primary{cfg: Config{Name: "laptop"}, log: slog.New(slog.DiscardHandler), errs: map[string]api.Trouble{}, cur: &session{}, trust: trust,
			helpers: map[identity.PublicKey]*helperSlot{{1}: {name: "phone"}, {2}: {name: "tablet"}},
			rec:     (*trace.Recorder)(nil).Tell("p", func(e trace.Event) { events = append(events, string(e.Kind)+" "+e.Device) })}
		p.policy = newPolicy(policy.Modes{}, p.routing, p.log, p.rec)
		if err := p.policy.File().Use(file, true); err != nil {
			t.Fatal(err)
		}
		low := facts.Facts{Battery: unit.Percent(20), Power: wire.PowerBattery}
		p.FactsChanged(low)
		goesOn := false
		go func() {
			p.awaitAwake(t.Context(), p.link("wwan0"), "laptop/wwan0", nil, nil)
			goesOn = true
		}()
		synctest.Wait()
		if goesOn || !strings.Contains(p.errs["laptop/wwan0"].Text, "it rests: its battery is at 20 %") {
			t.Errorf("at 20 %%: goes on %v, %q", goesOn, p.errs)
		}
		low.Power = wire.PowerExternal
		p.FactsChanged(low)
		time.Sleep(10 * time.Second)
		p.review(time.Now())
		if synctest.Wait(); goesOn {
			t.Error("it goes on after 10 s")
		}
		time.Sleep(21 * time.Second)
		p.review(time.Now())
		if synctest.Wait(); !goesOn {
			t.Error("it does not go on when it is plugged in")
		}
		if want := []string{"device_rests wwan0", "device_allowed wwan0"}; !slices.Equal(slices.DeleteFunc(events, func(e string) bool { return !strings.HasPrefix(e, "device_") }), want) {
			t.Errorf("events %q", events)
		}

		// One that is paused rests from now on, however short, and whatever else it does.
		phone := p.helpers[identity.PublicKey{1}]
		for _, c := range []struct {
			paused  bool
			refuses string
			why     string
		}{{true, "", "paused by its owner"}, {true, "no", "paused by its owner"}, {false, "no", "it refuses: no"}, {true, "", "paused by its owner"}, {false, "", ""}} {
			phone.paused = c.paused
			p.factsCame(identity.PublicKey{1}, wire.Facts{Refuses: c.refuses})
			if _, rests := p.StandingOf(identity.PublicKey{1}); rests != c.why {
				t.Errorf("%+v: it rests: %q", c, rests)
			}
		}

		for _, key := range []identity.PublicKey{{1}, {2}} {
			p.factsCame(key, wire.Facts{Metered: wire.MeteredYes, Radio: wire.RadioCellular})
		}
		for _, c := range []struct {
			by   string
			slot *helperSlot
			want wire.Terms
		}{
			{"eth0", nil, wire.Terms{Tier: wire.TierBackup}},
			{"wwan0", nil, wire.Terms{}},
			{"phone", p.helpers[identity.PublicKey{1}], wire.Terms{Radio: wire.RadioCellular}},
			{"tablet", p.helpers[identity.PublicKey{2}], wire.Terms{Radio: wire.RadioCellular, Tier: wire.TierSecondary, Metered: true}},
			{"as it was called", p.helpers[identity.PublicKey{2}], wire.Terms{Radio: wire.RadioCellular, Tier: wire.TierSecondary, Metered: true}},
		} {
			var got wire.Terms
			if p.stand(&got, c.by, c.slot); got != c.want {
				t.Errorf("%s: %+v, want %+v", c.by, got, c.want)
			}
		}
		if tier, rests := p.StandingOf(identity.PublicKey{2}); tier != wire.TierSecondary || rests != "" {
			t.Errorf("the tablet is %v, %q", tier, rests)
		}
	})
}

// TestRenameWhileItRests: a helper may be renamed while its keeper waits.
func TestRenameWhileItRests(t *testing.T) {
	p := offline(t, time.Minute)
	slot := &helperSlot{name: "phone", revoked: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			p.awaitHelper(t.Context(), slot, &pipe.Waiting{})
		}
	}()
	for names := []string{"phone", "mobile"}; ; slices.Reverse(names) {
		p.mu.Lock()
		slot.name = names[0]
		p.mu.Unlock()
		select {
		case <-done:
			return
		default:
		}
	}
}
