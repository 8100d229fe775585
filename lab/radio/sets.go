// SPDX-License-Identifier: Apache-2.0

package radio

import (
	"fmt"
	"strings"
	"time"

	"mpbond/base/unit"
)

// Set has the constants of one phone or study. Radios missing from it are taken from the first of
// Sets.
type Set struct {
	Name   string
	Models []Model
	CPU    Core // zero value: that of the first of Sets
}

// Core is one core of a phone's processor.
type Core struct {
	Power unit.Milliwatts // busy at the highest clock, without idle power
	// Source names the source of the power. Lacks names what it does not cover.
	Source, Lacks string
}

// EnergyOf returns the energy of a core that is busy for so many seconds.
func (c Core) EnergyOf(seconds float64) unit.Joules { return c.Power.EnergyOver(seconds) }

// coreNotScaled applies to every Core. The speed of a phone's core relative to ours depends on the
// work and is not measured.
const coreNotScaled = "a second of a processor of the machine that measures counts as a second of this core, " +
	"which is slower: energies are too low, by the same factor for all schemes"

// Processors of phones.
var (
	nexus5 = Core{
		Power: 386.2 * 3.8,
		Source: "core at 2.27 GHz in AOSP's power_profile.xml for hammerhead (Nexus 5, Snapdragon 800), " +
			"386.2 mA at 3.8 V",
		Lacks: coreNotScaled,
	}
	pixel2 = Core{
		Power: 415.5 * 3.85,
		Source: "large core at 2.46 GHz in power_profile.xml of oneplus_msm8998 (Snapdragon 835, that of the Pixel 2), " +
			"415.5 mA at 3.85 V",
		Lacks: coreNotScaled,
	}
)

// Sources of constants. Values marked "recalled" were not checked against the paper again.
const (
	huang = "Huang et al., MobiSys 2012, tables 3 and 4 (recalled)"
	s20u  = "least-squares fit to MN-Transfer_combined.csv of the artifact of Narayanan et al., SIGCOMM 2021 " +
		"(Galaxy S20 Ultra)"
	// wholePhonePower applies to all powers of s20u.
	wholePhonePower = "the base power is that of the whole phone with its screen on"
)

// lteTailPhases returns Huang's RRC_CONNECTED after the last packet: continuous reception for 100
// ms, short DRX for 20 ms, then long DRX; 11.576 s in all. Between wake-ups the power is 1060 mW.
func lteTailPhases() []Phase {
	const total, base = 11576 * time.Millisecond, 1060
	const reception, short = 100 * time.Millisecond, 20 * time.Millisecond
	return []Phase{
		{Name: "continuous reception", Power: base, Time: reception},
		{Name: "short DRX", Power: base, Time: short, Cycle: Cycle{20 * time.Millisecond, time.Millisecond, 1680.2}},
		{
			Name: "long DRX", Power: base, Time: total - reception - short,
			Cycle: Cycle{40 * time.Millisecond, time.Millisecond, 1680.1},
		},
	}
}

// lteInactivity ends a burst: the timer after which LTE leaves continuous reception (Huang, T_i).
// It also stands for radios with an unknown timer.
const lteInactivity = 100 * time.Millisecond

// Sets are the constants that --set selects. The first is the default.
var Sets = []Set{
	{Name: "huang12", CPU: nexus5, Models: []Model{
		{
			Kind:      LTE,
			Promotion: Phase{Power: 1210.7, Time: 260100 * time.Microsecond},
			Base:      1288.04, Up: 438.39, Down: 51.97,
			Inactivity: lteInactivity,
			Tail:       lteTailPhases(),
			Idle:       Phase{Cycle: Cycle{1280200 * time.Microsecond, 43200 * time.Microsecond, 594.3}},
			Source:     huang + "; α, promotion, tail power and DRX as in lte.conf of attdevsupport/VideoOptimizer",
		},
		{
			Kind:      UMTS,
			Promotion: Phase{Power: 659.4, Time: 582100 * time.Microsecond},
			Base:      817.88, Up: 868.98, Down: 122.12,
			Inactivity: lteInactivity,
			Tail: []Phase{
				{Name: "DCH", Power: 803.9, Time: 8088200 * time.Microsecond},
				{Name: "FACH", Power: 601.3, Time: 824200 * time.Microsecond},
			},
			Source: huang,
			Lacks:  "idle power, promotion from FACH to DCH, the longest gap in a burst (that of LTE)",
		},
		{
			Kind:      WiFi,
			Promotion: Phase{Power: 124.4, Time: 79100 * time.Microsecond},
			Base:      132.86, Up: 283.17, Down: 137.01,
			Inactivity: lteInactivity,
			Tail:       []Phase{{Name: "tail", Power: 119.3, Time: 238100 * time.Microsecond}},
			Idle:       Phase{Cycle: Cycle{308200 * time.Microsecond, 7600 * time.Microsecond, 77.2}},
			Source:     huang + "; tail 0.25 s in WiFi.conf of attdevsupport/VideoOptimizer",
			Lacks:      "the longest gap in a burst (that of LTE)",
		},
		{
			Kind:       Bluetooth,
			Base:       196,
			Inactivity: lteInactivity,
			Tail:       []Phase{{Name: "tail", Power: 196, Time: 5 * time.Second}},
			Idle:       Phase{Power: 3},
			Source: "bluetooth.active of AOSP's power_profile.xml for hammerhead (Nexus 5), 51.55 mA at 3.8 V; " +
				"angler (Nexus 6P) has 97 mW, oneplus5 173 mW, VideoOptimizer 761 mW",
			Lacks: "promotion, dependence on rate; the tail, 5 s at full power, is assumed",
		},
		{
			Kind:      NR,
			Promotion: Phase{Power: 1494, Time: 1600 * time.Millisecond},
			Base:      5221, Up: 9.15, Down: 1.76,
			Inactivity: lteInactivity,
			Tail:       []Phase{{Name: "tail", Power: 1092, Time: 10600 * time.Millisecond}},
			Source: s20u + ", mmWave; times from RRC-Power/README.md there; " +
				"powers of switch and tail from table 2 of the paper (recalled)",
			Lacks: "idle power, the longest gap in a burst (that of LTE); " + wholePhonePower,
		},
	}},
	{Name: "s20u", CPU: pixel2, Models: []Model{
		{
			Kind: LTE,
			Base: 2719, Up: 79.5, Down: 15,
			Inactivity: lteInactivity,
			Source:     s20u + ", LTE",
			Lacks:      "promotion, idle and tail power (10.2 s at Verizon, 5 s at T-Mobile); " + wholePhonePower,
		},
		{
			Kind: NR,
			Base: 2883, Up: 32.2, Down: 15.4,
			Inactivity: lteInactivity,
			Source:     s20u + ", 5G low band",
			Lacks:      "power of the switch from 4G (1.6 s), of the tail (10.6 s) and idle; " + wholePhonePower,
		},
	}},
	// The Galaxy S5 has cores of the same kind as the Nexus 5.
	{Name: "mpbond-s5", CPU: nexus5, Models: []Model{
		{
			Kind: LTE,
			Base: 750, Down: 15,
			Inactivity: lteInactivity,
			Source:     fittedByUs,
			Lacks:      "promotion, tail, idle power, uplink",
		},
		{
			Kind: WiFi,
			Base: 133, Up: 37.6,
			Inactivity: lteInactivity,
			Source:     fittedByUs,
			Lacks:      "promotion, tail, idle power, downlink",
		},
	}},
}

const fittedByUs = "fitted by us, so that a helper takes the 1.9 J that MPBond (MobiSys 2020) reports for 4 MB " +
	"at 8/10/5 Mbit/s"

// SetNames returns the names of Sets.
func SetNames() (names []string) {
	for _, s := range Sets {
		names = append(names, s.Name)
	}
	return names
}

// FindSet returns a set by its name, and the default for "".
func FindSet(name string) (Set, error) {
	for _, s := range Sets {
		if s.Name == name || name == "" {
			return s, nil
		}
	}
	return Set{}, fmt.Errorf("unknown set of radio constants %q: choose one of %s", name, strings.Join(SetNames(), ", "))
}

// Core returns the set's processor.
func (s Set) Core() Core {
	if s.CPU == (Core{}) {
		return Sets[0].CPU
	}
	return s.CPU
}

// Model returns the constants of a radio.
func (s Set) Model(k Kind) (Model, error) {
	for _, set := range []Set{s, Sets[0]} {
		for _, m := range set.Models {
			if m.Kind == k {
				return m, nil
			}
		}
	}
	return Model{}, fmt.Errorf("no constants for radio %q", k)
}
