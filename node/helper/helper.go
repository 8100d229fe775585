// SPDX-License-Identifier: Apache-2.0

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
	"mpbond/base/pace"
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
	defaultBuffer      = 4 * unit.MB // covers 3 s of a difference of 10 Mbit/s between the hops
	defaultMaxSubflows = 64
	// userTimeout ends a hop that acknowledges nothing. Both receivers always read within the
	// bond's windows, so a window shut that long is dead, too.
	userTimeout = time.Minute
)

// Config is the helper's configuration. The toml tags are the keys of the file.
type Config struct {
	// Primaries are the primaries to call: "host:port" of a pipe listener, "NAME" of a trusted
	// primary to use its addresses from the trust file, or "NAME@host:port". Empty means all
	// trusted primaries with addresses; there may be none yet.
	Primaries []string `toml:"primaries"`
	// Buffer is the maximum of bytes held per subflow and direction; 0 is 4 MB.
	Buffer unit.Bytes `toml:"buffer"`
	// MaxSubflows is the maximum number of subflows relayed at once; 0 is 64.
	MaxSubflows int `toml:"max_subflows"`
	// Feedback is how the state of a pipe reaches the server: "flexible", over the HS-path while it
	// carries data, else over the pipe and the primary, so that no radio is woken; "fixed-always",
	// over the HS-path; "fixed-on-demand", over the HS-path while it carries data, else not at all.
	// Empty is flexible.
	Feedback string `toml:"feedback"`
	// PipeCongestion and HSCongestion are the congestion control of what this device sends over
	// pipes, and to servers; empty lets the losses of each hop choose between CUBIC and BBR.
	PipeCongestion string `toml:"pipe_congestion"`
	HSCongestion   string `toml:"hs_congestion"`
	// PipeInterface and HSInterface are the interfaces for pipes, and for HS-paths to servers;
	// empty leaves it to the routes.
	PipeInterface string `toml:"pipe_interface"`
	HSInterface   string `toml:"hs_interface"`
	// UDP are the interfaces with HS-paths over UDP instead of TCP, where it gets through and the
	// server offers it (docs/explanation/pbe.md); "any" is all.
	UDP []string `toml:"udp"`
	// Cell are the sources of control messages of mobile cells, for interfaces that use UDP: a
	// table for each, like [cell.wwan0].
	Cell map[string]device.Cell `toml:"cell"` // for the caller, which starts the listeners
	// BatteryFloor is the battery level, in percent, below which this device carries nothing for
	// others unless it is plugged in; 0 is none. An unknown battery level forbids nothing.
	BatteryFloor int `toml:"battery_floor"`
	// MaxTemperature is the temperature, in °C, from which on this device carries nothing; 0 is
	// none. An unknown temperature forbids nothing.
	MaxTemperature float64 `toml:"max_temperature"`
	// Pair is the address where a primary calls while a pairing code is valid, "host:port"; empty
	// is ":7603".
	Pair string `toml:"pair"`
	// API is the loopback address for HTTP requests (docs/reference/api.md) and the web console
	// (docs/howto/console.md), "host:port"; empty is none.
	API string `toml:"api"`
	// Mark is the firewall mark of all sockets, 0 for none: with a TUN device in the same process
	// they must bypass it.
	Mark int `toml:"-"`
	// Clock paces periodic work; nil: it never idles. Usage must wake it.
	Clock *pace.Clock `toml:"-"`
	// Usage counts the bytes of pipes and HS-paths; nil: no counting.
	Usage *device.Usage `toml:"-"`
	// DialUDP connects over UDP; nil: unsupported.
	DialUDP dial.DialUDP `toml:"-"`
	// Allowed returns what a link, or all links for a primary, may still carry by the owner's caps;
	// nil: no caps.
	Allowed func(of device.CapTarget) policy.Allowance `toml:"-"`
	// Limits returns the limits of the policy file for this device. They apply where this
	// configuration sets none; nil: there are none.
	Limits func() policy.Limits `toml:"-"`
}

// Identity is the key of this device and the devices that it trusts.
type Identity struct {
	Key   *identity.Key
	Trust *identity.Trust
}

// Helper is a running helper. It wires the types of this package and relays what primaries request.
// New makes one. It has no state of its own. Safe for concurrent use, except methods that must be
// called before Run.
type Helper struct {
	cfg      Config
	name     string
	trust    *identity.Trust
	log      *slog.Logger
	rec      *trace.Recorder // nil: no trace
	feedback feedback

	targetsChanged chan struct{} // signals that primaries must be resolved again

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

// New validates cfg. name is this device's name, for display at the other ends. rec, if not nil,
// records events. Errors are faults of kind Config.
func New(cfg Config, name string, ids Identity, log *slog.Logger, rec *trace.Recorder) (*Helper, error) {
	if err := cfg.Validate(name); err != nil {
		return nil, err
	}
	h := &Helper{
		cfg:            cfg,
		name:           name,
		trust:          ids.Trust,
		log:            log,
		rec:            rec,
		feedback:       feedbackModes[cfg.Feedback],
		targetsChanged: make(chan struct{}, 1),
		primaries: primaryList{
			cfg.Primaries,
			ids.Trust,
		},
		finder:       newFinder(cfg.Clock, log),
		targets:      new(targetSet),
		addressWatch: newAddressWatch(),
		access: newServerAccess(
			ids.Trust,
			log,
		),
		caps:   &capChecker{allowance: cfg.Allowed, link: cfg.HSInterface, mark: cfg.Mark},
		relays: newRelayTable(cfg.MaxSubflows),
		share:  newLinkShare(cfg.Clock, log),
		facts:  &deviceFacts{limits: cfg.deviceLimits},
	}
	h.announcer = newAnnouncer(h.facts.factsToAnnounce, func() []identity.PublicKey { return pausedPrimaries(ids.Trust) })
	udpDialer := &dial.Dialer{UDP: cfg.DialUDP, UDPLinks: cfg.UDP, Usage: cfg.Usage, Purpose: policy.ForHSPath}
	servers := hsDialer{
		udpDialer,
		tcp.Options{
			Congestion:      cfg.HSCongestion,
			Interface:       cfg.HSInterface,
			Mark:            cfg.Mark,
			UserTimeout:     userTimeout,
			RetransmitOften: true,
			KeepAlive:       tcp.RadioKeepAlive,
		},
	}
	h.servers = &serverDialer{dialer: servers, udpDialer: udpDialer, access: h.access, caps: h.caps, name: name}
	h.trouble = &troubleReporter{
		key:       ids.Key,
		name:      name,
		trust:     ids.Trust,
		clock:     cfg.Clock,
		log:       log,
		targets:   h.targets,
		servers:   servers,
		wall:      wallClock,
		suspended: func() bool { return h.Facts().RefusalReason != "" },
	}
	h.calls = &pipeCaller{
		key:       ids.Key,
		name:      name,
		trust:     ids.Trust,
		log:       log,
		rec:       rec,
		announcer: h.announcer,
		onServers: h.access.storeServers,
		onTaken:   h.servePipeRequest,
		carrier: pipe.Any{
			pipe.TCP(
				tcp.Options{
					Congestion:      cfg.PipeCongestion,
					Interface:       cfg.PipeInterface,
					Mark:            cfg.Mark,
					UserTimeout:     userTimeout,
					RetransmitOften: true,
					Ledger:          cfg.Usage.LedgerFor(policy.ForPipe),
				},
			),
			pipe.RFCOMM{},
		},
	}
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

// Validate sets defaults and returns the first problem of c, on a device with that name.
func (c *Config) Validate(name string) error {
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
		return configError(
			fmt.Errorf("feedback %q is not known", c.Feedback),
			"there are: "+strings.Join(FeedbackModes(), ", "),
		)
	}
	if err := tcp.CheckCongestion(c.PipeCongestion, false); err != nil {
		return fmt.Errorf("pipe_congestion: %w", err)
	}
	if err := tcp.CheckCongestion(c.HSCongestion, len(c.UDP) > 0); err != nil {
		return fmt.Errorf("hs_congestion: %w", err)
	}
	if len(c.UDP) > 0 && c.DialUDP == nil {
		return fault.New(fault.Unsupported, errors.New("HS-paths over UDP are not supported here"), "leave `udp` out")
	}
	if err := dial.CheckCells(c.Cell, c.UDP); err != nil {
		return err
	}
	if len(name) > wire.MaxName {
		return configError(
			fmt.Errorf("the name %.20q… is too long", name),
			fmt.Sprintf("at most %d bytes", wire.MaxName),
		)
	}
	if _, err := (policy.Limits{BatteryFloor: c.BatteryFloor, MaxTemperature: c.MaxTemperature}).Check(); err != nil {
		return configError(err, "see battery_floor and max_temperature in helper.toml")
	}
	return nil
}

// deviceLimits returns the owner's limits: of the configuration, else of the policy file.
func (c Config) deviceLimits() policy.Limits {
	var l policy.Limits
	if c.Limits != nil {
		l = c.Limits()
	}
	return policy.Limits{
		BatteryFloor:   cmp.Or(c.BatteryFloor, l.BatteryFloor),
		MaxTemperature: cmp.Or(c.MaxTemperature, l.MaxTemperature),
	}
}

// SetDiscovery sets the function that searches for primaries on the local networks; without it
// there is no search. It must be called before Run.
func (h *Helper) SetDiscovery(find func(context.Context) ([]discovery.Found, error)) {
	h.finder.search = find
}

// SetOwnSubflows sets the function that returns the direct subflows of a primary in this process.
// Their bytes count as the owner's traffic. Keys must never be reused. It must be called before
// Run.
func (h *Helper) SetOwnSubflows(own func() map[string]device.ConnBytes) { h.share.ownSubflows = own }

// CountShared returns a ledger for connections that serve other devices without a bond, such as
// onloading. Their bytes count as shared, not as the owner's. It passes them on to next, which may
// be nil.
func (h *Helper) CountShared(next tcp.Ledger) tcp.Ledger { return h.share.newShareLedger(next) }

// Run offers pipes and relays subflows until ctx ends; it then closes everything and returns ctx's
// error. It never gives up on networks that do not answer.
func (h *Helper) Run(ctx context.Context) error {
	h.announcer.sendChanges()
	var all sync.WaitGroup
	all.Go(func() { h.share.runShareLoop(ctx) })
	all.Go(func() { h.runWatchLoop(ctx) })
	all.Go(func() { h.trouble.runReportLoop(ctx) })
	all.Go(func() { h.finder.runSearchLoop(ctx, h.primariesToFind, h.scheduleTargetUpdate) })
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
	h.relays.closeAllRelays(ctx.Err())
	h.calls.tasks.Wait()
	all.Wait()
	return ctx.Err()
}

// TrustChanged applies a changed trust file. New primaries are offered pipes; pipes and subflows of
// devices that are no longer in it end at once.
func (h *Helper) TrustChanged() {
	h.calls.callNow.fireSignal()
	h.scheduleTargetUpdate()
}

// scheduleTargetUpdate makes Run resolve the primaries again.
func (h *Helper) scheduleTargetUpdate() {
	select {
	case h.targetsChanged <- struct{}{}:
	default: // an update is already scheduled
	}
}

// updateTargets resolves the targets from the trust file and ends what is no longer allowed.
func (h *Helper) updateTargets(ctx context.Context) {
	list, err := h.primaries.resolveTargets(h.finder.foundAddresses)
	if err != nil {
		h.log.Warn("cannot resolve a primary", "err", err, "hint", "see `mpbond trust list`")
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
	// Announce before ending what is paused: a primary that knows the reason does not request
	// another subflow at once. This may wait for a primary that does not read.
	h.announcer.sendChanges()
	h.relays.closeWhere(unwanted)
}

// primariesToFind returns the primaries that may be searched for.
func (h *Helper) primariesToFind() (list []roamingPrimary) {
	for _, p := range h.primaries.roamingPrimaries() {
		list = append(list, roamingPrimary{p.Key, h.targets.connectedAddresses(p.Key)})
	}
	return list
}

// Refusals returns the primaries that refuse this device, or that it refuses.
func (h *Helper) Refusals() []refusal.Record { return h.calls.refused.Refusals(time.Now()) }

// SetFacts sets the facts of this device and announces them to primaries, on all pipes.
func (h *Helper) SetFacts(f facts.Facts) {
	h.applySuspension(h.facts.setDeviceFacts(f, h.linkToServers(), time.Now()))
}

// applySuspension ends all subflows if this device is suspended, and announces changes.
func (h *Helper) applySuspension(s suspension) {
	switch {
	case s.before == "" && s.now != "":
		h.log.Info("this device is suspended", "reason", s.now)
		h.rec.Add(trace.Event{Kind: trace.DeviceSuspended, Device: h.name, Reason: s.now})
	case s.before != "" && s.now == "":
		h.log.Info("this device is no longer suspended")
		h.rec.Add(trace.Event{Kind: trace.DeviceUnsuspended, Device: h.name, Reason: "was suspended: " + s.before})
	}
	if s.now != "" {
		h.relays.closeWhere(func(*subflow) error { return errSuspended })
	}
	h.announcer.sendChanges()
}

// Facts returns the facts that primaries receive.
func (h *Helper) Facts() wire.Facts { return h.facts.factsToAnnounce() }

// linkToServers returns the interface that reaches servers, "" if unknown.
func (h *Helper) linkToServers() string {
	if h.cfg.HSInterface != "" {
		return h.cfg.HSInterface
	}
	if local := h.relays.newestHSPathAddr(); local != nil {
		if name := device.InterfaceOf(local); name != "" {
			return name
		}
	}
	if names, err := device.Uplinks(); err == nil && len(names) > 0 {
		return names[0]
	}
	return ""
}

// pausedPrimaries returns the paused primaries.
func pausedPrimaries(trust *identity.Trust) (list []identity.PublicKey) {
	for _, p := range trust.ByRole(identity.RolePrimary) {
		if p.Paused {
			list = append(list, p.Key)
		}
	}
	return list
}
