// SPDX-License-Identifier: Apache-2.0

// Package facts knows a device's battery, temperature and links. It stands beside the data path: it
// notifies the roles of changes, and no code that carries bytes asks it.
//
//	facts.go  merges several sources
//	sysfs.go  Linux: power_supply and thermal
//	dbus.go   UPower, NetworkManager and ModemManager
//	cells.go  ModemManager: cells of modems, while something is carried
//	file.go   a file that another program writes
//
// Facts that the API receives, from a phone's app or a script, are a source too (Keeper.Report).
package facts

import (
	"context"
	"maps"
	"sync"
	"time"

	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// Facts are the known facts of a device. A zero field is unknown.
type Facts struct {
	Battery     unit.Level
	Power       wire.Power
	Temperature unit.Temperature
	// Links holds links by the name of their interface; "" is the one that reaches the Internet,
	// whatever its name.
	Links map[string]Link
}

// Link holds the known facts of a network link.
type Link struct {
	Radio   wire.Radio
	Metered wire.Metered
	Signal  unit.Level
	Cell    estimate.CellSignal // zero: unknown
}

// fillLinkFrom returns a, with unknown fields taken from b. Of two cells the one reported later counts.
func (a Link) fillLinkFrom(b Link) Link {
	if a.Radio == wire.RadioNone {
		a.Radio = b.Radio
	}
	if a.Metered == wire.MeteredUnknown {
		a.Metered = b.Metered
	}
	if !a.Signal.Known() {
		a.Signal = b.Signal
	}
	if b.Cell.At.After(a.Cell.At) {
		a.Cell = b.Cell
	}
	return a
}

// fillFactsFrom returns a, with unknown fields taken from b. It changes neither.
func (a Facts) fillFactsFrom(b Facts) Facts {
	if !a.Battery.Known() {
		a.Battery = b.Battery
	}
	if a.Power == wire.PowerUnknown {
		a.Power = b.Power
	}
	if a.Temperature == 0 {
		a.Temperature = b.Temperature
	}
	links := maps.Clone(b.Links)
	for name, l := range a.Links {
		if links == nil {
			links = map[string]Link{}
		}
		links[name] = l.fillLinkFrom(links[name])
	}
	a.Links = links
	return a
}

// splitCells returns the facts without cells, and the cells alone.
func (a Facts) splitCells() (rest, cells Facts) {
	rest, cells = a, Facts{Links: map[string]Link{}}
	rest.Links = map[string]Link{}
	for name, l := range a.Links {
		if l.Cell != (estimate.CellSignal{}) {
			cells.Links[name] = Link{Cell: l.Cell}
		}
		if l.Cell = (estimate.CellSignal{}); l != (Link{}) {
			rest.Links[name] = l
		}
	}
	return rest, cells
}

// hasSameFacts reports whether a and b are equal.
func (a Facts) hasSameFacts(b Facts) bool {
	return a.Battery == b.Battery && a.Power == b.Power && a.Temperature == b.Temperature && maps.Equal(a.Links, b.Links)
}

// ForLink returns the facts to send about the device and the link over an interface, "" if the
// interface is unknown.
func (a Facts) ForLink(link string) wire.Facts {
	l := a.Links[""]
	if link != "" {
		l = a.Links[link].fillLinkFrom(l)
	}
	return wire.Facts{Battery: a.Battery, Power: a.Power, Temperature: a.Temperature, Link: link, Radio: l.Radio,
		Metered: l.Metered, Signal: l.Signal}
}

// Source is a source of facts. Read is called by one goroutine at a time, takes a second at most,
// and returns the facts that it can find; a missing source returns none. Changed returns a channel
// that gets a value when facts may have changed; nil if the source cannot tell.
type Source interface {
	Read() Facts
	Changed() <-chan struct{}
	Close()
}

// ReadInterval is how often sources are read without a reported change. In heavy use a battery
// loses 1 % in about a minute, and a phone heats by a degree in about as long.
const ReadInterval = 30 * time.Second

// ReportLifetime is how long reported facts hold. A reporter that died must not keep a battery full
// for ever.
const ReportLifetime = 10 * time.Minute

// Keeper holds the newest facts. Safe for concurrent use.
type Keeper struct {
	sources []Source // for each fact the first source that knows it counts
	rereads chan struct{}

	mu       sync.Mutex
	reported Facts // from Report
	until    time.Time
	cells    Facts // from Report: only cells
	// modemCells is when cells were last reported from modems, by interface.
	modemCells map[string]time.Time
	found      Facts // from sources
	now        Facts
	onChange   []func(Facts)
}

// New returns a Keeper of sources. For each fact the first source that knows it counts, of cells the
// newest report. The Keeper owns the sources.
func New(sources ...Source) *Keeper {
	return &Keeper{sources: sources, rereads: make(chan struct{}, 1), modemCells: map[string]time.Time{}}
}

// Facts returns the newest facts.
func (k *Keeper) Facts() Facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// OnChange calls f with the current facts, and again each time they change, by one goroutine at a
// time. f must not block for long.
func (k *Keeper) OnChange(f func(Facts)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onChange = append(k.onChange, f)
	f(k.now)
}

// Report sets facts from outside. They take precedence over all sources for ReportLifetime or until
// the next Report. Cells stand apart, since another program may report them: a report of cells alone
// replaces those of the same links and nothing else, and one without cells leaves them.
func (k *Keeper) Report(f Facts) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rest, cells := f.splitCells()
	if len(cells.Links) == 0 || !rest.hasSameFacts(Facts{}) {
		k.reported, k.until = rest, time.Now().Add(ReportLifetime)
		defer notifyFactsChange(k.rereads) // so that Run notices when they expire
	}
	if len(cells.Links) > 0 {
		maps.DeleteFunc(k.cells.Links, func(_ string, l Link) bool { return time.Since(l.Cell.At) > ReportLifetime })
		k.cells = cells.fillFactsFrom(k.cells)
	}
	k.mergeFacts()
}

// mergeFacts updates the current facts and notifies listeners of a change. mu must be held.
func (k *Keeper) mergeFacts() {
	f := k.found
	if time.Now().Before(k.until) {
		f = k.reported.fillFactsFrom(f)
	}
	f = k.cells.fillFactsFrom(f)
	if f.hasSameFacts(k.now) {
		return
	}
	k.now = f
	for _, on := range k.onChange {
		on(f)
	}
}

// Run reads the sources, at the pace of clock, until ctx ends, then closes them. Modems are asked for
// their cells while wantsCells, if not nil, returns true.
func (k *Keeper) Run(ctx context.Context, clock *pace.Clock, wantsCells func() bool) {
	var ends sync.WaitGroup
	changed := make(chan struct{}, 1)
	for _, s := range k.sources {
		ends.Go(func() {
			defer s.Close()
			if r, ok := s.(cellReader); ok && wantsCells != nil {
				var cells sync.WaitGroup
				defer cells.Wait()
				cells.Go(func() { k.watchCells(ctx, r, clock, wantsCells) })
			}
			for {
				select {
				case <-ctx.Done():
					return
				case <-s.Changed():
					notifyFactsChange(changed)
				}
			}
		})
	}
	defer ends.Wait()
	tick := clock.NewTicker(ReadInterval)
	defer tick.Stop()
	for {
		k.readSources()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-k.rereads:
		case <-changed:
		}
	}
}

// readSources reads all sources once.
func (k *Keeper) readSources() {
	var f Facts
	for _, s := range k.sources {
		f = f.fillFactsFrom(s.Read())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found = f
	k.mergeFacts()
}

// notifyFactsChange sends a value unless one is already waiting.
func notifyFactsChange(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
