// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/metrics"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mpbond/api"
	"mpbond/api/serve"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/unit"
	mydevice "mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/internal/cli"
	"mpbond/node/intercept"
	"mpbond/node/intercept/tun"
	"mpbond/node/primary"
)

// role holds what the long-running subcommands share: configuration file, keys and status socket.
type role struct {
	name   string
	config string // path of the configuration file
	socket string
	trace  string // path of the trace file
	api    string // address of the API over TCP, "" for none

	trust    *identity.Trust      // set by loadRoleFiles
	clock    *pace.Clock          // of its periodic work; set by loadRoleFiles
	usage    *mydevice.Usage      // of its connections; set by loadRoleFiles
	caps     *mydevice.Caps       // nil: no caps
	capRules func() *policy.Rules // the rules that contain the caps
	rec      *trace.Recorder      // set by openRecorder
	policy   *primary.PolicyFile  // nil: no policy
	onload   *onloadService       // nil: no onloading
	invites  *inviter             // nil: shows no codes
	pairs    *pairer              // nil: takes no codes
	feed     serve.Feed           // events for the API
	facts    *facts.Keeper        // of this device; nil: not needed
	removed  chan struct{}        // gets a value when a removal could not be saved; set by loadRoleFiles
}

func (r *role) addRoleFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.config, "config", "", "read this configuration `FILE` instead of "+r.name+".toml")
	cmd.Flags().StringVar(&r.socket, "socket", "", "serve the API, for mpbond status, at this `PATH`")
	cmd.Flags().StringVar(&r.api, "api", "",
		"serve the API and the console at this loopback `HOST:PORT` too, with the token of the file api.token")
	cmd.Flags().StringVar(&r.trace, "trace", "", "write events to this `FILE` as JSON lines")
}

// groupFlags adds the flags of addRoleFlags to the help text of cmd as a group, after these others.
func (r *role) groupFlags(cmd *cobra.Command, others ...string) {
	cli.GroupFlags(cmd, "Files, API and diagnosis", append(others, "config", "socket", "api", "trace")...)
}

// loadRoleFiles fills cfg, which holds the defaults, from the configuration file. It then calls
// fromFlags to apply the given flags, and loads the keys.
func (r *role) loadRoleFiles(cmd *cobra.Command, cfg any,
	fromFlags func(changed func(string) bool)) (*identity.Key, *identity.Trust, error) {
	limitMemory()
	if err := loadConfig(r.config, r.name, cfg); err != nil {
		return nil, nil, err
	}
	if fromFlags != nil {
		fromFlags(cmd.Flags().Changed)
	}
	key, trust, err := cli.LoadIdentity()
	if err == nil {
		r.clock, r.usage = pace.New(), openRoleUsage(r.name)
		r.usage.SetClock(r.clock)
	}
	r.trust, r.removed = trust, make(chan struct{}, 1)
	return key, trust, err
}

// openRecorder returns a recorder that passes changes to the API and writes the trace file, if any.
// A change also wakes the role's clock: other work may follow from it.
func (r *role) openRecorder(name string) (*trace.Recorder, error) {
	name = cmp.Or(name, r.name)
	rec, err := trace.Open(r.trace, name, slog.Default())
	r.rec = rec.NotifyChanges(name, func(e trace.Event) {
		r.feed.Add(toAPIEvent(e))
		r.clock.Wake()
	})
	return r.rec, fault.New(fault.Config, err, "choose another file with --trace")
}

// removeLeftovers removes what killed processes of `mpbond run` and --tun left in the kernel. It
// describes what it removed.
func removeLeftovers() (removed []string, err error) {
	of, err := intercept.RemoveLeftovers()
	more, terr := tun.RemoveLeftovers()
	return append(of, more...), errors.Join(err, terr)
}

// runningRole is a role at work.
type runningRole interface {
	Run(context.Context) error
	// TrustChanged is called after the trust file was reread or written.
	TrustChanged()
}

// serveRoleAndAPI runs a role and its API until ctx ends or one of them fails.
func (r *role) serveRoleAndAPI(ctx context.Context, d runningRole, handlers serve.Role) error {
	defer r.usage.Close()
	if removed, err := removeLeftovers(); len(removed) > 0 {
		slog.Info("removed leftovers of a killed mpbond", "what", strings.Join(removed, "; "))
	} else if err != nil && !errors.Is(err, os.ErrPermission) {
		slog.Debug("leftovers of a killed mpbond not removed", "err", err)
	}
	describe := handlers.Status
	handlers.Status = func(why bool) api.Status {
		st := describe(why)
		var relayed []api.BondSubflow
		if handlers.Subflows != nil {
			relayed = handlers.Subflows()
		}
		peers := r.trust.Peers()
		st.Devices = listKnownDevices(st, peers, relayed)
		r.addDeviceFacts(st.Devices, peers, d)
		st.Unsaved = r.trust.Unsaved()
		st.Caps = r.listRoleCaps()
		st.Onload = r.onload.onloadStatus()
		return st
	}
	handlers.Feed, handlers.Devices = &r.feed, r.deviceKeeper()
	handlers.Usage = func() api.Usage { return r.usageReport(handlers.Status(false).Name) }
	if r.facts != nil {
		handlers.SetFacts = r.storeReportedFacts
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	path := r.socket
	if path == "" {
		path = api.SocketPath(r.name)
	}
	l, err := api.Listen(path)
	if err != nil {
		return err
	}
	port, token, err := r.openAPIListener()
	if err != nil {
		l.Close()
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if port != nil {
		handlers.History = new(serve.History)
	}
	if r.invites != nil {
		handlers.Invitations = r.invites.invitationHandlers()
		g.Go(func() error { return r.invites.runInvitations(ctx) })
	}
	if r.pairs != nil {
		handlers.Pairings = r.pairs.pairingHandlers()
		g.Go(func() error { return r.pairs.servePairing(ctx) })
	}
	g.Go(func() error { return serve.Run(ctx, l, handlers) })
	if port != nil {
		g.Go(func() error { handlers.History.Run(ctx, handlers); return nil })
		g.Go(func() error { return serve.RunTCP(ctx, port, handlers, token) })
	}
	if r.facts != nil {
		var wantsCells func() bool
		if p, ok := d.(cellConsumer); ok {
			wantsCells = p.WantsCells
		}
		g.Go(func() error { r.facts.Run(ctx, r.clock, wantsCells); return nil })
	}
	g.Go(func() error { r.watchNetwork(ctx); return nil })
	g.Go(func() error { return d.Run(ctx) })
	g.Go(func() error { r.usage.Run(ctx); return nil })
	if r.caps != nil {
		g.Go(func() error { r.caps.Run(ctx); return nil })
		g.Go(func() error { r.warnUnenforcedCaps(ctx); return nil })
	}
	if r.onload != nil {
		g.Go(func() error { return r.onload.serveOnload(ctx) })
	}
	g.Go(func() error { return r.watchTrust(ctx, d, hangup) })
	if r.policy != nil {
		g.Go(func() error { return r.watchPolicy(ctx) })
	}
	return g.Wait()
}

// changesTogether is how long changes of the network are collected: an interface that comes up is reported
// as a burst of links, addresses and routes.
const changesTogether = 200 * time.Millisecond

// watchNetwork lets the role's clock idle as long as the system reports changes of the network, and passes
// these on, until ctx ends.
func (r *role) watchNetwork(ctx context.Context) {
	changed, err := mydevice.WatchNetwork(ctx)
	if err != nil {
		slog.Debug("changes of interfaces are not reported: looking for them each second", "err", err)
		return
	}
	passNetworkChanges(ctx, changed, r.clock)
	if ctx.Err() == nil {
		slog.Warn("changes of interfaces are no longer reported: looking for them each second",
			"hint", "restart mpbond to save energy while idle")
	}
}

// passNetworkChanges lets a clock idle, and makes it tick once for the changes that come together, until ctx ends
// or changed is closed.
func passNetworkChanges(ctx context.Context, changed <-chan struct{}, clock *pace.Clock) {
	clock.AllowIdle(true)
	defer clock.AllowIdle(false)
	for range changed {
		select {
		case <-ctx.Done():
			return
		case <-time.After(changesTogether):
		}
		select {
		case <-changed: // one of the same burst
		default:
		}
		clock.TickNow()
	}
}

// openAPIListener opens the API's TCP port, if configured, and returns it with the token for it.
func (r *role) openAPIListener() (l net.Listener, token string, err error) {
	if r.api == "" {
		return nil, "", nil
	}
	path, err := apiTokenPath()
	if err != nil {
		return nil, "", err
	}
	if token, err = serve.LoadOrCreateToken(path); err != nil {
		return nil, "", err
	}
	if l, err = serve.ListenTCP(r.api); err != nil {
		return nil, "", err
	}
	r.api = l.Addr().String() // the port may have been 0
	slog.Info("API served over TCP", "listen", r.api, "token", path)
	return l, token, nil
}

// baseStatus returns a status with the fields that all roles share.
func (r *role) baseStatus(key *identity.Key, name string, since time.Time) api.Status {
	if name == "" {
		name, _ = os.Hostname()
	}
	return api.Status{
		API: r.api, Role: r.name, Name: name, ID: key.ID().String(), Version: cli.Version,
		UptimeSeconds: time.Since(since).Seconds(), MemoryBytes: memoryInUse(), Bonds: []api.Bond{},
	}
}

// memoryInUse returns the memory that the Go runtime holds.
func memoryInUse() unit.Bytes {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return unit.Bytes(s[0].Value.Uint64() - s[1].Value.Uint64())
}
