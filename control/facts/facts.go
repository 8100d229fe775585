// Package facts is what a device knows of its own battery, heat and links. It
// stands beside the data path: the roles are told when something has changed,
// and nothing that carries bytes ever asks.
//
//	facts.go  what is known, from several sources, and when it is looked at
//	sysfs.go  Linux: power_supply and thermal
//	dbus.go   UPower, NetworkManager and ModemManager, where they run
//	file.go   a file that somebody else writes
//
// What the API is told (Keeper.Report) is a source too: a phone's app, a script.
package facts

import (
	"context"
	"maps"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Facts are what is known of a device. What is zero is not known.
type Facts struct {
	Battery     unit.Level
	Power       wire.Power
	Temperature unit.Temperature
	// Links are by the name of their interface; "" is the one by which the device
	// reaches the Internet, whatever its name.
	Links map[string]Link
}

// Link is what is known of a network link.
type Link struct {
	Radio   wire.Radio
	Metered wire.Metered
	Signal  unit.Level
}

// fillFrom is a, and what b knows where a does not.
func (a Link) fillFrom(b Link) Link {
	if a.Radio == wire.RadioNone {
		a.Radio = b.Radio
	}
	if a.Metered == wire.MeteredUnknown {
		a.Metered = b.Metered
	}
	if !a.Signal.Known() {
		a.Signal = b.Signal
	}
	return a
}

// fillFrom is a, and what b knows where a does not. Neither is changed.
func (a Facts) fillFrom(b Facts) Facts {
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
		links[name] = l.fillFrom(links[name])
	}
	a.Links = links
	return a
}

// equal reports whether a and b tell the same.
func (a Facts) equal(b Facts) bool {
	return a.Battery == b.Battery && a.Power == b.Power && a.Temperature == b.Temperature && maps.Equal(a.Links, b.Links)
}

// ForLink is what is told of the device and its link over an interface, "" where that
// is not known.
func (a Facts) ForLink(link string) wire.Facts {
	l := a.Links[""]
	if link != "" {
		l = a.Links[link].fillFrom(l)
	}
	return wire.Facts{Battery: a.Battery, Power: a.Power, Temperature: a.Temperature, Link: link, Radio: l.Radio, Metered: l.Metered, Signal: l.Signal}
}

// Source is something that knows facts. Read is called by one goroutine at a
// time; it takes a second at most, and returns what it can find out: a source
// that is not there knows nothing. Changed gets a value when there may be
// something new; nil if the source never knows.
type Source interface {
	Read() Facts
	Changed() <-chan struct{}
	Close()
}

// ReadInterval is how often sources are read, besides when one says that something has
// changed. A battery that is used hard loses 1 % in about a minute, and a phone
// heats up by a degree in about as long.
const ReadInterval = 30 * time.Second

// ReportLifetime is how long facts hold that were told to a Keeper: who tells them and
// dies shall not keep a battery full for ever.
const ReportLifetime = 10 * time.Minute

// Keeper knows the newest facts. Safe for concurrent use.
type Keeper struct {
	sources []Source // the first that knows a fact counts
	rereads chan struct{}

	mu       sync.Mutex
	reported Facts // by Tell
	until    time.Time
	found    Facts // by sources
	now      Facts
	onChange []func(Facts)
}

// New makes a keeper of sources; of two that know the same fact the first
// counts. They are the keeper's from now on.
func New(sources ...Source) *Keeper {
	return &Keeper{sources: sources, rereads: make(chan struct{}, 1)}
}

// Facts are the newest.
func (k *Keeper) Facts() Facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// OnChange has f called with the facts of now, and each time they change, by one
// goroutine at a time, which f must not hold up for long.
func (k *Keeper) OnChange(f func(Facts)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onChange = append(k.onChange, f)
	f(k.now)
}

// Report takes facts from outside, which go before all sources for Lasts, or
// until others are told.
func (k *Keeper) Report(f Facts) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reported, k.until = f, time.Now().Add(ReportLifetime)
	k.mergeFacts()
	signal(k.rereads) // so that Run knows when they end
}

// mergeFacts makes now of all that is known. Mu is held.
func (k *Keeper) mergeFacts() {
	f := k.found
	if time.Now().Before(k.until) {
		f = k.reported.fillFrom(f)
	}
	if f.equal(k.now) {
		return
	}
	k.now = f
	for _, on := range k.onChange {
		on(f)
	}
}

// Run reads the sources until ctx ends, and closes them.
func (k *Keeper) Run(ctx context.Context) {
	var ends sync.WaitGroup
	changed := make(chan struct{}, 1)
	for _, s := range k.sources {
		ends.Go(func() {
			defer s.Close()
			for {
				select {
				case <-ctx.Done():
					return
				case <-s.Changed():
					signal(changed)
				}
			}
		})
	}
	defer ends.Wait()
	tick := time.NewTicker(ReadInterval)
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

// readSources reads all sources.
func (k *Keeper) readSources() {
	var f Facts
	for _, s := range k.sources {
		f = f.fillFrom(s.Read())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found = f
	k.mergeFacts()
}

// signal says that something is new, unless that is said and not heard yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
