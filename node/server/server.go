// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/fleet"
	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/splice"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/choice"
	"mpbond/node/dial"
	"mpbond/node/endpoint"
	"mpbond/node/probe"
)

// Config is the server's configuration. The toml tags are the keys of the file.
type Config struct {
	// Listen is the address where devices connect, "host:port".
	Listen string `toml:"listen"`
	// Public is the address for devices elsewhere, "host:port" or "host", which pairing codes
	// contain; empty: the addresses of the interfaces.
	Public string `toml:"public"`
	// Scheduler is the scheduler for bytes to the devices; see docs/explanation/schedulers.md.
	Scheduler string `toml:"scheduler"`
	// Congestion is the congestion control of every subflow; "pbe" applies to those over UDP only
	// (docs/explanation/pbe.md). Empty lets the losses of each hop choose between CUBIC and BBR.
	Congestion string `toml:"congestion"`
	// Allow are address prefixes that devices may connect to although they are private.
	Allow []netip.Prefix `toml:"allow"`
	// MaxStreams, MaxFlows (of datagrams) and MaxBonds are the limits of one device, the first two
	// over all its bonds; MaxSubflows is that of one bond.
	MaxStreams  int `toml:"max_streams"`
	MaxFlows    int `toml:"max_flows"`
	MaxSubflows int `toml:"max_subflows"`
	MaxBonds    int `toml:"max_bonds"`
	// Rate is the limit of one device in each direction, over all its bonds, at least 64 kbit/s; 0
	// is none.
	Rate unit.Rate `toml:"rate"`
	// Reinject is the threshold η of reinjection (docs/explanation/schedulers.md); a negative value
	// switches it off. It must not be 0.
	Reinject float64 `toml:"reinject"`
	// API is the loopback address for HTTP requests (docs/reference/api.md) and the web console
	// (docs/howto/console.md), "host:port"; empty is none.
	API string `toml:"api"`
	// UDP offers subflows over UDP too (docs/explanation/pbe.md), at the same address.
	UDP bool `toml:"udp"`
	// Fleet is the engine of the fleet that the server belongs to, empty for none; Creds, FleetCA and FleetKey are
	// its credentials, authority and key, Region and Name the server's place and name in the fleet
	// (docs/howto/fleet.md). CacheLife is how long known devices are served without the engine.
	Fleet     string          `toml:"fleet"` // for the caller, as those below
	Creds     string          `toml:"creds"`
	FleetCA   string          `toml:"fleet_ca"`
	FleetKey  string          `toml:"fleet_key"`
	Region    string          `toml:"region"`
	Name      string          `toml:"name"`
	CacheLife config.Duration `toml:"cache_life"`
	// Drain is how long connections may last after the order to drain; 0: DefaultDrain.
	Drain config.Duration `toml:"drain"`
	// ListenUDP opens the port for UDP; nil: unsupported.
	ListenUDP func(addr string) (Listener, error) `toml:"-"`
	// Memory is the memory budget of all devices together: see endpoint.Memory.
	Memory unit.Bytes `toml:"-"`
	// Clock paces periodic work; nil: it never idles. Usage must wake it.
	Clock *pace.Clock `toml:"-"`
	// Usage counts the bytes of subflows; nil: no counting.
	Usage *device.Usage `toml:"-"`
}

// Listener accepts connections over UDP, for direct and helped subflows but not for pairing.
type Listener interface {
	// Accept returns net.ErrClosed after Close; any other error is final.
	Accept() (dial.Conn, error)
	Close() error
}

// Devices says which devices may use the server: the trust file (identity.Trust) or a fleet (fleet.Member). Its
// methods are called concurrently and must not block.
type Devices interface {
	// Lookup returns a trusted device.
	Lookup(identity.PublicKey) (identity.Peer, bool)
	// Allowed returns a function that reports whether a key is that of a trusted device with a role.
	Allowed(identity.Role) func(identity.PublicKey) bool
	// Paused reports whether a trusted device may carry nothing now.
	Paused(identity.PublicKey) bool
}

// Fleet is the fleet that the server belongs to: see fleet.Member.
type Fleet interface {
	// Offer returns the fleet's key and what primaries should know of its servers (fleet.Offer).
	Offer() (identity.PublicKey, []byte, error)
	// IsDraining reports whether the server accepts no new bonds.
	IsDraining() bool
	// IsStale reports whether the server knows too little of the fleet's devices to serve any.
	IsStale() bool
}

// Default is the default configuration.
var Default = Config{
	Listen:      ":7600",
	Scheduler:   sched.Default,
	MaxStreams:  4096,
	MaxFlows:    1024,
	MaxSubflows: 32,
	MaxBonds:    8,
	Reinject:    0.2,
}

// DefaultDrain is how long connections may last at a server that drains.
const DefaultDrain = 10 * time.Minute

// Tuning.
const (
	// bondLifetime is how long a bond without subflows is kept.
	bondLifetime = 60 * time.Second
	// largeBondLifetime is how long it is kept if its device exceeds its share of the memory. With
	// the interval of runReapLoop and Memory.Trim, its memory is freed within 30 s.
	largeBondLifetime = 15 * time.Second
	// UserTimeout ends a subflow if its data is not acknowledged.
	UserTimeout = time.Minute
	// maxHandshakes bounds unauthenticated connections, maxPerSource those of one source.
	// maxPerMinute bounds the handshakes of one source, and the subflows of one device, in a
	// minute: some 1 % of a core.
	maxHandshakes, maxPerSource, maxPerMinute = 512, 64, 600
	// firstByteTimeout is how long a new connection may be silent.
	firstByteTimeout = 10 * time.Second
	// streamOvershoot is how many streams beyond the limit are refused by a reset. The device
	// learns of an ended stream later than the server, and its own limit may be higher.
	streamOvershoot = 8192
)

// Server is a running server: it listens and wires the types of this package. Safe for concurrent
// use.
type Server struct {
	cfg     Config
	trust   Devices
	log     *slog.Logger
	rec     *trace.Recorder // nil: no trace
	ln      *tcp.Listener
	udp     Listener // may be nil
	pairing pairHandler
	// Version is the program's version, for measurements. Set it before Run.
	Version string
	// Fleet is the fleet that the server belongs to; nil: none. Set it before Run.
	Fleet Fleet

	handshakes *handshakes
	sessions   *sessionTable
	dest       destinations
	memory     *endpoint.Memory
	accounts   *accountTable
	reports    *reportStore
	callers    *callerLog
	wg         sync.WaitGroup
}

// Validate returns the first problem of the configuration.
func (c Config) Validate() error {
	if _, err := sched.New(c.Scheduler); err != nil {
		return fault.New(fault.Config, err, "set `scheduler` to one of these")
	}
	for name, n := range map[string]int{
		"max_streams": c.MaxStreams, "max_flows": c.MaxFlows,
		"max_subflows": c.MaxSubflows, "max_bonds": c.MaxBonds,
	} {
		if n < 1 {
			return fault.New(fault.Config, fmt.Errorf("%s is %d", name, n), "set it to 1 or more, or leave it out")
		}
	}
	if c.Rate != 0 && c.Rate < minRate {
		return fault.New(
			fault.Config,
			fmt.Errorf("rate is %v", c.Rate),
			"set it to 64kbit/s or more, or leave it out",
		)
	}
	if c.Reinject == 0 || math.IsNaN(c.Reinject) {
		return fault.New(
			fault.Config,
			fmt.Errorf("reinject is %v", c.Reinject),
			"a negative value switches reinjection off; 0.2 is usual",
		)
	}
	return tcp.CheckCongestion(c.Congestion, c.UDP)
}

// New checks the configuration and opens the server's port. trust lists the trusted devices; rec,
// if not nil, records events.
func New(cfg Config, key *identity.Key, trust Devices, log *slog.Logger, rec *trace.Recorder) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ln, err := tcp.Listen(
		context.Background(),
		cfg.Listen,
		tcp.Options{
			Congestion:      cfg.Congestion,
			UserTimeout:     UserTimeout,
			RetransmitOften: true,
			Ledger:          cfg.Usage.LedgerFor(policy.ForSubflow),
		},
	)
	if err != nil {
		return nil, err
	}
	var udp Listener
	if cfg.UDP {
		if cfg.ListenUDP == nil {
			err = fault.New(
				fault.Unsupported,
				errors.New("subflows over UDP are not supported here"),
				"leave `udp` out",
			)
		} else {
			udp, err = cfg.ListenUDP(ln.Addr().String())
		}
		if err != nil {
			ln.Close()
			return nil, err
		}
	}
	memory := endpoint.NewMemory(cfg.Memory)
	s := &Server{cfg: cfg, trust: trust, log: log, rec: rec, ln: ln, udp: udp,
		dest: destinations{cfg.Allow}, memory: memory, accounts: newAccountTable(memory, cfg.Rate),
		reports: newReportStore(trust.Allowed(identity.RolePrimary)), callers: newCallerLog(trust, log)}
	s.sessions = &sessionTable{
		maxBonds:   cfg.MaxBonds,
		trust:      trust,
		log:        log,
		logFor:     s.callers.forDevice,
		rec:        rec,
		checkTrust: s.checkTrust,
		retire:     s.retireSession,
		admit:      s.admitBond,
		checkRoom:  s.checkRoom,
		bonds:      map[bondKey]*session{},
	}
	s.handshakes = &handshakes{
		key:              key,
		trust:            trust,
		log:              log,
		admission:        tcp.NewAdmissionLimit(maxHandshakes, maxPerSource, maxPerMinute),
		firstByteTimeout: firstByteTimeout,
		callers:          s.callers,
		reports:          s.reports,
		tasks:            &s.wg,
		join:             s.bondForSubflow,
		conns:            map[net.Conn]bool{},
		attach: func(sf *subflow.Subflow, id wire.BondID) *session {
			return s.sessions.attachSubflow(sf, id, cfg.MaxSubflows)
		},
	}
	return s, nil
}

// SetPairing sets the function that serves and closes connections for pairing; without it they are
// refused. It must be called before Run.
func (s *Server) SetPairing(answer func(context.Context, net.Conn)) { s.pairing = answer }

// Addr returns the address where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Run serves until ctx ends, then resets all streams. It returns when all goroutines of the server
// have ended.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.ln.Close() })
	defer stop()
	s.wg.Go(func() { s.runReapLoop(ctx) })
	if s.udp != nil {
		s.wg.Go(func() { s.handshakes.acceptUDPSubflows(ctx, s.udp, s.cfg.Usage) })
	}
	var err error
	for {
		var c *tcp.Conn
		if c, err = s.ln.Accept(); err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			break
		}
		s.handshakes.startHandshake(ctx, c, s.pairing)
	}
	cancel()
	list := s.sessions.closeTable()
	s.handshakes.closeConns()
	var farewell sync.WaitGroup
	for _, b := range list {
		farewell.Go(func() { s.endSession(b) })
	}
	farewell.Wait()
	if s.udp != nil {
		s.udp.Close()
	}
	s.wg.Wait()
	return err
}

// endSession removes and closes a session.
func (s *Server) endSession(b *session) {
	s.sessions.removeSession(b)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b.endpoint.Close(ctx)
}

// retireSession ends a session in its own goroutine and, unless why is zero, tells its device why.
func (s *Server) retireSession(b *session, why wire.Refuse) {
	s.wg.Go(func() {
		if why != (wire.Refuse{}) {
			b.endpoint.ResetStreams(why.Code, why.Text)
		}
		s.endSession(b)
	})
}

// Refusals for devices that must not join.
const (
	textNotTrusted = "the server no longer trusts this device"
	textPaused     = "this device is paused at the server, or has used up its quota"
	textStale      = "the server has had no word from its fleet for too long"
)

// Refusals of joins while the server ends, and of new bonds while it drains. See errFull too.
var (
	errShutdown = wire.Refuse{Code: wire.CodeClosed, Text: "the server is shutting down"}
	errDraining = wire.Refuse{Code: wire.CodeClosed, Text: "the server is draining: it accepts no new bonds"}
)

// errFull returns the refusal of the bond of a new device at a server that lacks something. Its code lets primaries of
// a fleet try another server.
func errFull(lack string) wire.Refuse {
	return wire.Refuse{Code: wire.CodeClosed, Text: "the server is full: it has no " + lack + " for another device"}
}

// admitBond returns why no bond begins now, a wire.Refuse, or nil.
func (s *Server) admitBond() error {
	if s.Fleet != nil && s.Fleet.IsDraining() {
		return errDraining
	}
	return nil
}

// checkRoom returns why there is no room for another bond, a wire.Refuse, or nil. isKnown says that the device has
// another one here: it may restart at a full server.
func (s *Server) checkRoom(isKnown bool) error {
	lack := s.memory.LackForDevice()
	if isKnown {
		lack = s.memory.LackForBond()
	}
	if lack != "" {
		return errFull(lack)
	}
	return nil
}

// checkTrust returns why a device must not join, a wire.Refuse, or nil.
func (s *Server) checkTrust(device identity.PublicKey) error {
	switch {
	case s.Fleet != nil && s.Fleet.IsStale():
		return wire.Refuse{Code: wire.CodeClosed, Text: textStale} // another server may know more
	case !s.trust.Allowed(identity.RolePrimary)(device):
		return wire.Refuse{Code: wire.CodeUnknown, Text: textNotTrusted}
	case s.trust.Paused(device):
		return wire.Refuse{Code: wire.CodeLimit, Text: textPaused}
	}
	return nil
}

// TrustChanged applies a changed trust file: it ends the bonds of devices that are no longer
// trusted, or are paused.
func (s *Server) TrustChanged() { s.sessions.retireUntrusted() }

// bondForSubflow finds or creates the bond of a subflow. It returns nil if the device refers to a
// lost bond: the other instance makes the device start a new one. Errors are wire.Refuse.
func (s *Server) bondForSubflow(ctx context.Context, key bondKey, j wire.Join) (*session, error) {
	if ctx.Err() != nil {
		return nil, errShutdown
	}
	if err := s.checkTrust(key.device); err != nil { // its attempts do not count
		return nil, err
	}
	if !s.accounts.admitJoin(key.device, time.Now()) {
		return nil, wire.Refuse{
			Code: wire.CodeLimit,
			Text: fmt.Sprintf("the device has begun %d subflows within a minute, which is the limit", maxPerMinute),
		}
	}
	b, err := s.sessions.findOrCreateBond(key, j.Instance, func(id string) *session {
		return s.newPrimarySession(ctx, key,
			id)
	})
	if err != nil || b == nil {
		return nil, err
	}
	n := b.endpoint.SubflowCount()
	if lack := b.lackForSubflow(); lack != "" {
		return nil, wire.Refuse{
			Code: wire.CodeLimit,
			Text: fmt.Sprintf("the server is full: it has no %s for another link of this device", lack),
		}
	}
	if n >= s.cfg.MaxSubflows {
		return nil, wire.Refuse{
			Code: wire.CodeLimit,
			Text: fmt.Sprintf("the bond has %d subflows, which is the limit", s.cfg.MaxSubflows),
		}
	}
	return b, nil
}

// newPrimarySession creates a bond with that name. The lock of the sessions must be held.
func (s *Server) newPrimarySession(ctx context.Context, key bondKey, id string) *session {
	b := &session{
		key:         key,
		id:          id,
		name:        key.device.ID().String(),
		instance:    randomInstance(),
		account:     s.accounts.accountOfDevice(key.device),
		measureSlot: make(chan bool, 1),
	}
	if p, ok := s.trust.Lookup(key.device); ok {
		b.name = p.Name
	}
	scheduler, _ := sched.New(s.cfg.Scheduler) // validated by New
	b.endpoint = endpoint.New(endpoint.Config{
		Bond: bond.Config{
			Scheduler:   scheduler,
			MaxStreams:  s.cfg.MaxStreams + streamOvershoot,
			MaxFlows:    s.cfg.MaxFlows,
			Eta:         s.cfg.Reinject,
			Trace:       s.rec.AddFunc(b.id),
			ChangesOnly: !s.rec.Enabled(),
		},
		Guide:         &choice.ByPolicy{},
		Share:         b.account.memory,
		Accept:        func(c *endpoint.Conn) { s.serveStream(ctx, b, c) },
		AcceptPackets: func(c *endpoint.PacketConn) { s.servePackets(ctx, b, c) },
		Down: func(sf *subflow.Subflow, err error) {
			s.callers.forDevice(key.device).Info("subflow ended",
				"device", currentDeviceName(s.trust, b), "subflow", sf.ID, "by", sf.Device, "err", err)
			if b.endpoint.PeerClosed() {
				s.wg.Go(func() { s.endSession(b) })
			}
		},
		Log: s.log,
	})
	return b
}

// serveStream connects a stream to its destination.
func (s *Server) serveStream(ctx context.Context, b *session, c *endpoint.Conn) {
	if !s.sessions.admitSlot(b, streamSlots, s.cfg.MaxStreams) {
		c.ResetWith(
			wire.CodeLimit,
			fmt.Sprintf("%d streams of the device are open, which is the server's limit", s.cfg.MaxStreams),
		)
		return
	}
	defer b.giveSlot(streamSlots)
	if lack := b.account.memory.TakeSocket(); lack != "" {
		c.ResetWith(wire.CodeLimit, "the server has no "+lack+" for another stream of this device")
		return
	}
	defer b.account.memory.ReleaseSocket()
	if subflow, ok := probe.SubflowOf(c.Dest()); ok {
		s.serveMeasurement(ctx, b, c, wire.SubflowID(subflow))
		return
	}
	if c.Dest() == fleet.OfferDest && s.Fleet != nil {
		s.serveOffer(c)
		return
	}
	d, err := s.dest.dialForConn(ctx, c)
	if err != nil {
		r := wire.Reset{Code: wire.CodeInternal, Text: err.Error()}
		errors.As(err, &r)
		c.ResetWith(r.Code, r.Text)
		s.log.Info("destination failed", "device", currentDeviceName(s.trust, b), "dest", c.Dest(), "err", err)
		return
	}
	c.Opened()
	up, down, err := splice.Both(b.account.rate.limitConnRate(ctx, d), c)
	s.log.Debug(
		"stream ended", "device", currentDeviceName(s.trust, b), "dest", c.Dest(), "to_device", up, "from_device", down,
		"err", err,
	)
}

// runReapLoop ends bonds of devices that have been away for long.
func (s *Server) runReapLoop(ctx context.Context) {
	t := s.cfg.Clock.NewTicker(bondLifetime / 12)
	defer t.Stop()
	var drainingSince time.Time
	full := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		drainingSince = s.endDrained(drainingSince, time.Now())
		gone := s.sessions.listUnused()
		s.sessions.detectCopies(time.Now(), hasUserSubflow)
		for _, b := range gone {
			s.log.Info("bond ended: no subflow for too long", "device", currentDeviceName(s.trust, b))
			s.endSession(b)
		}
		s.memory.Trim()
		if lack := s.memory.LackForDevice(); lack != full {
			full = lack
			s.logFull(lack)
		}
	}
}

// logFull logs that new devices are refused for a lack of something or, if that is "", that they are no longer.
func (s *Server) logFull(lack string) {
	if lack == "" {
		s.log.Info("the server accepts new devices again")
		return
	}
	s.log.Warn("the server is full: new devices are refused", "lack", lack, "bonds", len(s.sessions.listSessions()),
		"hint", "add a server to the fleet, or give this one more memory and files")
}

// IsFull reports whether the server has no room for more devices.
func (s *Server) IsFull() bool { return s.memory.LackForDevice() != "" }

// endDrained ends the bonds without streams of a server that drains, so that their devices go to another one, and
// all bonds when it has drained for long enough. since is when it began to drain, as the last call returned it; zero:
// it does not drain.
func (s *Server) endDrained(since, now time.Time) time.Time {
	switch {
	case s.Fleet == nil || !s.Fleet.IsDraining():
		return time.Time{}
	case since.IsZero():
		since = now
	}
	isLate := now.Sub(since) >= cmp.Or(time.Duration(s.cfg.Drain), DefaultDrain)
	for _, b := range s.sessions.listSessions() {
		streams, _ := b.countSlots(streamSlots)
		flows, _ := b.countSlots(flowSlots)
		if isLate || streams+flows == 0 && !b.endpoint.IsActive() {
			s.log.Info("bond ended: the server drains", "device", currentDeviceName(s.trust, b), "streams", streams)
			s.retireSession(b, errDraining)
		}
	}
	return since
}

// randomInstance returns a random bond instance, never 0.
func randomInstance() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:]) | 1
}
