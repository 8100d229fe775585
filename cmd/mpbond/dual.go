// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mpbond/api"
	"mpbond/api/serve"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
	"mpbond/node/helper"
	"mpbond/node/primary"
)

// dualConfig is dual.toml, which has primary.toml and helper.toml as tables.
type dualConfig struct {
	Primary primary.Config `toml:"primary"`
	Helper  helperConfig   `toml:"helper"`
}

// mergeCells removes the cells of both roles from their configurations and returns them merged:
// both roles share the listener of an interface. The primary's entry takes precedence.
func (c *dualConfig) mergeCells() (map[string]mydevice.Cell, error) {
	all := map[string]mydevice.Cell{}
	maps.Copy(all, c.Helper.Cell)
	maps.Copy(all, c.Primary.Cell)
	c.Primary.Cell, c.Helper.Cell = nil, nil
	return all, dial.CheckCells(all, slices.Concat(c.Primary.UDP, c.Helper.UDP))
}

func dualCommand() *cobra.Command {
	r := &role{name: "dual"}
	cfg := dualConfig{Primary: primary.Default}
	var name string
	cmd := &cobra.Command{
		Use: "dual", Short: "be primary and helper at once", Args: cobra.NoArgs,
		Long: `Be primary and helper at once, so that two people share their links with each other.
Both roles use this device's key, its trust file and one status. The apps of this
device go first: others get the capacity that they leave.

The file dual.toml contains primary.toml and helper.toml as tables [primary] and
[helper]. Pair each device with a server first. Then run mpbond accept on one of
the two, and mpbond pair --dual CODE on the other.`,
		Example: `  mpbond dual
  mpbond dual --name anna`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.socket = cmp.Or(r.socket, api.SocketPath("primary")) // where get and run connect
			key, trust, err := r.loadRoleFiles(cmd, &cfg, nil)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("api") {
				r.api = cmp.Or(cfg.Primary.API, cfg.Helper.API)
			}
			if name = cmp.Or(name, cfg.Primary.Name); name == "" {
				name, _ = os.Hostname()
			}
			cfg.Primary.Name = name
			cfg.Primary.Clock, cfg.Helper.Clock = r.clock, r.clock
			cfg.Primary.Usage, cfg.Helper.Usage = r.usage, r.usage
			cfg.Primary.Allowed, cfg.Helper.Allowed = r.remainingAllowance, r.remainingAllowance
			rec, err := r.openRecorder(name)
			if err != nil {
				return err
			}
			defer rec.Close()
			if cfg.Primary.TUN {
				cfg.Helper.Mark = tcp.OwnMark
			}
			cells, err := cfg.mergeCells()
			if err != nil {
				return err
			}
			listeners, err := newCellListeners(cells, rec)
			if err != nil {
				return err
			}
			e, err := newPrimaryRole(cfg.Primary, listeners, key, trust, rec)
			if err != nil {
				return err
			}
			defer e.closePrimaryEdge()
			if err := r.loadPrimaryPolicy(e.Primary, cfg.Primary.Policy); err != nil {
				return err
			}
			cfg.Helper.DialUDP = listeners.dialFeedbackUDP
			cfg.Helper.Limits = func() policy.Limits { return e.Policy().Rules().Device(name).Limits }
			h, err := helper.New(cfg.Helper.Config, name, helper.Identity{Key: key, Trust: trust}, slog.Default(), rec)
			if err != nil {
				return err
			}
			r.enforceCaps(e.IsOwnName, e.Policy().Rules, h.CapReached, e.CapReached)
			h.SetOwnSubflows(e.DirectSubflowBytes)
			h.SetDiscovery(findPrimaries)
			if err := r.initOnload(cfg.Helper.Onload, cfg.Helper.Config, key, h); err != nil {
				return err
			}
			if err := r.initDeviceFacts(e.SetFacts, h.SetFacts); err != nil {
				return err
			}
			about := wire.PairIdentity{Roles: wire.PairPrimary | wire.PairHelper, Name: resolveDeviceName(name),
				Port: e.pipeListenPort()}
			r.newHelperInviter(cmd, key, cfg.Helper.Config, about)
			r.enablePairing(key, about)
			start := time.Now()
			slog.Info("primary and helper are up", e.logAddresses("name", name, "id", key.ID())...)
			return r.serveRoleAndAPI(cmd.Context(), dualRole{e, helperRole{h, nil, r.onload}}, serve.Role{
				Status: func(why bool) api.Status {
					st, now := r.baseStatus(key, name, start), h.Status()
					e.addPrimaryStatus(&st, why)
					st.Helper, st.Pipes = toAPIHelperStatus(now), append(st.Pipes, listHelperPipes(now)...)
					st.Refused = append(st.Refused, toAPIRefusals(h.Refusals())...)
					return st
				},
				Subflows: func() []api.BondSubflow { return listRelayedSubflows(h.Status(), name) },
				Streams:  e.Streams,
				Flows:    e.Flows,
				CloseSubflow: func(bond string, subflow uint32) error {
					if bond == "" {
						return h.CloseSubflow(bond, subflow)
					}
					return e.CloseSubflow(bond, subflow)
				},
				ResetStream: e.ResetStream, ChangeStream: e.ChangeStream, MoveSubflow: e.MoveSubflow,
				MarkChunk: e.MarkChunk, Handoffs: e.Handoffs,
				Policy: policyKeeper(e.Primary), Advice: e.Advice, PastForecasts: e.PastForecasts,
				ForgetHistory: e.ForgetHistory,
			})
		},
	}
	r.addRoleFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "show this `NAME` to other devices; default: that of [primary], "+
		"else the host name")
	return cmd
}

// dualRole is a primary and a helper in one process.
type dualRole struct {
	primaryRole
	helperRole
}

// Run serves both until ctx ends or one of them fails.
func (d dualRole) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.primaryRole.Run(ctx) })
	g.Go(func() error { return d.helperRole.Run(ctx) })
	return g.Wait()
}

// Facts returns the facts of this device.
func (d dualRole) Facts() wire.Facts { return d.helperRole.Facts() }

// TrustChanged notifies both roles.
func (d dualRole) TrustChanged() {
	d.primaryRole.TrustChanged()
	d.helperRole.TrustChanged()
}
