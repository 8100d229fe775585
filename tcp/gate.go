package tcp

import (
	"net"
	"net/netip"
	"sync"
)

// Gate bounds the callers that have not proved who they are, in all and from
// one Source, so that one stranger does not take all the places. Safe for
// concurrent use.
type Gate struct {
	most, ofOne int

	mu      sync.Mutex
	inside  int
	sources map[netip.Prefix]int // of them, by source
}

// NewGate makes one for so many callers at once, and so many of them from one
// source.
func NewGate(most, ofOne int) *Gate {
	return &Gate{most: most, ofOne: ofOne, sources: map[netip.Prefix]int{}}
}

// Admit takes a place for a caller, which leave gives back; to be called once.
// It is nil if there is none for that source.
func (g *Gate) Admit(from net.Addr) (leave func()) {
	s := Source(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.most || g.sources[s] >= g.ofOne {
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

// Source is what counts as one caller: an address (IPv4) or network (IPv6, /64);
// all that is not TCP together.
func Source(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
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
