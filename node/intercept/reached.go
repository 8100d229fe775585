package intercept

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// reachedFor is for how long a destination counts as one that is there, and
	// mostReached how many are kept.
	reachedFor  = 10 * time.Minute
	mostReached = 1024
)

// reached keeps which destinations were reached lately. The zero value is ready.
type reached struct {
	mu sync.Mutex
	at map[string]time.Time
}

// add notes that a destination was reached.
func (r *reached) add(dest string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	if _, known := r.at[dest]; !known && len(r.at) >= mostReached {
		for d, t := range r.at {
			if now.Sub(t) > reachedFor {
				delete(r.at, d)
			}
		}
		for d := range r.at { // any one makes room
			if len(r.at) < mostReached {
				break
			}
			delete(r.at, d)
		}
	}
	r.at[dest] = now
}

// forget notes that a destination was not reached.
func (r *reached) forget(dest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, dest)
}

// has reports whether a destination was reached lately.
func (r *reached) has(dest string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.at[dest]
	return ok && now.Sub(t) <= reachedFor
}

// likely reports whether an app may be told that a destination is reached before the far
// end has said so: it was reached lately, or it is the web port of an address given as a
// number, which a program has from somebody who resolved the name.
func (r *reached) likely(dest string, now time.Time) bool {
	host, port, err := net.SplitHostPort(dest)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil && (port == "80" || port == "443") || r.has(dest, now)
}
