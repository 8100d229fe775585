package intercept

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// reachedLifetime is for how long a destination counts as one that is there, and
	// maxReached how many are kept.
	reachedLifetime = 10 * time.Minute
	maxReached      = 1024
)

// reachedDests keeps which destinations were reached lately. The zero value is ready.
type reachedDests struct {
	mu          sync.Mutex
	lastReached map[string]time.Time
}

// markReached notes that a destination was reached.
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
		for d := range r.lastReached { // any one makes room
			if len(r.lastReached) < maxReached {
				break
			}
			delete(r.lastReached, d)
		}
	}
	r.lastReached[dest] = now
}

// markUnreached notes that a destination was not reached.
func (r *reachedDests) markUnreached(dest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lastReached, dest)
}

// isRecent reports whether a destination was reached lately.
func (r *reachedDests) isRecent(dest string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.lastReached[dest]
	return ok && now.Sub(t) <= reachedLifetime
}

// isLikely reports whether an app may be told that a destination is reached before the far
// end has said so: it was reached lately, or it is the web port of an address given as a
// number, which a program has from somebody who resolved the name.
func (r *reachedDests) isLikely(dest string, now time.Time) bool {
	host, port, err := net.SplitHostPort(dest)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil && (port == "80" || port == "443") || r.isRecent(dest, now)
}
