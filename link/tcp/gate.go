package tcp

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// AdmissionLimit bounds the callers that have not proved their identity: at once, in all and from
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
type AdmissionLimit struct {
	maxSlots, maxPerSource int

	mu            sync.Mutex
	slotFreed     sync.Cond // on mu: evicted has fallen
	used          int
	silentCount   int // of those
	evictedCount  int // visits without a place that have not left yet
	lastNumber    uint64
	sources       map[netip.Prefix]*slotSource
	provedSources map[netip.Prefix]time.Time // sources of which a caller has proved its identity, and when
	rate          RateLimiter[netip.Prefix]

	waiting   []*Slot // for their turn
	nextTurn  time.Time
	turns     int         // given, of those in which a handshake was answered
	turnTimer *time.Timer // that gives it; nil: none runs
}

// slotSource holds the places of the callers from one Source.
type slotSource struct {
	slots    []*Slot // oldest first
	reserved int     // places that count last
}

// Slot is a caller's place at a Gate.
type Slot struct {
	limit  *AdmissionLimit
	source netip.Prefix
	number uint64
	evict  func() // ends the connection; nil: it cannot be evicted

	// Guarded by g.mu.
	spoken   bool
	evicted  bool
	released bool
	turn     chan bool // gets whether the caller may be answered; nil: it does not wait
}

// Tuning: a source that has proved itself has reservedSlots, which others get only when
// there is nothing else left; maxProved sources are remembered. A turn comes each
// turnInterval, while a handshake takes some 0.5 ms of a processor; each repeatTurnEvery-th is for
// a source that had one before.
const (
	reservedSlots   = 4
	maxProved       = 4096
	turnInterval    = 4 * time.Millisecond
	repeatTurnEvery = 4
)

// NewAdmissionLimit makes one for so many callers at once, so many of them from one
// source, and so many of one source in a minute.
func NewAdmissionLimit(maxSlots, perSource, perMinute int) *AdmissionLimit {
	g := &AdmissionLimit{maxSlots: maxSlots, maxPerSource: perSource, sources: map[netip.Prefix]*slotSource{}, provedSources: map[netip.Prefix]time.Time{}, rate: RateLimiter[netip.Prefix]{PerMinute: perMinute}}
	g.slotFreed.L = &g.mu
	return g
}

// Admit takes a place for a caller, which leave gives back; to be called once.
// It is nil if there is none for that source: Admit evicts nobody, and its caller is not evicted.
func (g *AdmissionLimit) Admit(from net.Addr) (release func()) {
	prefix := SourceOf(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.used >= g.maxSlots || g.slotsOf(prefix) >= g.maxPerSource || !g.rate.Allow(prefix, time.Now()) {
		return nil
	}
	return g.addSlot(prefix, nil).Release
}

// AdmitEvicting takes a place for a caller, in place of another one if there is none. Drop ends a
// caller's connection, so that Leave follows soon: it is called without locks held, once,
// if another caller gets the place. Enter waits while too many of those have not left.
// It returns nil if all places are taken by callers that cannot be evicted.
func (g *AdmissionLimit) AdmitEvicting(from net.Addr, evict func()) *Slot {
	prefix := SourceOf(from)
	g.mu.Lock()
	for g.evictedCount >= g.maxSlots {
		g.slotFreed.Wait()
	}
	var out *Slot
	switch {
	case g.slotsOf(prefix) >= g.maxPerSource:
		s := g.sources[prefix]
		out = s.pickVictim(2*s.countSilent() >= len(s.slots))
	case g.used >= g.maxSlots:
		out = g.pickVictim(prefix)
	}
	if out != nil {
		out.evicted = true
		g.evictedCount++
		g.removeSlot(out)
		g.cancelTurn(out)
	}
	var v *Slot
	if g.used < g.maxSlots && g.slotsOf(prefix) < g.maxPerSource {
		v = g.addSlot(prefix, evict)
	}
	g.mu.Unlock()
	if out != nil {
		out.evict()
	}
	return v
}

// slotsOf returns how many a source has. mu must be held.
func (g *AdmissionLimit) slotsOf(from netip.Prefix) int {
	if s := g.sources[from]; s != nil {
		return len(s.slots)
	}
	return 0
}

// addSlot adds a visit. mu must be held.
func (g *AdmissionLimit) addSlot(from netip.Prefix, drop func()) *Slot {
	s := g.sources[from]
	if s == nil {
		s = &slotSource{}
		if _, ok := g.provedSources[from]; ok {
			s.reserved = reservedSlots
		}
		g.sources[from] = s
	}
	g.lastNumber++
	v := &Slot{limit: g, source: from, number: g.lastNumber, evict: drop}
	s.slots = append(s.slots, v)
	g.used++
	g.silentCount++
	return v
}

// removeSlot takes a visit's place away. mu must be held.
func (g *AdmissionLimit) removeSlot(v *Slot) {
	s := g.sources[v.source]
	s.slots = slices.DeleteFunc(s.slots, func(o *Slot) bool { return o == v })
	if len(s.slots) == 0 {
		delete(g.sources, v.source)
	}
	g.used--
	if !v.spoken {
		g.silentCount--
	}
}

// pickVictim returns the visit that a newcomer replaces: of the source with the most places
// beyond its reserved ones, the newcomer counted. mu must be held.
func (g *AdmissionLimit) pickVictim(newcomer netip.Prefix) (out *Slot) {
	silent := 2*g.silentCount >= g.used
	var most int
	for from, s := range g.sources {
		v := s.pickVictim(silent)
		n := len(s.slots) - s.reserved
		if from == newcomer {
			n++
		}
		if v != nil && (out == nil || n > most || n == most && v.isEvictedBefore(out, silent)) {
			out, most = v, n
		}
	}
	return out
}

// pickVictim returns the caller of the source that goes first, nil if none can be evicted.
// mu must be held.
func (s *slotSource) pickVictim(silent bool) (out *Slot) {
	for _, v := range s.slots {
		if v.evict != nil && (out == nil || v.isEvictedBefore(out, silent)) {
			out = v
		}
	}
	return out
}

// countSilent returns how many callers have not spoken. mu must be held.
func (s *slotSource) countSilent() (n int) {
	for _, v := range s.slots {
		if !v.spoken {
			n++
		}
	}
	return n
}

// isEvictedBefore reports whether v is evicted before o: silent callers first, or those that
// have spoken. mu must be held.
func (v *Slot) isEvictedBefore(o *Slot, silent bool) bool {
	if v.spoken != o.spoken {
		return v.spoken != silent
	}
	return v.number < o.number
}

// AwaitTurn notes that the caller has sent its whole first flight, and waits until it is its
// turn to be answered: for a second or two at most. It reports whether it is: not for a
// visit that was evicted, nor for one too many of its source in a minute.
func (v *Slot) AwaitTurn() bool {
	g := v.limit
	g.mu.Lock()
	if v.evicted || v.released {
		g.mu.Unlock()
		return false
	}
	if !v.spoken {
		v.spoken = true
		g.silentCount--
	}
	if _, ok := g.provedSources[v.source]; ok {
		defer g.mu.Unlock()
		return g.rate.Allow(v.source, time.Now())
	}
	turn := make(chan bool, 1)
	v.turn = turn
	g.waiting = append(g.waiting, v)
	if g.turnTimer == nil {
		g.grantTurns()
	}
	g.mu.Unlock()
	return <-turn
}

// grantTurns lets those go on whose turn it is, and comes again for the others. mu must be
// held.
func (g *AdmissionLimit) grantTurns() {
	now := time.Now()
	g.turnTimer = nil
	for len(g.waiting) > 0 {
		if wait := g.nextTurn.Sub(now); wait > 0 {
			g.turnTimer = time.AfterFunc(wait, func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.grantTurns()
			})
			return
		}
		v := slices.MinFunc(g.waiting, g.compareTurns)
		ok := g.rate.Allow(v.source, now)
		if ok { // a refusal is no work
			g.nextTurn = laterOf(now, g.nextTurn).Add(turnInterval)
			g.turns++
		}
		v.turn <- ok
		v.turn = nil
		g.waiting = slices.DeleteFunc(g.waiting, func(o *Slot) bool { return o == v })
	}
}

// compareTurns returns a negative number if the next turn is rather v's than o's. mu must
// be held.
func (g *AdmissionLimit) compareTurns(v, o *Slot) int {
	mine, other := g.rate.counts[v.source], g.rate.counts[o.source]
	if g.turns%repeatTurnEvery == repeatTurnEvery-1 && (mine > 0) != (other > 0) {
		return other - mine
	}
	return cmp.Or(cmp.Compare(mine, other), cmp.Compare(v.number, o.number))
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// cancelTurn ends a wait for a turn. mu must be held.
func (g *AdmissionLimit) cancelTurn(v *Slot) {
	if v.turn != nil {
		v.turn <- false
		v.turn = nil
		g.waiting = slices.DeleteFunc(g.waiting, func(o *Slot) bool { return o == v })
	}
}

// MarkProved notes that the caller has proved its identity, and gives its place back. It
// reports false for a visit that was evicted before.
func (v *Slot) MarkProved() bool {
	g := v.limit
	g.mu.Lock()
	if _, ok := g.provedSources[v.source]; !ok && len(g.provedSources) >= maxProved {
		delete(g.provedSources, g.oldestProvedSource())
	}
	g.provedSources[v.source] = time.Now()
	if s := g.sources[v.source]; s != nil {
		s.reserved = reservedSlots
	}
	evicted := v.evicted
	g.mu.Unlock()
	v.Release()
	return !evicted
}

// Source returns where the caller comes from.
func (v *Slot) Source() netip.Prefix { return v.source }

// IsSourceProved reports whether a caller from the same source has proved its identity.
func (v *Slot) IsSourceProved() bool {
	v.limit.mu.Lock()
	defer v.limit.mu.Unlock()
	_, ok := v.limit.provedSources[v.source]
	return ok
}

// oldestProvedSource returns the source that proved itself longest ago. mu must be held.
func (g *AdmissionLimit) oldestProvedSource() (oldest netip.Prefix) {
	first := true
	for from, at := range g.provedSources {
		if first || at.Before(g.provedSources[oldest]) {
			oldest, first = from, false
		}
	}
	return oldest
}

// IsEvicted reports whether another caller has the visit's place.
func (v *Slot) IsEvicted() bool {
	v.limit.mu.Lock()
	defer v.limit.mu.Unlock()
	return v.evicted
}

// Release gives the place back, if it is still the visit's. Each visit must leave; after the
// first time it does nothing.
func (v *Slot) Release() {
	g := v.limit
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case v.released:
		return
	case v.evicted:
		g.evictedCount--
		g.slotFreed.Signal()
	default:
		g.removeSlot(v)
	}
	v.released = true
}

// maxLimitedKeys bounds who is remembered by Tries: some MB.
const maxLimitedKeys = 1 << 15

// RateLimiter bounds how often each of some may do something in a minute. Minutes
// begin with the first try after the last one; the memory of all ends with them. Of
// more than maxLimitedKeys in one minute those that come last share what one may do. Not
// safe for concurrent use.
type RateLimiter[K comparable] struct {
	PerMinute int

	minuteStart time.Time
	counts      map[K]int
	overflow    int // of those for whom there was no place in made
}

// Allow counts a try, if it is not one too many; what is refused counts nothing.
func (t *RateLimiter[K]) Allow(key K, now time.Time) bool {
	if t.counts == nil || now.Sub(t.minuteStart) >= time.Minute {
		t.counts, t.overflow, t.minuteStart = map[K]int{}, 0, now
	}
	n, known := t.counts[key]
	switch {
	case !known && len(t.counts) >= maxLimitedKeys:
		t.overflow++
		return t.overflow <= t.PerMinute
	case n >= t.PerMinute:
		return false
	}
	t.counts[key] = n + 1
	return true
}

// SourceOf is what counts as one caller: an address (IPv4) or network (IPv6, /64);
// all that is neither TCP nor UDP together.
func SourceOf(a net.Addr) netip.Prefix {
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
