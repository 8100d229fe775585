package helper

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"mpbond/base/identity"
	"mpbond/link/discovery"
)

// Tuning.
const (
	// findSoon is how long after one is missed it is looked for on the local
	// networks, and how soon again; later it is looked for each findRest. A look
	// is one packet of each kind of address on each interface.
	findSoon = 2 * time.Second
	findRest = 30 * time.Second
	// keepFound is how long an address is tried at which nobody has answered
	// since, and maxFound how many are of one primary: anybody on the network can
	// claim to be it.
	keepFound = 3 * time.Minute
	maxFound  = 8
)

// found are addresses at which somebody claims that a primary is, and when that
// was last heard or true. Guarded by Helper.mu.
type found map[identity.PublicKey]map[string]time.Time

// FindWith has find look for primaries on the local networks; without it none are
// looked for. To be called before Run.
func (h *Helper) FindWith(find func(context.Context) ([]discovery.Found, error)) { h.find = find }

// keepFinding looks for the trusted primaries on the local networks until ctx
// ends, while one is missed: it may have another address than it had, or none was
// ever told. One that is there is not looked for: a second address of the same
// link would be a pipe for nothing.
func (h *Helper) keepFinding(ctx context.Context) {
	wait := findSoon
	t := time.NewTimer(wait) // the addresses that are known come first
	defer t.Stop()
	again := false // others may have answered a little later than the first
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		missed := h.misses()
		if !missed {
			wait = findSoon
		}
		if missed || again {
			list, err := h.find(ctx)
			if err != nil {
				h.log.Debug("primaries are not looked for", "err", err)
			}
			if again = h.noteFound(time.Now(), list); again {
				h.retargetSoon()
			}
			wait = min(wait*3/2, findRest)
		}
		t.Reset(wait)
	}
}

// mayFind lists the primaries that are helped wherever they are. One that is
// known to be on this machine need not be looked for on networks.
func (h *Helper) mayFind() []identity.Peer {
	return slices.DeleteFunc(h.trust.ByRole(identity.RolePrimary), func(p identity.Peer) bool {
		return len(h.cfg.Primaries) > 0 && !slices.Contains(h.cfg.Primaries, p.Name) ||
			len(p.Addresses) > 0 && !slices.ContainsFunc(p.Addresses, func(a string) bool { return !isLoopback(a) })
	})
}

func isLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().IsLoopback()
}

// misses tells whether there is a primary to which no pipe is ready.
func (h *Helper) misses() bool {
	return slices.ContainsFunc(h.mayFind(), func(p identity.Peer) bool {
		return !slices.ContainsFunc(h.targetsOf(p.Key), (*target).works)
	})
}

func (h *Helper) targetsOf(key identity.PublicKey) (list []*target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.targets {
		if t.primary.Key == key {
			list = append(list, t)
		}
	}
	return list
}

// works tells whether a pipe is ready there, or in use.
func (t *target) works() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == waiting || t.state == busy
}

// noteFound takes what was found into h.found and reports whether that changes
// where primaries are tried.
func (h *Helper) noteFound(now time.Time, list []discovery.Found) (changed bool) {
	for _, p := range h.mayFind() {
		id, working := p.Key.ID().String(), map[string]bool{}
		for _, t := range h.targetsOf(p.Key) {
			working[t.addr] = t.works()
		}
		h.mu.Lock()
		of := h.found[p.Key]
		if of == nil {
			of = map[string]time.Time{}
			h.found[p.Key] = of
		}
		for addr, heard := range of {
			if working[addr] {
				of[addr] = now
			} else if now.Sub(heard) > keepFound {
				delete(of, addr)
				changed = true
			}
		}
		for _, f := range list {
			addr := f.Addr.String()
			if _, known := of[addr]; f.ID != id || !known && len(of) >= maxFound {
				continue
			} else if !known {
				changed = true
			}
			of[addr] = now
		}
		h.mu.Unlock()
	}
	return changed
}

// foundOf lists where a primary is said to be.
func (h *Helper) foundOf(p identity.Peer) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.found[p.Key]))
}

// waitingAt is at how many addresses a pipe waits for a primary's call.
func (h *Helper) waitingAt(p identity.Peer) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.targets {
		t.mu.Lock()
		if t.state == waiting && t.primary.Key == p.Key {
			n++
		}
		t.mu.Unlock()
	}
	return n
}
