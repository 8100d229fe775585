package policy

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// EnergyMeter reckons what one radio has taken, beside what it takes asleep, for the
// bytes that it had to carry: to wake, to carry them and to stay awake for a while
// after them, by the constants of Choose. The zero Meter is of a cable, or of a
// radio that is not known, and reckons nothing.
//
// It is an estimate. Between two looks nobody knows when bytes came; signal, and
// what others have the radio carry, are not known either: it may be awake for their
// sake. The rest of the device, screen and processor, is not in it.
type EnergyMeter struct {
	radio wire.Radio
	at    time.Time     // of the last look
	awake bool          // at that time,
	idle  time.Duration // and for so long without a byte
}

// Radio is the radio's kind, as Become was last told.
func (m *EnergyMeter) Radio() wire.Radio { return m.radio }

// SetRadio tells of what kind the radio is. Another one than before is asleep.
func (m *EnergyMeter) SetRadio(kind wire.Radio) {
	if kind != m.radio {
		m.radio, m.awake = kind, false
	}
}

// Of bytes of which nobody knows when they came, what the radio can have been busy
// for: in the model a burst has no gap over 100 ms (Huang, T_i), and packets are of
// 1500 bytes at most.
const (
	burstGap   = 100 * time.Millisecond
	packetSize = 1500
)

// AddCarried is what the radio has taken since the last look, until now, by bytes that
// it has carried since then. The first look tells from when on. A clock that goes
// back stands still.
func (m *EnergyMeter) AddCarried(now time.Time, down, up unit.Bytes) unit.Joules {
	var passed time.Duration
	if !m.at.IsZero() {
		passed = max(now.Sub(m.at), 0)
	}
	m.at = now
	e := radioEnergies[m.radio]
	n := max(down, 0) + max(up, 0)
	if n == 0 {
		return m.passIdle(e, passed)
	}
	// They count as having come last, at most as far apart as a burst can be.
	busy := passed
	if packets := (n + packetSize - 1) / packetSize; packets < unit.Bytes(passed/burstGap)+1 {
		busy = min(passed, time.Duration(packets)*burstGap)
	}
	took := m.passIdle(e, passed-busy)
	if !m.awake {
		took += e.promotion
		busy /= 2 // it woke at some time of it, in the middle on average
	}
	m.awake, m.idle = true, 0
	return took + e.base.energyOver(busy) + e.dataEnergy(max(down, 0), max(up, 0))
}

// passIdle lets so much time pass without a byte.
func (m *EnergyMeter) passIdle(e energy, passed time.Duration) unit.Joules {
	if !m.awake || passed <= 0 {
		return 0
	}
	tail := min(passed, e.tailTime-m.idle)
	m.idle += tail
	m.awake = m.idle < e.tailTime
	return e.tail.energyOver(tail)
}

// IsAwake reports whether the radio was awake at the last look, so that it takes
// something while it carries nothing.
func (m *EnergyMeter) IsAwake() bool { return m.awake && UsesEnergy(m.radio) }
