// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// energyAsWaitTime returns the time that is worth the energy j.
func energyAsWaitTime(j unit.Joules) time.Duration {
	return time.Duration(float64(j) * float64(waitPerJoule))
}

// watts is a power.
type watts float64

// energyOver returns the energy of that power over d.
func (w watts) energyOver(d time.Duration) unit.Joules {
	return unit.Joules(float64(w) * max(d.Seconds(), 0))
}

// energy holds the energy constants of a radio, beyond its sleep power. The zero energy is that of
// a cable.
type energy struct {
	promotion unit.Joules   // to wake it
	delay     time.Duration // time to wake, beyond what delays a pipe too
	tail      watts         // while awake after the last packet
	tailTime  time.Duration // how long the tail lasts
	base      watts         // while it carries bytes
	down, up  watts         // added for each Mbit/s
	source    string
}

// radioEnergies holds the constants that a choice of subflows depends on, and that EnergyMeter
// uses. The models of the lab are complete. The 79 ms that WiFi takes to wake are omitted: pipes
// mostly use WiFi, so they delay a helped subflow as much as a direct one.
var radioEnergies = [...]energy{
	wire.RadioNone: {},
	wire.RadioWiFi: {promotion: 0.1244 * 0.0791, tail: 0.1193, tailTime: 238 * time.Millisecond, base: 0.13286,
		down: 0.13701, up: 0.28317,
		source: "Huang, Qian, Gerber, Mao, Sen, Spatscheck: " +
			"A Close Examination of Performance and Power Characteristics of 4G LTE Networks, " +
			"MobiSys 2012, tables 3 and 4, WiFi"},
	wire.RadioCellular: {promotion: 1.2107 * 0.2601, delay: 260 * time.Millisecond, tail: 1.060,
		tailTime: 11576 * time.Millisecond, base: 1.28804, down: 0.05197, up: 0.43839,
		source: "the same, LTE"},
	wire.RadioBluetooth: {base: 0.173,
		source: "power_profile.xml of LineageOS for msm8998 phones: bluetooth.active 45 mA at 3.85 V; " +
			"hardly any tail"},
}

// wakeEnergy returns the energy to use a radio that was idle for that time: to wake it and let it
// fall asleep again or, within its tail, to prolong the tail.
func (e energy) wakeEnergy(idle time.Duration) unit.Joules {
	if idle < e.tailTime {
		return e.tail.energyOver(idle)
	}
	return e.promotion + e.tail.energyOver(e.tailTime)
}

// wakeDelay returns how long the first packet waits for the radio to wake.
func (e energy) wakeDelay(idle time.Duration) time.Duration {
	if idle < e.tailTime {
		return 0
	}
	return e.delay
}

// activePower returns the power of the radio at rate r.
func (e energy) activePower(r unit.Rate, up bool) watts {
	per := e.down
	if up {
		per = e.up
	}
	return e.base + per*watts(float64(r)/float64(unit.Mbps))
}

// dataEnergy returns the energy for the bytes themselves, without the base power.
func (e energy) dataEnergy(down, up unit.Bytes) unit.Joules {
	const megabit = float64(unit.Mbps) / 8
	return unit.Joules(float64(e.down)*float64(down)/megabit + float64(e.up)*float64(up)/megabit)
}

// UsesEnergy reports whether a radio uses energy that affects a choice.
func UsesEnergy(r wire.Radio) bool { return radioEnergies[r] != energy{} }
