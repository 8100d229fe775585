// Package radio computes what a transfer costs the batteries of the devices
// that made it: a model of each radio's power over the times and sizes of its
// packets. It stands behind the lab, which provides the packets, and before the
// reports. It has no clock and does no I/O: the same packets can be judged again
// with other constants, without a new run.
//
//	cold ─ promotion ─▶ burst ─ gap over Model.Inactivity ─▶ tail ─ its phases in turn ─▶ idle
//	                      ▲────────── next packet ─────────────┘                          │
//	                      ▲────────── promotion, next packet ─────────────────────────────┘
//
// Over bursts k of d seconds with U and D Mbit/s, and the gaps g after them,
//
//	E = Σ [cold·P_promo·T_promo + (α_u·U + α_d·D + β)·d + tail(g) + P_idle·rest]
//
// which is the model of Huang et al., "A Close Examination of Performance and
// Power Characteristics of 4G LTE Networks", MobiSys 2012, with constants by
// radio. Beside radios there is a processor: one power, for as long as programs
// were busy.
package radio

import (
	"cmp"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Kind of a radio.
type Kind string

// Kinds.
const (
	LTE       Kind = "LTE"
	UMTS      Kind = "3G"
	NR        Kind = "5G"
	WiFi      Kind = "WiFi"
	Bluetooth Kind = "Bluetooth"
)

// Phase is a part of what a radio does in order, for some time at some power.
type Phase struct {
	Name  string
	Power unit.Milliwatts // while it sleeps, if it has a cycle
	Time  time.Duration
	Cycle Cycle
}

// Cycle is discontinuous reception: in each Every the radio is awake for On, at
// Power. The zero value is none.
type Cycle struct {
	Every, On time.Duration
	Power     unit.Milliwatts
}

// meanPower is the mean power of a phase.
func (p Phase) meanPower() unit.Milliwatts {
	if p.Cycle.Every <= 0 {
		return p.Power
	}
	return p.Power + (p.Cycle.Power-p.Power)*unit.Milliwatts(p.Cycle.On.Seconds()/p.Cycle.Every.Seconds())
}

// Model is one radio's constants.
type Model struct {
	Kind      Kind
	Promotion Phase           // from idle to the first packet
	Base      unit.Milliwatts // β, of a burst
	Up, Down  float64         // α, mW for each Mbit/s of a burst
	// Inactivity is the longest gap within a burst.
	Inactivity time.Duration
	// Tail follows a burst, from its last packet on, until it ends or the next
	// packet cuts it off.
	Tail []Phase
	Idle Phase // without end: its Time counts nothing
	// Source says where the constants are from, Lacks which of them are not
	// known and count as zero, or are assumed.
	Source, Lacks string
}

// Packet is one IP packet that a radio sent (Up) or received.
type Packet struct {
	At   time.Duration // from any zero that all packets share
	Size unit.Bytes
	Up   bool
}

// Energy is what a radio took, by component.
type Energy struct {
	Promotion unit.Joules `json:"promotion_j"`
	Base      unit.Joules `json:"base_j"` // β, for as long as bursts lasted
	Data      unit.Joules `json:"data_j"` // α, for each byte
	Tail      unit.Joules `json:"tail_j"`
	Idle      unit.Joules `json:"idle_j"`
}

// Active is E_active: what the bytes took, with promotions, without what comes
// after them.
func (e Energy) Active() unit.Joules { return e.Promotion + e.Base + e.Data }

// Full is E_full: with tails, and idle times between bursts.
func (e Energy) Full() unit.Joules { return e.Active() + e.Tail + e.Idle }

// Component is one part of an energy, by name.
type Component struct {
	Name   string
	Energy unit.Joules
}

// Components are the parts of which Full is the sum, in a fixed order.
func (e Energy) Components() []Component {
	return []Component{{"promotion", e.Promotion}, {"base", e.Base}, {"data", e.Data}, {"tail", e.Tail}, {"idle", e.Idle}}
}

// Add is the sum by component.
func (e Energy) Add(o Energy) Energy {
	return Energy{e.Promotion + o.Promotion, e.Base + o.Base, e.Data + o.Data, e.Tail + o.Tail, e.Idle + o.Idle}
}

// EnergyOf is the energy of packets over a radio that was idle before them. Their
// order does not matter. The last tail counts in full, however soon somebody
// stopped to look: the transfer causes it. No packets take no energy.
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

func (m Model) promotionEnergy() unit.Joules {
	return m.Promotion.meanPower().EnergyOver(m.Promotion.Time.Seconds())
}

// tailDuration is how long a tail takes that nothing cuts off.
func (m Model) tailDuration() (sum time.Duration) {
	for _, p := range m.Tail {
		sum += p.Time
	}
	return sum
}

// tailEnergy is the energy of the tail in a gap, and how long the radio is idle
// after it. A gap that ends with the tail ends in time: the radio is not cold.
func (m Model) tailEnergy(gap time.Duration) (tail unit.Joules, rest time.Duration) {
	for _, p := range m.Tail {
		d := min(gap, p.Time)
		tail += p.meanPower().EnergyOver(d.Seconds())
		gap -= d
	}
	return tail, gap
}

// Trace is what one radio of a device carried.
type Trace struct {
	Device  string
	Radio   Kind
	Packets []Packet
}

// Item is what one radio of a device took.
type Item struct {
	Device string `json:"device"`
	Radio  Kind   `json:"radio"`
	Energy
}

// Account is the energy of traces, one item for each device and radio, in the
// order in which they first come. Traces of the same radio are one.
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

// SumEnergy adds up the items of a device, or of all with "".
func SumEnergy(items []Item, device string) (e Energy) {
	for _, i := range items {
		if device == "" || i.Device == device {
			e = e.Add(i.Energy)
		}
	}
	return e
}
