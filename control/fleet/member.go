// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// Tuning.
const (
	// beatInterval is how often a server reports its state: three times within ServerLife.
	beatInterval = 3 * time.Second
	// silenceLimit is how long a server's own beats may fail to return before the engine counts as lost.
	silenceLimit = 10 * time.Second
	// retryInterval is the wait after a watch has failed.
	retryInterval = time.Second
	// maxEvents bounds the events that wait for the engine.
	maxEvents = 1000
	// maxEventBatch is how many of them are on their way at once: a far engine confirms each a round trip later.
	maxEventBatch = 100
	// DefaultCacheLife is how long a server serves known devices without the engine. MinCacheLife is the least:
	// what is known is some seconds old anyway.
	DefaultCacheLife, MinCacheLife = time.Hour, 10 * time.Second
	// confirmInterval is how soon a server reports that it has applied a change of a device.
	confirmInterval = 500 * time.Millisecond
)

// MemberConfig is the configuration of a Member.
type MemberConfig struct {
	Server
	Version string
	// FleetKey is the fleet's key; zero: that of the cache, or at the first contact that of the engine.
	FleetKey identity.PublicKey
	// CacheFile keeps what is known of the fleet; "" keeps nothing. CacheLife is how long it may be used.
	CacheFile string
	CacheLife time.Duration
	// Load and Usage return what the server carries. Usage returns the devices whose counts have changed since
	// its last call. Both may be nil.
	Load  func() Load
	Usage func() []DeviceUsage
	Log   *slog.Logger

	now func() time.Time // another clock, in tests; nil: time.Now
}

// Member is a server's membership of a fleet: it knows the fleet's devices, reports the server's state and
// accepts the fleet's codes. It implements pairing.Fleet.
//
// A beat is a record that the server writes in Devices. When it comes back by the watch, the server has
// applied all changes that came before it: so it knows how old its knowledge is. Safe for concurrent use.
type Member struct {
	cfg       MemberConfig
	store     Store
	log       *slog.Logger
	directory *directory
	states    *serverStates
	lookups   *rate.Limiter // of codes
	counts    *usageCounts
	since     time.Time

	onChange   func() // nil: none
	isDraining atomic.Bool
	beats      sentBeats
	lastChange atomic.Int64  // when the watch of the devices last reported something, or Run began; Unix time in ns
	wasFresh   atomic.Bool   // what is known was young enough when it was last checked
	changed    chan struct{} // of capacity 1

	mu     sync.Mutex
	events []Event // that the engine has not taken yet
	wake   chan struct{}
	lost   bool // the engine is lost, and this was logged; while a new server waits for its first contact too
}

// NewMember opens the cache. The caller must call Run, which closes it.
func NewMember(store Store, cfg MemberConfig) (*Member, error) {
	if err := identity.CheckName(cfg.Name); err != nil {
		return nil, fault.New(fault.Config, err, "set `name` to the server's name in the fleet")
	}
	if err := checkRegion(cfg.Region); err != nil {
		return nil, fault.New(fault.Config, err, "a region is a word like eu-west")
	}
	switch {
	case cfg.CacheLife == 0:
		cfg.CacheLife = DefaultCacheLife
	case cfg.CacheLife < MinCacheLife:
		return nil, fault.New(fault.Config, fmt.Errorf("the life of the cache is %v", cfg.CacheLife),
			fmt.Sprintf("set it to %v or more", MinCacheLife))
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	d, damage, err := openDirectory(cfg.CacheFile, cfg.CacheLife, cfg.now)
	if err != nil {
		return nil, err
	}
	if damage != nil {
		cfg.Log.Error("the cache of the fleet is damaged", "err", damage, "hint",
			"the engine has everything that is lost")
	}
	if d.isFromFuture {
		cfg.Log.Warn("the cache of the fleet is from the future: devices are served when the engine answers", "hint",
			"check the clock of this machine: it was ahead, or is behind")
	}
	if cfg.FleetKey != (identity.PublicKey{}) {
		if err := d.pinKey(cfg.FleetKey); err != nil {
			d.close()
			return nil, err
		}
	}
	m := &Member{cfg: cfg, store: store, log: cfg.Log, directory: d, states: newServerStates(),
		lookups: rate.NewLimiter(200, 500), counts: newUsageCounts(store, cfg.Name), since: cfg.now().UTC(),
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	m.isDraining.Store(d.currentOrder().Draining)
	return m, nil
}

// SetChanged sets the function that is called, from one goroutine, when devices, the list of servers or the order to
// drain have changed. It must be called before Run.
func (m *Member) SetChanged(f func()) { m.onChange = f }

// SetAddresses sets the addresses that the server reports. It must be called before Run.
func (m *Member) SetAddresses(list []string) { m.cfg.Addresses = list }

// Run takes part in the fleet until ctx ends. It returns an error if the engine holds another fleet than the
// one of this server.
func (m *Member) Run(ctx context.Context) error {
	defer m.directory.close()
	if err := m.awaitFleet(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	m.lastChange.Store(time.Now().UnixNano())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { m.watchDevices(ctx); return nil })
	g.Go(func() error { m.checkEngine(ctx); return nil })
	g.Go(func() error { m.watch(ctx, Orders, m.applyOrder); return nil })
	g.Go(func() error {
		m.watch(ctx, Servers, func(c Change) {
			if !c.IsCurrent {
				m.states.apply(c, m.cfg.now())
			}
		})
		return nil
	})
	g.Go(func() error { m.runBeats(ctx); return nil })
	g.Go(func() error { m.runUsage(ctx); return nil })
	g.Go(func() error { m.runQuotas(ctx); return nil })
	g.Go(func() error { m.runEvents(ctx); return nil })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-m.changed:
				if m.onChange != nil {
					m.onChange()
				}
			}
		}
	})
	err := g.Wait()
	m.leave()
	return err
}

// awaitFleet reads the fleet's key from the engine. If the cache has it, an engine that does not answer, or has lost
// the fleet, is no reason to wait.
func (m *Member) awaitFleet(ctx context.Context) error {
	isKnown := m.directory.fleetKey() != (identity.PublicKey{})
	for first := true; ; first = false {
		key, err := readFleetKey(ctx, m.store)
		switch {
		case err == nil:
			return m.directory.pinKey(key)
		case isKnown:
			m.log.Warn("the fleet's record cannot be read: going on with what is known", "engine", m.store.Describe(),
				"err", err, "hint", fault.HintOf(err))
			return nil
		case fault.Is(err, fault.NotFound) || fault.Is(err, fault.Integrity):
			return err // nobody has made a fleet there, or its record is damaged
		}
		if first {
			m.mu.Lock()
			m.lost = true
			m.mu.Unlock()
			m.log.Warn("waiting for the fleet's engine", "engine", m.store.Describe(), "err", err, "hint",
				fault.HintOf(err))
		}
		if !waitFor(ctx, retryInterval) {
			return nil
		}
	}
}

// watch applies the changes of a bucket until ctx ends.
func (m *Member) watch(ctx context.Context, b Bucket, take func(Change)) {
	for ctx.Err() == nil {
		if err := m.store.Watch(ctx, b, take); err != nil && ctx.Err() == nil {
			m.log.Debug("watching the fleet failed, trying again", "bucket", b, "err", err)
		}
		waitFor(ctx, retryInterval)
	}
}

// watchDevices applies the changes of Devices until ctx ends. It starts the watch anew if a beat does not
// return, since a watch may have ended silently.
func (m *Member) watchDevices(ctx context.Context) {
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(ctx)
		var g errgroup.Group
		g.Go(func() error {
			defer cancel()
			return m.readDevices(watching)
		})
		g.Go(func() error {
			defer cancel()
			m.checkWatch(watching)
			return nil
		})
		_ = g.Wait()
		waitFor(ctx, retryInterval)
	}
}

// setEngineLost logs that the engine is lost or back.
func (m *Member) setEngineLost(lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost == lost {
		return
	}
	m.lost = lost
	if lost {
		m.log.Warn("the fleet's engine does not answer: known devices are served, new ones cannot be paired",
			"engine", m.store.Describe(), "until", m.cfg.now().Add(m.cfg.CacheLife-m.knownFor()).Format(time.RFC3339))
		return
	}
	m.log.Info("the fleet's engine answers", "engine", m.store.Describe())
}

// knownFor returns how old what is known of the devices is.
func (m *Member) knownFor() time.Duration {
	age, _ := m.directory.age()
	return age
}

// readDevices applies the changes of Devices until ctx ends or the watch fails.
func (m *Member) readDevices(ctx context.Context) error {
	seen := map[identity.PublicKey]bool{} // nil once all are read
	m.directory.beginWatch()
	return m.store.Watch(ctx, Devices, func(c Change) {
		m.lastChange.Store(time.Now().UnixNano())
		switch {
		case c.IsCurrent:
			if m.directory.keepOnly(seen) {
				m.notify()
			}
			seen = nil
		case strings.HasPrefix(c.Key, beatPrefix):
			// the first beats may be older than the rest that is still to come
			if at, ok := m.beats.sentAt(string(c.Value)); ok && seen == nil && c.Key == beatKey(m.cfg.Name) {
				m.directory.markRead(at)
			}
		default:
			if key, err := identity.ParsePublicKey(c.Key); err == nil && seen != nil {
				seen[key] = true
			}
			m.apply(c)
		}
	})
}

// apply applies a record of a device.
func (m *Member) apply(c Change) {
	changed, err := m.directory.applyDevice(c)
	if err != nil {
		m.log.Error("record of a device ignored", "err", err, "hint", fault.HintOf(err))
	}
	if changed {
		m.notify()
	}
}

// notify has the function of SetChanged called.
func (m *Member) notify() {
	select {
	case m.changed <- struct{}{}:
	default: // a call is due already
	}
}

// applyOrder applies a change of Orders.
func (m *Member) applyOrder(c Change) {
	switch c.Key {
	case listKey:
		if c.IsGone {
			return
		}
		if err := m.directory.applyList(c.Value); err != nil {
			m.log.Error("list of servers ignored", "err", err, "hint", fault.HintOf(err))
			return
		}
		m.warnUnlisted()
	case drainKey(m.cfg.Name):
		if c.IsGone {
			return // an order ends by another one
		}
		if err := m.directory.applyOrder(c.Value, m.cfg.Name); err != nil {
			m.log.Error("order ignored", "err", err, "hint", fault.HintOf(err))
			return
		}
		draining := m.directory.currentOrder().Draining
		if m.isDraining.Swap(draining) != draining {
			m.log.Info("the operator has ordered", "draining", draining)
		}
	default:
		return
	}
	m.notify()
}

// warnUnlisted logs if primaries will not use this server.
func (m *Member) warnUnlisted() {
	_, l, err := m.directory.currentList()
	if err != nil {
		return
	}
	s, ok := l.find(m.cfg.Name)
	switch {
	case !ok:
		m.log.Warn("this server is not on the fleet's list, so no primary uses it", "name", m.cfg.Name,
			"key", m.cfg.Key, "hint", "the fleet's operator runs: mpbond fleet add "+m.cfg.Name+" --key KEY --addr HOST:PORT")
	case s.Key != m.cfg.Key:
		m.log.Error("the fleet's list has another key for this server, so no primary uses it", "name", m.cfg.Name,
			"key", m.cfg.Key, "hint", "another machine has this name, or this one has a new key: mpbond fleet add")
	}
}

// sentBeats remembers the beats that this process has sent. A beat that others wrote counts for nothing. Safe for
// concurrent use.
type sentBeats struct {
	mu   sync.Mutex
	list []sentBeat // the newest last
}

type sentBeat struct {
	value string
	at    time.Time
}

// maxSentBeats bounds the beats that are remembered: those of some minutes.
const maxSentBeats = 100

// send returns the value of a new beat.
func (b *sentBeats) send(now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == maxSentBeats {
		b.list = b.list[1:]
	}
	value := rand.Text()
	b.list = append(b.list, sentBeat{value, now})
	return value
}

// sentAt returns when a beat was sent.
func (b *sentBeats) sentAt(value string) (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.list, func(s sentBeat) bool { return s.value == value })
	if i < 0 {
		return at, false
	}
	return b.list[i].at, true
}

const beatPrefix = "beat."

func beatKey(server string) string { return beatPrefix + server }

// runBeats reports the server's state until ctx ends.
func (m *Member) runBeats(ctx context.Context) {
	t := time.NewTicker(confirmInterval)
	defer t.Stop()
	var last ServerState
	wasServing := false
	for {
		isServing := !m.IsStale()
		if st := m.State(); st.At.Sub(last.At) >= beatInterval || st.Applied != last.Applied ||
			st.Draining != last.Draining || isServing != wasServing {
			m.beat(ctx, st, isServing)
			last, wasServing = st, isServing
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// beat reports the server's state once, unless it cannot serve devices yet: then primaries would be refused. A failure
// is noticed by checkEngine.
func (m *Member) beat(ctx context.Context, st ServerState, isServing bool) {
	ctx, cancel := context.WithTimeout(ctx, beatInterval)
	defer cancel()
	if m.cfg.Load != nil {
		st.Load = m.cfg.Load()
	}
	var err error
	if isServing {
		_, err = m.store.Put(ctx, Servers, m.cfg.Name, encode(st))
	}
	if err == nil {
		_, err = m.store.Put(ctx, Devices, beatKey(m.cfg.Name), []byte(m.beats.send(m.cfg.now())))
	}
	if err != nil {
		m.log.Debug("the fleet's engine did not take a report", "err", err)
	}
}

// leave removes the server's state, so that others know at once that it has ended.
func (m *Member) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r, err := m.store.Get(ctx, Servers, m.cfg.Name); err == nil {
		_ = m.store.Delete(ctx, Servers, m.cfg.Name, r.Revision)
	}
}

// State returns the state that the server reports, without its load.
func (m *Member) State() ServerState {
	st := ServerState{Server: m.cfg.Server, Version: m.cfg.Version, Since: m.since, At: m.cfg.now().UTC(),
		Draining: m.isDraining.Load()}
	_, st.Applied = m.directory.countDevices()
	return st
}

// Lookup returns a device that the fleet lets use its servers.
func (m *Member) Lookup(key identity.PublicKey) (identity.Peer, bool) {
	d, ok := m.directory.lookup(key)
	return d.Peer(), ok
}

// Allowed returns a function that reports whether a device may use this server in a role; only primaries may.
func (m *Member) Allowed(r identity.Role) func(identity.PublicKey) bool {
	return func(key identity.PublicKey) bool {
		_, ok := m.directory.lookup(key)
		return ok && r == identity.RolePrimary
	}
}

// IsStale reports whether what is known of the devices is too old: then none may be served.
func (m *Member) IsStale() bool {
	_, isFresh := m.directory.age()
	return !isFresh
}

// Paused reports whether the operator has paused a device, or it has used up its quota.
func (m *Member) Paused(key identity.PublicKey) bool {
	d, ok := m.directory.lookup(key)
	return ok && (d.Paused || d.Quota > 0 && m.counts.monthOf(key.ID()) >= d.Quota)
}

// IsDraining reports whether the operator has ordered this server to drain.
func (m *Member) IsDraining() bool { return m.isDraining.Load() }

// MemberStatus describes a membership.
type MemberStatus struct {
	Fleet   string        // name; "" if the list is not known
	Key     string        // of the fleet; "" if not known
	Engine  string        // in words
	Age     time.Duration // of what is known of the devices; negative: nothing is known
	Devices int
	Running []ServerState
	List    ServerList // zero if it is not known, or has expired
	// Expires is when the list expires or has expired; zero: no list is known.
	Expires time.Time
	// EngineLost reports that the engine does not answer.
	EngineLost bool
	Problem    error         // why devices or primaries are not served as they should be; nil: all is well
	Waiting    int           // events and counts that wait for the engine
	Life       time.Duration // how old what is known may be
}

// Status describes the membership.
func (m *Member) Status() MemberStatus {
	st := MemberStatus{Engine: m.store.Describe(), Age: -1, Running: m.states.running(m.cfg.now()),
		Life: m.cfg.CacheLife}
	if key := m.directory.fleetKey(); key != (identity.PublicKey{}) {
		st.Key = key.String()
	}
	_, list, err := m.directory.currentList()
	st.List, st.Fleet, st.Problem, st.Expires = list, list.Fleet, err, m.directory.listExpiry()
	if age, ok := m.directory.age(); ok || age > 0 {
		st.Age = age
		if !ok {
			st.Problem = fault.New(fault.Unreachable,
				errors.New("what is known of the devices is too old: none is served"),
				"the fleet's engine must answer; --cache-life says how old it may be")
		}
	}
	st.Devices, _ = m.directory.countDevices()
	if st.Problem == nil {
		st.Problem = m.directory.saveProblem()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	st.Waiting, st.EngineLost = len(m.events)+m.counts.waitingCount(), m.lost
	return st
}

// report adds an event, which is written when the engine takes it.
func (m *Member) report(e Event) {
	e.At, e.Server = m.cfg.now().UTC(), m.cfg.Name
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == maxEvents {
		m.events = m.events[1:]
	}
	m.events = append(m.events, e)
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// runEvents writes events until ctx ends.
func (m *Member) runEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		}
		for m.writeEvents(ctx) {
		}
	}
}

// writeEvents writes the oldest events, waits after a failure, and reports whether there may be more.
func (m *Member) writeEvents(ctx context.Context) bool {
	m.mu.Lock()
	if len(m.events) == 0 {
		m.mu.Unlock()
		return false
	}
	batch := slices.Clone(m.events[:min(len(m.events), maxEventBatch)])
	m.mu.Unlock()
	writing, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	if m.store.AddEvents(writing, batch...) != nil {
		return waitFor(ctx, retryInterval)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range batch { // report may have dropped some meanwhile
		if len(m.events) > 0 && m.events[0] == e {
			m.events = m.events[1:]
		}
	}
	return true
}

// waitFor waits, and reports whether it did not end with ctx.
func waitFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
