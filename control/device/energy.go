// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// energy estimates the energy of radios for the bytes that Usage counts. The zero energy estimates
// none. Usage.mu guards it.
type energy struct {
	radioOf func(link string, internet bool) wire.Radio
	links   map[string]*linkEnergy
}

// linkEnergy is the energy of one link's radio.
type linkEnergy struct {
	meter     policy.EnergyMeter
	joules    unit.Joules  // since this process began
	internet  bool         // it has carried Internet traffic
	sinceLook carriedBytes // since the last call of shareEnergy
	last      carriedBytes // at the last call with bytes; the radio's tail belongs to them
	unsaved   bool         // records have energy that the file lacks
}

// carriedBytes counts the bytes of one time, by record key.
type carriedBytes struct {
	down, up unit.Bytes
	byRecord map[policy.UsageRecord]unit.Bytes
}

// RadioUse is the energy that the radio of a link has used.
type RadioUse struct {
	Link   string
	Radio  wire.Radio
	Joules unit.Joules
}

// MeterRadios starts to estimate the energy of the radios of links. radioOf returns the kind of
// radio of a link, given whether that has carried Internet traffic; wire.RadioNone uses no energy.
// radioOf is called with locks held and must not call back.
func (u *Usage) MeterRadios(radioOf func(link string, internet bool) wire.Radio) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.energy = energy{radioOf: radioOf, links: map[string]*linkEnergy{}}
}

// energyStateOfLink returns the state of a link, nil if no energy is estimated.
func (e *energy) energyStateOfLink(name string) *linkEnergy {
	l := e.links[name]
	if l == nil && e.radioOf != nil {
		l = &linkEnergy{}
		e.links[name] = l
	}
	return l
}

// countBytes adds bytes that belong to a record.
func (e *energy) countBytes(of policy.UsageRecord, down, up unit.Bytes) {
	l := e.energyStateOfLink(of.Link)
	if l == nil {
		return
	}
	l.internet = l.internet || of.Purpose.UsesInternet()
	if l.sinceLook.byRecord == nil {
		l.sinceLook.byRecord = map[policy.UsageRecord]unit.Bytes{}
	}
	l.sinceLook.down += down
	l.sinceLook.up += up
	l.sinceLook.byRecord[of] += down + up
}

// shareEnergy divides the energy since the last call among the records with bytes since then, by
// their bytes. The energy of a radio's tail goes to the records that used it last. The file is
// updated with the next bytes, or when the radio sleeps, not every second. mu must be held.
func (u *Usage) shareEnergy(now time.Time) {
	for link, l := range u.energy.links {
		n := l.sinceLook.down + l.sinceLook.up
		if n > 0 {
			l.meter.SetRadio(u.energy.radioOf(link, l.internet))
		}
		took := l.meter.AddCarried(now, l.sinceLook.down, l.sinceLook.up)
		if n > 0 {
			if l.unsaved { // they belong to the records that used the radio last
				u.queueLastRecords(l)
			}
			l.last, l.sinceLook = l.sinceLook, carriedBytes{}
		}
		if took > 0 {
			l.joules += took
			for of, b := range l.last.byRecord {
				u.findOrAddRecord(of).Joules += took * unit.Joules(float64(b)/float64(l.last.down+l.last.up))
			}
			l.unsaved = n == 0 // else CountNow saves the records with bytes
		}
		if l.unsaved && !l.meter.IsAwake() {
			u.queueLastRecords(l)
		}
	}
}

// queueLastRecords queues the records that used the link's radio last to be saved. mu must be held.
func (u *Usage) queueLastRecords(l *linkEnergy) {
	for of := range l.last.byRecord {
		u.changed[u.findOrAddRecord(of)] = true
	}
	l.unsaved = false
}

// queueUnsavedRecords queues the last records of all links whose energy is not saved. mu must be
// held.
func (u *Usage) queueUnsavedRecords() {
	for _, l := range u.energy.links {
		if l.unsaved {
			u.queueLastRecords(l)
		}
	}
}

// RadioUsage returns the energy of each known radio since this process began, by link.
func (u *Usage) RadioUsage() (list []RadioUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for link, l := range u.energy.links {
		if policy.UsesEnergy(l.meter.Radio()) {
			list = append(list, RadioUse{link, l.meter.Radio(), l.joules})
		}
	}
	slices.SortFunc(list, func(a, b RadioUse) int { return cmp.Compare(a.Link, b.Link) })
	return list
}
