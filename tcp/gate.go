package tcp

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Gate bounds the callers that have not proved who they are: at once, in all and
// from one Source, so that one stranger does not take all the places; and in a
// minute from one Source, so that coming again and again does not take the
// processor. Safe for concurrent use.
type Gate struct {
	most, ofOne int

	mu      sync.Mutex
	inside  int
	sources map[netip.Prefix]int // of them, by source
	tries   Tries[netip.Prefix]
}

// NewGate makes one for so many callers at once, so many of them from one
// source, and so many of one source in a minute.
func NewGate(most, ofOne, perMinute int) *Gate {
	return &Gate{most: most, ofOne: ofOne, sources: map[netip.Prefix]int{}, tries: Tries[netip.Prefix]{PerMinute: perMinute}}
}

// Admit takes a place for a caller, which leave gives back; to be called once.
// It is nil if there is none for that source.
func (g *Gate) Admit(from net.Addr) (leave func()) {
	s := Source(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.most || g.sources[s] >= g.ofOne || !g.tries.Take(s, time.Now()) {
		return nil
	}
	g.inside++
	g.sources[s]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside--
		if g.sources[s]--; g.sources[s] == 0 {
			delete(g.sources, s)
		}
	}
}

// maxTried bounds who is remembered by Tries: some MB.
const maxTried = 1 << 15

// Tries bounds how often each of some may do something in a minute. Minutes
// begin with the first try after the last one; the memory of all ends with them. Of
// more than maxTried in one minute those that come last share what one may do. Not
// safe for concurrent use.
type Tries[K comparable] struct {
	PerMinute int

	since time.Time
	made  map[K]int
	rest  int // of those for whom there was no place in made
}

// Take counts a try, if it is not one too many; what is refused counts nothing.
func (t *Tries[K]) Take(who K, now time.Time) bool {
	if t.made == nil || now.Sub(t.since) >= time.Minute {
		t.made, t.rest, t.since = map[K]int{}, 0, now
	}
	n, known := t.made[who]
	switch {
	case !known && len(t.made) >= maxTried:
		t.rest++
		return t.rest <= t.PerMinute
	case n >= t.PerMinute:
		return false
	}
	t.made[who] = n + 1
	return true
}

// Source is what counts as one caller: an address (IPv4) or network (IPv6, /64);
// all that is neither TCP nor UDP together.
func Source(a net.Addr) netip.Prefix {
	t, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Prefix{}
	}
	ip := t.AddrPort().Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // without a zone
	return p
}
