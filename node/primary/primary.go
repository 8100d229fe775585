// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/fleet"
	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/choice"
	"mpbond/node/dial"
	"mpbond/node/endpoint"
	"mpbond/node/refusal"
	"mpbond/node/status"
)

// Primary is a running primary. It wires the types that do the work (see the package comment). It
// has no state of its own: New sets all fields. Safe for concurrent use.
type Primary struct {
	cfg    Config
	log    *slog.Logger
	memory *endpoint.Memory

	locations  locationMemory
	history    historyMemory
	places     placeRates
	supervisor *subflowSupervisor
	policy     *Policy
	appFinder  *appFinder
	uplinks    *uplinks // used if interfaces are found automatically
	names      deviceNames
	server     *serverPeer
	fleet      *fleetGuide
	states     *deviceStates
	handoffs   *handoffWatch
	troubles   *troubleLog
	demand     *demand
	bond       *bondHolder
	helpers    *helperPool
	meters     radioMeters
	apps       appStreams

	wg sync.WaitGroup
}

// New checks the configuration and opens the port for helpers. rec, if not nil, records events.
func New(
	cfg Config,
	key *identity.Key,
	trust *identity.Trust,
	log *slog.Logger,
	rec *trace.Recorder,
) (*Primary, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	usual, err := cfg.compileSettings()
	if err != nil {
		return nil, err
	}
	server, err := newServerPeer(cfg.Server, trust)
	if err != nil {
		return nil, err
	}
	p := &Primary{cfg: cfg, server: server, log: log,
		memory: endpoint.NewMemory(0), locations: locationMemory{currentLocation: device.Location},
		names: deviceNames{configured: cfg.Name, trust: trust}}
	p.names.host, _ = os.Hostname()
	p.troubles = &troubleLog{server: server, trust: trust, log: log, last: map[string]api.Trouble{}}
	p.bond = &bondHolder{
		names:         p.names,
		streamTimeout: time.Duration(cfg.GiveUp),
		clock:         cfg.Clock,
		log:           log,
		newClass:      make(chan struct{}, 1),
		open:          bondOpener(cfg, p.memory.NewShare(), log, rec),
	}
	p.demand = newDemand(p.bond.hasOpenStreams, cfg.Clock)
	p.bond.demand = p.demand
	p.fleet = newFleetGuide(cfg, server, p.bond, p.demand, log)
	p.fleet.greet = greetServer(cfg, key)
	p.fleet.listChanged = p.TrustChanged
	p.policy = newPolicy(usual, p.bond.snapshotSubflows, log, rec)
	p.states = &deviceStates{
		names:    p.names,
		rules:    p.policy.Rules,
		metered:  cfg.Metered,
		allowed:  cfg.Allowed,
		log:      log,
		rec:      rec,
		byDevice: map[deviceRef]*deviceState{},
	}
	p.handoffs = &handoffWatch{isMobile: isMobileInterface, log: log, rec: rec, links: map[string]*watchedLink{}}
	p.uplinks = &uplinks{
		listInterfaces: (&uplinkFinder{server: server, mark: cfg.socketMark()}).findUplinks,
		isMetered:      p.states.isMeteredByDefault,
		clock:          cfg.Clock,
		log:            log,
		all:            map[string]*uplink{},
	}
	p.appFinder = newAppFinder(p.policy.findAppProcess)
	p.helpers = &helperPool{
		key:           key,
		trust:         trust,
		states:        p.states,
		troubles:      p.troubles,
		demand:        p.demand,
		serverTrouble: p.troubles.serverTrouble,
		log:           log,
		unknownLog:    loglimit.New(log),
		rec:           rec,
		byKey:         map[identity.PublicKey]*helper{},
		conns:         map[net.Conn]bool{},
	}
	p.supervisor = &subflowSupervisor{
		cfg:          cfg,
		name:         p.names.displayName(),
		key:          key,
		trust:        trust,
		server:       server,
		fleet:        p.fleet,
		bond:         p.bond,
		states:       p.states,
		troubles:     p.troubles,
		demand:       p.demand,
		locations:    &p.locations,
		log:          log,
		rec:          rec,
		countSubflow: p.uplinks.countSubflow,
		updateFacts:  p.helpers.updateHelperFacts,
		dialer:       dial.Dialer{UDP: cfg.DialUDP, UDPLinks: cfg.UDP, Usage: cfg.Usage, Purpose: policy.ForDirect},
	}
	p.uplinks.supervise, p.helpers.supervise = p.supervisor.superviseUplink, p.supervisor.superviseHelped
	p.troubles.onChange, p.troubles.helperNames = p.helpers.sendTrouble, p.helpers.helperNames
	p.troubles.hasSubflow = p.bond.hasSubflow
	options := tcp.Options{
		Congestion: cfg.Congestion, UserTimeout: 2 * userTimeout, RetransmitOften: true, Mark: cfg.socketMark(),
		Ledger: cfg.Usage.LedgerFor(policy.ForPipe),
	}
	if p.helpers.listeners, err = listenForPipes(cfg.Pipe, options); err != nil {
		return nil, err
	}
	p.bond.openFirstSession()
	return p, nil
}

// bondOpener returns a function that makes the endpoint of a bond.
func bondOpener(
	cfg Config,
	share *endpoint.Share,
	log *slog.Logger,
	rec *trace.Recorder,
) func(wire.BondID, func(*subflow.Subflow, error)) *endpoint.Endpoint {
	return func(id wire.BondID, down func(*subflow.Subflow, error)) *endpoint.Endpoint {
		scheduler, _ := sched.New(cfg.Scheduler) // checked by Validate
		return endpoint.New(endpoint.Config{
			Bond: bond.Config{
				OpensStreams: true,
				Scheduler:    scheduler,
				Eta:          cfg.Reinject,
				Trace:        rec.AddFunc(id.String()),
				ChangesOnly:  !rec.Enabled(),
			},
			Guide: &choice.ByPolicy{Upload: true},
			Share: share,
			Down:  down,
			Log:   log,
		})
	}
}

// PipeAddr returns the first address where helpers connect, or nil if there is none.
func (p *Primary) PipeAddr() net.Addr { return p.helpers.listenAddr() }

// Calls returns the count of connections to the helper port; nil if there is no port.
func (p *Primary) Calls() *api.Calls { return p.helpers.callsReceived() }

// Run keeps the bond until ctx ends. It returns when all its goroutines have ended.
func (p *Primary) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.fleet.chooseFirst(ctx)
	p.wg.Go(func() { p.fleet.runQuestions(ctx) })
	p.wg.Go(func() { p.fleet.runSilenceWatch(ctx) })
	switch ifaces := p.cfg.Interfaces; {
	case len(ifaces) == 1 && ifaces[0] == autoInterfaces:
		p.wg.Go(func() { p.uplinks.runUplinks(ctx) })
	case len(ifaces) == 0:
		ifaces = []string{""}
		fallthrough
	default:
		for _, i := range ifaces {
			p.wg.Go(func() { p.supervisor.superviseUplink(ctx, i) })
		}
	}
	p.wg.Go(func() { p.runMaintenance(ctx) })
	p.wg.Go(func() { p.bond.runClassLoop(ctx) })
	p.wg.Go(func() { p.appFinder.runQueries(ctx) })
	p.wg.Go(func() { p.history.runSaving(ctx, p.log) })
	err := p.helpers.acceptPipes(ctx)
	cancel()
	p.helpers.closeHandshakes()
	farewell, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	p.bond.closeWithFarewell(farewell)
	p.helpers.waitClosed()
	p.wg.Wait()
	p.fleet.measuring.Wait()
	p.locations.saveChanges(p.log)
	p.history.saveChanges(p.log)
	return err
}

// runMaintenance runs the periodic work of each second, rarer while idle: it migrates subflows,
// reviews devices and gives up silent subflows, until ctx ends.
func (p *Primary) runMaintenance(ctx context.Context) {
	const every = time.Second
	t := p.cfg.Clock.NewTicker(every)
	defer t.Stop()
	own := newAddressTracker()
	for {
		var due time.Time
		select {
		case <-ctx.Done():
			return
		case due = <-t.C:
		}
		frozen := time.Since(due) > every
		p.memory.Trim()
		active := p.bond.currentSession().endpoint
		if awaitsProgress(active) {
			p.cfg.Clock.Wake()
		}
		p.locations.recordRates(active.SteadyRates(), p.log)
		p.places.refreshIfOld(time.Now(), active.Candidates(), &p.locations)
		p.bond.migrateSubflows(own.detectLost())
		if own.takeChanged() {
			p.demand.retryRefused()
		}
		p.reviewDevices(time.Now())
		p.meters.updateMeters(time.Now(), p.helpers.helperRadios(), p.bond.helpedSubflowBytes())
		if frozen {
			continue // this process was frozen, not its subflows: what they sent is still unread
		}
		p.bond.giveUpSilent(time.Duration(p.cfg.Resume))
	}
}

// awaitsProgress reports whether a bond waits for something that may have to be given up: for stalled
// bytes, or with streams or flows for a subflow.
func awaitsProgress(e *endpoint.Endpoint) bool {
	return len(e.SilentSubflows(0)) > 0 || e.NoSubflowFor() > 0 && e.Streams()+len(e.FlowList()) > 0
}

// Fleet returns the fleet that this device has joined, nil if there is none.
func (p *Primary) Fleet() *fleet.Joined { return p.fleet.joined() }

// Policy returns the policy in force.
func (p *Primary) Policy() *Policy { return p.policy }

// TrustChanged applies a changed trust file. Helpers that are no longer in it lose their pipes; a
// server that is no longer in it loses its subflows.
func (p *Primary) TrustChanged() {
	now := time.Now()
	renamed := p.helpers.applyTrust(now)
	p.bond.renameHelpers(renamed)
	p.troubles.renameDevices(renamed)
	// A session read after the reload has the new server: see subflowSupervisor.joinSubflow.
	p.fleet.reload()
	changed := p.server.reloadServerTrust()
	s := p.bond.currentSession()
	p.helpers.sendServers()
	if changed {
		p.bond.replaceSession(s, "the server is no longer trusted")
	}
	p.demand.retryRefused() // supervisors find the new server
	p.reviewDevices(now)
}

// MarkChunk applies a chunk announced by an app; see api.Chunk.
func (p *Primary) MarkChunk(c api.Chunk) error { return p.apps.applyAppChunk(c) }

// Refusals returns the devices that were refused here or refused this device.
func (p *Primary) Refusals() []refusal.Record { return p.troubles.listRefusals(time.Now()) }

// IsOwnName reports whether policy uses a name for this device with all its interfaces.
func (p *Primary) IsOwnName(name string) bool { return slices.Contains(p.names.policyNames(), name) }

// SetFacts sets the facts of this device.
func (p *Primary) SetFacts(f facts.Facts) {
	p.states.setOwnFacts(f)
	s, own := p.bond.ownSubflows()
	for iface, h := range p.handoffs.takeFacts(f, slices.Collect(maps.Keys(own)), time.Now()) {
		for _, id := range own[iface] {
			s.endpoint.SetHazard(id, h)
		}
	}
}

// WantsCells reports whether the cells of this device's modems matter now: the bond carries something, and a
// mobile link has a subflow.
func (p *Primary) WantsCells() bool {
	s, own := p.bond.ownSubflows()
	return p.handoffs.hasMobileLink(p.states.deviceFacts(), slices.Collect(maps.Keys(own))) && s.endpoint.IsActive()
}

// Handoffs returns the handoffs of this device's mobile links.
func (p *Primary) Handoffs() api.Handoffs { return p.handoffs.listHandoffs(time.Now()) }

// CapReached suspends a helper at once when its cap at this device is used up.
func (p *Primary) CapReached(of device.CapTarget, _ policy.Allowance) {
	if of.Purpose == policy.ForPipe {
		p.reviewDevices(time.Now())
	}
}

// reviewDevices suspends and resumes devices as policy decides, and reopens subflows if their tier
// has changed. It is called by runMaintenance.
func (p *Primary) reviewDevices(now time.Time) {
	p.states.updateAllStates(now)
	p.bond.endUnwanted(p.states.subflowEndReason)
}

// LoadLocations reads the rates learnt at locations from a file, which need not exist, and saves
// them there while Run runs. After an error the memory starts empty. A file with other content is
// renamed to FILE.bad, which the error names.
func (p *Primary) LoadLocations(file string) error { return p.locations.loadLocations(file) }

// LoadHistory reads what apps moved from and to destinations from a file, as LoadLocations does.
func (p *Primary) LoadHistory(file string) error { return p.history.loadHistory(file) }

// ForgetHistory removes what is remembered of destinations, and the file.
func (p *Primary) ForgetHistory() error { return p.history.forgetHistory() }

// HelperInfo is the state of a helper.
type HelperInfo struct {
	Facts       wire.Facts  // as it reported
	Tier        wire.Tier   // when it is used
	Suspended   string      // why it carries nothing, "" if it may
	LastPipe    time.Time   // when its last pipe came; zero if none did
	Radio       wire.Radio  // of its link to the server; wire.RadioNone: unknown or a cable
	RadioEnergy unit.Joules // spent for this primary
}

// HelperState returns the state of a helper.
func (p *Primary) HelperState(key identity.PublicKey) (h HelperInfo) {
	h.Facts = p.states.factsOfHelper(key)
	h.Tier, h.Suspended = p.states.stateOfDevice(deviceRef{helper: key})
	h.Radio, h.RadioEnergy = p.meters.energyOfHelper(key)
	if one := p.helpers.findHelper(key); one != nil {
		h.LastPipe = one.lastPipeTime()
	}
	return h
}

// Status describes the bond. If why is set it includes the last decisions.
func (p *Primary) Status(why bool) api.Bond {
	s := p.bond.currentSession()
	peer, _ := p.server.currentServer()
	errs := p.troubles.listTroubles()
	b := status.Bond(s.endpoint.Status(why))
	b.ID, b.Peer = s.id.String(), peer.Name
	p.bond.addSubflowDetails(s, b.Subflows, p.helpers.countReservePipes(), p.supervisor.udpFallbackReason)
	for _, one := range b.Subflows {
		delete(errs, one.Device)
	}
	for device, t := range errs {
		if t.Text != "" {
			b.Subflows = append(
				b.Subflows,
				api.Subflow{Device: device, State: api.Down, LastError: formatTrouble(t), Trouble: &t},
			)
		}
	}
	return b
}
