package policy

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// timeWorth is how much time so much energy is worth.
func timeWorth(j unit.Joules) time.Duration { return time.Duration(float64(j) * float64(waitPerJoule)) }

type watts float64

func (p watts) energyOver(d time.Duration) unit.Joules {
	return unit.Joules(float64(p) * max(d.Seconds(), 0))
}

// energy is what a radio takes beside what it takes asleep. The zero energy is
// that of a cable.
type energy struct {
	promotion unit.Joules   // to wake it,
	delay     time.Duration // which takes so long, beside what delays a pipe as well
	tail      watts         // while it stays awake after its last packet,
	tailTime  time.Duration // for so long
	base      watts         // while it carries something,
	down, up  watts         // and for each Mbit/s of it
	source    string
}

// radioEnergies holds what radios take. Of a transfer's energy this is what a choice
// of paths depends on, and most of what it comes to (Meter); the lab's models tell
// it in full. That WiFi takes 79 ms to
// wake is left out: pipes are WiFi as a rule, so that it delays a helper's subflow
// as much as a direct one.
var radioEnergies = [...]energy{
	wire.RadioNone: {},
	wire.RadioWiFi: {promotion: 0.1244 * 0.0791, tail: 0.1193, tailTime: 238 * time.Millisecond, base: 0.13286, down: 0.13701, up: 0.28317,
		source: "Huang, Qian, Gerber, Mao, Sen, Spatscheck: A Close Examination of Performance and Power Characteristics of 4G LTE Networks, MobiSys 2012, tables 3 and 4, WiFi"},
	wire.RadioCellular: {promotion: 1.2107 * 0.2601, delay: 260 * time.Millisecond, tail: 1.060, tailTime: 11576 * time.Millisecond, base: 1.28804, down: 0.05197, up: 0.43839,
		source: "the same, LTE"},
	wire.RadioBluetooth: {base: 0.173,
		source: "power_profile.xml of LineageOS for msm8998 phones: bluetooth.active 45 mA at 3.85 V; it has no tail to speak of"},
}

// wakeEnergy is what it takes to use a radio that has been idle for so long: to wake
// it and let it fall asleep again, or, within its tail, to keep it awake for
// that much longer.
func (e energy) wakeEnergy(idle time.Duration) unit.Joules {
	if idle < e.tailTime {
		return e.tail.energyOver(idle)
	}
	return e.promotion + e.tail.energyOver(e.tailTime)
}

// wakeDelay is how long the radio's first packet waits for it to wake.
func (e energy) wakeDelay(idle time.Duration) time.Duration {
	if idle < e.tailTime {
		return 0
	}
	return e.delay
}

// activePower is what a radio takes while it carries that rate.
func (e energy) activePower(r unit.Rate, up bool) watts {
	per := e.down
	if up {
		per = e.up
	}
	return e.base + per*watts(float64(r)/float64(unit.Mbps))
}

// dataEnergy is what those bytes take beside the time that they take.
func (e energy) dataEnergy(down, up unit.Bytes) unit.Joules {
	const megabit = float64(unit.Mbps) / 8
	return unit.Joules(float64(e.down)*float64(down)/megabit + float64(e.up)*float64(up)/megabit)
}

// UsesEnergy reports whether a radio takes energy that a choice depends on.
func UsesEnergy(r wire.Radio) bool { return radioEnergies[r] != energy{} }
