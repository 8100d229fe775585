package helper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// instead of TCP, where it gets through and the server serves it (docs/explanation/pbe.md); "any"
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
	// API is where requests over TCP and the web console (docs/howto/console.md) are answered, a loopback "host:port"; empty is none.
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
	Allowed func(of device.CapTarget) policy.Allowance `toml:"-"`
	// Limits are what the policy file says of this device, for what is left out
	// here; nil: there is none.
	Limits func() policy.Limits `toml:"-"`
}

// Identity is who the device is, and whom it trusts.
type Identity struct {
	Key   *identity.Key
	Trust *identity.Trust
}

// Helper is the role: it wires the types of this package, and relays what primaries ask for.
// Make one with New. It has no state of its own. Methods may be called by any goroutine,
// except those that are to be called before Run.
type Helper struct {
	cfg      Config
	name     string
	trust    *identity.Trust
	log      *slog.Logger
	rec      *trace.Recorder // nil: nothing is traced
	feedback feedback

	targetsChanged chan struct{} // primaries are to be resolved anew

	// Pipes to primaries.
	primaries    primaryList
	finder       *finder
	targets      *targetSet
	calls        *pipeCaller
	trouble      *troubleReporter
	addressWatch *addressWatch

	// Subflows of primaries.
	access  *serverAccess
	caps    *capChecker
	servers *serverDialer
	relays  *relayTable
	share   *linkShare

	// This device.
	facts     *deviceFacts
	announcer *announcer
}

// New checks cfg. Name is this device's own, for display at the other ends.
// Rec, if not nil, records events. Errors are faults of kind Config.
func New(cfg Config, name string, ids Identity, log *slog.Logger, rec *trace.Recorder) (*Helper, error) {
	if err := cfg.validate(name); err != nil {
		return nil, err
	}
	h := &Helper{cfg: cfg, name: name, trust: ids.Trust, log: log, rec: rec, feedback: feedbackModes[cfg.Feedback], targetsChanged: make(chan struct{}, 1),
		primaries: primaryList{cfg.Primaries, ids.Trust}, finder: newFinder(log), targets: new(targetSet), addressWatch: newAddressWatch(),
		access: newServerAccess(ids.Trust, log), caps: &capChecker{allowance: cfg.Allowed, link: cfg.HSInterface, mark: cfg.Mark},
		relays: newRelayTable(cfg.MaxSubflows), share: newLinkShare(log), facts: &deviceFacts{limits: cfg.deviceLimits},
	}
	h.announcer = newAnnouncer(h.facts.currentFacts, func() []identity.PublicKey { return pausedPrimaries(ids.Trust) })
	paths := &dial.Dialer{UDP: cfg.DialUDP, UDPLinks: cfg.UDP, Usage: cfg.Usage, Purpose: policy.ForPath}
	servers := hsDialer{paths, tcp.Options{Congestion: cfg.HSCongestion, Interface: cfg.HSInterface, Mark: cfg.Mark, UserTimeout: userTimeout, KeepAlive: tcp.RadioKeepAlive}}
	h.servers = &serverDialer{dialer: servers, udpDialer: paths, access: h.access, caps: h.caps, name: name}
	h.trouble = &troubleReporter{key: ids.Key, name: name, trust: ids.Trust, log: log, targets: h.targets, servers: servers, wall: wallClock,
		suspended: func() bool { return h.Facts().RefusalReason != "" }}
	h.calls = &pipeCaller{key: ids.Key, name: name, trust: ids.Trust, log: log, rec: rec, announcer: h.announcer, onServers: h.access.storeServers, onTaken: h.serveRequest,
		carrier: pipe.Any{pipe.TCP(tcp.Options{Congestion: cfg.PipeCongestion, Interface: cfg.PipeInterface, Mark: cfg.Mark, UserTimeout: userTimeout, Ledger: cfg.Usage.LedgerFor(policy.ForPipe)}),
			pipe.RFCOMM{}}}
	list, err := h.primaries.resolveTargets(h.finder.foundAddresses)
	if err != nil {
		return nil, configError(err, "see `mpbond trust list`; write primaries as NAME@host:port")
	}
	h.targets.replaceTargets(list)
	return h, nil
}

// configError returns a fault of kind Config.
func configError(err error, hint string) error {
	return fault.New(fault.Config, fmt.Errorf("helper: %w", err), hint)
}

// validate fills in defaults, and returns what is wrong with c on a device of that name.
func (c *Config) validate(name string) error {
	if c.Buffer == 0 {
		c.Buffer = defaultBuffer
	}
	if c.Buffer < 64*unit.KB || c.Buffer > unit.GB {
		return configError(fmt.Errorf("buffer of %v", c.Buffer), "choose between 64KB and 1GB; 4MB is usual")
	}
	if c.MaxSubflows == 0 {
		c.MaxSubflows = defaultMaxSubflows
	}
	if c.MaxSubflows < 0 {
		return configError(fmt.Errorf("max_subflows = %d", c.MaxSubflows), "it must be positive")
	}
	if feedbackModes[c.Feedback] == nil {
		return configError(fmt.Errorf("feedback %q is not known", c.Feedback), "there are: "+strings.Join(FeedbackModes(), ", "))
	}
	if err := tcp.CheckCongestion(c.PipeCongestion, false); err != nil {
		return fmt.Errorf("pipe_congestion: %w", err)
	}
	if err := tcp.CheckCongestion(c.HSCongestion, len(c.UDP) > 0); err != nil {
		return fmt.Errorf("hs_congestion: %w", err)
	}
	if len(c.UDP) > 0 && c.DialUDP == nil {
		return fault.New(fault.Unsupported, errors.New("servers cannot be reached over UDP here"), "leave `udp` out")
	}
	if err := dial.CheckCells(c.Cell, c.UDP); err != nil {
		return err
	}
	if len(name) > wire.MaxName {
		return configError(fmt.Errorf("the name %.20q… is too long", name), fmt.Sprintf("at most %d bytes", wire.MaxName))
	}
	if _, err := (policy.Limits{BatteryFloor: c.BatteryFloor, MaxTemperature: c.MaxTemperature}).Check(); err != nil {
		return configError(err, "see battery_floor and max_temperature in helper.toml")
	}
	return nil
}

// deviceLimits returns the owner's limits: as the configuration says, else as the policy file does.
func (c Config) deviceLimits() policy.Limits {
	var l policy.Limits
	if c.Limits != nil {
		l = c.Limits()
	}
	return policy.Limits{BatteryFloor: cmp.Or(c.BatteryFloor, l.BatteryFloor), MaxTemperature: cmp.Or(c.MaxTemperature, l.MaxTemperature)}
}

// SetDiscovery has find search for primaries on the local networks; without it there is no
// search. It must be called before Run.
func (h *Helper) SetDiscovery(find func(context.Context) ([]discovery.Found, error)) {
	h.finder.search = find
}

// SetOwnFlows counts what a primary in this process moves over its direct subflows as the
// owner's traffic, each by a key that is never used again. It must be called before Run.
func (h *Helper) SetOwnFlows(own func() map[string]device.ConnBytes) { h.share.ownFlows = own }

// CountShared returns a ledger for connections that carry something for other devices without
// a bond, as onloading does: what they move counts as shared, not as the owner's. They are
// passed on to next, which may be nil.
func (h *Helper) CountShared(next tcp.Ledger) tcp.Ledger { return h.share.newLedger(next) }

// Run offers pipes and relays until ctx ends; it then closes everything and
// returns ctx's error. Networks that do not answer are tried again for ever.
func (h *Helper) Run(ctx context.Context) error {
	h.announcer.sendChanges()
	var all sync.WaitGroup
	all.Go(func() { h.share.runShares(ctx) })
	all.Go(func() { h.runWatchLoop(ctx) })
	all.Go(func() { h.trouble.runReportLoop(ctx) })
	all.Go(func() { h.finder.runSearchLoop(ctx, h.roamingPrimaries, h.scheduleTargetUpdate) })
	for _, t := range h.targets.listTargets() {
		h.calls.startOffering(ctx, t)
	}
	for ctx.Err() == nil {
		select {
		case <-h.targetsChanged:
			h.updateTargets(ctx)
		case <-ctx.Done():
		}
	}
	h.relays.closeWhere(func(*subflow) error { return ctx.Err() })
	h.calls.tasks.Wait()
	all.Wait()
	return ctx.Err()
}

// TrustChanged acts on the trust file after it was read again: new primaries
// are offered pipes; what is there for devices that are not in it any more ends
// at once.
func (h *Helper) TrustChanged() {
	h.calls.callNow.fireSignal()
	h.scheduleTargetUpdate()
}

// scheduleTargetUpdate has Run resolve the primaries anew.
func (h *Helper) scheduleTargetUpdate() {
	select {
	case h.targetsChanged <- struct{}{}:
	default: // Run is about to look
	}
}

// updateTargets makes the targets what the trust file says now, and ends what is carried but not
// wanted any more.
func (h *Helper) updateTargets(ctx context.Context) {
	list, err := h.primaries.resolveTargets(h.finder.foundAddresses)
	if err != nil {
		h.log.Warn("a primary cannot be helped", "err", err, "hint", "see `mpbond trust list`")
	}
	for _, t := range h.targets.replaceTargets(list) {
		h.calls.startOffering(ctx, t)
	}
	unwanted := func(s *subflow) error { return h.access.checkAccess(s.primary.Key, s.server) }
	h.relays.closeWhere(func(s *subflow) error {
		if err := unwanted(s); err == errNotTrusted {
			return err
		}
		return nil
	})
	// Before what is paused ends: a primary that knows why does not ask at once for another
	// subflow. It may wait for a primary that does not read.
	h.announcer.sendChanges()
	h.relays.closeWhere(unwanted)
}

// roamingPrimaries returns the primaries that may be searched for.
func (h *Helper) roamingPrimaries() (list []roamingPrimary) {
	for _, p := range h.primaries.roamingPrimaries() {
		list = append(list, roamingPrimary{p.Key, h.targets.connectedAddresses(p.Key)})
	}
	return list
}

// Refusals returns the primaries with which no pipe can be made since one of the two
// ends refuses the other.
func (h *Helper) Refusals() []refusal.Record { return h.calls.refused.Refusals(time.Now()) }

// SetFacts takes what is known of this device now, and announces it to the primaries,
// on pipes that wait and on those that carry subflows.
func (h *Helper) SetFacts(f facts.Facts) {
	h.applySuspension(h.facts.setFacts(f, h.linkInUse(), time.Now()))
}

// applySuspension ends all subflows if this device is suspended, and announces what has changed.
func (h *Helper) applySuspension(s suspension) {
	switch {
	case s.before == "" && s.now != "":
		h.log.Info("this device rests", "reason", s.now)
		h.rec.Add(trace.Event{Kind: trace.DeviceSuspended, Device: h.name, Reason: s.now})
	case s.before != "" && s.now == "":
		h.log.Info("this device may carry again")
		h.rec.Add(trace.Event{Kind: trace.DeviceUnsuspended, Device: h.name, Reason: "was suspended: " + s.before})
	}
	if s.now != "" {
		h.relays.closeWhere(func(*subflow) error { return errSuspended })
	}
	h.announcer.sendChanges()
}

// Facts returns what primaries receive of this device.
func (h *Helper) Facts() wire.Facts { return h.facts.currentFacts() }

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

// pausedPrimaries returns the primaries that are paused.
func pausedPrimaries(trust *identity.Trust) (list []identity.PublicKey) {
	for _, p := range trust.ByRole(identity.RolePrimary) {
		if p.Paused {
			list = append(list, p.Key)
		}
	}
	return list
}
