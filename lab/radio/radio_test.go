// SPDX-License-Identifier: Apache-2.0

package radio

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
)

const ms = time.Millisecond

func expectEnergy(t *testing.T, what string, got, want unit.Joules, part float64) {
	t.Helper()
	if math.Abs(float64(got-want)) > part*math.Abs(float64(want))+1e-9 {
		t.Errorf("%s: %.6f J, not %.6f J", what, float64(got), float64(want))
	}
}

func modelOf(t *testing.T, set string, k Kind) Model {
	t.Helper()
	s, err := FindSet(set)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Model(k)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestByHand compares energies with values worked out by hand from the published constants.
func TestByHand(t *testing.T) {
	const packet = 1500 // 0.012 Mbit
	at := func(times ...time.Duration) (p []Packet) {
		for _, d := range times {
			p = append(p, Packet{At: d, Size: packet})
		}
		return p
	}
	// LTE: the tail is 1060 mW · 11.576 s, and (1680.2-1060) mW · 1/20 of
	// 0.02 s, and (1680.1-1060) mW · 1/40 of 11.456 s.
	const (
		promotion = 1.2107 * 0.2601
		tail      = 12.27056 + 0.0006202 + 0.1775966
		data      = 51.97e-3 * 0.012
		idle      = 0.5943 * 0.0432 / 1.2802 // W
	)
	for _, c := range []struct {
		name    string
		model   Model
		packets []Packet
		want    Energy
	}{
		{"nothing", modelOf(t, "", LTE), nil, Energy{}},
		{"one packet", modelOf(t, "", LTE), at(0), Energy{Promotion: promotion, Data: data, Tail: tail}},
		{"a burst", modelOf(t, "", LTE), at(0, 60*ms, 160*ms),
			Energy{Promotion: promotion, Base: 1.28804 * 0.16, Data: 3 * data, Tail: tail}},
		{"a tail cut off", modelOf(t, "", LTE), at(0, time.Second),
			Energy{Promotion: promotion, Data: 2 * data, Tail: tail + 1.06 + 0.0006202 + 0.0155025*0.88}},
		{"cold again", modelOf(t, "", LTE), at(0, 20*time.Second),
			Energy{Promotion: 2 * promotion, Data: 2 * data, Tail: 2 * tail, Idle: idle * (20 - 11.576 - 0.2601)}},
		{"no time to be idle", modelOf(t, "", LTE), at(0, 11700*ms),
			Energy{Promotion: 2 * promotion, Data: 2 * data, Tail: 2 * tail}},
		{"up", modelOf(t, "", LTE), []Packet{{Size: packet, Up: true}},
			Energy{Promotion: promotion, Data: 438.39e-3 * 0.012, Tail: tail}},
		{"3G", modelOf(t, "", UMTS), at(0, 8500*ms), Energy{Promotion: 0.6594 * 0.5821, Data: 2 * 122.12e-3 * 0.012,
			Tail: 2*0.8039*8.0882 + 0.6013*(8.5-8.0882) + 0.6013*0.8242}},
		{"WiFi", modelOf(t, "", WiFi), at(0, 150*ms), Energy{Promotion: 0.1244 * 0.0791, Data: 2 * 137.01e-3 * 0.012,
			Tail: 0.1193 * (0.15 + 0.2381)}},
		{"Bluetooth", modelOf(t, "", Bluetooth), at(0, 100*ms, 10100*ms),
			Energy{Base: 0.196 * 0.1, Tail: 2 * 0.196 * 5, Idle: 0.003 * 5}},
		{"5G", modelOf(t, "", NR), at(0), Energy{Promotion: 1.494 * 1.6, Data: 1.76e-3 * 0.012, Tail: 1.092 * 10.6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.model.EnergyOf(c.packets)
			expectEnergy(t, "promotion", got.Promotion, c.want.Promotion, 1e-6)
			expectEnergy(t, "base", got.Base, c.want.Base, 1e-6)
			expectEnergy(t, "data", got.Data, c.want.Data, 1e-6)
			expectEnergy(t, "tail", got.Tail, c.want.Tail, 1e-6)
			expectEnergy(t, "idle", got.Idle, c.want.Idle, 1e-6)
		})
	}
}

// packetStream returns n bytes at a constant rate.
func packetStream(n unit.Bytes, rate unit.Rate, up bool) (p []Packet) {
	for sent := unit.Bytes(0); sent < n; sent += 1000 {
		p = append(p, Packet{At: rate.Time(sent), Size: 1000, Up: up})
	}
	return p
}

// TestHelper: the helper of MPBond (MobiSys 2020) takes 1.9 J for its part of 4 million bytes at
// 8/10/5 Mbit/s: 5/13 of them, from LTE at 10 and over WiFi at 5 Mbit/s. Huang's constants give 6.0
// J without promotion and tail.
func TestHelper(t *testing.T) {
	const part = 4_000_000 * 5 / 13
	traces := []Trace{
		{"helper1", LTE, packetStream(part, 10*unit.Mbps, false)},
		{"helper1", WiFi, packetStream(part, 5*unit.Mbps, true)},
	}
	sum := func(set string) Energy {
		s, err := FindSet(set)
		if err != nil {
			t.Fatal(err)
		}
		items, err := s.Account(traces)
		if err != nil {
			t.Fatal(err)
		}
		return SumEnergy(items, "helper1")
	}
	expectEnergy(t, "mpbond-s5", sum("mpbond-s5").Full(), 1.9, 0.01)
	huang := sum("huang12")
	expectEnergy(t, "huang12, base and data", huang.Base+huang.Data, 6.0, 0.01)
}

// TestMeasuredPhone compares the fit with mean powers of a Galaxy S20 Ultra by rate, from
// s20u_power_vs_rate. Single values differ by up to 6 %.
func TestMeasuredPhone(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		up   bool
		mbps float64
		want unit.Milliwatts
	}{
		{LTE, false, 1.04, 2693.91}, {LTE, false, 10.36, 2806.55}, {LTE, false, 31.07, 3085.91},
		{LTE, false, 51.78, 3420.97},
		{LTE, true, 5.10, 3149.47}, {LTE, true, 10.20, 3604.04}, {LTE, true, 15.31, 4139.14},
	} {
		rate := unit.Rate(c.mbps * 1e6)
		got := modelOf(t, "s20u", c.kind).EnergyOf(packetStream(rate.Bytes(10*time.Second), rate, c.up))
		if p := float64(got.Full()) / 10 * 1e3; math.Abs(p/float64(c.want)-1) > 0.06 {
			t.Errorf("%s, up %v, %.1f Mbit/s: %.0f mW, measured %v", c.kind, c.up, c.mbps, p, c.want)
		}
	}
}

func allModels() (all []Model) {
	for _, s := range Sets {
		all = append(all, s.Models...)
	}
	return all
}

func randomPackets(r *rand.Rand) (p []Packet) {
	at := time.Duration(0)
	for range 1 + r.IntN(200) {
		at += time.Duration(math.Pow(10, 10.5*r.Float64())) // 1 ns to 30 s
		p = append(p, Packet{At: at, Size: unit.Bytes(r.IntN(1501)), Up: r.IntN(2) == 0})
	}
	return p
}

// TestProperties hold for any packets and every model.
func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		for _, m := range allModels() {
			p := randomPackets(r)
			e := m.EnergyOf(p)
			var parts unit.Joules
			for _, c := range e.Components() {
				parts += c.Energy
			}
			expectEnergy(t, "all components", parts, e.Full(), 1e-9)
			for _, part := range []unit.Joules{e.Promotion, e.Base, e.Data, e.Tail, e.Idle, e.Active()} {
				if !(part >= 0) || part > e.Full()*(1+1e-9) {
					t.Fatalf("%s: a component of %v in %+v", m.Kind, part, e)
				}
			}
			shuffled := slices.Clone(p)
			r.Shuffle(len(p), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			expectEnergy(t, "in another order", m.EnergyOf(shuffled).Full(), e.Full(), 1e-9)

			more := slices.Clone(p)
			i := r.IntN(len(p))
			more[i].Size += unit.Bytes(1 + r.IntN(1000))
			if o := m.EnergyOf(more); o.Full() < e.Full() || (m.Up > 0 && m.Down > 0 && o.Data <= e.Data) {
				t.Fatalf("%s: more bytes take %v instead of %v", m.Kind, o, e)
			}

			// Apart by more than the tail, and without idle power, energy adds up.
			m.Idle = Phase{}
			q := randomPackets(r)
			shift := p[len(p)-1].At + m.tailDuration() + m.Inactivity + time.Second
			both := slices.Clone(p)
			for _, x := range q {
				x.At += shift
				both = append(both, x)
			}
			expectEnergy(t, "of two transfers", m.EnergyOf(both).Full(), m.EnergyOf(p).Full()+m.EnergyOf(q).Full(),
				1e-9)

			// A packet that comes during the tail cuts it: two tails never take more
			// than one and the time between.
			last := p[len(p)-1]
			soon := m.Inactivity + time.Duration(r.Float64()*float64(m.tailDuration()))
			cut := m.EnergyOf(append(slices.Clone(p), Packet{At: last.At + soon, Size: last.Size}))
			if len(m.Tail) > 0 && soon > m.Inactivity && soon < m.tailDuration() {
				most := e.Tail
				for _, ph := range m.Tail {
					most = max(most, e.Tail+ph.meanPower().EnergyOver(soon.Seconds()))
				}
				if cut.Tail > most+1e-9 || cut.Promotion != e.Promotion {
					t.Fatalf("%s: a packet %v after the last: tail %v, was %v; promotion %v, was %v", m.Kind, soon,
						cut.Tail, e.Tail, cut.Promotion, e.Promotion)
				}
			}
		}
	}
}

// TestAccount: one item for each device and radio; traces of one radio are merged.
func TestAccount(t *testing.T) {
	s := Sets[0]
	p := packetStream(100_000, 8*unit.Mbps, false)
	items, err := s.Account([]Trace{{"a", LTE, p[:50]}, {"b", WiFi, p}, {"a", LTE, p[50:]}})
	if err != nil || len(items) != 2 {
		t.Fatal(items, err)
	}
	expectEnergy(t, "in two parts", items[0].Full(), modelOf(t, "", LTE).EnergyOf(p).Full(), 1e-9)
	expectEnergy(t, "all", SumEnergy(items, "").Full(), items[0].Full()+items[1].Full(), 1e-9)
	expectEnergy(t, "one device", SumEnergy(items, "b").Full(), items[1].Full(), 1e-9)
	if _, err := s.Account([]Trace{{"a", "LoRa", p}}); err == nil {
		t.Error("an unknown radio has constants")
	}
}

// TestSets: all sets name their sources. Radios missing from a set are those of the first.
func TestSets(t *testing.T) {
	for _, s := range Sets {
		for _, m := range s.Models {
			if m.Source == "" || m.Base <= 0 || m.Inactivity <= 0 {
				t.Errorf("%s, %s: no source, base power or gap", s.Name, m.Kind)
			}
		}
		if c := s.Core(); c.Source == "" || c.Lacks == "" || c.Power < 500 || c.Power > 3000 {
			t.Errorf("%s: a core takes %v, from %q", s.Name, c.Power, c.Source)
		}
		for _, k := range []Kind{LTE, UMTS, NR, WiFi, Bluetooth} {
			if m, err := s.Model(k); err != nil || m.Kind != k {
				t.Errorf("%s has no %s: %v", s.Name, k, err)
			}
		}
	}
	expectEnergy(t, "two seconds of a Nexus 5's core", Sets[0].Core().EnergyOf(2), 2*.3862*3.8, 1e-9)
	expectEnergy(t, "of a set without one", Set{}.Core().EnergyOf(2), 2*.3862*3.8, 1e-9)
	if _, err := FindSet("nokia3310"); err == nil {
		t.Error("an unknown set was found")
	}
}
