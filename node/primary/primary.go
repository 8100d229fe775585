package primary

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/facts"
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

// Primary is a running primary. It wires the types that do the work (see the package
// comment) and keeps no state of its own: what is in it is set by New. Safe for concurrent
// use.
type Primary struct {
	cfg    Config
	log    *slog.Logger
	memory *endpoint.Memory

	places    places
	keeper    *subflowKeeper
	policy    *Policy
	owners    *owners
	uplinks   *uplinks // if interfaces are found
	names     deviceNames
	server    *serverPeer
	standings *standings
	troubles  *troubles
	demand    *demand
	sessions  *sessions
	helpers   *helperPool
	meters    radioMeters
	apps      appStreams

	wg sync.WaitGroup
}

// New checks the configuration and opens the port for helpers. Rec, if not
// nil, is told what happens.
func New(cfg Config, key *identity.Key, trust *identity.Trust, log *slog.Logger, rec *trace.Recorder) (*Primary, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	usual, err := policy.ParseSettings(cfg.Latency, cfg.Redundant)
	if err != nil {
		return nil, fault.New(fault.Config, err, "mend `latency` or `redundant`")
	}
	server, err := newServerPeer(cfg.Server, trust)
	if err != nil {
		return nil, err
	}
	p := &Primary{cfg: cfg, server: server, log: log,
		memory: endpoint.NewMemory(0), places: places{where: device.Place},
		names: deviceNames{configured: cfg.Name, trust: trust}}
	p.names.host, _ = os.Hostname()
	p.troubles = &troubles{server: server, trust: trust, log: log, last: map[string]api.Trouble{}}
	p.sessions = &sessions{names: p.names, giveUp: time.Duration(cfg.GiveUp), log: log, open: bondOpener(cfg, p.memory.Share(), log, rec)}
	p.demand = newDemand(p.sessions.isBusy)
	p.sessions.demand = p.demand
	p.policy = newPolicy(usual, p.sessions.routing, log, rec)
	p.standings = &standings{names: p.names, rules: p.policy.Rules, metered: cfg.Metered, allowed: cfg.Allowed, log: log, rec: rec, all: map[carrier]*standing{}}
	p.uplinks = &uplinks{find: (&uplinkFinder{server: server, mark: cfg.mark()}).find, isMetered: p.standings.costsByDefault, log: log, all: map[string]*uplink{}}
	p.owners = newOwners(p.policy.processOf)
	p.helpers = &helperPool{key: key, trust: trust, standings: p.standings, troubles: p.troubles, demand: p.demand, noServer: p.troubles.ownTrouble,
		log: log, strangers: loglimit.New(log), rec: rec, all: map[identity.PublicKey]*helper{}, conns: map[net.Conn]bool{}}
	p.keeper = &subflowKeeper{cfg: cfg, name: p.names.shownName(), key: key, trust: trust, server: server, sessions: p.sessions, standings: p.standings,
		troubles: p.troubles, demand: p.demand, places: &p.places, log: log, rec: rec, countSubflow: p.uplinks.countSubflow, noteFacts: p.helpers.noteFacts,
		paths: dial.Dialer{UDP: cfg.DialUDP, Over: cfg.UDP, Usage: cfg.Usage, Purpose: policy.ForDirect}}
	p.uplinks.keep, p.helpers.keep = p.keeper.keepUplink, p.keeper.keepHelped
	p.troubles.changed, p.troubles.names, p.troubles.reached = p.helpers.reportTrouble, p.helpers.names, p.sessions.hasSubflow
	if p.helpers.listeners, err = listenForPipes(cfg.Pipe, tcp.Options{Congestion: cfg.Congestion, UserTimeout: 2 * userTimeout, Mark: cfg.mark(), Ledger: cfg.Usage.Ledger(policy.ForPipe)}); err != nil {
		return nil, err
	}
	p.sessions.start()
	return p, nil
}

// bondOpener returns what makes the endpoint of a bond.
func bondOpener(cfg Config, share *endpoint.Share, log *slog.Logger, rec *trace.Recorder) func(wire.BondID, func(*subflow.Subflow, error)) *endpoint.Endpoint {
	return func(id wire.BondID, down func(*subflow.Subflow, error)) *endpoint.Endpoint {
		scheduler, _ := sched.New(cfg.Scheduler) // check has tried it
		return endpoint.New(endpoint.Config{
			Bond:    bond.Config{Opens: true, Scheduler: scheduler, Eta: cfg.Reinject, Trace: rec.Func(id.String()), ChangesOnly: !rec.On()},
			Chooser: &choice.ByPolicy{Up: true},
			Share:   share,
			Down:    down,
			Log:     log,
		})
	}
}

// PipeAddr is where helpers connect, the first of several, nil if nowhere.
func (p *Primary) PipeAddr() net.Addr { return p.helpers.addr() }

// Calls returns the connections that reached the port for helpers; nil if there is none.
func (p *Primary) Calls() *api.Calls { return p.helpers.callsReceived() }

// Run keeps the bond until ctx ends, and returns when nothing is left running.
func (p *Primary) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch ifaces := p.cfg.Interfaces; {
	case len(ifaces) == 1 && ifaces[0] == autoInterfaces:
		p.wg.Go(func() { p.uplinks.run(ctx) })
	case len(ifaces) == 0:
		ifaces = []string{""}
		fallthrough
	default:
		for _, i := range ifaces {
			p.wg.Go(func() { p.keeper.keepUplink(ctx, i) })
		}
	}
	p.wg.Go(func() { p.watch(ctx) })
	p.wg.Go(func() { p.sessions.keepClasses(ctx) })
	p.wg.Go(func() { p.owners.run(ctx) })
	err := p.helpers.run(ctx)
	cancel()
	p.helpers.close()
	farewell, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	p.sessions.close(farewell)
	p.helpers.wait()
	p.wg.Wait()
	p.places.save(p.log)
	return err
}

// watch gives up what has been without life for long.
func (p *Primary) watch(ctx context.Context) {
	const every = time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	own := newAddresses()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.memory.Trim()
		p.places.note(p.sessions.current().e.Steady(), p.log)
		p.sessions.followAddresses(own.lost())
		if own.changed() {
			p.demand.retryRefused()
		}
		p.review(time.Now())
		p.meters.update(time.Now(), p.helpers.radios(), p.sessions.helpedFlows())
		frozen := time.Since(last) > 2*every
		if last = time.Now(); frozen {
			continue // this process, and not its subflows: what they have to say is still to be read
		}
		p.sessions.giveUpSilent(time.Duration(p.cfg.Resume))
	}
}

// Policy returns the policy in force.
func (p *Primary) Policy() *Policy { return p.policy }

// TrustChanged acts on the trust file after it was read again. Helpers that
// are not in it any more lose their pipes, and a server its subflows.
func (p *Primary) TrustChanged() {
	now := time.Now()
	renamed := p.helpers.reload(now)
	p.sessions.renameHelpers(renamed)
	p.troubles.rename(renamed)
	// A session of after the reload has the new server: see subflowKeeper.join.
	changed := p.server.reload()
	s := p.sessions.current()
	p.helpers.reportServers()
	if changed {
		p.sessions.restart(s, "the server is trusted no longer")
	}
	p.demand.retryRefused() // whoever wakes finds the new server
	p.review(now)
}

// Chunk takes an app's word about what it waits for; see api.Chunk.
func (p *Primary) Chunk(c api.Chunk) error { return p.apps.announceChunk(c) }

// Refusals returns who is refused here, or refuses this device.
func (p *Primary) Refusals() []refusal.Record { return p.troubles.refusals(time.Now()) }

// Owns reports whether policy means this device, all its interfaces together, by
// a name.
func (p *Primary) Owns(name string) bool { return slices.Contains(p.names.allNames(), name) }

// FactsChanged takes what is known of this device itself.
func (p *Primary) FactsChanged(f facts.Facts) { p.standings.setOwnFacts(f) }

// Spent has a helper rest at once whose cap here is used up.
func (p *Primary) Spent(of device.Bounded, _ policy.Allowance) {
	if of.By == policy.ForPipe {
		p.review(time.Now())
	}
}

// review lets devices rest, and carry again, as policy says, and has subflows made
// anew whose tier has changed. It is called each second.
func (p *Primary) review(now time.Time) {
	p.standings.review(now)
	p.sessions.endUnwanted(p.standings.endReason)
}

// KeepPlaces reads what was learnt of places from a file, which need not exist, and writes
// it there while Run runs. After an error it begins anew. A file that holds something else
// is kept as FILE.bad, which the error tells.
func (p *Primary) KeepPlaces(file string) error { return p.places.keep(file) }

// HelperState is what is known of a helper.
type HelperState struct {
	Facts    wire.Facts  // that it has reported
	Tier     wire.Tier   // when it is used
	Rests    string      // why it carries nothing, "" if it may
	LastPipe time.Time   // when a pipe of it last came; zero if none did
	Radio    wire.Radio  // of its link to the server; wire.RadioNone: not known, or a cable
	Took     unit.Joules // by that radio for this primary
}

// HelperOf returns what is known of a helper.
func (p *Primary) HelperOf(key identity.PublicKey) (h HelperState) {
	h.Facts = p.standings.factsOf(key)
	h.Tier, h.Rests = p.standings.stateOf(carrier{helper: key})
	h.Radio, h.Took = p.meters.energyOf(key)
	if one := p.helpers.find(key); one != nil {
		h.LastPipe = one.lastPipeTime()
	}
	return h
}

// Status describes the bond. With why it holds the last decisions too.
func (p *Primary) Status(why bool) api.Bond {
	s := p.sessions.current()
	peer, _ := p.server.get()
	errs := p.troubles.list()
	b := status.Bond(s.e.Status(why))
	b.ID, b.Peer = s.id.String(), peer.Name
	p.sessions.describePaths(s, b.Paths, p.helpers.countWaiting(), p.keeper.whyNotUDP)
	for _, path := range b.Paths {
		delete(errs, path.Device)
	}
	for device, t := range errs {
		if t.Text != "" {
			b.Paths = append(b.Paths, api.Path{Device: device, State: api.Down, LastError: lastError(t), Trouble: &t})
		}
	}
	return b
}
