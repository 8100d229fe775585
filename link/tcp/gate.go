package tcp

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Gate bounds the callers that have not proved their identity: at once, in all and from
// one Source, and in a minute from one Source, so that coming again and again does not
// take the processor. Safe for concurrent use.
//
// A caller that Enters never finds the gate full: it takes the place of another one.
// That is one of the source with the most places. So a source that has few places keeps
// them, whatever others do. Of the callers that are alike in this, silent ones go first if
// they are the greater part, else those that have spoken; the oldest first. So neither a
// flood of silent callers nor one of half handshakes takes the places of the other kind.
//
// The work of a handshake is done at once for sources of which a caller has proved its
// identity. Others take turns, the source first that had the fewest in this minute; of
// four turns one is for sources that had one before, so that those whose handshake was
// broken off are not behind newcomers for ever.
type Gate struct {
	most, ofOne int

	mu      sync.Mutex
	exits   sync.Cond // on mu: evicted has fallen
	inside  int
	silent  int // of those
	evicted int // visits without a place that have not left yet
	entered uint64
	sources map[netip.Prefix]*source
	proved  map[netip.Prefix]time.Time // sources of which a caller has proved its identity, and when
	tries   Tries[netip.Prefix]

	waiting  []*Visit // for their turn
	nextTurn time.Time
	turns    int         // given, of those in which a handshake was answered
	timer    *time.Timer // that gives it; nil: none runs
}

// source holds the places of the callers from one Source.
type source struct {
	visits   []*Visit // oldest first
	reserved int      // places that count last
}

// Visit is a caller's place at a Gate.
type Visit struct {
	g      *Gate
	from   netip.Prefix
	number uint64
	drop   func() // ends the connection; nil: it cannot be evicted

	// Guarded by g.mu.
	spoken  bool
	evicted bool
	left    bool
	turn    chan bool // gets whether the caller may be answered; nil: it does not wait
}

// Tuning: a source that has proved itself has reservedPlaces, which others get only when
// there is nothing else left; maxProved sources are remembered. A turn comes each
// turnEvery, while a handshake takes some 0.5 ms of a processor; each againEvery-th is for
// a source that had one before.
const (
	reservedPlaces = 4
	maxProved      = 4096
	turnEvery      = 4 * time.Millisecond
	againEvery     = 4
)

// NewGate makes one for so many callers at once, so many of them from one
// source, and so many of one source in a minute.
func NewGate(most, ofOne, perMinute int) *Gate {
	g := &Gate{most: most, ofOne: ofOne, sources: map[netip.Prefix]*source{}, proved: map[netip.Prefix]time.Time{}, tries: Tries[netip.Prefix]{PerMinute: perMinute}}
	g.exits.L = &g.mu
	return g
}

// Admit takes a place for a caller, which leave gives back; to be called once.
// It is nil if there is none for that source: Admit evicts nobody, and its caller is not evicted.
func (g *Gate) Admit(from net.Addr) (leave func()) {
	prefix := Source(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.most || g.places(prefix) >= g.ofOne || !g.tries.Take(prefix, time.Now()) {
		return nil
	}
	return g.enter(prefix, nil).Leave
}

// Enter takes a place for a caller, in place of another one if there is none. Drop ends a
// caller's connection, so that Leave follows soon: it is called without locks held, once,
// if another caller gets the place. Enter waits while too many of those have not left.
// It returns nil if all places are taken by callers that cannot be evicted.
func (g *Gate) Enter(from net.Addr, drop func()) *Visit {
	prefix := Source(from)
	g.mu.Lock()
	for g.evicted >= g.most {
		g.exits.Wait()
	}
	var out *Visit
	switch {
	case g.places(prefix) >= g.ofOne:
		s := g.sources[prefix]
		out = s.victim(2*s.silent() >= len(s.visits))
	case g.inside >= g.most:
		out = g.victim(prefix)
	}
	if out != nil {
		out.evicted = true
		g.evicted++
		g.remove(out)
		g.stopWaiting(out)
	}
	var v *Visit
	if g.inside < g.most && g.places(prefix) < g.ofOne {
		v = g.enter(prefix, drop)
	}
	g.mu.Unlock()
	if out != nil {
		out.drop()
	}
	return v
}

// places returns how many a source has. mu must be held.
func (g *Gate) places(from netip.Prefix) int {
	if s := g.sources[from]; s != nil {
		return len(s.visits)
	}
	return 0
}

// enter adds a visit. mu must be held.
func (g *Gate) enter(from netip.Prefix, drop func()) *Visit {
	s := g.sources[from]
	if s == nil {
		s = &source{}
		if _, ok := g.proved[from]; ok {
			s.reserved = reservedPlaces
		}
		g.sources[from] = s
	}
	g.entered++
	v := &Visit{g: g, from: from, number: g.entered, drop: drop}
	s.visits = append(s.visits, v)
	g.inside++
	g.silent++
	return v
}

// remove takes a visit's place away. mu must be held.
func (g *Gate) remove(v *Visit) {
	s := g.sources[v.from]
	s.visits = slices.DeleteFunc(s.visits, func(o *Visit) bool { return o == v })
	if len(s.visits) == 0 {
		delete(g.sources, v.from)
	}
	g.inside--
	if !v.spoken {
		g.silent--
	}
}

// victim returns the visit that a newcomer replaces: of the source with the most places
// beyond its reserved ones, the newcomer counted. mu must be held.
func (g *Gate) victim(newcomer netip.Prefix) (out *Visit) {
	silent := 2*g.silent >= g.inside
	var most int
	for from, s := range g.sources {
		v := s.victim(silent)
		n := len(s.visits) - s.reserved
		if from == newcomer {
			n++
		}
		if v != nil && (out == nil || n > most || n == most && v.precedes(out, silent)) {
			out, most = v, n
		}
	}
	return out
}

// victim returns the caller of the source that goes first, nil if none can be evicted.
// mu must be held.
func (s *source) victim(silent bool) (out *Visit) {
	for _, v := range s.visits {
		if v.drop != nil && (out == nil || v.precedes(out, silent)) {
			out = v
		}
	}
	return out
}

// silent returns how many callers have not spoken. mu must be held.
func (s *source) silent() (n int) {
	for _, v := range s.visits {
		if !v.spoken {
			n++
		}
	}
	return n
}

// precedes reports whether v is evicted before o: silent callers first, or those that
// have spoken. mu must be held.
func (v *Visit) precedes(o *Visit, silent bool) bool {
	if v.spoken != o.spoken {
		return v.spoken != silent
	}
	return v.number < o.number
}

// Spoke notes that the caller has sent its whole first flight, and waits until it is its
// turn to be answered: for a second or two at most. It reports whether it is: not for a
// visit that was evicted, nor for one too many of its source in a minute.
func (v *Visit) Spoke() bool {
	g := v.g
	g.mu.Lock()
	if v.evicted || v.left {
		g.mu.Unlock()
		return false
	}
	if !v.spoken {
		v.spoken = true
		g.silent--
	}
	if _, ok := g.proved[v.from]; ok {
		defer g.mu.Unlock()
		return g.tries.Take(v.from, time.Now())
	}
	turn := make(chan bool, 1)
	v.turn = turn
	g.waiting = append(g.waiting, v)
	if g.timer == nil {
		g.giveTurns()
	}
	g.mu.Unlock()
	return <-turn
}

// giveTurns lets those go on whose turn it is, and comes again for the others. mu must be
// held.
func (g *Gate) giveTurns() {
	now := time.Now()
	g.timer = nil
	for len(g.waiting) > 0 {
		if wait := g.nextTurn.Sub(now); wait > 0 {
			g.timer = time.AfterFunc(wait, func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.giveTurns()
			})
			return
		}
		v := slices.MinFunc(g.waiting, g.compareTurns)
		ok := g.tries.Take(v.from, now)
		if ok { // a refusal is no work
			g.nextTurn = later(now, g.nextTurn).Add(turnEvery)
			g.turns++
		}
		v.turn <- ok
		v.turn = nil
		g.waiting = slices.DeleteFunc(g.waiting, func(o *Visit) bool { return o == v })
	}
}

// compareTurns returns a negative number if the next turn is rather v's than o's. mu must
// be held.
func (g *Gate) compareTurns(v, o *Visit) int {
	mine, other := g.tries.made[v.from], g.tries.made[o.from]
	if g.turns%againEvery == againEvery-1 && (mine > 0) != (other > 0) {
		return other - mine
	}
	return cmp.Or(cmp.Compare(mine, other), cmp.Compare(v.number, o.number))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stopWaiting ends a wait for a turn. mu must be held.
func (g *Gate) stopWaiting(v *Visit) {
	if v.turn != nil {
		v.turn <- false
		v.turn = nil
		g.waiting = slices.DeleteFunc(g.waiting, func(o *Visit) bool { return o == v })
	}
}

// Prove notes that the caller has proved its identity, and gives its place back. It
// reports false for a visit that was evicted before.
func (v *Visit) Prove() bool {
	g := v.g
	g.mu.Lock()
	if _, ok := g.proved[v.from]; !ok && len(g.proved) >= maxProved {
		delete(g.proved, g.longestAway())
	}
	g.proved[v.from] = time.Now()
	if s := g.sources[v.from]; s != nil {
		s.reserved = reservedPlaces
	}
	evicted := v.evicted
	g.mu.Unlock()
	v.Leave()
	return !evicted
}

// Source returns where the caller comes from.
func (v *Visit) Source() netip.Prefix { return v.from }

// Proved reports whether a caller from the same source has proved its identity.
func (v *Visit) Proved() bool {
	v.g.mu.Lock()
	defer v.g.mu.Unlock()
	_, ok := v.g.proved[v.from]
	return ok
}

// longestAway returns the source that proved itself longest ago. mu must be held.
func (g *Gate) longestAway() (oldest netip.Prefix) {
	first := true
	for from, at := range g.proved {
		if first || at.Before(g.proved[oldest]) {
			oldest, first = from, false
		}
	}
	return oldest
}

// Evicted reports whether another caller has the visit's place.
func (v *Visit) Evicted() bool {
	v.g.mu.Lock()
	defer v.g.mu.Unlock()
	return v.evicted
}

// Leave gives the place back, if it is still the visit's. Each visit must leave; after the
// first time it does nothing.
func (v *Visit) Leave() {
	g := v.g
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case v.left:
		return
	case v.evicted:
		g.evicted--
		g.exits.Signal()
	default:
		g.remove(v)
	}
	v.left = true
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
