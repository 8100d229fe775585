package primary

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/device/facts"
	"mpbond/identity"
	"mpbond/pipe"
	"mpbond/policy"
	"mpbond/trace"
	"mpbond/unit"
	"mpbond/wire"
)

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
		p := &Primary{cfg: Config{Name: "laptop"}, log: slog.New(slog.DiscardHandler), errs: map[string]string{}, cur: &session{}, trust: trust,
			helpers: map[identity.PublicKey]*helperSlot{{1}: {name: "phone"}, {2}: {name: "tablet"}},
			rec:     (*trace.Recorder)(nil).Tell("p", func(e trace.Event) { events = append(events, string(e.Kind)+" "+e.Device) })}
		p.plan.start(policy.Modes{})
		if err := p.UsePolicy(file, true); err != nil {
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
		if goesOn || !strings.Contains(p.errs["laptop/wwan0"], "it rests: its battery is at 20 %") {
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

		for _, key := range []identity.PublicKey{{1}, {2}} {
			p.factsCame(key, wire.Facts{Metered: wire.MeteredYes, Radio: wire.RadioCellular})
		}
		for _, c := range []struct {
			by     string
			helped bool
			want   wire.Terms
		}{
			{"eth0", false, wire.Terms{Tier: wire.TierBackup}},
			{"wwan0", false, wire.Terms{}},
			{"phone", true, wire.Terms{Radio: wire.RadioCellular}},
			{"tablet", true, wire.Terms{Radio: wire.RadioCellular, Tier: wire.TierSecondary, Metered: true}},
			{"nobody", true, wire.Terms{}},
		} {
			var got wire.Terms
			if p.stand(&got, c.by, c.helped); got != c.want {
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
