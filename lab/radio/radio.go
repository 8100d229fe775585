// SPDX-License-Identifier: Apache-2.0

// Package radio computes the energy that a transfer takes from the batteries of its devices. It
// models the power of each radio over the times and sizes of its packets. The lab provides the
// packets. The package has no clock and does no I/O: the same packets can be evaluated again with
// other constants.
//
//	cold ─ promotion ─▶ burst ─ gap over Model.Inactivity ─▶ tail ─ its phases in turn ─▶ idle
//	                      ▲────────── next packet ─────────────┘                          │
//	                      ▲────────── promotion, next packet ─────────────────────────────┘
//
// Over bursts k of d seconds with U and D Mbit/s, and the gaps g after them,
//
//	E = Σ [cold·P_promo·T_promo + (α_u·U + α_d·D + β)·d + tail(g) + P_idle·rest]
//
// This is the model of Huang et al., "A Close Examination of Performance and Power Characteristics
// of 4G LTE Networks", MobiSys 2012, with constants for each radio. A processor is modeled as one
// power while programs are busy.
package radio

import (
	"cmp"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Kind is a kind of radio.
type Kind string

// Kinds of radios.
const (
	LTE       Kind = "LTE"
	UMTS      Kind = "3G"
	NR        Kind = "5G"
	WiFi      Kind = "WiFi"
	Bluetooth Kind = "Bluetooth"
)

// Phase is a period of a radio with one power.
type Phase struct {
	Name  string
	Power unit.Milliwatts // while asleep, if the phase has a cycle
	Time  time.Duration
	Cycle Cycle
}

// Cycle is discontinuous reception: the radio is awake for On in each Every, at Power. The zero
// value is no cycle.
type Cycle struct {
	Every, On time.Duration
	Power     unit.Milliwatts
}

// meanPower returns the mean power of a phase.
func (p Phase) meanPower() unit.Milliwatts {
	if p.Cycle.Every <= 0 {
		return p.Power
	}
	return p.Power + (p.Cycle.Power-p.Power)*unit.Milliwatts(p.Cycle.On.Seconds()/p.Cycle.Every.Seconds())
}

// Model has the constants of one radio.
type Model struct {
	Kind      Kind
	Promotion Phase           // from idle to the first packet
	Base      unit.Milliwatts // β, of a burst
	Up, Down  float64         // α, mW for each Mbit/s of a burst
	// Inactivity is the longest gap within a burst.
	Inactivity time.Duration
	// Tail follows the last packet of a burst until it ends or the next packet is sent or received.
	Tail []Phase
	Idle Phase // its Time is ignored
	// Source names the source of the constants. Lacks names constants that are unknown and count as
	// zero, or are assumed.
	Source, Lacks string
}

// Packet is an IP packet that a radio sent (Up) or received.
type Packet struct {
	At   time.Duration // from a zero common to all packets
	Size unit.Bytes
	Up   bool
}

// Energy is the energy of a radio by component.
type Energy struct {
	Promotion unit.Joules `json:"promotion_j"`
	Base      unit.Joules `json:"base_j"` // β, while bursts lasted
	Data      unit.Joules `json:"data_j"` // α, for each byte
	Tail      unit.Joules `json:"tail_j"`
	Idle      unit.Joules `json:"idle_j"`
}

// Active returns E_active: promotions and bursts, without tails and idle times.
func (e Energy) Active() unit.Joules { return e.Promotion + e.Base + e.Data }

// Full returns E_full: E_active with tails and with idle times between bursts.
func (e Energy) Full() unit.Joules { return e.Active() + e.Tail + e.Idle }

// Component is a named part of an energy.
type Component struct {
	Name   string
	Energy unit.Joules
}

// Components returns the parts that add up to Full, in a fixed order.
func (e Energy) Components() []Component {
	return []Component{{"promotion", e.Promotion}, {"base", e.Base}, {"data", e.Data}, {"tail", e.Tail}, {"idle", e.Idle}}
}

// Add returns the sum by component.
func (e Energy) Add(o Energy) Energy {
	return Energy{e.Promotion + o.Promotion, e.Base + o.Base, e.Data + o.Data, e.Tail + o.Tail, e.Idle + o.Idle}
}

// EnergyOf returns the energy of packets over a radio that was idle before them. The packets may be
// in any order. The last tail counts in full, because the transfer causes it. Without packets the
// energy is zero.
func (m Model) EnergyOf(packets []Packet) (e Energy) {
	if len(packets) == 0 {
		return e
	}
	byTime := func(a, b Packet) int { return cmp.Compare(a.At, b.At) }
	if !slices.IsSortedFunc(packets, byTime) {
		packets = slices.Clone(packets)
		slices.SortStableFunc(packets, byTime)
	}
	e.Promotion = m.promotionEnergy()
	for i, p := range packets {
		alpha := m.Down
		if p.Up {
			alpha = m.Up
		}
		e.Data += unit.Joules(alpha * float64(p.Size) * 8 / 1e6 / 1e3)
		if i == 0 {
			continue
		}
		gap := p.At - packets[i-1].At
		if gap <= m.Inactivity {
			e.Base += m.Base.EnergyOver(gap.Seconds())
			continue
		}
		tail, rest := m.tailEnergy(gap)
		e.Tail += tail
		if rest > 0 {
			e.Promotion += m.promotionEnergy()
			e.Idle += m.Idle.meanPower().EnergyOver(max(0, rest-m.Promotion.Time).Seconds())
		}
	}
	tail, _ := m.tailEnergy(m.tailDuration())
	e.Tail += tail
	return e
}

// promotionEnergy returns the energy of one promotion.
func (m Model) promotionEnergy() unit.Joules {
	return m.Promotion.meanPower().EnergyOver(m.Promotion.Time.Seconds())
}

// tailDuration returns the length of an uninterrupted tail.
func (m Model) tailDuration() (sum time.Duration) {
	for _, p := range m.Tail {
		sum += p.Time
	}
	return sum
}

// tailEnergy returns the energy of the tail in a gap, and how long the radio is idle after the
// tail. A gap exactly as long as the tail needs no promotion.
func (m Model) tailEnergy(gap time.Duration) (tail unit.Joules, rest time.Duration) {
	for _, p := range m.Tail {
		d := min(gap, p.Time)
		tail += p.meanPower().EnergyOver(d.Seconds())
		gap -= d
	}
	return tail, gap
}

// Trace has the packets of one radio of a device.
type Trace struct {
	Device  string
	Radio   Kind
	Packets []Packet
}

// Item is the energy of one radio of a device.
type Item struct {
	Device string `json:"device"`
	Radio  Kind   `json:"radio"`
	Energy
}

// Account returns the energy of traces: one item for each device and radio, in order of first
// appearance. Traces of the same radio are merged.
func (s Set) Account(traces []Trace) (items []Item, err error) {
	merged := map[[2]string]*Trace{}
	var order []*Trace
	for _, t := range traces {
		key := [2]string{t.Device, string(t.Radio)}
		if o := merged[key]; o != nil {
			o.Packets = slices.Concat(o.Packets, t.Packets)
			continue
		}
		merged[key] = &t
		order = append(order, &t)
	}
	for _, t := range order {
		m, err := s.Model(t.Radio)
		if err != nil {
			return nil, err
		}
		items = append(items, Item{t.Device, t.Radio, m.EnergyOf(t.Packets)})
	}
	return items, nil
}

// SumEnergy returns the sum of the items of a device, or of all items with "".
func SumEnergy(items []Item, device string) (e Energy) {
	for _, i := range items {
		if device == "" || i.Device == device {
			e = e.Add(i.Energy)
		}
	}
	return e
}
