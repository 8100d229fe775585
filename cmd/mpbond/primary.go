// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mpbond/api"
	"mpbond/api/serve"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/control/fleet"
	"mpbond/core/trace"
	"mpbond/internal/cli"
	"mpbond/link/discovery"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/intercept"
	"mpbond/node/intercept/tun"
	"mpbond/node/primary"
)

func primaryCommand() *cobra.Command {
	r := &role{name: "primary"}
	cfg := primary.Default
	var flags primary.Config
	var direct bool
	var cellFlags []string
	cmd := &cobra.Command{
		Use: "primary", Short: "run the primary: carry this device's apps over all links", Args: cobra.NoArgs,
		Long: `Run the primary on the device with the apps. Pair it with a server first, and with
helpers, which connect to --pipe: see mpbond pair.

Apps then use the SOCKS5 and HTTP proxy, or are started with mpbond run. With --tun,
as root, it carries all apps of this machine, TCP and UDP, IPv4 and IPv6, except
traffic to networks with a route of their own, such as the local network.

Destinations that the server may not or cannot reach, like a printer at home, are
connected to directly, without the bond, and logged; --direct=false makes that an
error. If other devices can reach the proxy, this is off by default; --direct turns it
on.`,
		Example: `  mpbond primary
  mpbond primary --proxy 127.0.0.1:3128 --interface wlan0 --interface wwan0
  sudo MPBOND_HOME=$HOME/.config/mpbond mpbond primary --tun`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if flags.Cell, err = parseCellFlags(cellFlags); err != nil {
				return err
			}
			key, trust, err := r.loadRoleFiles(cmd, &cfg, func(changed func(string) bool) {
				overrideIfChanged(changed, "name", &cfg.Name, flags.Name)
				overrideIfChanged(changed, "server", &cfg.Server, flags.Server)
				overrideIfChanged(changed, "proxy", &cfg.Proxy, flags.Proxy)
				overrideIfChanged(changed, "direct", &cfg.Direct, &direct)
				overrideIfChanged(changed, "transparent", &cfg.Transparent, flags.Transparent)
				overrideIfChanged(changed, "pipe", &cfg.Pipe, flags.Pipe)
				overrideIfChanged(changed, "interface", &cfg.Interfaces, flags.Interfaces)
				overrideIfChanged(changed, "udp", &cfg.UDP, flags.UDP)
				overrideIfChanged(changed, "cell", &cfg.Cell, flags.Cell)
				overrideIfChanged(changed, "metered", &cfg.Metered, flags.Metered)
				overrideIfChanged(changed, "subflows", &cfg.Subflows, flags.Subflows)
				overrideIfChanged(changed, "scheduler", &cfg.Scheduler, flags.Scheduler)
				overrideIfChanged(changed, "congestion", &cfg.Congestion, flags.Congestion)
				overrideIfChanged(changed, "reinject", &cfg.Reinject, flags.Reinject)
				overrideIfChanged(changed, "latency", &cfg.Latency, flags.Latency)
				overrideIfChanged(changed, "redundant", &cfg.Redundant, flags.Redundant)
				overrideIfChanged(changed, "policy", &cfg.Policy, flags.Policy)
				overrideIfChanged(changed, "tun", &cfg.TUN, flags.TUN)
				overrideIfChanged(changed, "api", &cfg.API, r.api)
			})
			if err != nil {
				return err
			}
			r.api = cfg.API
			cfg.Clock, cfg.Usage, cfg.Allowed = r.clock, r.usage, r.remainingAllowance
			rec, err := r.openRecorder(cfg.Name)
			if err != nil {
				return err
			}
			defer rec.Close()
			listeners, err := newCellListeners(cfg.Cell, rec)
			if err != nil {
				return err
			}
			e, err := newPrimaryRole(cfg, listeners, key, trust, rec)
			if err != nil {
				return err
			}
			defer e.closePrimaryEdge()
			if err := r.loadPrimaryPolicy(e.Primary, cfg.Policy); err != nil {
				return err
			}
			if err := r.initDeviceFacts(e.SetFacts); err != nil {
				return err
			}
			r.enforceCaps(e.IsOwnName, e.Policy().Rules, e.CapReached)
			r.enablePairing(key, wire.PairIdentity{Roles: wire.PairPrimary, Name: resolveDeviceName(cfg.Name),
				Port: e.pipeListenPort()})
			start := time.Now()
			slog.Info("primary is up", e.logAddresses("id", key.ID())...)
			return r.serveRoleAndAPI(cmd.Context(), e, serve.Role{
				Status: func(why bool) api.Status {
					st := r.baseStatus(key, cfg.Name, start)
					e.addPrimaryStatus(&st, why)
					return st
				},
				Streams: e.Streams, Flows: e.Flows, CloseSubflow: e.CloseSubflow, ResetStream: e.ResetStream,
				ChangeStream: e.ChangeStream, MoveSubflow: e.MoveSubflow, MarkChunk: e.MarkChunk,
				Handoffs: e.Handoffs,
				Policy:   policyKeeper(e.Primary), Advice: e.Advice, PastForecasts: e.PastForecasts,
				ForgetHistory: e.ForgetHistory,
			})
		},
	}
	r.addRoleFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&flags.Name, "name", "", "use this `NAME` for this device in status output")
	f.StringVar(&flags.Server, "server", "", "use the trusted server with this `NAME`")
	f.StringVar(&flags.Proxy, "proxy", cfg.Proxy, "serve apps a SOCKS5 and HTTP proxy at `HOST:PORT`; empty: none")
	f.BoolVar(&direct, "direct", true, "connect directly to destinations that the server may not or cannot reach")
	f.Uint16Var(&flags.Transparent, "transparent", cfg.Transparent, "serve mpbond run at this loopback `PORT`; 0: none")
	f.StringVar(&flags.Pipe, "pipe", cfg.Pipe,
		"accept helpers at `HOST:PORT` or rfcomm://CHANNEL, several separated by commas; empty: none")
	f.StringSliceVar(&flags.Interfaces, "interface", cfg.Interfaces,
		"open a direct subflow over the network `INTERFACE`; "+
			"auto: over each with a default route; empty: one by the default route; repeatable")
	f.StringSliceVar(&flags.UDP, "udp", nil,
		"use UDP for subflows over this `INTERFACE`, where it gets through and the server serves it; any: all; "+
			"repeatable")
	addCellFlag(cmd, &cellFlags)
	f.StringSliceVar(&flags.Metered, "metered", nil,
		"use the interface or helper `LINK`, whose data costs money, only while no other works; repeatable")
	f.StringSliceVar(&flags.Latency, "latency", cfg.Latency,
		"use the low-latency mode for connections that match `RULE`: "+
			"port:22, port:5000-5100, dscp:46, host:*.example.org; repeatable")
	f.StringSliceVar(&flags.Redundant, "redundant", nil,
		"send connections that match `RULE`, as for --latency, over every subflow; repeatable")
	f.StringVar(&flags.Policy, "policy", "",
		"read the rules for apps and destinations from `FILE` instead of policy.toml")
	f.BoolVar(&flags.TUN, "tun", false, "carry all apps of this machine through a TUN device; needs root")
	f.IntVar(&flags.Subflows, "subflows", cfg.Subflows, "open this `NUMBER` of direct subflows over each interface")
	cli.CompleteFlag(cmd, "server", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return completeNames(identity.RoleServer)
	})
	addSchedulingFlags(cmd, &flags.Scheduler, &flags.Congestion, &flags.Reinject)
	cli.GroupFlags(cmd, "Apps", "proxy", "transparent", "tun", "direct", "policy", "latency", "redundant")
	cli.GroupFlags(cmd, "Links", "server", "interface", "subflows", "pipe", "metered", "udp", "cell")
	cli.GroupFlags(cmd, "Scheduling", "scheduler", "reinject", "congestion")
	r.groupFlags(cmd, "name")
	return cmd
}

// newFallbackDialer returns a function that connects without the bond, to destinations that the
// server may not or cannot reach. It returns nil if that is off. If other devices can reach the
// proxy it is off unless configured, and never connects to this device itself.
func newFallbackDialer(cfg primary.Config, a appListeners) func(ctx context.Context, network, dest string) (net.Conn,
	error) {
	if cfg.Direct != nil && !*cfg.Direct || cfg.Direct == nil && !a.isLoopbackOnly() {
		return nil
	}
	return newDirectDialer(cfg, a)
}

// newDirectDialer returns a function that connects without the bond.
func newDirectDialer(cfg primary.Config, a appListeners) func(ctx context.Context, network, dest string) (net.Conn,
	error) {
	var d net.Dialer
	if isPublic := !a.isLoopbackOnly(); isPublic || cfg.TUN {
		d.Control = func(network, address string, raw syscall.RawConn) error {
			if isPublic {
				if err := refuseLocalAddress(network, address, raw); err != nil {
					return err
				}
			}
			if cfg.TUN {
				return tcp.SetMark(raw, tcp.OwnMark)
			}
			return nil
		}
	}
	return d.DialContext
}

// refuseLocalAddress refuses resolved addresses of this device itself.
func refuseLocalAddress(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := to.Addr().Unmap(); ip.IsLoopback() || ip.IsUnspecified() {
		return fmt.Errorf("%v is this device itself", ip)
	}
	return nil
}

// appListeners are the listeners for this device's apps.
type appListeners struct {
	proxy       net.Listener   // nil without a proxy
	transparent []net.Listener // IPv4 and, where there is one, IPv6
}

// openAppListeners opens the listeners for apps that cfg names.
func openAppListeners(cfg primary.Config) (a appListeners, err error) {
	if cfg.Proxy != "" {
		if a.proxy, err = intercept.Listen("tcp", cfg.Proxy); err != nil {
			return a, cli.ExplainListenError(fmt.Errorf("proxy: %w", err), "--proxy")
		}
	}
	if cfg.Transparent != 0 {
		if a.transparent, err = intercept.ListenTransparent(cfg.Transparent); err != nil {
			if a.proxy != nil {
				a.proxy.Close()
			}
			return a, cli.ExplainListenError(err, "--transparent")
		}
	}
	return a, nil
}

// primaryRole is a primary, the edge towards its apps and the listeners to its mobile cells.
type primaryRole struct {
	*primary.Primary
	edge  *intercept.Edge
	apps  appListeners
	tun   *tun.TUN // nil without --tun
	id    string   // of this device
	clock *pace.Clock
	cellListeners
}

// newPrimaryRole opens all listeners of a primary. The caller must call closePrimaryEdge.
func newPrimaryRole(cfg primary.Config, listeners cellListeners, key *identity.Key, trust *identity.Trust,
	rec *trace.Recorder) (e primaryRole, err error) {
	e.cellListeners, cfg.DialUDP = listeners, listeners.dialFeedbackUDP
	cfg.LoadFleet = func() (*fleet.Joined, error) { return loadJoinedFleet(trust) }
	if e.Primary, err = primary.New(cfg, key, trust, slog.Default(), rec); err != nil {
		return e, err
	}
	e.id, e.clock = key.ID().String(), cfg.Clock
	path, err := locationsPath()
	if err == nil {
		err = e.LoadLocations(path)
	}
	if err != nil {
		slog.Warn("learnt locations not loaded, starting without them", "err", err)
	}
	if path, err = historyPath(); err == nil {
		err = e.LoadHistory(path)
	}
	if err != nil {
		slog.Warn("history of destinations not loaded, starting without it", "err", err)
	}
	if e.apps, err = openAppListeners(cfg); err != nil {
		return e, err
	}
	e.edge = intercept.New(intercept.Config{Dialer: e.Primary, Packets: e.Primary,
		Direct: newFallbackDialer(cfg, e.apps), Around: newDirectDialer(cfg, e.apps),
		Names: e.Policy().Names(), Log: slog.Default()})
	if !e.apps.isLoopbackOnly() {
		slog.Warn("other devices can reach the proxy and use the bond", "proxy", e.apps.proxyListenAddr())
	}
	if cfg.TUN {
		if e.tun, err = tun.Open(tun.Config{Edge: e.edge, Mark: tcp.OwnMark, Log: slog.Default()}); err != nil {
			e.edge.Close()
		}
	}
	return e, err
}

// pipeListenPort returns the TCP port for helpers, 0 if there is none.
func (r primaryRole) pipeListenPort() uint16 {
	if a := r.PipeAddr(); a != nil {
		return firstTCPPort(a.String())
	}
	return 0
}

// closePrimaryEdge closes what newPrimaryRole opened.
func (r primaryRole) closePrimaryEdge() {
	if r.tun != nil {
		r.tun.Close()
	}
	r.edge.Close()
}

// logAddresses appends the addresses of the listeners to args, for the log.
func (r primaryRole) logAddresses(args ...any) []any {
	return append(args, "proxy", r.apps.proxyListenAddr(), "transparent", r.apps.transparentAddr(), "pipe",
		r.PipeAddr())
}

// addPrimaryStatus adds the primary's part to a status.
func (r primaryRole) addPrimaryStatus(st *api.Status, why bool) {
	st.SOCKS, st.HTTP, st.Transparent = r.apps.proxyListenAddr(), r.apps.proxyListenAddr(), r.apps.transparentAddr()
	if a := r.PipeAddr(); a != nil {
		st.Listen, st.Calls = a.String(), r.Calls()
	}
	bond := r.Primary.Status(why)
	st.Bonds, st.Fleet = append(st.Bonds, bond), joinedStatus(r.Fleet(), bond.Peer)
	st.Pipes = append(st.Pipes, r.Pipes()...)
	st.Policy = r.Policy().Status()
	st.Cells = r.cellListeners.listCellStates()
	st.Refused = append(st.Refused, toAPIRefusals(r.Primary.Refusals())...)
}

// Run runs the primary, its listeners for apps and what goes with them until ctx ends or one of
// them fails.
func (r primaryRole) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Primary.Run(ctx) })
	g.Go(func() error { r.runCellListeners(ctx); return nil })
	if a, ok := r.PipeAddr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		g.Go(func() error {
			discovery.Announce(ctx, discovery.Announcement{Service: discovery.Pipes, ID: r.id, Port: a.Port}, r.clock,
				slog.Default())
			return nil
		})
	}
	if r.apps.proxy != nil {
		g.Go(func() error { return r.edge.ServeProxy(r.apps.proxy) })
	}
	for _, l := range r.apps.transparent {
		g.Go(func() error { return r.edge.ServeTransparent(l) })
	}
	if r.tun != nil {
		g.Go(func() error { return r.tun.Run(ctx) })
	} else {
		g.Go(func() error { <-ctx.Done(); return r.edge.Close() })
	}
	return g.Wait()
}

// isLoopbackOnly reports whether only apps of this device can reach the proxy.
func (a appListeners) isLoopbackOnly() bool {
	if a.proxy == nil {
		return true
	}
	t, ok := a.proxy.Addr().(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

func (a appListeners) proxyListenAddr() string {
	if a.proxy == nil {
		return ""
	}
	return a.proxy.Addr().String()
}

func (a appListeners) transparentAddr() string {
	if len(a.transparent) == 0 {
		return ""
	}
	return a.transparent[0].Addr().String()
}

func joinWithCommas(names []string) string { return strings.Join(names, ", ") }
