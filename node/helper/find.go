package helper

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"mpbond/base/identity"
	"mpbond/link/discovery"
)

// Tuning.
const (
	// minSearchInterval is how long after a primary is missed it is searched for on the local
	// networks, and how soon again; later each maxSearchInterval. A search is one packet of each
	// kind of address on each interface.
	minSearchInterval = 2 * time.Second
	maxSearchInterval = 30 * time.Second
	// foundLifetime is how long an address is tried at which nobody has answered
	// since, and maxFound how many are of one primary: anybody on the network can
	// claim to be it.
	foundLifetime = 3 * time.Minute
	maxFound      = 8
)

// finder searches the local networks for primaries to which there is no pipe: one may have
// another address than it had, or none was ever announced. It owns the addresses at which
// somebody claims that a primary is, and forgets those that have not worked for foundLifetime.
// One that is connected is not searched for: a second address of the same link would be a
// pipe for nothing. Run is called once; the other methods by any goroutine.
type finder struct {
	search func(context.Context) ([]discovery.Found, error) // nil: there is no search
	log    *slog.Logger

	mu    sync.Mutex
	found map[identity.PublicKey]map[string]time.Time // when each was last found or connected
}

// roamingPrimary is a primary that may be searched for.
type roamingPrimary struct {
	key       identity.PublicKey
	connected map[string]bool // the addresses that are called, and whether there is a pipe
}

// isMissed reports whether there is no pipe to p.
func (p roamingPrimary) isMissed() bool {
	return !slices.Contains(slices.Collect(maps.Values(p.connected)), true)
}

func newFinder(log *slog.Logger) *finder {
	return &finder{log: log, found: map[identity.PublicKey]map[string]time.Time{}}
}

// runSearchLoop searches until ctx ends, while one of the primaries is missed, and calls changed when
// there are other addresses.
func (f *finder) runSearchLoop(ctx context.Context, primaries func() []roamingPrimary, changed func()) {
	if f.search == nil {
		return
	}
	wait := minSearchInterval
	t := time.NewTimer(wait) // the addresses that are known come first
	defer t.Stop()
	again := false // others may have answered a little later than the first
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		missed := slices.ContainsFunc(primaries(), roamingPrimary.isMissed)
		if !missed {
			wait = minSearchInterval
		}
		if missed || again {
			list, err := f.search(ctx)
			if err != nil {
				f.log.Debug("primaries are not looked for", "err", err)
			}
			if again = f.recordFound(time.Now(), primaries(), list); again {
				changed()
			}
			wait = min(wait*3/2, maxSearchInterval)
		}
		t.Reset(wait)
	}
}

// recordFound stores what was found of primaries and reports whether that changes their addresses.
func (f *finder) recordFound(now time.Time, primaries []roamingPrimary, list []discovery.Found) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range primaries {
		of := f.found[p.key]
		if of == nil {
			of = map[string]time.Time{}
			f.found[p.key] = of
		}
		for addr, last := range of {
			if p.connected[addr] {
				of[addr] = now
			} else if now.Sub(last) > foundLifetime {
				delete(of, addr)
				changed = true
			}
		}
		id := p.key.ID().String()
		for _, x := range list {
			addr := x.Addr.String()
			if _, known := of[addr]; x.ID != id || !known && len(of) >= maxFound {
				continue
			} else if !known {
				changed = true
			}
			of[addr] = now
		}
	}
	return changed
}

// foundAddresses returns where a primary was found, sorted.
func (f *finder) foundAddresses(key identity.PublicKey) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.found[key]))
}
