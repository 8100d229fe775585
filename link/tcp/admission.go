// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// AdmissionLimit bounds the callers that have not proved their identity: how many at once, in total
// and from one source, and how many from one source in a minute. So repeated calls do not use up
// the processor. Safe for concurrent use.
//
// AdmitEvicting admits a caller even if all slots are taken: the caller replaces another one, of
// the source with the most slots. So a source with few slots keeps them, whatever others do. If
// several callers qualify, either the silent ones or those that have spoken go first, whichever
// kind is the larger part; then the oldest. So neither a flood of silent callers nor one of half
// handshakes takes the slots of the other kind.
//
// Handshakes of sources with a caller that has proved its identity run at once; one device has
// maxProvedBy such sources, so that a hostile one with many addresses does not use up the processor.
// Other sources take turns: the source with the fewest turns in this minute comes first. Every fourth turn goes to a
// source that already had one, so that sources with an interrupted handshake do not wait behind
// newcomers for ever.
type AdmissionLimit struct {
	maxSlots, maxPerSource int

	mu            sync.Mutex
	slotFreed     sync.Cond // uses mu; signalled when evictedCount falls
	used          int
	silentCount   int // how many of used have not spoken
	evictedCount  int // evicted slots that were not released yet
	lastNumber    uint64
	sources       map[netip.Prefix]*slotSource
	provedSources map[netip.Prefix]proof // sources with an authenticated caller
	rate          RateLimiter[netip.Prefix]

	waiting   []*Slot // waiting for their turn
	nextTurn  time.Time
	turns     int         // turns given to callers after their handshake was answered
	turnTimer *time.Timer // gives the next turn; nil: not running
}

// proof says when a caller of a source last proved its identity, and which one: empty if it is not
// known.
type proof struct {
	at time.Time
	by string
}

// slotSource holds the slots of one source.
type slotSource struct {
	slots    []*Slot // oldest first
	reserved int     // slots that count last
}

// Slot is a caller's place in an AdmissionLimit.
type Slot struct {
	limit  *AdmissionLimit
	source netip.Prefix
	number uint64
	evict  func() // ends the connection; nil: it cannot be evicted

	// Guarded by limit.mu.
	spoken   bool
	evicted  bool
	released bool
	turn     chan bool // gets whether the caller may be answered; nil: it does not wait
}

// Tuning. A source with an authenticated caller has reservedSlots, which others get only if nothing
// else is left. maxProved sources are remembered, of one device maxProvedBy. A turn comes every
// turnInterval; a handshake takes about 0.5 ms of a processor. Every repeatTurnEvery-th turn is for
// a source that already had one.
const (
	reservedSlots   = 4
	maxProved       = 4096
	maxProvedBy     = 16
	turnInterval    = 4 * time.Millisecond
	repeatTurnEvery = 4
)

// NewAdmissionLimit returns a limit of maxSlots callers at once, perSource of them from one source,
// and perMinute from one source in a minute.
func NewAdmissionLimit(maxSlots, perSource, perMinute int) *AdmissionLimit {
	l := &AdmissionLimit{maxSlots: maxSlots, maxPerSource: perSource, sources: map[netip.Prefix]*slotSource{},
		provedSources: map[netip.Prefix]proof{}, rate: RateLimiter[netip.Prefix]{PerMinute: perMinute}}
	l.slotFreed.L = &l.mu
	return l
}

// Admit takes a slot for a caller. release gives it back and must be called once. Admit returns nil
// if no slot is free for that source: it evicts no other caller, and its caller is not evicted.
func (l *AdmissionLimit) Admit(from net.Addr) (release func()) {
	prefix := SourceOf(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used >= l.maxSlots || l.countSourceSlots(prefix) >= l.maxPerSource || !l.rate.Allow(prefix, time.Now()) {
		return nil
	}
	return l.addCallerSlot(prefix, nil).Release
}

// AdmitEvicting takes a slot for a caller and evicts another caller if necessary. evict must end
// the caller's connection, so that Release follows soon. It is called at most once, without locks
// held, when another caller gets the slot. AdmitEvicting waits while too many evicted callers have
// not released their slots. It returns nil if all slots belong to callers that cannot be evicted.
func (l *AdmissionLimit) AdmitEvicting(from net.Addr, evict func()) *Slot {
	prefix := SourceOf(from)
	l.mu.Lock()
	for l.evictedCount >= l.maxSlots {
		l.slotFreed.Wait()
	}
	var out *Slot
	switch {
	case l.countSourceSlots(prefix) >= l.maxPerSource:
		s := l.sources[prefix]
		out = s.pickSlotToEvict(2*s.countSilent() >= len(s.slots))
	case l.used >= l.maxSlots:
		out = l.pickSlotToReplace(prefix)
	}
	if out != nil {
		out.evicted = true
		l.evictedCount++
		l.removeSlot(out)
		l.cancelTurn(out)
	}
	var v *Slot
	if l.used < l.maxSlots && l.countSourceSlots(prefix) < l.maxPerSource {
		v = l.addCallerSlot(prefix, evict)
	}
	l.mu.Unlock()
	if out != nil {
		out.evict()
	}
	return v
}

// countSourceSlots returns how many slots a source has. mu must be held.
func (l *AdmissionLimit) countSourceSlots(from netip.Prefix) int {
	if s := l.sources[from]; s != nil {
		return len(s.slots)
	}
	return 0
}

// addCallerSlot adds a slot. mu must be held.
func (l *AdmissionLimit) addCallerSlot(from netip.Prefix, evict func()) *Slot {
	s := l.sources[from]
	if s == nil {
		s = &slotSource{}
		if _, ok := l.provedSources[from]; ok {
			s.reserved = reservedSlots
		}
		l.sources[from] = s
	}
	l.lastNumber++
	v := &Slot{limit: l, source: from, number: l.lastNumber, evict: evict}
	s.slots = append(s.slots, v)
	l.used++
	l.silentCount++
	return v
}

// removeSlot removes a slot. mu must be held.
func (l *AdmissionLimit) removeSlot(v *Slot) {
	s := l.sources[v.source]
	s.slots = slices.DeleteFunc(s.slots, func(o *Slot) bool { return o == v })
	if len(s.slots) == 0 {
		delete(l.sources, v.source)
	}
	l.used--
	if !v.spoken {
		l.silentCount--
	}
}

// pickSlotToReplace returns the slot that a newcomer replaces. It belongs to the source with the
// most slots beyond its reserved ones, counting the newcomer. mu must be held.
func (l *AdmissionLimit) pickSlotToReplace(newcomer netip.Prefix) (out *Slot) {
	silent := 2*l.silentCount >= l.used
	var mostSlots int
	for from, s := range l.sources {
		v := s.pickSlotToEvict(silent)
		n := len(s.slots) - s.reserved
		if from == newcomer {
			n++
		}
		if v != nil && (out == nil || n > mostSlots || n == mostSlots && v.isEvictedBefore(out, silent)) {
			out, mostSlots = v, n
		}
	}
	return out
}

// pickSlotToEvict returns the source's slot to evict first, or nil if none can be evicted. mu must
// be held.
func (s *slotSource) pickSlotToEvict(silent bool) (out *Slot) {
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

// isEvictedBefore reports whether v is evicted before o. silent selects whether silent callers or
// those that have spoken go first. mu must be held.
func (v *Slot) isEvictedBefore(o *Slot, silent bool) bool {
	if v.spoken != o.spoken {
		return v.spoken != silent
	}
	return v.number < o.number
}

// AwaitTurn records that the caller has sent its whole first flight, and waits for its turn to be
// answered, at most a second or two. It reports whether the caller may be answered. It may not if
// it was evicted, or if its source has used up this minute.
func (v *Slot) AwaitTurn() bool {
	l := v.limit
	l.mu.Lock()
	if v.evicted || v.released {
		l.mu.Unlock()
		return false
	}
	if !v.spoken {
		v.spoken = true
		l.silentCount--
	}
	if _, ok := l.provedSources[v.source]; ok {
		defer l.mu.Unlock()
		return l.rate.Allow(v.source, time.Now())
	}
	turn := make(chan bool, 1)
	v.turn = turn
	l.waiting = append(l.waiting, v)
	if l.turnTimer == nil {
		l.grantTurns()
	}
	l.mu.Unlock()
	return <-turn
}

// grantTurns gives the next turn, refuses callers whose sources have used up their minute, and
// starts the timer if more callers wait. mu must be held.
func (l *AdmissionLimit) grantTurns() {
	now := time.Now()
	l.turnTimer = nil
	for len(l.waiting) > 0 {
		if wait := l.nextTurn.Sub(now); wait > 0 {
			l.turnTimer = time.AfterFunc(wait, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.grantTurns()
			})
			return
		}
		v := slices.MinFunc(l.waiting, l.compareTurns)
		ok := l.rate.Allow(v.source, now)
		if ok { // a refusal costs no work
			l.nextTurn = laterOf(now, l.nextTurn).Add(turnInterval)
			l.turns++
		}
		v.turn <- ok
		v.turn = nil
		l.waiting = slices.DeleteFunc(l.waiting, func(o *Slot) bool { return o == v })
	}
}

// compareTurns returns a negative number if v gets a turn before o: mostly the one whose source has
// had fewer turns in this minute. mu must be held.
func (l *AdmissionLimit) compareTurns(v, o *Slot) int {
	mine, other := l.rate.counts[v.source], l.rate.counts[o.source]
	if l.turns%repeatTurnEvery == repeatTurnEvery-1 && (mine > 0) != (other > 0) {
		return other - mine
	}
	return cmp.Or(cmp.Compare(mine, other), cmp.Compare(v.number, o.number))
}

// laterOf returns the later of two times.
func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// cancelTurn ends the wait of v for a turn. mu must be held.
func (l *AdmissionLimit) cancelTurn(v *Slot) {
	if v.turn != nil {
		v.turn <- false
		v.turn = nil
		l.waiting = slices.DeleteFunc(l.waiting, func(o *Slot) bool { return o == v })
	}
}

// MarkProved records that the caller has proved its identity, and releases its slot. It reports
// false if the slot was evicted before.
func (v *Slot) MarkProved() bool { return v.MarkProvedBy("") }

// MarkProvedBy does what MarkProved does for the device with an identity. Sources beyond the newest
// maxProvedBy of a device are forgotten: they take turns again.
func (v *Slot) MarkProvedBy(device string) bool {
	l := v.limit
	l.mu.Lock()
	if old, ok := l.provedSources[v.source]; !ok || old.by != device {
		delete(l.provedSources, v.source) // it does not count among those that follow
		of := func(p proof) bool { return p.by == device }
		if from, n := l.oldestProvedSource(of); device != "" && n >= maxProvedBy {
			l.forgetProof(from)
		}
		if len(l.provedSources) >= maxProved {
			from, _ := l.oldestProvedSource(func(proof) bool { return true })
			l.forgetProof(from)
		}
	}
	l.provedSources[v.source] = proof{time.Now(), device}
	if s := l.sources[v.source]; s != nil {
		s.reserved = reservedSlots
	}
	evicted := v.evicted
	l.mu.Unlock()
	v.Release()
	return !evicted
}

// forgetProof makes a source like one without a proof. mu must be held.
func (l *AdmissionLimit) forgetProof(from netip.Prefix) {
	delete(l.provedSources, from)
	if s := l.sources[from]; s != nil {
		s.reserved = 0
	}
}

// Source returns the source of the caller.
func (v *Slot) Source() netip.Prefix { return v.source }

// IsSourceProved reports whether a caller from the same source has proved its identity.
func (v *Slot) IsSourceProved() bool {
	v.limit.mu.Lock()
	defer v.limit.mu.Unlock()
	_, ok := v.limit.provedSources[v.source]
	return ok
}

// oldestProvedSource returns the source with the oldest proof among those that match, and their
// number. mu must be held.
func (l *AdmissionLimit) oldestProvedSource(matches func(proof) bool) (oldest netip.Prefix, n int) {
	for from, p := range l.provedSources {
		if !matches(p) {
			continue
		}
		if n++; n == 1 || p.at.Before(l.provedSources[oldest].at) {
			oldest = from
		}
	}
	return oldest, n
}

// IsEvicted reports whether another caller has taken the slot.
func (v *Slot) IsEvicted() bool {
	v.limit.mu.Lock()
	defer v.limit.mu.Unlock()
	return v.evicted
}

// Release gives the slot back unless it was evicted. It must be called for each slot; further calls
// do nothing.
func (v *Slot) Release() {
	l := v.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case v.released:
		return
	case v.evicted:
		l.evictedCount--
		l.slotFreed.Signal()
	default:
		l.removeSlot(v)
	}
	v.released = true
}

// maxLimitedKeys bounds the keys that a RateLimiter remembers: some MB.
const maxLimitedKeys = 1 << 15

// RateLimiter bounds how often each key may do something in a minute. A minute begins with the
// first request after the last minute; then all counts are cleared. Keys beyond maxLimitedKeys in
// one minute share the limit of one key. Not safe for concurrent use.
type RateLimiter[K comparable] struct {
	PerMinute int

	minuteStart time.Time
	counts      map[K]int
	overflow    int // requests of keys that did not fit in counts
}

// Allow counts a request of key, and reports whether it is within the limit. A refused request is
// not counted. Keys that do not fit in counts share the limit of one key.
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

// SourceOf returns the network that counts as one caller: an IPv4 address or an IPv6 /64 network.
// Addresses that are neither TCP nor UDP share the zero prefix.
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
