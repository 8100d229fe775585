// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// reachedLifetime is how long a destination counts as reached. maxReached bounds how many are
	// remembered.
	reachedLifetime = 10 * time.Minute
	maxReached      = 1024
)

// reachedDests remembers which destinations were reached recently. The zero value is ready.
type reachedDests struct {
	mu          sync.Mutex
	lastReached map[string]time.Time
}

// markReached records that a destination was reached.
func (r *reachedDests) markReached(dest string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastReached == nil {
		r.lastReached = map[string]time.Time{}
	}
	if _, known := r.lastReached[dest]; !known && len(r.lastReached) >= maxReached {
		for d, t := range r.lastReached {
			if now.Sub(t) > reachedLifetime {
				delete(r.lastReached, d)
			}
		}
		for d := range r.lastReached { // drop any
			if len(r.lastReached) < maxReached {
				break
			}
			delete(r.lastReached, d)
		}
	}
	r.lastReached[dest] = now
}

// markUnreached records that a destination was not reached.
func (r *reachedDests) markUnreached(dest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lastReached, dest)
}

// wasReachedRecently reports whether a destination was reached recently.
func (r *reachedDests) wasReachedRecently(dest string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.lastReached[dest]
	return ok && now.Sub(t) <= reachedLifetime
}

// isLikelyReachable reports whether success may be answered before the far end confirms it: dest
// was reached recently, or is a web port of a numeric address, which a program normally gets by
// resolving a name.
func (r *reachedDests) isLikelyReachable(dest string, now time.Time) bool {
	host, port, err := net.SplitHostPort(dest)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil && (port == "80" || port == "443") || r.wasReachedRecently(dest, now)
}
