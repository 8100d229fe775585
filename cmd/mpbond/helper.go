// SPDX-License-Identifier: Apache-2.0

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
	// Onload configures what this device carries for primaries that onload.
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
		Use: "helper", Short: "share this device's link with a primary", Args: rejectStrayAllowance,
		Long: `Share this device's link with a primary: connect to the primary over the local
network and carry its subflows to the server. They are encrypted end to end. While
it is paired with no primary it prints a code at the start, for mpbond pair on the
primary; mpbond accept prints further ones. TCP port 7603 is open while a code is
valid, and for ten minutes more to report the result.

With --onload=ALLOWANCE, or [onload] in helper.toml, let paired primaries also onload:
download and upload files over this device's link, without a server (mpbond get
--onload, put, play). The allowance bounds what they carry:

    200MB               at most this volume a day
    caps                what the data plan in [onload] usually leaves unused
    permit HOST:PORT    any volume while the operator's service there permits it
    unlimited           any volume

Web sites then see the address of this device. TCP port 7604 is open for these
connections while the allowance lasts (docs/howto/onload-helper.md).`,
		Example: `  mpbond helper
  mpbond helper --onload=200MB
  mpbond helper --name phone`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flagged, err := parseCellFlags(cellFlags)
			if err != nil {
				return err
			}
			key, trust, err := r.loadRoleFiles(cmd, &cfg, func(changed func(string) bool) {
				overrideIfChanged(changed, "cell", &cfg.Cell, flagged)
				overrideIfChanged(changed, "feedback", &cfg.Feedback, feedback)
				overrideIfChanged(changed, "udp", &cfg.UDP, overUDP)
				overrideIfChanged(changed, "api", &cfg.API, r.api)
			})
			if err == nil {
				err = cfg.Onload.applyOnloadFlag(cmd.Flags().Changed("onload"), onload)
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
			cfg.Clock, cfg.Usage, cfg.Allowed = r.clock, r.usage, r.remainingAllowance
			cfg.DialUDP = listeners.dialFeedbackUDP
			cfg.Limits = func() policy.Limits { return r.policy.Rules().Device(name).Limits }
			h, err := helper.New(cfg.Config, name, helper.Identity{Key: key, Trust: trust}, slog.Default(), rec)
			if err != nil {
				return err
			}
			h.SetDiscovery(findPrimaries)
			if err := r.initOnload(cfg.Onload, cfg.Config, key, h); err != nil {
				return err
			}
			if err := r.initDeviceFacts(h.SetFacts); err != nil {
				return err
			}
			r.enforceCaps(func(n string) bool { return n == name }, r.policy.Rules, h.CapReached)
			r.newHelperInviter(cmd, key, cfg.Config, wire.PairIdentity{Roles: wire.PairHelper, Name: resolveDeviceName(name)})
			start := time.Now()
			slog.Info("helper is up", "name", name, "id", key.ID(), "key", key.Public())
			return r.serveRoleAndAPI(cmd.Context(), helperRole{h, listeners, r.onload}, serve.Role{
				Status: func(bool) api.Status {
					st, now := r.baseStatus(key, name, start), h.Status()
					st.Helper, st.Pipes = toAPIHelperStatus(now), listHelperPipes(now)
					st.Policy, st.Cells = r.policy.Status(), listeners.listCellStates()
					st.Refused = toAPIRefusals(h.Refusals())
					return st
				},
				Subflows:     func() []api.BondSubflow { return listRelayedSubflows(h.Status(), name) },
				CloseSubflow: h.CloseSubflow,
				Policy:       plan,
			})
		},
	}
	r.addRoleFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "show this `NAME` to other devices; default: the host name")
	cmd.Flags().StringVar(&feedback, "feedback", helper.FeedbackModes()[0],
		"report the state of the pipe to the server in this `MODE`: "+joinWithCommas(helper.FeedbackModes()))
	addCellFlag(cmd, &cellFlags)
	addOnloadFlag(cmd, &onload)
	cmd.Flags().StringSliceVar(&overUDP, "udp", nil,
		"reach servers over UDP, where it gets through, by this network `INTERFACE`; any: all; repeatable")
	cli.CompleteWith(cmd, "feedback", helper.FeedbackModes()...)
	cli.GroupFlags(cmd, "Sharing", "onload", "feedback")
	cli.GroupFlags(cmd, "Links", "udp", "cell")
	r.groupFlags(cmd, "name")
	return cmd
}

// findPrimaries searches the local networks for primaries.
func findPrimaries(ctx context.Context) ([]discovery.Found, error) {
	return discovery.Find(ctx, discovery.Pipes, time.Second)
}

// helperRole runs a helper and the listeners to its mobile cells. The end of ctx is no error.
type helperRole struct {
	*helper.Helper
	cellListeners                // nil in a dual role, where the primary runs them
	onload        *onloadService // nil: no onloading
}

// TrustChanged notifies the helper and onloading.
func (h helperRole) TrustChanged() {
	h.Helper.TrustChanged()
	h.onload.trustChanged()
}

// Run helps until ctx ends.
func (h helperRole) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { h.runCellListeners(ctx) })
	if err := h.Helper.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// toAPIHelperStatus sums up a helper's pipes and subflows for the API.
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
			st.LinkShares = append(st.LinkShares, api.LinkShare{Interface: l.Interface, Direction: d.name,
				Limited: d.Limited, LimitBps: d.Limit,
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
