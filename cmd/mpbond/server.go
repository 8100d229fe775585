// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/serve"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/core/sched"
	"mpbond/internal/cli"
	"mpbond/link/wire"
	"mpbond/node/server"
)

func serverCommand() *cobra.Command {
	r := &role{name: "server"}
	cfg := server.Default
	var flags server.Config
	var allow []string
	var rate string
	var cacheLife, drain time.Duration
	cmd := &cobra.Command{
		Use: "server", Short: "run the bonding server", Args: cobra.NoArgs,
		Long: `Run the bonding server: accept the subflows of paired primaries, join them, and
connect their streams to the Internet: web sites see its address. While no primary is paired it prints a code
when it starts: enter it on the primary with mpbond pair. mpbond accept prints further
ones. With --public the code contains this name or address, else those of the
interfaces, which behind NAT are private.

Open its TCP port, 7600, in the firewall of the machine and of its provider, and with
--udp the same UDP port. Helpers need not be paired with it: they carry ciphertext that
only the primary and this server can read. It refuses destinations in private networks
unless --allow permits them.

With --fleet it is one of several servers for the same devices (docs/howto/fleet.md): the
fleet's operator invites devices, and this server prints no codes of its own.`,
		Example: `  mpbond server --public vps.example.org
  mpbond server --public vps.example.org --listen :8443
  mpbond server --allow 192.168.7.0/24
  mpbond server --public eu1.example.org --fleet tls://n1.example.org,tls://n2.example.org --creds eu1.creds --region eu`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, trust, err := r.loadRoleFiles(cmd, &cfg, func(changed func(string) bool) {
				overrideIfChanged(changed, "listen", &cfg.Listen, flags.Listen)
				overrideIfChanged(changed, "public", &cfg.Public, flags.Public)
				overrideIfChanged(changed, "scheduler", &cfg.Scheduler, flags.Scheduler)
				overrideIfChanged(changed, "congestion", &cfg.Congestion, flags.Congestion)
				overrideIfChanged(changed, "reinject", &cfg.Reinject, flags.Reinject)
				overrideIfChanged(changed, "udp", &cfg.UDP, flags.UDP)
				overrideIfChanged(changed, "api", &cfg.API, r.api)
				overrideIfChanged(changed, "fleet", &cfg.Fleet, flags.Fleet)
				overrideIfChanged(changed, "creds", &cfg.Creds, flags.Creds)
				overrideIfChanged(changed, "fleet-ca", &cfg.FleetCA, flags.FleetCA)
				overrideIfChanged(changed, "fleet-key", &cfg.FleetKey, flags.FleetKey)
				overrideIfChanged(changed, "region", &cfg.Region, flags.Region)
				overrideIfChanged(changed, "name", &cfg.Name, flags.Name)
				overrideIfChanged(changed, "cache-life", &cfg.CacheLife, config.Duration(cacheLife))
				overrideIfChanged(changed, "drain", &cfg.Drain, config.Duration(drain))
			})
			if err != nil {
				return err
			}
			r.api = cfg.API
			for _, a := range allow {
				p, err := netip.ParsePrefix(a)
				if err != nil {
					return fault.New(fault.Usage, fmt.Errorf("--allow %s is not an address prefix", text.Printable(a)),
						"write a prefix like 192.168.7.0/24 or fd00::/8")
				}
				cfg.Allow = append(cfg.Allow, p)
			}
			if rate != "" {
				if err = cfg.Rate.UnmarshalText([]byte(rate)); err != nil {
					return fault.New(fault.Usage, err, "write a rate like 50Mbit/s")
				}
			}
			cfg.Clock, cfg.Usage, cfg.ListenUDP = r.clock, r.usage, udpListenFunc(cfg.Congestion, key)
			rec, err := r.openRecorder("")
			if err != nil {
				return err
			}
			defer rec.Close()
			devices, member := server.Devices(trust), (*fleetMember)(nil)
			if cfg.Fleet != "" {
				if member, err = r.openFleetMember(cmd.Context(), cfg, key); err != nil {
					return err
				}
				devices = member
			}
			s, err := server.New(cfg, key, devices, slog.Default(), rec)
			if err != nil {
				return err
			}
			s.Version = cli.Version
			about := wire.PairIdentity{Roles: wire.PairServer, Name: resolveDeviceName(cfg.Name)}
			i := r.newInviter(cmd, key, about,
				&inviter{addresses: func() []string { return callAddresses(s.Addr().String(), cfg.Public) }})
			s.SetPairing(i.acceptor.ServeConn)
			start, running := time.Now(), runningRole(s)
			if member != nil {
				member.attachServer(s)
				i.acceptor.Fleet, running = member, memberRole{s, member}
				r.invites = nil // the fleet's operator invites
			}
			slog.Info("server is up", "listen", s.Addr(), "id", key.ID(), "key", key.Public())
			return r.serveRoleAndAPI(cmd.Context(), running, serve.Role{
				Status: func(why bool) api.Status {
					st := r.baseStatus(key, "", start)
					st.Listen, st.Calls = s.Addr().String(), s.Calls()
					st.Bonds = append(st.Bonds, s.Status(why)...)
					st.Refused = toAPIRefusals(s.Refusals())
					if member != nil {
						st.Fleet = member.fleetStatus()
					}
					return st
				},
				Streams: s.Streams, Flows: s.Flows, CloseSubflow: s.CloseSubflow, ResetStream: s.ResetStream,
			})
		},
	}
	r.addRoleFlags(cmd)
	cmd.Flags().StringVar(&flags.Listen, "listen", cfg.Listen, "accept devices at `HOST:PORT`")
	cmd.Flags().StringVar(&flags.Public, "public", "",
		"put `HOST[:PORT]` into pairing codes; empty: the addresses of the interfaces")
	cmd.Flags().StringSliceVar(&allow, "allow", nil, "let devices reach this private `PREFIX`; repeatable")
	cmd.Flags().StringVar(&rate, "rate", "",
		"limit each device to this `RATE` in each direction, like 50Mbit/s; empty: no limit")
	cmd.Flags().BoolVar(&flags.UDP, "udp", false, "serve subflows over UDP too, at the same address")
	addServerFleetFlags(cmd, &flags, &cacheLife, &drain)
	addSchedulingFlags(cmd, &flags.Scheduler, &flags.Congestion, &flags.Reinject)
	cli.GroupFlags(cmd, "Devices", "listen", "public", "udp")
	cli.GroupFlags(cmd, "Limits", "allow", "rate")
	cli.GroupFlags(cmd, "Fleet", "fleet", "creds", "fleet-ca", "fleet-key", "region", "name", "cache-life", "drain")
	cli.GroupFlags(cmd, "Scheduling", "scheduler", "reinject", "congestion")
	r.groupFlags(cmd)
	return cmd
}

// overrideIfChanged sets dst to a flag's value if the flag was given.
func overrideIfChanged[T any](changed func(string) bool, flag string, dst *T, v T) {
	if changed(flag) {
		*dst = v
	}
}

// addSchedulingFlags adds the flags that all senders share.
func addSchedulingFlags(cmd *cobra.Command, scheduler, congestion *string, reinject *float64) {
	cmd.Flags().StringVar(scheduler, "scheduler", sched.Default, "distribute bytes with the scheduler `NAME`: "+
		joinWithCommas(sched.Names())+" (ratio:0.6 sets the share of the direct subflow)")
	cmd.Flags().StringVar(congestion, "congestion", "",
		"use the congestion control `NAME` for subflows; pbe: PBE-CC over UDP; "+
			"empty: cubic or bbr by the losses of each hop for TCP, and for UDP CUBIC, or PBE-CC if the receiver "+
			"sends cell feedback")
	cli.CompleteWith(cmd, "scheduler", sched.Names()...)
	cmd.Flags().Float64Var(reinject, "reinject", 0.2,
		"reinject bytes when one subflow is later than another by this share η (`NUMBER`) of the delay; negative: never")
}
