// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestIgnoredByHelper: of a primary's file a helper applies caps, and the limits of its own name.
func TestIgnoredByHelper(t *testing.T) {
	backup, metered := wire.TierBackup, true
	cap := Caps{Daily: 1e9}
	f := File{Default: Deny, Rules: []RuleSpec{{}, {}}, Devices: map[string]DeviceSpec{
		"wwan0": {Caps: cap},
		"phone": {Caps: cap, Limits: Limits{BatteryFloor: 20, MaxTemperature: 45, Metered: &metered}},
		"tab":   {Limits: Limits{BatteryFloor: 20, MaxTemperature: 45, Metered: &metered, Tier: &backup}},
	}}
	want := []string{"the rules (2): they are for a primary", `default = "deny": it is for a primary`,
		"metered of phone: the policy of the primary says that",
		"tier and metered of tab: the policy of the primary says that",
		"battery_floor and max_temperature of tab: here they count for phone alone"}
	r, err := f.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.IgnoredByHelper("phone"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := new(Rules).IgnoredByHelper("phone"); got != nil {
		t.Errorf("%q of nothing", got)
	}
}

func TestSuspension(t *testing.T) {
	spec := Limits{BatteryFloor: 20, MaxTemperature: 45}
	at := func(percent, heat float64, p wire.Power) wire.Facts {
		return wire.Facts{Battery: unit.Percent(percent), Temperature: unit.Celsius(heat), Power: p}
	}
	const draws, plugged, unknown = wire.PowerBattery, wire.PowerExternal, wire.PowerUnknown
	now := time.Unix(1000, 0)
	var r Suspension
	for i, c := range []struct {
		after time.Duration
		facts wire.Facts
		why   string // part of the reason; "" when it may carry
	}{
		{0, wire.Facts{}, ""},
		{0, at(20, 44.9, draws), ""},
		{0, at(19, 30, plugged), ""},
		{0, at(19, 30, draws), "battery is at 19 %, suspended below 20 %"},
		{time.Second, at(19, 30, plugged), "battery is at 19 %"}, // plugged in for a moment
		{30 * time.Second, at(19, 30, draws), "battery is at 19 %"},
		{time.Second, at(24, 30, draws), "suspended until 25 %"},
		{time.Second, at(25, 30, unknown), ""},
		{time.Second, at(90, 45, draws), "45 °C"},
		{time.Minute, at(90, 43, draws), "suspended above 42 °C"},
		{time.Second, at(10, 40, draws), "battery"},
		{time.Second, at(10, 40, plugged), ""},
		{time.Second, wire.Facts{RefusalReason: "no"}, "it refuses: no"},
		{time.Second, wire.Facts{}, ""}, // it knows itself for how long
		{time.Second, at(19, 30, draws), "battery"},
		{time.Second, wire.Facts{RefusalReason: "no"}, "it refuses: no"},
		{time.Second, at(19, 30, draws), "battery"},
		{time.Second, at(90, 30, draws), "battery"},
		{time.Minute, wire.Facts{}, ""},
	} {
		now = now.Add(c.after)
		r = r.Update(now, spec, c.facts)
		if (r.Reason == "") != (c.why == "") || !strings.Contains(r.Reason, c.why) {
			t.Errorf("step %d: %q, want %q", i, r.Reason, c.why)
		}
	}
	if r := (Suspension{}).Update(now, Limits{}, at(1, 99, draws)); r.Reason != "" {
		t.Errorf("without limits: %q", r.Reason)
	}
	for _, bad := range []Limits{{BatteryFloor: -1}, {BatteryFloor: 101}, {MaxTemperature: 5}, {MaxTemperature: 500}} {
		if _, err := bad.Check(); err == nil {
			t.Errorf("%+v is fine", bad)
		}
	}
}

// TestSuspensionDoesNotFlap, with readings that fluctuate each second for a day: a device never
// carries below its battery floor or above its temperature limit, each suspension lasts as long as
// it must, and always has a reason.
func TestSuspensionDoesNotFlap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	spec := Limits{BatteryFloor: 30, MaxTemperature: 40}
	now := time.Unix(1000, 0)
	var s Suspension
	changes, battery, heat := 0, 31.0, 39.0
	var changed time.Time
	for range 24 * 3600 {
		now = now.Add(time.Second)
		if s.Reason == "" { // use drains the battery and heats the device
			battery, heat = battery-0.01, heat+0.01
		} else {
			battery, heat = battery+0.002, heat-0.005
		}
		f := wire.Facts{Battery: unit.Percent(battery + r.Float64()*3 - 1.5),
			Temperature: unit.Celsius(heat + r.Float64()*2 - 1), Power: wire.PowerBattery}
		next := s.Update(now, spec, f)
		bad := f.Battery.Percent() < 30 || f.Temperature >= unit.Celsius(40)
		if bad && next.Reason == "" {
			t.Fatalf("it carries at %v and %v", f.Battery, f.Temperature)
		}
		if (next.Reason == "") != (s.Reason == "") {
			if changes++; s.Reason != "" && now.Sub(changed) < minSuspension {
				t.Fatalf("it rested for %v", now.Sub(changed))
			}
			changed = now
		}
		s = next
	}
	if changes < 10 || changes > 400 {
		t.Errorf("%d changes in a day", changes)
	}
}

func TestTierOf(t *testing.T) {
	yes, no, backup := true, false, wire.TierBackup
	costs := wire.Facts{Metered: wire.MeteredYes}
	for _, c := range []struct {
		spec    Limits
		facts   wire.Facts
		last    bool
		tier    wire.Tier
		metered bool
	}{
		{Limits{}, wire.Facts{}, false, wire.TierPrimary, false},
		{Limits{}, costs, false, wire.TierSecondary, true},
		{Limits{Metered: &no}, costs, false, wire.TierPrimary, false},
		{Limits{Metered: &yes}, wire.Facts{}, false, wire.TierSecondary, true},
		{Limits{}, wire.Facts{}, true, wire.TierBackup, true},
		{Limits{Tier: &backup}, costs, false, wire.TierBackup, true},
		{Limits{Tier: new(wire.Tier)}, costs, true, wire.TierPrimary, true},
	} {
		if tier, metered, _ := TierOf(c.spec, c.facts, c.last); tier != c.tier || metered != c.metered {
			t.Errorf("%+v: %v, %v", c, tier, metered)
		}
	}
}
