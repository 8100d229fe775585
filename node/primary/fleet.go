// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/control/fleet"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/refusal"
)

// Tuning of the choice among the servers of a fleet.
const (
	// measuredServers bounds the servers whose handshakes are measured at once.
	measuredServers = 3
	// handshakeTimeout bounds a measured handshake. Others may answer for handshakeGrace, or as long again as the
	// first one took, after the first.
	handshakeTimeout, handshakeGrace = time.Second, 50 * time.Millisecond
	// similar servers, whose scores differ by less than these, are chosen at random: else all devices of a server
	// that ends would go to the same next one.
	similarFactor, similarDelay = 1.25, 5 * time.Millisecond
	// avoidTime is how long a server that failed is not chosen while others answer.
	avoidTime = 30 * time.Second
	// refuseTime is how long a server that refused is no way out for a device that another one refuses.
	refuseTime = 5 * time.Second
	// unclearFailures is how many failures in a row count that may be those of this device's links.
	unclearFailures = 2
	// offerInterval is how often the server is asked for the fleet's servers while the bond carries something, and
	// offerTimeout bounds the answer. minOfferDelay is the least time between two questions.
	offerInterval, offerTimeout, minOfferDelay = 10 * time.Second, 10 * time.Second, time.Second
	// drainTime bounds how long streams stay at a server that drains. The server's own limit is usually shorter.
	drainTime = time.Hour
	// moveTime bounds how long streams stay at a server that works, when a nearer one is used.
	moveTime = 24 * time.Hour
	// idleBytes bounds what a bond carries after a question by the question itself; quietBytes what it carries in
	// a second while servers are measured beside it, so that its own queue is not measured.
	idleBytes, quietBytes = 256, 16 * unit.KB
)

// fleetGuide chooses the server of the bond among those of a fleet. It changes the choice when the server fails
// and another one answers, when it drains, and when the fleet lists it no longer. A fleetGuide without a fleet
// does nothing. Safe for concurrent use.
type fleetGuide struct {
	load   func() (*fleet.Joined, error) // reads the fleet that this device has joined; nil: none
	server *serverPeer
	bond   *bondHolder
	demand *demand
	clock  *pace.Clock
	log    *slog.Logger
	// measure returns how long a handshake with an address takes, over an interface or, if that is empty, as the
	// routes say; replaced in tests.
	measure func(ctx context.Context, addr, iface string) (time.Duration, error)
	// greet returns nil once a server has completed a handshake; replaced in tests.
	greet func(context.Context, identity.Peer) error
	// listChanged applies a changed trust file.
	listChanged func()
	random      func(n int) int // replaced in tests
	measuring   sync.WaitGroup  // handshakes, which may outlive the choice

	mu       sync.Mutex
	fleet    *fleet.Joined                    // nil: none
	avoided  map[identity.PublicKey]time.Time // until when
	refusing map[identity.PublicKey]time.Time // until when; see isRefusing
	failures map[identity.PublicKey]int       // in a row, that may be this device's
	hints    map[string]fleet.Hint            // by name; of running servers
	hintsAt  time.Time
	choosing bool
	asked    time.Time // last question for an offer
	times    serverTimes
	measured time.Time // when servers were last measured
}

// newFleetGuide returns a guide that measures with these socket options.
func newFleetGuide(cfg Config, server *serverPeer, bond *bondHolder, demand *demand, log *slog.Logger) *fleetGuide {
	g := &fleetGuide{load: cfg.LoadFleet, server: server, bond: bond, demand: demand, clock: cfg.Clock, log: log,
		random: rand.IntN,
		measure: func(ctx context.Context, addr, iface string) (time.Duration, error) {
			began := time.Now()
			c, err := tcp.Dial(ctx, addr, tcp.Options{Interface: iface, Mark: cfg.socketMark()})
			if err != nil {
				return 0, err
			}
			took := time.Since(began)
			_ = c.Abort()
			return took, nil
		},
		avoided: map[identity.PublicKey]time.Time{}, refusing: map[identity.PublicKey]time.Time{},
		failures: map[identity.PublicKey]int{}, hints: map[string]fleet.Hint{},
		times: serverTimes{}}
	g.reload()
	return g
}

// reload reads the fleet that this device has joined: it may have joined or left one while it runs.
func (g *fleetGuide) reload() {
	if g.load == nil {
		return
	}
	j, err := g.load()
	if err != nil {
		g.log.Error("fleet not read", "err", err, "hint", fault.HintOf(err))
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fleet = j
}

// joined returns the fleet that this device has joined, nil if there is none.
func (g *fleetGuide) joined() *fleet.Joined {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fleet
}

// isActive reports whether the bond's server is one of a fleet, and not named by the user.
func (g *fleetGuide) isActive() bool { return g.joined() != nil && g.server.isFleet() }

// chooseFirst chooses a server before the first subflow.
func (g *fleetGuide) chooseFirst(ctx context.Context) {
	if !g.isActive() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout) // later failures lead to another one
	defer cancel()
	if s, ok := g.choose(ctx, identity.PublicKey{}, ""); ok {
		g.server.setServer(s)
	}
}

// listCandidates returns the servers of the fleet, without one, in the order in which they are tried: those that
// run and did not fail lately first, and of these the near ones.
func (g *fleetGuide) listCandidates(without identity.PublicKey, now time.Time) []candidate {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []candidate
	for _, p := range g.server.listFleetServers() {
		c := candidate{peer: p}
		var name string
		name, c.region = g.findInFleet(p)
		if h, ok := g.hints[name]; ok {
			c.hint = &h
		}
		switch isKnown := now.Sub(g.hintsAt) < time.Minute; {
		case now.Before(g.avoided[p.Key]):
			c.rank = 3
		case c.hint != nil && (c.hint.Draining || c.hint.Full):
			c.rank = 2
		case isKnown && c.hint == nil:
			c.rank = 1
		}
		list = append(list, c)
	}
	g.times.forgetOthers(list)
	regions := g.times.timesOfRegions(list, now)
	list = slices.DeleteFunc(list, func(c candidate) bool { return c.peer.Key == without })
	for i := range list { // in no fixed order, so that not all devices try the same ones
		j := i + g.random(len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	var sorted []candidate
	for len(list) > 0 {
		n := countFirstRank(list)
		sorted = append(sorted, g.times.sortByNearness(list[:n], regions, measuredServers, now)...)
		list = list[n:]
	}
	return sorted
}

// countFirstRank returns how many servers at the beginning of a list have the rank of the first one.
func countFirstRank(list []candidate) int {
	n := slices.IndexFunc(list, func(c candidate) bool { return c.rank != list[0].rank })
	if n < 0 {
		return len(list)
	}
	return n
}

// findInFleet returns the name and the region of a server in its fleet. Its name in the trust file is another one if
// that was taken. A server without a region has one of its own. mu must be held.
func (g *fleetGuide) findInFleet(p identity.Peer) (name, region string) {
	if g.fleet != nil {
		for _, s := range g.fleet.List().Servers {
			if s.Key == p.Key {
				return s.Name, cmp.Or(s.Region, p.Key.String())
			}
		}
	}
	return p.Name, p.Key.String()
}

// choose returns the best server that answers, except one. It measures a few at once, and further ones only if
// none of these answers.
func (g *fleetGuide) choose(ctx context.Context, without identity.PublicKey, iface string) (identity.Peer, bool) {
	list := g.listCandidates(without, time.Now())
	for len(list) > 0 && ctx.Err() == nil {
		n := min(measuredServers, countFirstRank(list))
		if best := keepSimilar(g.measureAll(ctx, list[:n], iface, handshakeGrace)); len(best) > 0 {
			return best[g.random(len(best))].peer, true
		}
		list = list[n:]
	}
	return identity.Peer{}, false
}

// measureAll measures the handshakes of servers and returns those that answered: within the grace after the first
// one, or as long again as that one took. The times of later ones are remembered too: measuring waits for them.
func (g *fleetGuide) measureAll(ctx context.Context, list []candidate, iface string, grace time.Duration) []candidate {
	began := time.Now()
	g.mu.Lock()
	g.measured = began
	g.mu.Unlock()
	type result struct {
		candidate
		err error
	}
	results := make(chan result, len(list))
	var hasAnswer atomic.Bool
	handshakes, cancel := context.WithTimeout(context.WithoutCancel(ctx), handshakeTimeout)
	var running sync.WaitGroup
	for _, c := range list {
		running.Go(func() {
			took, err := g.measure(handshakes, c.peer.Addresses[0], iface)
			c.score = c.scoreOf(took)
			switch {
			case err == nil:
				hasAnswer.Store(true)
				g.noteTime(c.peer.Key, max(took, 1), began)
			case hasAnswer.Load() || errors.Is(err, syscall.ECONNREFUSED): // else this device's links may be the cause
				g.noteTime(c.peer.Key, 0, began)
			}
			results <- result{c, err}
		})
	}
	g.measuring.Go(func() {
		running.Wait()
		cancel()
	})
	var answered []candidate
	late := (<-chan time.Time)(nil)
	for range list {
		select {
		case r := <-results:
			if r.err == nil {
				answered = append(answered, r.candidate)
			}
		case <-late: // those that have answered are enough
			return answered
		case <-ctx.Done():
			return answered
		}
		if len(answered) == 1 && late == nil {
			timer := time.NewTimer(max(time.Since(began), grace))
			defer timer.Stop()
			late = timer.C
		}
	}
	return answered
}

func (g *fleetGuide) noteTime(key identity.PublicKey, took time.Duration, began time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.times.note(key, took, began)
}

// serverWorked notes that a subflow has joined.
func (g *fleetGuide) serverWorked(key identity.PublicKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.failures, key)
	delete(g.avoided, key)
	delete(g.refusing, key)
}

// failedAttempt is an attempt to open a subflow that failed.
type failedAttempt struct {
	server identity.PublicKey
	cause  error
	iface  string // of a direct subflow; "": as the routes say
	helped bool
}

// switchServer goes to another server of the fleet after a failure, if that answers, and reports whether the bond has
// another server now. A device without links of its own cannot ask: after two failures by its helpers it goes to any
// other server.
func (g *fleetGuide) switchServer(ctx context.Context, f failedAttempt) bool {
	if !g.isActive() || ctx.Err() != nil {
		return false
	}
	now, _ := g.server.currentServer()
	if now.Key != f.server {
		return true // another supervisor was faster
	}
	// Of the fleet's servers all refuse a device that is revoked, paused or too old. Helpers are not believed.
	sentAway := isSentAway(f.cause)
	if refusal.Is(f.cause) || g.bond.hasSubflow() && (!sentAway || f.helped) || !g.shouldLeave(f) {
		return false
	}
	defer g.endChoice()
	next, ok := g.choose(ctx, f.server, f.iface)
	if others := g.listCandidates(f.server, time.Now()); !ok && f.helped && len(others) > 0 {
		next, ok = others[0].peer, true
	}
	if !ok || sentAway && g.isRefusing(next, time.Now()) {
		return false
	}
	g.log.Warn("another server of the fleet takes over", "from", now.Name, "to", next.Name, "cause", f.cause)
	s := g.bond.currentSession()
	switch g.server.setServer(next); {
	case sentAway && g.bond.hasSubflow():
		g.bond.drainSession(s, drainTime)
	case sentAway: // that server does not have this bond: streams would wait for nothing
		g.bond.replaceSession(s, "server "+now.Name+" accepts no new bonds; new connections use "+next.Name)
	default:
		g.bond.replaceSession(s, "server "+now.Name+" does not answer; new connections use "+next.Name)
	}
	g.askSoon()
	g.demand.retryRefused()
	return true
}

// isClear reports whether a failure is that of the server, and not of this device's links.
func (f failedAttempt) isClear() bool {
	return !f.helped && (errors.Is(f.cause, syscall.ECONNREFUSED) || isSentAway(f.cause))
}

// isSentAway reports whether a server has refused a subflow because it accepts no new bonds: it ends, drains or is
// full.
func isSentAway(err error) bool {
	var r wire.Refuse
	return errors.As(err, &r) && r.Code == wire.CodeClosed
}

// shouldLeave reports whether the failure of a server is reason to ask others, which one supervisor does at a
// time; it then calls endChoice.
func (g *fleetGuide) shouldLeave(f failedAttempt) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failures[f.server]++; !f.isClear() && g.failures[f.server] < unclearFailures || g.choosing {
		return false
	}
	delete(g.failures, f.server)
	if g.avoided[f.server], g.choosing = time.Now().Add(avoidTime), true; isSentAway(f.cause) {
		g.refusing[f.server] = time.Now().Add(refuseTime)
	}
	return true
}

// isRefusing reports whether a server answers but has refused this device lately: it drains, is full, or has lost its
// fleet. Going there from another one that refuses too would never end.
func (g *fleetGuide) isRefusing(p identity.Peer, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Before(g.refusing[p.Key])
}

func (g *fleetGuide) endChoice() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.choosing = false
}

// askSoon asks the server for the fleet's servers at the next opportunity.
func (g *fleetGuide) askSoon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = time.Time{}
}

// runQuestions asks the server for the fleet's servers while the bond carries something, and once after each change of
// the server, until ctx ends.
func (g *fleetGuide) runQuestions(ctx context.Context) {
	t := g.clock.NewTicker(minOfferDelay)
	defer t.Stop()
	askedAt := uint64(0) // bytes carried when the server was last asked
	var quiet quietMeter
	for {
		var now time.Time
		select {
		case <-ctx.Done():
			return
		case now = <-t.C:
		}
		if g.joined() == nil && g.server.isFleet() {
			g.reload() // joined while this primary runs
		}
		if !g.isActive() {
			continue
		}
		s := g.bond.currentSession()
		carried := carriedBytes(s)
		askedAt = min(askedAt, carried) // subflows have ended, or it is another session
		isQuiet := quiet.observe(now, carried)
		g.mu.Lock()
		// an idle connection is no reason to wake a radio
		isDue := g.asked.IsZero() || time.Since(g.asked) >= offerInterval && carried > askedAt+idleBytes
		if isDue = isDue && s.endpoint.NoSubflowFor() == 0; isDue {
			g.asked = time.Now()
		}
		g.mu.Unlock()
		if !isDue {
			continue
		}
		err := g.ask(ctx, s)
		switch {
		case err != nil && ctx.Err() == nil:
			g.log.Debug("the server did not say which servers the fleet has", "err", err)
		case err == nil && isQuiet:
			g.moveNearer(ctx, s) // now, when the radio is awake anyway
		}
		askedAt = carriedBytes(s)
		quiet = quietMeter{time.Now(), askedAt}
	}
}

// quietMeter decides from the bytes that a bond has carried whether it is quiet.
type quietMeter struct {
	since   time.Time // when carried was observed; zero: never
	carried uint64
}

// observe reports whether the bond carries something, but little, as far as at least a second shows: ticks may come
// sooner. A smaller number than the last one is of other subflows, and counts from now on.
func (m *quietMeter) observe(now time.Time, carried uint64) (isQuiet bool) {
	whole := now.Sub(m.since) >= time.Second
	if carried >= m.carried && !whole {
		return false
	}
	isQuiet = whole && carried > 0 && carried >= m.carried && carried-m.carried < uint64(quietBytes)
	*m = quietMeter{now, carried}
	return isQuiet
}

// carriedBytes returns how many bytes the present subflows of a session have carried, 0 without streams. A subflow
// that ends, or another session, makes it less.
func carriedBytes(s *session) (sum uint64) {
	if s.endpoint.Streams() == 0 {
		return 0
	}
	for _, sf := range s.endpoint.Status(false).Subflows {
		sum += uint64(sf.Received) + uint64(sf.Sent)
	}
	return sum
}

// ask asks the server of a session for the fleet's servers, applies the answer, and leaves a server that drains.
func (g *fleetGuide) ask(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	c, err := s.endpoint.Dial(fleet.OfferDest, wire.ModeBond, 0)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Reset() })
	defer stop()
	_ = c.CloseWrite()
	offer, err := io.ReadAll(io.LimitReader(c, wire.MaxOffer+1))
	if err != nil {
		return err
	}
	j := g.joined()
	if j == nil {
		return nil // left meanwhile
	}
	o, changed, err := j.Apply(offer, time.Now())
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.hints, g.hintsAt = map[string]fleet.Hint{}, time.Now()
	for _, h := range o.Hints {
		g.hints[h.Name] = h
	}
	g.mu.Unlock()
	now, _ := g.server.currentServer()
	if changed {
		g.log.Info("new list of the fleet's servers", "fleet", o.Fleet, "servers", len(o.Servers), "number", o.Number)
		g.applyList(ctx, s, now)
	}
	if !g.isDrainingServer(now) || s != g.bond.currentSession() {
		return nil
	}
	next, ok := g.choose(ctx, now.Key, "")
	if !ok || g.isDrainingServer(next) {
		return nil // none is better
	}
	g.log.Info("the server drains: new connections use another one", "from", now.Name, "to", next.Name)
	g.server.setServer(next)
	g.bond.drainSession(s, drainTime)
	g.askSoon()
	return nil
}

// applyList applies a new list of servers, which is in the trust file. If the server of the bond is no longer on it,
// the best of the others follows.
func (g *fleetGuide) applyList(ctx context.Context, s *session, now identity.Peer) {
	g.mu.Lock()
	g.measured = time.Time{} // there may be a nearer one
	g.mu.Unlock()
	if _, isListed := g.server.trust.Lookup(now.Key); !isListed {
		if next, ok := g.choose(ctx, now.Key, ""); ok {
			g.server.setServer(next)
			defer g.bond.replaceSession(s, "server "+now.Name+" was removed; new connections use "+next.Name)
		}
	}
	g.listChanged()
}

// moveNearer measures servers, unless it did so lately, and goes to one that is much nearer than that of the bond.
// Streams stay where they are.
func (g *fleetGuide) moveNearer(ctx context.Context, s *session) {
	now, _ := g.server.currentServer()
	list := g.listCandidates(identity.PublicKey{}, time.Now())
	i := slices.IndexFunc(list, func(c candidate) bool { return c.peer.Key == now.Key })
	if len(list) == 0 || list[0].rank > 0 || i < 0 || list[i].rank > 0 || !g.isMeasureDue(list, time.Now()) {
		return
	}
	list = slices.Insert(slices.Delete(slices.Clone(list[:countFirstRank(list)]), i, i+1), 0, list[i])
	// without hurry: one that is far answers late
	answered := g.measureAll(ctx, list[:min(measuredServers, len(list))], "", handshakeTimeout)
	nearer := listNearer(answered, now.Key)
	if present, _ := g.server.currentServer(); len(nearer) == 0 || present.Key != now.Key || s != g.bond.currentSession() {
		return
	}
	next := nearer[g.random(len(nearer))].peer
	g.log.Info("another server answers sooner: new connections use it", "from", now.Name, "to", next.Name)
	g.server.setServer(next)
	g.bond.drainSession(s, moveTime)
	g.askSoon()
}

// isMeasureDue reports whether it is time to measure servers beside a bond that works.
func (g *fleetGuide) isMeasureDue(list []candidate, now time.Time) bool {
	interval := measureInterval
	if slices.ContainsFunc(list, func(c candidate) bool { return c.isNewRegion && c.rank == 0 }) {
		interval = exploreInterval
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(list) > 1 && now.Sub(g.measured) >= interval
}

// isDrainingServer reports whether a server drains, as far as is known.
func (g *fleetGuide) isDrainingServer(p identity.Peer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	name, _ := g.findInFleet(p)
	return g.hints[name].Draining
}
