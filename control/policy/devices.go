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

// Limits are what the file says of a helper or an own interface, whatever is
// carried.
type Limits struct {
	// Tier is when it is used, "primary", "secondary" or "backup"; left out, it follows from whether its data costs
	// money.
	Tier *wire.Tier `toml:"tier"`
	// Metered tells whether its data costs money; left out, what is known of it does
	// (docs/reference/facts.md).
	Metered *bool `toml:"metered"`
	// BatteryFloor is the battery, in percent, below which it rests unless it is
	// plugged in; 0 is none.
	BatteryFloor int `toml:"battery_floor"`
	// MaxTemperature is the temperature, in °C, from which on it rests; 0 is none.
	MaxTemperature float64 `toml:"max_temperature"`
}

// Check reports what no device can keep to, and under which key.
func (s Limits) Check() (key string, err error) {
	switch {
	case s.BatteryFloor < 0 || s.BatteryFloor > 100:
		return "battery_floor", fmt.Errorf("battery_floor is %d: it is in percent, from 0 to 100", s.BatteryFloor)
	case s.MaxTemperature != 0 && !(s.MaxTemperature >= 20 && s.MaxTemperature <= 120):
		return "max_temperature", fmt.Errorf("max_temperature is %v: it is in °C, from 20 to 120", s.MaxTemperature)
	}
	return "", nil
}

// IgnoredByHelper is what a helper that is called self does not keep to, in words
// that follow "does not keep to", in the order of the file's parts and of names.
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

// Tuning of Resting.
const (
	// A battery must be so much above the floor again, in percent, and a device so
	// much cooler, in °C: both are coarse and sway.
	floorMargin = 5
	heatMargin  = 3
	// minSuspension is how long a device rests at least: a bad charger is plugged in and
	// out by itself.
	minSuspension = 30 * time.Second
)

// Suspension says whether a device may carry anything now, by its battery and heat. The
// zero value lets it. What is not known forbids nothing.
type Suspension struct {
	// Reason is why it rests, in words; "" while it may carry.
	Reason  string
	since   time.Time
	refused bool // it said so itself, and minds by itself for how long
}

// Update is what follows from r when these facts are known at that time.
func (r Suspension) Update(now time.Time, s Limits, f wire.Facts) Suspension {
	why := r.reasonFor(s, f)
	switch {
	case why != "" && r.Reason == "":
		return Suspension{why, now, f.RefusalReason != ""}
	case why != "":
		return Suspension{why, r.since, f.RefusalReason != ""}
	case r.Reason != "" && !r.refused && now.Sub(r.since) < minSuspension:
		return r
	}
	return Suspension{}
}

func (r Suspension) reasonFor(s Limits, f wire.Facts) string {
	rests := r.Reason != ""
	if f.RefusalReason != "" {
		return "it refuses: " + f.RefusalReason
	}
	if floor := s.BatteryFloor; floor > 0 && f.Battery.Known() && f.Power != wire.PowerExternal {
		switch n := f.Battery.Percent(); {
		case n < floor:
			return fmt.Sprintf("its battery is at %d %%, and below %d %% it shall rest", n, floor)
		case rests && n < min(floor+floorMargin, 100):
			return fmt.Sprintf("its battery is at %d %%, and was below %d %%: it rests up to %d %%", n, floor, min(floor+floorMargin, 100))
		}
	}
	if most := unit.Celsius(s.MaxTemperature); s.MaxTemperature != 0 && f.Temperature != 0 {
		switch {
		case f.Temperature >= most:
			return fmt.Sprintf("it has %v, and from %v on it shall rest", f.Temperature, most)
		case rests && f.Temperature > most-10*heatMargin:
			return fmt.Sprintf("it has %v, and had %v or more: it rests down to %v", f.Temperature, most, most-10*heatMargin)
		}
	}
	return ""
}

// TierOf is when a device is used, whether its data costs money, and why. Last
// tells that it is named as one to use only while no other works.
func TierOf(s Limits, f wire.Facts, last bool) (t wire.Tier, metered bool, reason string) {
	switch {
	case s.Metered != nil:
		metered = *s.Metered
	default:
		metered = last || f.Metered == wire.MeteredYes
	}
	switch {
	case s.Tier != nil:
		return *s.Tier, metered, "policy says so"
	case last:
		return wire.TierBackup, metered, "it is named as metered"
	case metered:
		return wire.TierSecondary, metered, "its data costs money"
	}
	return wire.TierPrimary, false, ""
}
