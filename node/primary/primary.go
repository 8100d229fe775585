// Package primary is the role on the device whose apps are carried: it keeps
// the bond with the server, joins a direct subflow for each of its own
// interfaces and a helped one for each helper that calls, and hands out
// streams to package intercept. It stands between intercept and endpoint.
package primary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/choice"
	"mpbond/node/dial"
	"mpbond/node/endpoint"
	"mpbond/node/refusal"
	"mpbond/node/status"
)

// Config is the primary's configuration; the toml tags are the file's keys.
type Config struct {
	// Name is what this device is called in status output; empty is the host's.
	Name string `toml:"name"`
	// Server names the server in the trust file; it may be left out when there
	// is just one.
	Server string `toml:"server"`
	// Proxy is where apps find the SOCKS5 and HTTP proxy, "host:port"; empty is
	// none.
	Proxy string `toml:"proxy"`
	// Direct connects without the bond where the server may not or cannot reach
	// a destination. Left out, it is so only while the proxy is on loopback:
	// else whoever reaches the proxy would reach this device's networks.
	Direct *bool `toml:"direct"`
	// Transparent is the loopback port that `mpbond run` redirects to; 0 is
	// none.
	Transparent uint16 `toml:"transparent"`
	// Pipe is where helpers connect, "host:port"; several are separated by
	// commas, and "rfcomm://CHANNEL" is Bluetooth. Empty is nowhere.
	Pipe string `toml:"pipe"`
	// Interfaces each carry a direct subflow. ["auto"], which is the default, is each
	// interface that has a default route and is no tunnel, as they come and go;
	// while there is one alone, or none, or the server is reached otherwise, one
	// subflow goes by the system's routes. Empty is always that.
	Interfaces []string `toml:"interfaces"`
	// UDP are interfaces whose direct subflows go over UDP instead of TCP, where it gets
	// through and the server serves it (docs/pbe.md); "any" is each.
	UDP []string `toml:"udp"`
	// Cell tells, for interfaces of UDP, where the control messages of their mobile cells
	// are heard: a table for each, like [cell.wwan0].
	Cell map[string]device.Cell `toml:"cell"` // for the caller to listen to
	// Metered are interfaces and helpers whose data costs money: they carry
	// nothing while another one works.
	Metered []string `toml:"metered"`
	// Subflows is how many direct subflows each interface carries, 32 at most.
	Subflows int `toml:"subflows"`
	// Scheduler chooses the subflow for bytes to the server; see docs/schedulers.md.
	Scheduler string `toml:"scheduler"`
	// Latency and Redundant are rules for connections that must not wait, or go
	// over every subflow: "port:N", "port:N-M", "host:PATTERN", or "dscp:N" of the
	// first packet (of datagrams only with TUN). See docs/datapath.md.
	Latency   []string `toml:"latency"`
	Redundant []string `toml:"redundant"`
	// Policy is a file with rules for apps and destinations (docs/policy.md); empty
	// is policy.toml beside this one.
	Policy string `toml:"policy"` // for the caller to read: PolicyFile.Use
	// Congestion is the congestion control of direct subflows and pipes, "pbe" that of those over UDP alone; empty
	// is the system's default.
	Congestion string `toml:"congestion"`
	// Reinject is the threshold η of reinjection (docs/datapath.md); negative
	// switches it off. It must not be 0.
	Reinject float64 `toml:"reinject"`
	// Resume is how long a helped subflow waits for another pipe when its own
	// broke, at most 60s.
	Resume Duration `toml:"resume"`
	// GiveUp is how long streams wait while there is no subflow at all. It must
	// be over 0.
	GiveUp Duration `toml:"give_up"`
	// TUN carries the whole machine, apps of all users: it needs rights of root
	// (docs/install.md).
	TUN bool `toml:"tun"` // who starts a primary makes the device; its own sockets have tcp.OwnMark, to go around it
	// API is where requests over TCP and the web console (docs/console.md) are answered, a loopback "host:port"; empty is none.
	API string `toml:"api"`
	// Usage counts what direct subflows and pipes carry; nil: nothing is counted.
	Usage *device.Usage `toml:"-"`
	// DialUDP connects over UDP; nil: it cannot.
	DialUDP dial.DialUDP `toml:"-"`
	// Allowed is what an own link, or a helper, may still carry; nil: there are no caps.
	Allowed func(of device.Bounded) policy.Allowance `toml:"-"`
}

// Duration is a time.Duration that configuration writes like "60s".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(t []byte) error {
	v, err := time.ParseDuration(string(t))
	if _, number := strconv.ParseFloat(string(t), 64); err != nil && number == nil {
		return fmt.Errorf("%s has no unit (write it like \"%[1]ss\")", t)
	} else if err != nil {
		return fmt.Errorf("%q is no time (write it like \"60s\")", t)
	}
	*d = Duration(v)
	return nil
}

// mark is the mark of all sockets, 0 for none.
func (c Config) mark() int {
	if c.TUN {
		return tcp.OwnMark
	}
	return 0
}

// Default is the configuration that a file changes.
var Default = Config{Proxy: "127.0.0.1:1080", Transparent: 7601, Pipe: ":7602", Interfaces: []string{autoInterfaces}, Subflows: 1, Scheduler: sched.Default, Latency: []string{"dscp:46"},
	Reinject: 0.2, Resume: Duration(pipe.DefaultWindow), GiveUp: Duration(60 * time.Second)}

// What a file may say.
const (
	// A server takes 32 subflows of a bond, unless told otherwise.
	maxSubflows = 32
	// A number without a unit counts nanoseconds: shorter times are such mistakes.
	unitless = Duration(time.Millisecond)
)

// Tuning.
const (
	// A subflow that is silent for longer is given up, so that a new one can
	// be tried; TCP's own retries would be seconds apart by then.
	silentLimit = 3 * time.Second
	// userTimeout ends a direct subflow whose data nobody acknowledges.
	userTimeout = 30 * time.Second
	// dialTimeout leaves SYNs at 0, 1 and 3 s, so that a server's return shows
	// within 2 s.
	dialTimeout = 3500 * time.Millisecond
	// maxHandshakes bounds pipes that have not proved whose they are, maxFromOne
	// those of one source, and maxPerMinute how many one source may begin in a
	// minute. A helper calls each 250 ms, at each address, while a pipe is broken.
	maxHandshakes, maxFromOne, maxPerMinute = 64, 16, 1200
)

// Primary is a running primary. Safe for concurrent use.
type Primary struct {
	cfg   Config
	key   *identity.Key
	trust *identity.Trust
	log   *slog.Logger
	rec   *trace.Recorder // nil: nothing is traced

	memory *endpoint.Memory
	share  *endpoint.Share // of it, of the bond

	places    places
	paths     dial.Dialer
	ways      device.Routes
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

// lane is a subflow that has joined.
type lane struct {
	s      *session
	id     wire.PathID
	down   <-chan error       // tells its end
	conn   net.Conn           // that it goes by
	peer   identity.PublicKey // of the server
	since  time.Time
	server string     // of a direct one: its address, as it is known
	link   *pipe.Link // nil if it is direct
	// seen is the newest report about the pipe of a helped one.
	seen *atomic.Pointer[pipeReport]
}

// pipeReport is what a helper told of a pipe: how much waited for it.
type pipeReport struct {
	at      time.Time
	waiting unit.Bytes
}

// New checks the configuration and opens the port for helpers. Rec, if not
// nil, is told what happens.
func New(cfg Config, key *identity.Key, trust *identity.Trust, log *slog.Logger, rec *trace.Recorder) (*Primary, error) {
	if _, err := sched.New(cfg.Scheduler); err != nil {
		return nil, fault.New(fault.Config, err, "set `scheduler` to one of them")
	}
	switch {
	case cfg.Subflows < 0 || cfg.Subflows > maxSubflows:
		return nil, fault.New(fault.Config, fmt.Errorf("%d subflows for each interface", cfg.Subflows), fmt.Sprintf("set `subflows` to 1 to %d", maxSubflows))
	case cfg.Reinject == 0, math.IsNaN(cfg.Reinject): // 0 would be package bond's default
		return nil, fault.New(fault.Config, fmt.Errorf("the reinjection threshold is %v", cfg.Reinject), "set `reinject` over 0, like 0.2, or below 0 to switch reinjection off")
	case cfg.Resume < 0 || cfg.Resume > Duration(time.Minute) || cfg.Resume > 0 && cfg.Resume < unitless:
		return nil, fault.New(fault.Config, fmt.Errorf("subflows would wait %v for a pipe", time.Duration(cfg.Resume)), "set `resume` to a time from 0 to \"60s\"; \"10s\" is usual")
	case slices.Contains(cfg.Interfaces, autoInterfaces) && len(cfg.Interfaces) > 1:
		return nil, fault.New(fault.Config, fmt.Errorf("interfaces are %q", cfg.Interfaces), "write either names, or \"auto\" alone")
	case cfg.GiveUp < unitless:
		return nil, fault.New(fault.Config, fmt.Errorf("streams would give up after %v", time.Duration(cfg.GiveUp)), "set `give_up` to a time, like \"60s\"")
	}
	for _, name := range cfg.UDP {
		switch {
		case name != dial.Any && !slices.Contains(cfg.Interfaces, name) && !slices.Contains(cfg.Interfaces, autoInterfaces):
			return nil, fault.New(fault.Config, fmt.Errorf("udp names %q, and interfaces do not", name), "name it in `interfaces` too, or write \"any\"")
		case cfg.DialUDP == nil:
			return nil, fault.New(fault.Unsupported, errors.New("subflows cannot go over UDP here"), "leave `udp` out")
		}
	}
	if err := dial.CheckCells(cfg.Cell, cfg.UDP); err != nil {
		return nil, err
	}
	modes, err := policy.ParseModes(cfg.Latency, cfg.Redundant)
	if err != nil {
		return nil, fault.New(fault.Config, err, "mend `latency` or `redundant`")
	}
	if err := tcp.CheckCongestion(cfg.Congestion, len(cfg.UDP) > 0); err != nil {
		return nil, err
	}
	server, err := newServerPeer(cfg.Server, trust)
	if err != nil {
		return nil, err
	}
	p := &Primary{cfg: cfg, key: key, trust: trust, server: server, log: log, rec: rec,
		places: places{where: device.Place},
		paths:  dial.Dialer{UDP: cfg.DialUDP, Over: cfg.UDP, Usage: cfg.Usage, Purpose: policy.ForDirect},
		names:  deviceNames{configured: cfg.Name, trust: trust}}
	p.names.host, _ = os.Hostname()
	p.troubles = &troubles{server: server, trust: trust, log: log, last: map[string]api.Trouble{}}
	p.sessions = &sessions{names: p.names, giveUp: time.Duration(cfg.GiveUp), log: log, open: p.openBond}
	p.demand = newDemand(p.sessions.isBusy)
	p.sessions.demand = p.demand
	p.policy = newPolicy(modes, p.sessions.routing, log, rec)
	p.standings = &standings{names: p.names, rules: p.policy.Rules, metered: cfg.Metered, allowed: cfg.Allowed, log: log, rec: rec, all: map[carrier]*standing{}}
	p.uplinks = &uplinks{find: (&uplinkFinder{server: server, mark: cfg.mark()}).find, costs: p.standings.costsByDefault, keep: p.keepUplink, log: log, all: map[string]*uplink{}}
	p.owners = newOwners(p.policy.processOf)
	p.helpers = &helperPool{key: key, trust: trust, standings: p.standings, troubles: p.troubles, demand: p.demand, keep: p.keepHelped, noServer: p.ownTrouble,
		log: log, strangers: loglimit.New(log), rec: rec, all: map[identity.PublicKey]*helper{}, conns: map[net.Conn]bool{}}
	p.troubles.changed = p.helpers.reportTrouble
	if p.helpers.listeners, err = listenForPipes(cfg.Pipe, tcp.Options{Congestion: cfg.Congestion, UserTimeout: 2 * userTimeout, Mark: cfg.mark(), Ledger: cfg.Usage.Ledger(policy.ForPipe)}); err != nil {
		return nil, err
	}
	p.memory = endpoint.NewMemory(0)
	p.share = p.memory.Share()
	p.sessions.start()
	return p, nil
}

// openBond makes the endpoint of a bond.
func (p *Primary) openBond(id wire.BondID, down func(*subflow.Subflow, error)) *endpoint.Endpoint {
	scheduler, _ := sched.New(p.cfg.Scheduler) // New has checked it
	return endpoint.New(endpoint.Config{
		Bond:    bond.Config{Opens: true, Scheduler: scheduler, Eta: p.cfg.Reinject, Trace: p.rec.Func(id.String()), ChangesOnly: !p.rec.On()},
		Chooser: &choice.ByPolicy{Up: true},
		Share:   p.share,
		Down:    down,
		Log:     p.log,
	})
}

// PipeAddr is where helpers connect, the first of several, nil if nowhere.
func (p *Primary) PipeAddr() net.Addr { return p.helpers.addr() }

// Calls returns the connections that reached the port for helpers; nil if there is none.
func (p *Primary) Calls() *api.Calls { return p.helpers.called() }

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
			p.wg.Go(func() { p.keepUplink(ctx, i) })
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
		p.sessions.follow(own.lost())
		if own.changed() {
			p.demand.retryRefused()
		}
		p.review(time.Now())
		p.meter(time.Now())
		frozen := time.Since(last) > 2*every
		if last = time.Now(); frozen {
			continue // this process, and not its subflows: what they have to say is still to be read
		}
		p.sessions.giveUpSilent(time.Duration(p.cfg.Resume))
	}
}

// join makes a subflow over t, by a device, which the status calls by a name. link is nil
// for a direct one.
func (p *Primary) join(ctx context.Context, t subflow.Transport, link *pipe.Link, by carrier, name string) (lane, error) {
	server, _ := p.server.get()
	s, j := p.sessions.next()
	j.Helped, j.Device = link != nil, name
	m := member{by: by, link: link}
	if link == nil {
		m.conn = t
	}
	terms, up := p.terms(m, name)
	j.Terms, m.tier = terms, terms.Tier
	seen := &atomic.Pointer[pipeReport]{}
	if link != nil {
		j.Key = link.HopKey()
		link.OnState(func(st wire.HopState) {
			if st.OfPipe {
				seen.Store(&pipeReport{time.Now(), unit.Bytes(st.Received - st.Forwarded)})
			}
			if st.Stays {
				return
			}
			if st.OfPipe {
				s.e.Relay(wire.PipeState{Path: j.Path, HopState: st})
			} else {
				s.e.Remote(j.Path, st)
			}
		})
	}
	sf, ok, err := subflow.Join(ctx, t, p.key.Client(server.Key, wire.ALPN), j)
	if err != nil {
		return lane{}, err
	}
	sf.Terms.Rate = up
	if c, ok := t.(dial.Conn); ok && terms.Radio == wire.RadioCellular { // nothing else may wake it; the server does the same
		if err := c.SetKeepAlive(dial.RadioKeepAlive(c)); err != nil {
			return lane{}, err
		}
	}
	down, err := p.sessions.add(s, sf, ok.Instance, m)
	if err != nil {
		return lane{}, err
	}
	far := "server"
	if j.Helped {
		far = "via" // the transport ends at the helper
	}
	p.log.Info("subflow joined", "path", j.Path, "by", name, "helped", j.Helped, far, t.RemoteAddr(), "over", t.LocalAddr().Network())
	return lane{s: s, id: j.Path, down: down, conn: t, peer: server.Key, since: time.Now(), link: link, seen: seen}, nil
}

// terms returns those of a subflow that is about to join, by the device of that name, and
// the rate that it was seen to carry to the server.
func (p *Primary) terms(m member, name string) (terms wire.Terms, up unit.Rate) {
	if m.link != nil {
		terms.Radio = m.link.Radio()
	} else {
		terms.Radio = device.RadioOf(m.by.link)
	}
	p.standings.complete(&terms, m.by)
	seen := p.places.of(name)
	terms.Rate, terms.RTT = seen.Down, time.Duration(seen.RTTms*float64(time.Millisecond))
	return terms, seen.Up
}

// Policy returns the policy in force.
func (p *Primary) Policy() *Policy { return p.policy }

// TrustChanged acts on the trust file after it was read again. Helpers that
// are not in it any more lose their pipes, and a server its subflows.
func (p *Primary) TrustChanged() {
	now := time.Now()
	renamed := p.helpers.reload(now)
	p.sessions.rename(renamed)
	p.troubles.rename(renamed)
	p.demand.retryRefused()
	s := p.sessions.current()
	changed := p.server.reload()
	p.helpers.reportServers()
	if changed {
		p.sessions.restart(s, "the server is trusted no longer")
	}
	p.review(now)
}

// ownTrouble returns why no subflow of this device's own reaches the server; one without a
// text if one does, or it is not known.
func (p *Primary) ownTrouble() (f wire.Trouble) {
	server, missing := p.server.get()
	if missing != nil {
		return wire.Trouble{Code: wire.CodeUnknown, Text: missing.Error()}
	}
	if p.sessions.current().e.WithoutSubflow() == 0 {
		return f
	}
	helpers := map[string]bool{}
	for _, h := range p.helpers.list() {
		helpers[h.called()] = true
	}
	for device, t := range p.troubles.list() {
		if t.Text != "" && !helpers[device] && (f.Text == "" || t.Text < f.Text) {
			f = wire.Trouble{Code: codes[t.Cause], Text: t.Text}
			if len(server.Addresses) > 0 {
				f.At = server.Addresses[0]
			}
		}
	}
	return f
}

// Chunk takes an app's word about what it waits for; see api.Chunk.
func (p *Primary) Chunk(c api.Chunk) error { return p.apps.announce(c) }

// Refusals returns who is refused here, or refuses this device.
func (p *Primary) Refusals() []refusal.Record { return p.troubles.refused.Refusals(time.Now()) }

// Owns reports whether policy means this device, all its interfaces together, by
// a name.
func (p *Primary) Owns(name string) bool { return slices.Contains(p.names.all(), name) }

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
	p.sessions.review(p.standings.endOf)
}

// meter has the radios of helpers metered. It is called each second.
func (p *Primary) meter(now time.Time) {
	radios := map[identity.PublicKey]wire.Radio{}
	for _, h := range p.helpers.list() {
		radios[h.key] = p.standings.factsOf(h.key).Radio
	}
	p.meters.update(now, radios, p.sessions.helped())
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
	h.Tier, h.Rests = p.standings.of(carrier{helper: key})
	h.Radio, h.Took = p.meters.of(key)
	if one := p.helpers.find(key); one != nil {
		h.LastPipe = one.seen()
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
	p.sessions.describe(s, b.Paths, p.helpers.beside(), p.paths.Why)
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
