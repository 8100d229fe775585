package device

import (
	"cmp"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// energy is what the radios of a device's links take for what Usage counts. The
// zero energy reckons nothing. Guarded by Usage.mu.
type energy struct {
	radioOf func(link string, internet bool) wire.Radio
	links   map[string]*linkEnergy
}

// linkEnergy is that of one link.
type linkEnergy struct {
	meter     policy.EnergyMeter
	joules    unit.Joules  // since this process began
	internet  bool         // it has carried something that goes by the Internet
	sinceLook carriedBytes // since the last look
	last      carriedBytes // as of the last look at which there was anything: the tail is theirs
	unsaved   bool         // rows have joules that the file does not
}

// carriedBytes is what a link had to carry at a time, by whose it is: rows without
// bytes.
type carriedBytes struct {
	down, up unit.Bytes
	byRecord map[policy.UsageRecord]unit.Bytes
}

// RadioUse is what the radio of a link took.
type RadioUse struct {
	Link   string
	Radio  wire.Radio
	Joules unit.Joules
}

// MeterRadios has it reckon from now on what the radios of links take, by their kind,
// which radioOf tells of a link and whether that has carried something that goes
// by the Internet; wire.RadioNone is reckoned nothing. RadioOf is called with locks
// held, so that it must not call back.
func (u *Usage) MeterRadios(radioOf func(link string, internet bool) wire.Radio) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.energy = energy{radioOf: radioOf, links: map[string]*linkEnergy{}}
}

// linkFor is that of a link, from now on; nil if nothing is reckoned.
func (e *energy) linkFor(name string) *linkEnergy {
	l := e.links[name]
	if l == nil && e.radioOf != nil {
		l = &linkEnergy{}
		e.links[name] = l
	}
	return l
}

// countBytes takes bytes that belong to a row.
func (e *energy) countBytes(of policy.UsageRecord, down, up unit.Bytes) {
	l := e.linkFor(of.Link)
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

// shareEnergy shares what radios took since the last look among the rows that had them
// carry something, by their bytes; what a radio takes afterwards, among those who
// were last. The file is told with the next bytes, or when the radio sleeps, and not
// each second until then. Mu is held.
func (u *Usage) shareEnergy(now time.Time) {
	for link, l := range u.energy.links {
		n := l.sinceLook.down + l.sinceLook.up
		if n > 0 {
			l.meter.SetRadio(u.energy.radioOf(link, l.internet))
		}
		took := l.meter.AddCarried(now, l.sinceLook.down, l.sinceLook.up)
		if n > 0 {
			if l.unsaved { // of those who were last: others are from now on
				u.markUnsaved(l)
			}
			l.last, l.sinceLook = l.sinceLook, carriedBytes{}
		}
		if took > 0 {
			l.joules += took
			for of, b := range l.last.byRecord {
				u.record(of).Joules += took * unit.Joules(float64(b)/float64(l.last.down+l.last.up))
			}
			l.unsaved = n == 0 // else Count tells the rows that have bytes
		}
		if l.unsaved && !l.meter.IsAwake() {
			u.markUnsaved(l)
		}
	}
}

// markUnsaved has the file told what the last rows took; mu is held.
func (u *Usage) markUnsaved(l *linkEnergy) {
	for of := range l.last.byRecord {
		u.changed[u.record(of)] = true
	}
	l.unsaved = false
}

// markAllUnsaved has the file told all; mu is held.
func (u *Usage) markAllUnsaved() {
	for _, l := range u.energy.links {
		if l.unsaved {
			u.markUnsaved(l)
		}
	}
}

// RadioUsage are what the radios of this device's links took since this process began,
// by link; of those whose kind is known.
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
