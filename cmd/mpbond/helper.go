package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/serve"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/link/discovery"
	"mpbond/link/wire"
	"mpbond/node/helper"
)

// helperConfig is helper.toml.
type helperConfig struct {
	helper.Config
	// Onload is what this device carries for primaries that onload.
	Onload onloadConfig `toml:"onload"`
}

func helperCommand() *cobra.Command {
	r := &role{name: "helper"}
	var cfg helperConfig
	var onload string
	var name, feedback string
	var cellFlags []string
	var overUDP []string
	cmd := &cobra.Command{
		Use: "helper", Short: "lend this device's link to a primary", Args: rejectStrayAllowance,
		Long: `Lend this device's link to a primary: it calls the primary over the local
network, and carries its subflows to the server. All that it sees is encrypted
from end to end. While it knows no primary it shows a code when it starts, for
mpbond pair there; mpbond accept shows further ones. While a code holds, and ten
minutes more to say what became of it, TCP port 7603 is open.

With --onload=ALLOWANCE, or with [onload] in helper.toml, it also takes connections of
primaries that onload (docs/howto/onload.md), at TCP port 7604, as far as its allowance
lasts.`,
		Example: `  mpbond helper
  mpbond helper --onload=200MB
  mpbond helper --name phone`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flagged, err := parseCellFlags(cellFlags)
			if err != nil {
				return err
			}
			key, trust, err := r.loadFiles(cmd, &cfg, func(changed func(string) bool) {
				overrideIfChanged(changed, "cell", &cfg.Cell, flagged)
				overrideIfChanged(changed, "feedback", &cfg.Feedback, feedback)
				overrideIfChanged(changed, "udp", &cfg.UDP, overUDP)
				overrideIfChanged(changed, "api", &cfg.API, r.api)
			})
			if err == nil {
				err = cfg.Onload.applyFlag(cmd.Flags().Changed("onload"), onload)
			}
			if err != nil {
				return err
			}
			r.api = cfg.API
			rec, err := r.openRecorder(name)
			if err != nil {
				return err
			}
			defer rec.Close()
			plan, err := r.loadDeviceTables(rec)
			if err != nil {
				return err
			}
			if name == "" {
				name, _ = os.Hostname()
			}
			listeners, err := newCellListeners(cfg.Cell, rec)
			if err != nil {
				return err
			}
			cfg.Usage, cfg.Allowed, cfg.DialUDP = r.usage, r.remainingAllowance, listeners.dialUDP
			cfg.Limits = func() policy.Limits { return r.policy.Rules().Device(name).Limits }
			h, err := helper.New(cfg.Config, name, helper.Identity{Key: key, Trust: trust}, slog.Default(), rec)
			if err != nil {
				return err
			}
			h.SetDiscovery(findPrimaries)
			if err := r.initOnload(cfg.Onload, cfg.Config, key, h); err != nil {
				return err
			}
			if err := r.initFacts(h.SetFacts); err != nil {
				return err
			}
			r.enforceCaps(func(n string) bool { return n == name }, r.policy.Rules, h.CapReached)
			r.newHelperInviter(cmd, key, cfg.Config, wire.PairIdentity{Roles: wire.PairHelper, Name: resolveName(name)})
			start := time.Now()
			slog.Info("helper is up", "name", name, "id", key.ID(), "key", key.Public())
			return r.serveRole(cmd.Context(), helperRole{h, listeners, r.onload}, serve.Role{
				Status: func(bool) api.Status {
					st, now := r.baseStatus(key, name, start), h.Status()
					st.Helper, st.Pipes = toAPIHelperStatus(now), listHelperPipes(now)
					st.Policy, st.Cells, st.Refused = r.policy.Status(), listeners.listCells(), toAPIRefusals(h.Refusals())
					return st
				},
				Subflows:     func() []api.BondSubflow { return listRelayedSubflows(h.Status(), name) },
				CloseSubflow: h.CloseSubflow,
				Policy:       plan,
			})
		},
	}
	r.addFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what this device calls itself; empty: its host name")
	cmd.Flags().StringVar(&feedback, "feedback", helper.FeedbackModes()[0], "how the server learns of the pipe: one of "+joinNames(helper.FeedbackModes()))
	addCellFlag(cmd, &cellFlags)
	addOnloadFlag(cmd, &onload)
	cmd.Flags().StringSliceVar(&overUDP, "udp", nil, "network interface by which servers are reached over UDP, where that gets through; may be repeated; any: each")
	cli.CompleteWith(cmd, "feedback", helper.FeedbackModes()...)
	return cmd
}

// findPrimaries looks for primaries on the local networks.
func findPrimaries(ctx context.Context) ([]discovery.Found, error) {
	return discovery.Find(ctx, discovery.Pipes, time.Second)
}

// helperRole is a helper whose end in order is no error, and who listens to cells for it.
type helperRole struct {
	*helper.Helper
	cellListeners                // nil: somebody else does
	onload        *onloadService // nil: it takes no connections for that
}

// TrustChanged tells both.
func (l helperRole) TrustChanged() {
	l.Helper.TrustChanged()
	l.onload.trustChanged()
}

// Run lends until ctx ends.
func (l helperRole) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { l.listenAll(ctx) })
	if err := l.Helper.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// toAPIHelperStatus sums a helper's pipes and subflows up.
func toAPIHelperStatus(s helper.Status) *api.HelperStatus {
	st := &api.HelperStatus{Subflows: len(s.Subflows), BufferLimit: s.Buffer, RelayedBytes: unit.Bytes(s.Relayed)}
	for _, f := range s.Subflows {
		if f.Transport == "udp" {
			st.OverUDP++
		}
		st.Fallback = cmp.Or(st.Fallback, f.Fallback)
	}
	for _, p := range s.Pipes {
		if p.Error != "" {
			st.LastError = p.Error
			if p.Hint != "" {
				st.LastError += " (" + p.Hint + ")"
			}
		} else if st.Primary == "" {
			st.Primary = p.Primary
		}
	}
	for _, l := range s.Shares {
		for _, d := range []struct {
			name string
			policy.ShareDecision
		}{{"down", l.Down}, {"up", l.Up}} {
			st.LinkShares = append(st.LinkShares, api.LinkShare{Interface: l.Interface, Direction: d.name, Limited: d.Limited, LimitBps: d.Limit,
				Reason: d.Reason, OwnerBps: d.Owner, SharedBps: d.Shared, CapacityBps: d.Capacity})
		}
	}
	for _, f := range s.Subflows {
		st.Primary, st.Server = f.Primary, f.Server
		st.BufferBytes += unit.Bytes(f.Up.Buffered + f.Down.Buffered)
		st.HSPathRateBps += f.Up.Rate
		st.PipeRateBps += f.Down.Rate
		st.DownRateBps += f.DownBps
		st.UpRateBps += f.UpBps
	}
	return st
}
