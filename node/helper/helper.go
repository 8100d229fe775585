// Package helper is the role of a device that lends its network path: it
// offers itself to primaries over pipes, and for each subflow that one asks for
// connects the HS-path to the server and relays between the two. It stands in
// the data path between the pipe Link of the primary and the one of the server,
// and sees ciphertext only.
//
//	helper.go  pipes: dialled, kept ready, dialled again
//	target.go  an address of a primary, and what became of calls there
//	relays.go  the subflows that are relayed
//	relay.go   one subflow: two hops and the buffers between
//	resume.go  another pipe for a subflow whose pipe broke
//	report.go  what the senders are told about the hop they cannot see
//	hspath.go  the HS-path, over TCP or UDP
//	address.go the device's own addresses: what becomes of connections that lose theirs
//	find.go    primaries on the local networks
//	calls.go   primaries called again, and those that refuse this device
//	access.go  the servers that may be reached
//	caps.go    the owner's caps
//	share.go   the owner's traffic goes first: what relays may use of a link
//	trouble.go what does not answer: to the server, and from the primary
//	facts.go   battery, heat and link, and whether they suspend this device
//	announce.go  these, sent to primaries
package helper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/discovery"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
	"mpbond/node/refusal"
)

// Tuning.
const (
	defaultBuffer      = 4 * unit.MB // covers 3 s of a hop difference of 10 Mbit/s
	defaultMaxSubflows = 64
	// Between attempts to reach a primary that does not answer. The first retries
	// are quick, since most breaks are a restart or a roaming device; later a tenth
	// of the time that it has been away, so that its return is noticed soon and a
	// lasting absence costs little. After a refusal package backoff says how long.
	backoffMin  = 200 * time.Millisecond
	backoffSoon = time.Second
	backoffMax  = 15 * time.Second
	// steadyPipe is how long a pipe must have waited to count as one that worked:
	// a primary that refuses says so after the handshake.
	steadyPipe = 10 * time.Second
	// userTimeout ends a hop that acknowledges nothing. Both receivers read
	// whatever comes, within the bond's windows, so that a window shut for so
	// long is a dead end as well.
	userTimeout = time.Minute
)

// Config is what the helper's part of the configuration file says.
type Config struct {
	// Primaries to call: "host:port" of a pipe listener, "NAME"
	// of a trusted primary to use its addresses from the trust file, or
	// "NAME@host:port". Empty means all trusted primaries that have addresses;
	// there may be none yet.
	Primaries []string `toml:"primaries"`
	// Buffer bounds the bytes held per subflow and direction; 0 is 4 MB.
	Buffer unit.Bytes `toml:"buffer"`
	// MaxSubflows bounds the subflows relayed at once; 0 is 64.
	MaxSubflows int `toml:"max_subflows"`
	// Feedback is how the state of a pipe reaches the server: "flexible", over the HS-path while that carries data, else
	// over the pipe and the primary, so that no radio is woken; "fixed-always",
	// over the HS-path; "fixed-on-demand", over the HS-path while that carries
	// data, else not at all. Empty is flexible.
	Feedback string `toml:"feedback"`
	// PipeCongestion and HSCongestion name the congestion control of what this device
	// sends over pipes, and to servers; empty is the system's default.
	PipeCongestion string `toml:"pipe_congestion"`
	HSCongestion   string `toml:"hs_congestion"`
	// PipeInterface and HSInterface name the interfaces by which pipes go, and what is
	// carried to and from servers; empty leaves it to the routes.
	PipeInterface string `toml:"pipe_interface"`
	HSInterface   string `toml:"hs_interface"`
	// UDP are interfaces by which what is carried to and from servers goes over UDP
	// instead of TCP, where it gets through and the server serves it (docs/pbe.md); "any"
	// is each.
	UDP []string `toml:"udp"`
	// Cell tells, for interfaces of UDP, where the control messages of their mobile cells
	// are heard: a table for each, like [cell.wwan0].
	Cell map[string]device.Cell `toml:"cell"` // for the caller to listen to
	// BatteryFloor is the battery, in percent, below which this device carries
	// nothing for others unless it is plugged in; 0 is none.
	BatteryFloor int `toml:"battery_floor"`
	// MaxTemperature is the temperature, in °C, from which on it carries nothing; 0
	// is none.
	MaxTemperature float64 `toml:"max_temperature"`
	// Pair is where a primary calls while a code for pairing holds, "host:port";
	// empty is ":7603".
	Pair string `toml:"pair"`
	// API is where requests over TCP and the web console (docs/console.md) are answered, a loopback "host:port"; empty is none.
	API string `toml:"api"`
	// Mark is the firewall mark of all sockets, 0 for none: with a TUN device in
	// the same process they must go around it.
	Mark int `toml:"-"`
	// Usage counts what pipes and HS-paths carry; nil: nothing is counted.
	Usage *device.Usage `toml:"-"`
	// DialUDP connects over UDP; nil: it cannot.
	DialUDP dial.DialUDP `toml:"-"`
	// Allowed is what a link, or all of them for a primary, may still carry, by the
	// owner's caps; nil: there are none.
	Allowed func(of device.Bounded) policy.Allowance `toml:"-"`
	// Limits are what the policy file says of this device, for what is left out
	// here; nil: there is none.
	Limits func() policy.Limits `toml:"-"`
}

// Identity is who the device is, and whom it trusts.
type Identity struct {
	Key   *identity.Key
	Trust *identity.Trust
}

// Helper is the role. Make one with New.
type Helper struct {
	cfg   Config
	name  string
	key   *identity.Key
	trust *identity.Trust
	log   *slog.Logger
	rec   *trace.Recorder // nil: nothing is traced
	mode  feedback

	pipes     pipe.Carrier // a fake in tests
	servers   dialer       // a fake in tests
	paths     *dial.Dialer
	changed   chan struct{}
	addresses func() (map[netip.Addr]bool, error) // device.Addresses; fakes in tests
	wall      func() time.Time                    // wallClock; fakes in tests

	find func(context.Context) ([]discovery.Found, error) // nil: nothing is looked for

	mu      sync.Mutex
	targets []*target // each kept by a goroutine while Run runs
	found   found
	offers  map[*pipe.Offer]*offered
	early   chan struct{} // closed and replaced when primaries are to be called again at once
	refused refusal.List  // primaries that refuse this device, or that it does not recognise

	access    *serverAccess
	caps      *capChecker
	share     *linkShare
	relays    *relayTable
	facts     *deviceFacts
	announcer *announcer
}

// longestWait returns the longest wait for a primary that has been away so long.
func longestWait(away time.Duration) time.Duration {
	return min(max(away/10, backoffSoon), backoffMax)
}

// New checks cfg. Name is this device's own, for display at the other ends.
// Rec, if not nil, is told what happens. Errors are faults of kind Config.
func New(cfg Config, name string, ids Identity, log *slog.Logger, rec *trace.Recorder) (*Helper, error) {
	bad := func(err error, hint string) (*Helper, error) {
		return nil, fault.New(fault.Config, fmt.Errorf("helper: %w", err), hint)
	}
	if cfg.Buffer == 0 {
		cfg.Buffer = defaultBuffer
	}
	if cfg.Buffer < 64*unit.KB || cfg.Buffer > unit.GB {
		return bad(fmt.Errorf("buffer of %v", cfg.Buffer), "choose between 64KB and 1GB; 4MB is usual")
	}
	if cfg.MaxSubflows == 0 {
		cfg.MaxSubflows = defaultMaxSubflows
	}
	if cfg.MaxSubflows < 0 {
		return bad(fmt.Errorf("max_subflows = %d", cfg.MaxSubflows), "it must be positive")
	}
	mode, ok := feedbackModes[cfg.Feedback]
	if !ok {
		return bad(fmt.Errorf("feedback %q is not known", cfg.Feedback), "there are: "+strings.Join(FeedbackModes(), ", "))
	}
	if err := tcp.CheckCongestion(cfg.PipeCongestion, false); err != nil {
		return nil, fmt.Errorf("pipe_congestion: %w", err)
	}
	if err := tcp.CheckCongestion(cfg.HSCongestion, len(cfg.UDP) > 0); err != nil {
		return nil, fmt.Errorf("hs_congestion: %w", err)
	}
	if len(cfg.UDP) > 0 && cfg.DialUDP == nil {
		return nil, fault.New(fault.Unsupported, errors.New("servers cannot be reached over UDP here"), "leave `udp` out")
	}
	if err := dial.CheckCells(cfg.Cell, cfg.UDP); err != nil {
		return nil, err
	}
	if len(name) > wire.MaxName {
		return bad(fmt.Errorf("the name %.20q… is too long", name), fmt.Sprintf("at most %d bytes", wire.MaxName))
	}
	h := &Helper{cfg: cfg, name: name, key: ids.Key, trust: ids.Trust, log: log, rec: rec, mode: mode, found: found{}, relays: newRelayTable(cfg.MaxSubflows), offers: map[*pipe.Offer]*offered{}, addresses: device.Addresses, wall: wallClock, early: make(chan struct{}), changed: make(chan struct{}, 1),
		pipes: pipe.Any{pipe.TCP(tcp.Options{Congestion: cfg.PipeCongestion, Interface: cfg.PipeInterface, Mark: cfg.Mark, UserTimeout: userTimeout, Ledger: cfg.Usage.Ledger(policy.ForPipe)}),
			pipe.RFCOMM{}},
		paths: &dial.Dialer{UDP: cfg.DialUDP, Over: cfg.UDP, Usage: cfg.Usage, Purpose: policy.ForPath},
	}
	h.servers = hsPath{h.paths, tcp.Options{Congestion: cfg.HSCongestion, Interface: cfg.HSInterface, Mark: cfg.Mark, UserTimeout: userTimeout, KeepAlive: tcp.RadioKeepAlive}}
	h.facts = &deviceFacts{limits: cfg.limits}
	h.announcer = newAnnouncer(h.facts.current, func() []identity.PublicKey { return pausedOf(ids.Trust) })
	if _, err := (policy.Limits{BatteryFloor: cfg.BatteryFloor, MaxTemperature: cfg.MaxTemperature}).Check(); err != nil {
		return bad(err, "see battery_floor and max_temperature in helper.toml")
	}
	h.access, h.share = newServerAccess(ids.Trust, log), newLinkShare(log)
	h.caps = &capChecker{allowance: cfg.Allowed, link: cfg.HSInterface, mark: cfg.Mark}
	var err error
	if h.targets, err = h.resolve(); err != nil {
		return bad(err, "see `mpbond trust list`; write primaries as NAME@host:port")
	}
	return h, nil
}

// resolve makes the targets that the configuration and the trust file name now.
// Entries that name none are left out; err tells the first one.
func (h *Helper) resolve() (list []*target, err error) {
	add := func(p identity.Peer, addrs []string) {
		for _, a := range addrs {
			t := &target{primary: p, addr: a, state: "starting"}
			if !slices.ContainsFunc(list, t.same) {
				list = append(list, t)
			}
		}
	}
	if len(h.cfg.Primaries) == 0 {
		for _, p := range h.trust.ByRole(identity.RolePrimary) {
			add(p, p.Addresses)
		}
	}
	defer func() {
		for _, p := range h.mayFind() {
			add(p, h.foundOf(p))
		}
	}()
	for _, entry := range h.cfg.Primaries {
		p, addrs, e := h.resolveEntry(entry)
		if e != nil && err == nil {
			err = e
		}
		add(p, addrs)
	}
	return list, err
}

// resolveEntry resolves one entry of Config.Primaries to a device and its
// addresses.
func (h *Helper) resolveEntry(entry string) (p identity.Peer, addrs []string, err error) {
	name, addr, at := strings.Cut(entry, "@")
	_, _, noPort := net.SplitHostPort(entry)
	if at || noPort != nil {
		p, ok := h.trust.LookupName(name)
		switch {
		case !ok || !p.Is(identity.RolePrimary):
			return p, nil, fmt.Errorf("primary %q: no primary of that name is trusted", entry)
		case !at && len(p.Addresses) == 0:
			return p, nil, fmt.Errorf("primary %q: the trust file has no address for it", entry)
		case !at:
			return p, p.Addresses, nil
		}
		if _, _, err := net.SplitHostPort(strings.TrimPrefix(addr, "tcp://")); err != nil && !strings.HasPrefix(addr, "rfcomm://") {
			return p, nil, fmt.Errorf("primary %q: %q is no host:port", entry, addr)
		}
		return p, []string{addr}, nil
	}
	known := h.trust.ByRole(identity.RolePrimary)
	listed := slices.DeleteFunc(slices.Clone(known), func(p identity.Peer) bool { return !has(p.Addresses, entry) })
	if len(listed) > 0 {
		known = listed
	}
	if len(known) != 1 {
		return p, nil, fmt.Errorf("primary %q: %d trusted primaries could be meant", entry, len(known))
	}
	return known[0], []string{entry}, nil
}

// Run offers pipes and relays until ctx ends; it then closes everything and
// returns ctx's error. Networks that do not answer are tried again for ever.
func (h *Helper) Run(ctx context.Context) error {
	h.announcer.announce()
	var all sync.WaitGroup
	all.Go(func() { h.share.run(ctx) })
	all.Go(func() { h.watchAddresses(ctx) })
	all.Go(func() { h.runReports(ctx) })
	if h.find != nil {
		all.Go(func() { h.keepFinding(ctx) })
	}
	for _, t := range h.targets {
		h.keep(ctx, t, &all)
	}
	for ctx.Err() == nil {
		select {
		case <-h.changed:
			h.retarget(ctx, &all)
		case <-ctx.Done():
		}
	}
	h.relays.closeWhere(func(*subflow) error { return ctx.Err() })
	all.Wait()
	return ctx.Err()
}

// offer makes one pipe and waits until the primary asks for something. Stalled,
// if not nil, names the subflow that needs it.
func (h *Helper) offer(ctx context.Context, t *target, stalled *wire.Token) (o *pipe.Offer, q pipe.Request, err error) {
	limit := pipe.HandshakeTimeout
	if stalled != nil {
		limit = callTimeout
	}
	dial, cancel := context.WithTimeout(ctx, limit)
	conn, err := h.pipes.Dial(dial, t.addr)
	cancel()
	if err != nil {
		return nil, q, err
	}
	countFor(conn, t.primary)
	o, err = pipe.NewOffer(ctx, conn, h.key.Client(t.primary.Key, wire.PipeALPN), h.name)
	if err != nil {
		return nil, q, err
	}
	t.peer.set(wire.Trouble{})
	o.OnTrouble = t.peer.set
	o.OnServers = func(servers []string) error {
		return h.access.announce(t.primary, conn.RemoteAddr(), servers, time.Now())
	}
	if stalled == nil {
		t.set(waiting, nil)
	} else if err := o.Stalled(*stalled); err != nil {
		o.Close()
		return nil, q, err
	}
	h.rec.Add(trace.Event{Kind: trace.PipeUp, Device: t.primary.Name, Text: t.String()})
	if q, err = h.wait(ctx, o, conn, t.primary.Key); err != nil {
		h.rec.Add(trace.Event{Kind: trace.PipeDown, Device: t.primary.Name, Reason: err.Error()})
	}
	return o, q, err
}

// relaySubflow serves one INIT_MP_JOIN from its answer to the end of the relay.
func (h *Helper) relaySubflow(ctx context.Context, all *sync.WaitGroup, t *target, o *pipe.Offer, q pipe.Request) {
	log := h.log.With("primary", t.primary.Name, "server", q.Server)
	s, code, err := h.connect(ctx, t, o, q)
	if err != nil {
		text := "the helper cannot join: " + err.Error()
		if hint := fault.HintOf(err); hint != "" {
			text += " (" + hint + ")"
		}
		_ = o.Refuse(code, text)
		log.Warn("subflow refused", "err", err, "hint", fault.HintOf(err))
		h.rec.Add(trace.Event{Kind: trace.Error, Device: t.primary.Name, Reason: "subflow refused", Text: text})
		return
	}
	began := time.Now()
	all.Go(func() { h.rescue(ctx, all, s, t) })
	log.Debug("subflow relayed")
	h.rec.Add(trace.Event{Kind: trace.RelayUp, Count: s.number, Device: t.primary.Name, Text: q.Server})
	err = s.run(h.mode, h.tracing(s.number))
	h.judge(s, began, err)
	h.rec.Add(trace.Event{Kind: trace.RelayDown, Count: s.number, Device: t.primary.Name, Length: unit.Bytes(s.bytes()), Reason: ending(err)})
	h.relays.remove(s)
	h.share.removeRelay(s.share)
	h.announcer.remove(s.pipe)
	_, mostUp := s.up.ring.Held()
	_, mostDown := s.down.ring.Held()
	log.Debug("subflow ended", "err", err, "up", s.up.read.Load(), "down", s.down.read.Load(), "most_up", mostUp, "most_down", mostDown)
}

// ShareWith counts what a primary in this process moves over its direct subflows as the
// owner's traffic, each by a key that is never used again. It must be called before Run.
func (h *Helper) ShareWith(own func() map[string]device.Flow) { h.share.ownFlows = own }

// CountLent returns a ledger for connections that carry something for other devices without
// a bond, as onloading does: what they move counts as shared, not as the owner's. They are
// passed on to next, which may be nil.
func (h *Helper) CountLent(next tcp.Ledger) tcp.Ledger { return h.share.ledger(next) }

// TrustChanged acts on the trust file after it was read again: new primaries
// are offered pipes; what is there for devices that are not in it any more ends
// at once.
func (h *Helper) TrustChanged() {
	h.mu.Lock()
	h.endWaits()
	h.mu.Unlock()
	h.retargetSoon()
}

// retargetSoon has Run make the targets anew.
func (h *Helper) retargetSoon() {
	select {
	case h.changed <- struct{}{}:
	default: // Run is about to look
	}
}

// retarget makes the targets what the trust file says now.
func (h *Helper) retarget(ctx context.Context, all *sync.WaitGroup) {
	list, err := h.resolve()
	if err != nil {
		h.log.Warn("a primary cannot be helped", "err", err, "hint", "see `mpbond trust list`")
	}
	h.setTargets(ctx, all, list)
	h.endRelays(func(err error) bool { return err == errDistrusted })
	// Before what is paused ends: who knows why does not ask at once for another
	// subflow. It may wait for a primary that does not read.
	h.announcer.announce()
	h.endRelays(func(error) bool { return true })
}

// setTargets makes the targets those of list.
func (h *Helper) setTargets(ctx context.Context, all *sync.WaitGroup, list []*target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.targets {
		if !slices.ContainsFunc(list, t.same) {
			t.stop()
		}
	}
	for i, t := range list {
		if at := slices.IndexFunc(h.targets, t.same); at >= 0 {
			list[i] = h.targets[at]
		} else {
			h.keep(ctx, t, all)
		}
	}
	h.targets = list
}

// endRelays ends what is carried but not wanted any more, for reasons of that kind.
func (h *Helper) endRelays(kind func(error) bool) {
	h.relays.closeWhere(func(s *subflow) error {
		if err := h.access.check(s.primary.Key, s.server); err != nil && kind(err) {
			return err
		}
		return nil
	})
}

// errSuspended is why subflows end and none is made: the device carries nothing now.
var errSuspended = errors.New("the helper rests")

// errPaused is why a primary gets no subflow: its owner here wants it so.
var errPaused = errors.New("this device is paused there")

// FactsChanged takes what is known of this device now, and announces it to the primaries,
// on pipes that wait and on those that carry subflows.
func (h *Helper) FactsChanged(f facts.Facts) {
	h.announceFacts(h.facts.set(f, h.linkInUse(), time.Now()))
}

// announceFacts ends all subflows if this device is suspended, and announces what has changed.
func (h *Helper) announceFacts(s suspension) {
	switch {
	case s.before == "" && s.now != "":
		h.log.Info("this device rests", "reason", s.now)
		h.rec.Add(trace.Event{Kind: trace.DeviceRests, Device: h.name, Reason: s.now})
	case s.before != "" && s.now == "":
		h.log.Info("this device may carry again")
		h.rec.Add(trace.Event{Kind: trace.DeviceAllowed, Device: h.name, Reason: "it rested: " + s.before})
	}
	if s.now != "" {
		h.relays.closeWhere(func(*subflow) error { return errSuspended })
	}
	h.announcer.announce()
}

// Facts returns what primaries receive of this device.
func (h *Helper) Facts() wire.Facts { return h.facts.current() }

// linkInUse returns the interface by which servers are reached, "" where that is not
// known.
func (h *Helper) linkInUse() string {
	if h.cfg.HSInterface != "" {
		return h.cfg.HSInterface
	}
	if local := h.relays.lastLocalAddr(); local != nil {
		if name := device.InterfaceOf(local); name != "" {
			return name
		}
	}
	if names, err := device.Uplinks(); err == nil && len(names) > 0 {
		return names[0]
	}
	return ""
}

// limits returns the owner's limits: as the configuration says, else as the policy file does.
func (c Config) limits() policy.Limits {
	var l policy.Limits
	if c.Limits != nil {
		l = c.Limits()
	}
	return policy.Limits{BatteryFloor: cmp.Or(c.BatteryFloor, l.BatteryFloor), MaxTemperature: cmp.Or(c.MaxTemperature, l.MaxTemperature)}
}

// pausedOf returns the primaries that are paused.
func pausedOf(trust *identity.Trust) (list []identity.PublicKey) {
	for _, p := range trust.ByRole(identity.RolePrimary) {
		if p.Paused {
			list = append(list, p.Key)
		}
	}
	return list
}

// tracing is what a relay tells of its reports, nil if nothing is traced.
func (h *Helper) tracing(number uint64) func(trace.Event) {
	if !h.rec.On() {
		return nil
	}
	return func(e trace.Event) {
		e.Count = number
		h.rec.Add(e)
	}
}

// connect makes the HS-path and answers INIT_MP_OK. On an error the code says
// what to answer instead; nothing is left open but o.
func (h *Helper) connect(ctx context.Context, t *target, o *pipe.Offer, q pipe.Request) (_ *subflow, _ wire.Code, err error) {
	if !h.access.allows(t.primary.Key, q.Server) {
		return nil, wire.CodeForbidden, fault.New(fault.Permission, fmt.Errorf("%q is no address of a server that it trusts", q.Server),
			"pair the two devices again, or on the helper run `mpbond trust add NAME --role server --key KEY` with this address")
	}
	if err := h.willing(t.primary); err != nil {
		return nil, wire.CodeLimit, err
	}
	if err := h.relays.reserve(); err != nil {
		return nil, wire.CodeLimit, err
	}
	defer func() {
		if err != nil {
			h.relays.release()
		}
	}()
	dial, cancel := context.WithTimeout(ctx, pipe.HandshakeTimeout)
	defer cancel()
	if err := h.caps.checkServer(dial, t.primary, q.Server); err != nil {
		return nil, wire.CodeLimit, err
	}
	conn, err := h.servers.Dial(dial, q.Server)
	if err != nil {
		return nil, dialCode(err), err
	}
	countFor(conn, t.primary)
	link := cmp.Or(h.cfg.HSInterface, device.InterfaceOf(conn.LocalAddr()))
	if err = h.caps.check(device.Bounded{Link: link}); err != nil { // it need not be the one that the routes told
		conn.Close()
		return nil, wire.CodeLimit, err
	}
	if !h.access.ownsServer(q.Server) && leadsHere(q.Server, conn.LocalAddr(), conn.RemoteAddr()) {
		conn.Close()
		return nil, wire.CodeForbidden, fault.New(fault.Permission, fmt.Errorf("%q leads to the helper itself", q.Server), "give the server another address")
	}
	hs, err := pipe.DialHS(dial, conn, h.name, q.Key)
	if err != nil {
		return nil, dialCode(err), err
	}
	p, err := o.Accept(q, min(q.Window, mostWindow), device.RadioOf(link))
	if err != nil {
		hs.Close()
		return nil, wire.CodeInternal, err
	}
	s := &subflow{relay: newRelay(p, hs, int(h.cfg.Buffer)), primary: t.primary, server: q.Server, since: time.Now(), link: link, share: h.share.addRelay(p, hs)}
	s.several = func() bool { return h.waitingAt(t.primary) > 1 }
	h.relays.add(s)
	missed := h.access.check(t.primary.Key, q.Server) // why others were closed while this one was made
	switch {
	case ctx.Err() != nil:
		missed = context.Canceled
	case missed == nil && h.Facts().Refuses != "":
		missed = errSuspended
	}
	if missed != nil {
		s.close(missed)
	}
	h.announcer.add(p, t.primary.Key) // if they changed while the pipe was neither waiting nor in use
	return s, 0, nil
}
