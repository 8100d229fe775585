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
	meter    policy.EnergyMeter
	took     unit.Joules // since this process began
	internet bool        // it has carried something that goes by the Internet
	fresh    carried     // since the last look
	last     carried     // as of the last look at which there was anything: the tail is theirs
	untold   bool        // rows have joules that the file does not
}

// carried is what a link had to carry at a time, by whose it is: rows without
// bytes.
type carried struct {
	down, up unit.Bytes
	of       map[policy.Used]unit.Bytes
}

// RadioUse is what the radio of a link took.
type RadioUse struct {
	Link   string
	Radio  wire.Radio
	Joules unit.Joules
}

// Meter has it reckon from now on what the radios of links take, by their kind,
// which radioOf tells of a link and whether that has carried something that goes
// by the Internet; wire.RadioNone is reckoned nothing. RadioOf is called with locks
// held, so that it must not call back.
func (u *Usage) Meter(radioOf func(link string, internet bool) wire.Radio) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.energy = energy{radioOf: radioOf, links: map[string]*linkEnergy{}}
}

// link is that of a link, from now on; nil if nothing is reckoned.
func (e *energy) link(name string) *linkEnergy {
	l := e.links[name]
	if l == nil && e.radioOf != nil {
		l = &linkEnergy{}
		e.links[name] = l
	}
	return l
}

// carried takes bytes that belong to a row.
func (e *energy) carried(of policy.Used, down, up unit.Bytes) {
	l := e.link(of.Link)
	if l == nil {
		return
	}
	l.internet = l.internet || of.Purpose.Internet()
	if l.fresh.of == nil {
		l.fresh.of = map[policy.Used]unit.Bytes{}
	}
	l.fresh.down += down
	l.fresh.up += up
	l.fresh.of[of] += down + up
}

// meter shares what radios took since the last look among the rows that had them
// carry something, by their bytes; what a radio takes afterwards, among those who
// were last. The file is told with the next bytes, or when the radio sleeps, and not
// each second until then. Mu is held.
func (u *Usage) meter(now time.Time) {
	for link, l := range u.energy.links {
		n := l.fresh.down + l.fresh.up
		if n > 0 {
			l.meter.Become(u.energy.radioOf(link, l.internet))
		}
		took := l.meter.Carried(now, l.fresh.down, l.fresh.up)
		if n > 0 {
			if l.untold { // of those who were last: others are from now on
				u.tell(l)
			}
			l.last, l.fresh = l.fresh, carried{}
		}
		if took > 0 {
			l.took += took
			for of, b := range l.last.of {
				u.row(of).Joules += took * unit.Joules(float64(b)/float64(l.last.down+l.last.up))
			}
			l.untold = n == 0 // else Count tells the rows that have bytes
		}
		if l.untold && !l.meter.Awake() {
			u.tell(l)
		}
	}
}

// tell has the file told what the last rows took; mu is held.
func (u *Usage) tell(l *linkEnergy) {
	for of := range l.last.of {
		u.changed[u.row(of)] = true
	}
	l.untold = false
}

// tellEnergy has the file told all; mu is held.
func (u *Usage) tellEnergy() {
	for _, l := range u.energy.links {
		if l.untold {
			u.tell(l)
		}
	}
}

// Radios are what the radios of this device's links took since this process began,
// by link; of those whose kind is known.
func (u *Usage) Radios() (list []RadioUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for link, l := range u.energy.links {
		if policy.Costs(l.meter.Radio()) {
			list = append(list, RadioUse{link, l.meter.Radio(), l.took})
		}
	}
	slices.SortFunc(list, func(a, b RadioUse) int { return cmp.Compare(a.Link, b.Link) })
	return list
}
