// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/base/userfile"
	mydevice "mpbond/control/device"
	"mpbond/control/fleet"
	"mpbond/control/fleet/engine"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/node/server"
)

// openFleetStore opens a fleet's engine. who is the name of this program for the engine's operator.
func openFleetStore(ctx context.Context, c engine.Config, who string) (fleet.Store, error) {
	if dir, ok := c.Directory(); ok && dir != "" {
		if err := useOwnerRights(dir); err != nil {
			return nil, err
		}
	}
	return engine.Open(ctx, c, who)
}

// fleetName returns the name of a server in its fleet.
func fleetName(cfg server.Config) string {
	return identity.DeriveName(cmp.Or(cfg.Name, resolveDeviceName("")))
}

// fleetMember is the membership of the server that this process runs.
type fleetMember struct {
	*fleet.Member
	store fleet.Store
	cfg   server.Config
	load  loadMeter
}

// openFleetMember opens the engine and the membership of a server that has a fleet.
func (r *role) openFleetMember(ctx context.Context, cfg server.Config, key *identity.Key) (*fleetMember, error) {
	m := &fleetMember{cfg: cfg}
	var fleetKey identity.PublicKey
	if cfg.FleetKey != "" {
		var err error
		if fleetKey, err = identity.ParsePublicKey(cfg.FleetKey); err != nil {
			return nil, err
		}
	}
	cache, err := cli.InHome("fleet.cache")
	if err != nil {
		return nil, err
	}
	name := fleetName(cfg)
	f := engine.Config{Engine: cfg.Fleet, Creds: cfg.Creds, CA: cfg.FleetCA, User: name}
	if m.store, err = openFleetStore(ctx, f, "mpbond server "+name); err != nil {
		hasCache := userfile.Exists(cache) && !fault.Is(err, fault.Usage) && !fault.Is(err, fault.Config)
		if !fault.Is(err, fault.Unreachable) && !hasCache {
			return nil, err
		}
		slog.Warn("the fleet's engine does not answer: known devices are served meanwhile", "err", err, "hint",
			fault.HintOf(err))
		m.store = fleet.Late(func(ctx context.Context) (fleet.Store, error) {
			return openFleetStore(ctx, f, "mpbond server "+name)
		}, f.Engine)
	}
	m.load.last = time.Now()
	m.Member, err = fleet.NewMember(m.store, fleet.MemberConfig{
		Server:    fleet.Server{Name: name, Region: cfg.Region, Key: key.Public()},
		Version:   cli.Version,
		FleetKey:  fleetKey,
		CacheFile: cache,
		CacheLife: time.Duration(cfg.CacheLife),
		Usage:     func() []fleet.DeviceUsage { return toDeviceUsage(r.usage.ChangedPeers(policy.ForSubflow)) },
		Load:      m.load.measure,
		Log:       slog.Default(),
	})
	if err != nil {
		m.store.Close()
		return nil, err
	}
	if n := len(r.trust.ByRole(identity.RolePrimary)); n > 0 {
		slog.Warn("the server belongs to a fleet: primaries in its own trust file are not served", "devices", n,
			"hint", "invite them: mpbond fleet invite")
	}
	return m, nil
}

// attachServer connects the membership with a server. It must be called before the server runs.
func (m *fleetMember) attachServer(s *server.Server) {
	s.Fleet = m
	m.load.server = s
	m.SetChanged(s.TrustChanged)
	m.SetAddresses(callAddresses(s.Addr().String(), m.cfg.Public))
}

// toDeviceUsage converts counts of peers. What the server sends is what the device receives.
func toDeviceUsage(list []mydevice.PeerVolume) (out []fleet.DeviceUsage) {
	for _, p := range list {
		out = append(out, fleet.DeviceUsage{Device: p.Peer, Day: p.Day,
			Month: fleet.Volume{Down: p.MonthUp, Up: p.MonthDown}, All: fleet.Volume{Down: p.AllUp, Up: p.AllDown}})
	}
	return out
}

// loadMeter measures what a server carries.
type loadMeter struct {
	server *server.Server

	mu   sync.Mutex
	last time.Time
	cpu  time.Duration // of the process until last
}

// measure returns the load since the last call.
func (l *loadMeter) measure() (load fleet.Load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil {
		return load
	}
	for _, b := range l.server.Status(false) {
		load.Bonds++
		load.Streams += b.Streams
		for _, s := range b.Subflows {
			load.Rate += s.RxRate + s.TxRate
		}
	}
	now, cpu := time.Now(), processTime()
	if d := now.Sub(l.last); d > 0 && l.cpu > 0 {
		load.CPU = min(float64(cpu-l.cpu)/float64(d)/float64(runtime.NumCPU()), 1)
	}
	l.last, l.cpu, load.Memory, load.Full = now, cpu, memoryInUse(), l.server.IsFull()
	return load
}

// fleetStatus describes the membership for the API.
func (m *fleetMember) fleetStatus() *api.Fleet {
	st := m.Status()
	out := &api.Fleet{Name: st.Fleet, Key: st.Key, Server: m.State().Name, Expires: st.Expires, Engine: st.Engine,
		EngineLost: st.EngineLost, AgeSeconds: st.Age.Seconds(), Devices: st.Devices, Draining: m.IsDraining(),
		Waiting: st.Waiting, Servers: []api.FleetServer{}}
	if st.Problem != nil {
		out.Problem = st.Problem.Error()
	}
	for _, s := range st.List.Servers {
		out.Servers = append(out.Servers, toFleetServer(s, true))
	}
	for i := range out.Servers {
		out.Servers[i].Running = new(bool)
	}
	for _, state := range st.Running {
		i := 0
		for i < len(out.Servers) && out.Servers[i].Name != state.Name {
			i++
		}
		if i == len(out.Servers) {
			out.Servers = append(out.Servers, toFleetServer(state.Server, false))
		}
		addServerState(&out.Servers[i], state)
	}
	return out
}

// toFleetServer converts a server for the API.
func toFleetServer(s fleet.Server, listed bool) api.FleetServer {
	return api.FleetServer{Name: s.Name, Region: s.Region, ID: s.Key.ID().String(), Addresses: s.Addresses,
		Listed: listed}
}

// addServerState adds what a running server reports.
func addServerState(s *api.FleetServer, st fleet.ServerState) {
	running := true
	s.Running, s.Draining, s.Version = &running, st.Draining, st.Version
	s.Bonds, s.Streams = st.Load.Bonds, st.Load.Streams
	s.RateBps, s.CPU, s.MemoryBytes, s.Full = st.Load.Rate, st.Load.CPU, st.Load.Memory, st.Load.Full
}

// printFleetStatus prints what a server or primary knows of its fleet.
func printFleetStatus(w io.Writer, f api.Fleet) {
	running, listed := 0, 0
	for _, s := range f.Servers {
		if s.Listed {
			listed++
		}
		if s.Running != nil && *s.Running {
			running++
		}
	}
	what := fmt.Sprintf("%d servers, this device uses %s", listed, text.Printable(f.Server))
	if f.Engine != "" {
		age := "nothing is known of its devices yet"
		if f.AgeSeconds >= 0 {
			age = fmt.Sprintf("%d devices, known as of %v ago", f.Devices,
				time.Duration(f.AgeSeconds*float64(time.Second)).Round(time.Second))
		}
		what = fmt.Sprintf("this server is %s, %d run and %d are listed; %s", text.Printable(f.Server), running,
			listed, age)
		if f.Draining {
			what += "; this server drains"
		}
	}
	fmt.Fprintf(w, "fleet %s: %s\n", cmp.Or(text.Printable(f.Name), "(unknown)"), what)
	if f.Problem != "" {
		fmt.Fprintln(w, "fleet:", text.Printable(f.Problem))
	}
}

// memberRole is a server with its membership of a fleet.
type memberRole struct {
	*server.Server
	member *fleetMember
}

// Run runs both until ctx ends or one of them fails.
func (r memberRole) Run(ctx context.Context) error {
	defer r.member.store.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Server.Run(ctx) })
	g.Go(func() error { return r.member.Run(ctx) })
	return g.Wait()
}

// addServerFleetFlags adds the flags of a server that belongs to a fleet.
func addServerFleetFlags(cmd *cobra.Command, flags *server.Config, life, drain *time.Duration) {
	cmd.Flags().StringVar(&flags.Fleet, "fleet", "",
		"belong to the fleet whose records this `ENGINE` keeps: nats://HOST:PORT or tls://…, several separated by commas, "+
			"or file:DIR")
	cmd.Flags().StringVar(&flags.Creds, "creds", "", "use the credentials in this `FILE` for the engine")
	cmd.Flags().StringVar(&flags.FleetCA, "fleet-ca", "",
		"trust the authority with the certificate in this `FILE` for the engine; empty: those of the system")
	cmd.Flags().StringVar(&flags.FleetKey, "fleet-key", "",
		"accept only the fleet with this `KEY`; empty: the first one that the engine has")
	cmd.Flags().StringVar(&flags.Region, "region", "", "be in this `REGION` of the fleet, like eu-west")
	cmd.Flags().StringVar(&flags.Name, "name", "", "have this `NAME` in the fleet; empty: the host name")
	cmd.Flags().DurationVar(life, "cache-life", fleet.DefaultCacheLife,
		"serve known devices for this `TIME` while the engine does not answer; a device revoked meanwhile is served so long")
	cmd.Flags().DurationVar(drain, "drain", server.DefaultDrain, "end the remaining connections this `TIME` after the "+
		"fleet's operator orders the server to drain")
}

// fleetFile returns the path of the file with the fleet that this device, a primary, has joined.
func fleetFile() (string, error) { return cli.InHome("fleet.json") }

// loadJoinedFleet returns the fleet that this device has joined, nil if there is none.
func loadJoinedFleet(trust *identity.Trust) (*fleet.Joined, error) {
	path, err := fleetFile()
	if err != nil {
		return nil, err
	}
	return fleet.LoadJoined(path, trust)
}

// checkFleet checks a fleet that a server offers: see pairing.Self.CheckFleet.
func checkFleet(trust *identity.Trust) func(identity.PublicKey, []byte) error {
	return func(key identity.PublicKey, offer []byte) error {
		path, err := fleetFile()
		if err != nil {
			return err
		}
		return fleet.CheckJoin(path, trust, key, offer)
	}
}

// joinFleet stores a fleet that a paired server offers: see pairing.Self.JoinFleet.
func joinFleet(trust *identity.Trust) func(identity.PublicKey, []byte, identity.PublicKey) (identity.Peer, error) {
	return func(key identity.PublicKey, offer []byte, server identity.PublicKey) (identity.Peer, error) {
		path, err := fleetFile()
		if err != nil {
			return identity.Peer{}, err
		}
		return fleet.Join(path, trust, key, offer, server)
	}
}

// joinedStatus describes the fleet of a primary for the API; nil: it has none. current is the name of its server.
func joinedStatus(j *fleet.Joined, current string) *api.Fleet {
	if j == nil {
		return nil
	}
	l := j.List()
	out := &api.Fleet{Name: l.Fleet, Key: j.Key().String(), Server: current, Expires: l.Expires,
		Servers: []api.FleetServer{}}
	for _, s := range l.Servers {
		out.Servers = append(out.Servers, toFleetServer(s, true))
	}
	if time.Now().After(l.Expires) {
		out.Problem = fmt.Sprintf("the list of servers expired on %s", l.Expires.Local().Format(time.DateOnly))
	}
	return out
}
