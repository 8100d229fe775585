// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Limits are the settings of a helper or local interface, which apply to all traffic.
type Limits struct {
	// Tier is when it is used: "primary", "secondary" or "backup". By default it follows from
	// whether its data costs money.
	Tier *wire.Tier `toml:"tier"`
	// Metered says whether its data costs money. By default the device's facts say it
	// (docs/reference/facts.md).
	Metered *bool `toml:"metered"`
	// BatteryFloor is the battery level, in percent, below which it is suspended unless plugged in;
	// 0 is none. An unknown battery level forbids nothing.
	BatteryFloor int `toml:"battery_floor"`
	// MaxTemperature is the temperature, in °C, from which it is suspended; 0 is none. An
	// unknown temperature forbids nothing.
	MaxTemperature float64 `toml:"max_temperature"`
}

// Check returns the first invalid key and what is wrong with it.
func (l Limits) Check() (key string, err error) {
	switch {
	case l.BatteryFloor < 0 || l.BatteryFloor > 100:
		return "battery_floor", fmt.Errorf("battery_floor is %d: use a percentage from 0 to 100", l.BatteryFloor)
	case l.MaxTemperature != 0 && !(l.MaxTemperature >= 20 && l.MaxTemperature <= 120):
		return "max_temperature", fmt.Errorf("max_temperature is %v: use °C from 20 to 120", l.MaxTemperature)
	}
	return "", nil
}

// IgnoredByHelper lists the parts of the file that a helper named self ignores, in the order of the
// file's parts and by name. Each text completes "does not keep to".
func (r *Rules) IgnoredByHelper(self string) (list []string) {
	if n := len(r.rules); n > 0 {
		list = append(list, fmt.Sprintf("the rules (%d): they are for a primary", n))
	}
	if r.Default() == Deny {
		list = append(list, `default = "deny": it is for a primary`)
	}
	for _, name := range slices.Sorted(maps.Keys(r.devices)) {
		l := r.devices[name].Limits
		var where, own []string
		if l.Tier != nil {
			where = append(where, "tier")
		}
		if l.Metered != nil {
			where = append(where, "metered")
		}
		if name != self && l.BatteryFloor != 0 {
			own = append(own, "battery_floor")
		}
		if name != self && l.MaxTemperature != 0 {
			own = append(own, "max_temperature")
		}
		if len(where) > 0 {
			list = append(list, fmt.Sprintf("%s of %s: the policy of the primary says that", strings.Join(where, " and "), name))
		}
		if len(own) > 0 {
			list = append(list, fmt.Sprintf("%s of %s: here they count for %s alone", strings.Join(own, " and "), name, self))
		}
	}
	return list
}

// Tuning of Suspension.
const (
	// To end a suspension the battery must rise that far above the floor, in percent, or the device
	// cool by that much, in °C. Both readings are coarse and fluctuate.
	floorMargin = 5
	heatMargin  = 3
	// minSuspension is the shortest suspension. A bad contact plugs a charger in and out.
	minSuspension = 30 * time.Second
)

// Suspension says whether a device may carry traffic now, by its battery and temperature. The zero
// value permits it. Unknown facts forbid nothing.
type Suspension struct {
	// Reason says why it is suspended; "" if it is not.
	Reason  string
	since   time.Time
	refused bool // the device itself refuses, and applies its own minimum time
}

// Update returns the suspension that follows from s, given the facts at that time.
func (s Suspension) Update(now time.Time, l Limits, f wire.Facts) Suspension {
	why := s.suspensionReason(l, f)
	switch {
	case why != "" && s.Reason == "":
		return Suspension{why, now, f.RefusalReason != ""}
	case why != "":
		return Suspension{why, s.since, f.RefusalReason != ""}
	case s.Reason != "" && !s.refused && now.Sub(s.since) < minSuspension:
		return s
	}
	return Suspension{}
}

// suspensionReason returns why the device must be suspended, "" if it need not.
func (s Suspension) suspensionReason(l Limits, f wire.Facts) string {
	wasSuspended := s.Reason != ""
	if f.RefusalReason != "" {
		return "it refuses: " + f.RefusalReason
	}
	if floor := l.BatteryFloor; floor > 0 && f.Battery.Known() && f.Power != wire.PowerExternal {
		switch n := f.Battery.Percent(); {
		case n < floor:
			return fmt.Sprintf("its battery is at %d %%, suspended below %d %%", n, floor)
		case wasSuspended && n < min(floor+floorMargin, 100):
			return fmt.Sprintf("its battery is at %d %%, was below %d %%, suspended until %d %%", n, floor,
				min(floor+floorMargin, 100))
		}
	}
	if most := unit.Celsius(l.MaxTemperature); l.MaxTemperature != 0 && f.Temperature != 0 {
		switch {
		case f.Temperature >= most:
			return fmt.Sprintf("its temperature is %v, suspended from %v", f.Temperature, most)
		case wasSuspended && f.Temperature > most-10*heatMargin:
			return fmt.Sprintf("its temperature is %v, was %v or more, suspended above %v", f.Temperature, most,
				most-10*heatMargin)
		}
	}
	return ""
}

// TierOf returns the tier of a device, whether its data costs money, and why. last reports that a
// setting names it as one to use only while no other works.
func TierOf(s Limits, f wire.Facts, last bool) (t wire.Tier, metered bool, reason string) {
	switch {
	case s.Metered != nil:
		metered = *s.Metered
	default:
		metered = last || f.Metered == wire.MeteredYes
	}
	switch {
	case s.Tier != nil:
		return *s.Tier, metered, "set by policy"
	case last:
		return wire.TierBackup, metered, "configured as metered"
	case metered:
		return wire.TierSecondary, metered, "its data costs money"
	}
	return wire.TierPrimary, false, ""
}
