// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// EnergyMeter estimates the energy that one radio uses for the bytes it carries, beyond its sleep
// power: to wake, to carry them, and to stay awake for its tail. It uses the constants of
// ChooseSubflows. The zero EnergyMeter is that of a cable or unknown radio, and measures 0.
//
// The times of bytes between two calls are unknown. So are the signal and the traffic of others,
// which may keep the radio awake. Screen and processor are not included.
type EnergyMeter struct {
	radio wire.Radio
	at    time.Time     // time of the last call
	awake bool          // the radio was awake at that time
	idle  time.Duration // and idle for so long
}

// Radio returns the kind of radio that SetRadio has set.
func (m *EnergyMeter) Radio() wire.Radio { return m.radio }

// SetRadio sets the kind of radio. A new kind starts asleep.
func (m *EnergyMeter) SetRadio(kind wire.Radio) {
	if kind != m.radio {
		m.radio, m.awake = kind, false
	}
}

// Bounds on how long bytes of unknown times keep a radio busy: in the model a burst has no gap over
// 100 ms (Huang, T_i), and packets have at most 1500 bytes.
const (
	burstGap   = 100 * time.Millisecond
	packetSize = 1500
)

// AddCarried takes the bytes carried since the last call and returns the energy used since then.
// The first call sets the start time. A clock that steps back counts as stopped.
func (m *EnergyMeter) AddCarried(now time.Time, down, up unit.Bytes) unit.Joules {
	var passed time.Duration
	if !m.at.IsZero() {
		passed = max(now.Sub(m.at), 0)
	}
	m.at = now
	e := radioEnergies[m.radio]
	n := max(down, 0) + max(up, 0)
	if n == 0 {
		return m.passIdleTime(e, passed)
	}
	// The bytes count as the latest ones, spaced as widely as a burst allows.
	busy := passed
	if packets := (n + packetSize - 1) / packetSize; packets < unit.Bytes(passed/burstGap)+1 {
		busy = min(passed, time.Duration(packets)*burstGap)
	}
	took := m.passIdleTime(e, passed-busy)
	if !m.awake {
		took += e.promotion
		busy /= 2 // it woke within this time, in the middle on average
	}
	m.awake, m.idle = true, 0
	return took + e.base.energyOver(busy) + e.dataEnergy(max(down, 0), max(up, 0))
}

// passIdleTime returns the energy of a time without bytes, and advances the tail.
func (m *EnergyMeter) passIdleTime(e energy, passed time.Duration) unit.Joules {
	if !m.awake || passed <= 0 {
		return 0
	}
	tail := min(passed, e.tailTime-m.idle)
	m.idle += tail
	m.awake = m.idle < e.tailTime
	return e.tail.energyOver(tail)
}

// IsAwake reports whether the radio was awake at the last call, so that it uses energy without
// bytes.
func (m *EnergyMeter) IsAwake() bool { return m.awake && UsesEnergy(m.radio) }
