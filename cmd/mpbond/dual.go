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

// dualConfig is dual.toml: the other two files, each as a table.
type dualConfig struct {
	Primary primary.Config `toml:"primary"`
	Helper  helperConfig   `toml:"helper"`
}

// takeCells takes those of both out of it, for what either carries by an interface
// shares them, and each alone could not tell whether they are of use. What the primary
// says of an interface counts.
func (c *dualConfig) takeCells() (map[string]mydevice.Cell, error) {
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
		Long: `Be primary and helper at once, so that two people lend each other their links.
Both roles share this device's key, its trust file and one status. What this
device's own apps do goes first: others get what they leave of its links.

The file dual.toml has what primary.toml and helper.toml have, in the tables
[primary] and [helper]. Each device is paired with a server first; then one of
the two shows a code, by mpbond accept, which the other is told: mpbond pair
--dual CODE.`,
		Example: `  mpbond dual
  mpbond dual --name anna`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.socket = cmp.Or(r.socket, api.SocketPath("primary")) // where get and run look
			key, trust, err := r.load(cmd, &cfg, nil)
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
			cfg.Primary.Usage, cfg.Helper.Usage = r.usage, r.usage
			cfg.Primary.Allowed, cfg.Helper.Allowed = r.allowed, r.allowed
			rec, err := r.recorder(name)
			if err != nil {
				return err
			}
			defer rec.Close()
			if cfg.Primary.TUN {
				cfg.Helper.Mark = tcp.OwnMark
			}
			of, err := cfg.takeCells()
			if err != nil {
				return err
			}
			heard, err := openCells(of, rec)
			if err != nil {
				return err
			}
			e, err := newEdged(cfg.Primary, heard, key, trust, rec)
			if err != nil {
				return err
			}
			defer e.close()
			if err := r.usePolicy(e.Primary, cfg.Primary.Policy); err != nil {
				return err
			}
			cfg.Helper.DialUDP = heard.dialUDP
			cfg.Helper.Limits = func() policy.Limits { return e.Policy().Rules().Device(name).Limits }
			h, err := helper.New(cfg.Helper.Config, name, helper.Identity{Key: key, Trust: trust}, slog.Default(), rec)
			if err != nil {
				return err
			}
			r.useCaps(e.Owns, e.Policy().Rules, h.Spent, e.Spent)
			h.ShareWith(e.DirectFlows)
			h.FindWith(findPipes)
			if err := r.useOnload(cfg.Helper.Onload, cfg.Helper.Config, key, h); err != nil {
				return err
			}
			if err := r.keepFacts(e.FactsChanged, h.FactsChanged); err != nil {
				return err
			}
			about := wire.PairAbout{Roles: wire.PairPrimary | wire.PairHelper, Name: deviceName(name), Port: e.pipePort()}
			r.helperInviter(cmd, key, cfg.Helper.Config, about)
			r.pairsAs(key, about)
			start := time.Now()
			slog.Info("primary and helper are up", e.addresses("name", name, "id", key.ID())...)
			return r.serve(cmd.Context(), dual{e, lending{h, nil, r.onload}}, serve.Role{
				Describe: func(why bool) api.Status {
					st, now := r.describe(key, name, start), h.Status()
					e.describe(&st, why)
					st.Helper, st.Pipes = helperStatus(now), append(st.Pipes, helperPipes(now)...)
					st.Refused = append(st.Refused, refusals(h.Refusals())...)
					return st
				},
				Subflows: func() []api.Subflow { return relayed(h.Status(), name) },
				Streams:  e.Streams,
				Flows:    e.Flows,
				CloseSubflow: func(bond string, path uint32) error {
					if bond == "" {
						return h.CloseSubflow(bond, path)
					}
					return e.CloseSubflow(bond, path)
				},
				ResetStream: e.ResetStream, ChangeStream: e.ChangeStream, MoveSubflow: e.MoveSubflow, Chunk: e.Chunk, Policy: policyOf(e.Primary),
			})
		},
	}
	r.flags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what this device calls itself; empty: as [primary] says, or its host name")
	return cmd
}

// dual is a primary and a helper in one process.
type dual struct {
	edged
	lending
}

// Run serves both until ctx ends or one of them fails.
func (d dual) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.edged.Run(ctx) })
	g.Go(func() error { return d.lending.Run(ctx) })
	return g.Wait()
}

// Facts are what this device tells of itself.
func (d dual) Facts() wire.Facts { return d.lending.Facts() }

// TrustChanged tells both.
func (d dual) TrustChanged() {
	d.edged.TrustChanged()
	d.lending.TrustChanged()
}
