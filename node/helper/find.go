// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/link/discovery"
)

// Tuning.
const (
	// minSearchInterval is the delay of the first search for a missing primary on the local
	// networks, and the first interval; it grows to maxSearchInterval. A search sends one packet
	// per kind of address and interface.
	minSearchInterval = 2 * time.Second
	maxSearchInterval = 30 * time.Second
	// foundLifetime is how long an address without answers is tried, and maxFound bounds the
	// addresses of one primary: any device on the network can claim to be it.
	foundLifetime = 3 * time.Minute
	maxFound      = 8
)

// finder searches the local networks for primaries without a pipe: they may have a new address, or
// none was announced. It owns the found addresses and forgets those that have not worked for
// foundLifetime. It does not search for connected primaries: a second address on the same link
// would make a useless pipe. runSearchLoop is called once; the other methods are safe for
// concurrent use.
type finder struct {
	search func(context.Context) ([]discovery.Found, error) // nil: no search
	clock  *pace.Clock
	log    *slog.Logger

	mu    sync.Mutex
	found map[identity.PublicKey]map[string]time.Time // when each was last found or connected
}

// roamingPrimary is a primary that may be searched for.
type roamingPrimary struct {
	key       identity.PublicKey
	connected map[string]bool // addresses that are called, and whether there is a pipe
}

// isMissingPipe reports whether there is no pipe to p.
func (p roamingPrimary) isMissingPipe() bool {
	return !slices.Contains(slices.Collect(maps.Values(p.connected)), true)
}

func newFinder(clock *pace.Clock, log *slog.Logger) *finder {
	return &finder{clock: clock, log: log, found: map[identity.PublicKey]map[string]time.Time{}}
}

// runSearchLoop searches while a primary has no pipe, until ctx ends. It calls changed when there
// are other addresses.
func (f *finder) runSearchLoop(ctx context.Context, primaries func() []roamingPrimary, changed func()) {
	if f.search == nil {
		return
	}
	wait := minSearchInterval
	t := f.clock.NewTicker(wait) // known addresses are tried first
	defer t.Stop()
	again := false // others may have answered a little later than the first
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		missed := slices.ContainsFunc(primaries(), roamingPrimary.isMissingPipe)
		if !missed {
			wait = minSearchInterval
		}
		if missed || again {
			list, err := f.search(ctx)
			if err != nil {
				f.log.Debug("cannot search for primaries", "err", err)
			}
			if again = f.recordFound(time.Now(), primaries(), list); again {
				changed()
			}
			if wait = min(wait*3/2, maxSearchInterval); wait < pace.IdleInterval {
				f.clock.Wake() // for some seconds, so that idleness does not delay the first searches
			}
		}
		t.Reset(wait)
	}
}

// recordFound stores the search results for primaries and reports whether their addresses changed.
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

// foundAddresses returns the found addresses of a primary, sorted.
func (f *finder) foundAddresses(key identity.PublicKey) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.found[key]))
}
