// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/control/fleet"
	"mpbond/control/fleet/engine"
	"mpbond/internal/cli"
)

// operatorFiles are the names of the operator's files in the home directory: the fleet's key, and how to reach the
// engine.
const operatorKeyFile, operatorConfigFile = "fleet.key", "fleet.toml"

// fleetOptions are the flags of all fleet commands.
type fleetOptions struct {
	engine.Config
	keyFile string
	asJSON  bool
}

func fleetCommand() *cobra.Command {
	var o fleetOptions
	cmd := &cobra.Command{
		Use: "fleet", Short: "run several servers for the same devices",
		Long: `Manage a fleet: several servers that serve the same devices and share what they know in an
engine, NATS JetStream (docs/howto/fleet.md). These commands are for the fleet's operator,
who holds the fleet's key, fleet.key: it signs who may join and which servers there are.
Keep it on no server. "mpbond fleet leave" alone is for a primary.

"fleet init" makes the key and notes in fleet.toml how to reach the engine; the other
commands need no flags then.`,
		Example: `  mpbond fleet init acme --fleet tls://n1.example.org,tls://n2.example.org --creds operator.creds
  mpbond fleet add eu1 --key mpb1… --addr eu1.example.org:7600 --region eu
  mpbond fleet invite --region eu
  mpbond fleet status`,
	}
	cmd.PersistentFlags().StringVar(&o.Engine, "fleet", "", "use this `ENGINE`: nats://HOST:PORT or tls://…, several "+
		"separated by commas, or file:DIR; empty: that of fleet.toml")
	cmd.PersistentFlags().StringVar(&o.Creds, "creds", "", "use the credentials in this `FILE` for the engine")
	cmd.PersistentFlags().StringVar(&o.CA, "fleet-ca", "",
		"trust the authority with the certificate in this `FILE` for the engine")
	cmd.PersistentFlags().StringVar(&o.keyFile, "key-file", "",
		"use the fleet's key in this `FILE` instead of fleet.key")
	cmd.PersistentFlags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.AddCommand(fleetInitCommand(&o), fleetStatusCommand(&o), fleetAddCommand(&o), fleetRemoveCommand(&o),
		fleetRenewCommand(&o), fleetInviteCommand(&o), fleetDevicesCommand(&o), fleetSetCommand(&o), fleetRevokeCommand(&o),
		fleetDrainCommand(&o, true), fleetDrainCommand(&o, false), fleetUsageCommand(&o), fleetEventsCommand(&o),
		fleetLeaveCommand())
	return cmd
}

// openEngine opens the engine that the flags or fleet.toml name.
func (o *fleetOptions) openEngine(ctx context.Context) (fleet.Store, error) {
	f := o.Config
	if f.Engine == "" {
		path, err := cli.InHome(operatorConfigFile)
		if err != nil {
			return nil, err
		}
		if err := useOwnerRights(path); err != nil {
			return nil, err
		}
		var saved engine.Config
		if err := config.Load(path, &saved); err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		f.Engine, f.Creds, f.CA = saved.Engine, cmp.Or(f.Creds, saved.Creds), cmp.Or(f.CA, saved.CA)
	}
	if f.Engine == "" {
		return nil, fault.New(fault.Usage, errors.New("no engine is named"),
			"name it by --fleet, or make a fleet first: mpbond fleet init NAME --fleet ENGINE")
	}
	return openFleetStore(ctx, f, "mpbond fleet")
}

// openOperator opens the engine, for writing, and the fleet's key.
func (o *fleetOptions) openOperator(ctx context.Context) (fleet.Store, *fleet.Operator, error) {
	path, err := o.keyPath()
	if err != nil {
		return nil, nil, err
	}
	key, err := identity.LoadKey(path)
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.NotFound, fmt.Errorf("the fleet's key is not here: %w", err),
			"run this where `mpbond fleet init` ran, or name the key by --key-file")
	}
	if err != nil {
		return nil, nil, err
	}
	s, err := o.openEngine(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.MakeRoom(ctx)
	return s, fleet.NewOperator(s, key), nil
}

func (o *fleetOptions) keyPath() (string, error) {
	if o.keyFile != "" {
		return o.keyFile, nil
	}
	return cli.InHome(operatorKeyFile)
}

// runOperator opens engine and key for f.
func (o *fleetOptions) runOperator(ctx context.Context, f func(fleet.Store, *fleet.Operator) error) error {
	s, op, err := o.openOperator(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s, op)
}

// runReader opens the engine for f.
func (o *fleetOptions) runReader(ctx context.Context, f func(fleet.Store) error) error {
	s, err := o.openEngine(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

// completionTimeout bounds the question to the engine for completions in a shell.
const completionTimeout = 2 * time.Second

// completeServers completes an argument with the servers of the fleet.
func (o *fleetOptions) completeServers(cmd *cobra.Command, args []string, _ string) (list []string,
	_ cobra.ShellCompDirective) {
	return o.completeFleetNames(cmd, args, func(ctx context.Context, s fleet.Store) (list []string) {
		v, _ := fleet.ReadStatus(ctx, s)
		for _, one := range v.Servers {
			list = append(list, one.Name)
		}
		return list
	})
}

// completeDevices completes an argument with the devices of the fleet.
func (o *fleetOptions) completeDevices(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return o.completeFleetNames(cmd, args, func(ctx context.Context, s fleet.Store) (list []string) {
		devices, _, _ := fleet.ReadDevices(ctx, s)
		for _, d := range devices {
			list = append(list, d.Name)
		}
		return slices.Compact(list) // in order
	})
}

// completeFleetNames completes the first argument with the names that read reads from the engine.
func (o *fleetOptions) completeFleetNames(cmd *cobra.Command, args []string,
	read func(context.Context, fleet.Store) []string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	s, err := o.openEngine(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer s.Close()
	return read(ctx, s), cobra.ShellCompDirectiveNoFileComp
}

// fleetMade is the output of `fleet init --json`.
type fleetMade struct {
	Name string             `json:"name"`
	Key  identity.PublicKey `json:"key"`
	File string             `json:"file"` // with the private key
}

func fleetInitCommand(o *fleetOptions) *cobra.Command {
	return &cobra.Command{
		Use: "init NAME", Short: "make a fleet on an engine", Args: cobra.ExactArgs(1),
		Long: `Make a fleet on an engine. It makes the fleet's key, fleet.key, unless there is one, and
writes fleet.toml, so that other commands find the engine. Keep a copy of the key in a
safe place: without it nobody can add devices or servers.

It may be repeated, for instance on a new engine after the old one was lost.`,
		Example: "  mpbond fleet init acme --fleet nats://127.0.0.1:4222",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := o.keyPath()
			if err != nil {
				return err
			}
			if err := useOwnerRights(path); err != nil {
				return err
			}
			s, err := o.openEngine(cmd.Context())
			if err != nil {
				return err
			}
			defer s.Close()
			key, _, err := identity.LoadOrCreateKey(path)
			if err != nil {
				return err
			}
			s.MakeRoom(cmd.Context())
			if err := fleet.NewOperator(s, key).Init(cmd.Context(), args[0]); err != nil {
				return err
			}
			if o.Engine != "" {
				if err := o.saveEngine(); err != nil {
					return err
				}
			}
			if o.asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), fleetMade{args[0], key.Public(), path})
			}
			fmt.Fprintf(cmd.OutOrStdout(),
				"fleet %s has the key %v\nits private part is in %s: keep a copy in a safe place\n",
				args[0], key.Public(), path)
			return nil
		},
	}
}

// saveEngine writes fleet.toml, for commands in any directory.
func (o *fleetOptions) saveEngine() error {
	f := o.Config
	for _, file := range []*string{&f.Creds, &f.CA} {
		if *file != "" {
			abs, err := filepath.Abs(*file)
			if err != nil {
				return err
			}
			*file = abs
		}
	}
	if dir, ok := f.Directory(); ok {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		f.Engine = engine.FileScheme + abs
	}
	data, err := toml.Marshal(f)
	if err != nil {
		return err
	}
	path, err := cli.InHome(operatorConfigFile)
	if err != nil {
		return err
	}
	return config.Write(path, data)
}

// fleetReport is the output of `fleet status --json`.
type fleetReport struct {
	Name    string             `json:"name"`
	Key     identity.PublicKey `json:"key"`
	Expires time.Time          `json:"expires,omitzero"`  // of the list of servers
	Problem string             `json:"problem,omitempty"` // of the list, a clock or the engine's room, with what to do
	Servers []api.FleetServer  `json:"servers"`
}

func fleetStatusCommand(o *fleetOptions) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "show the servers of the fleet and what they carry", Args: cobra.NoArgs,
		Long: `Show the servers of the fleet and what they carry. STATE is

  runs        it has reported within ten seconds
  drains      it accepts no new bonds
  full        it has no room for more devices
  silent      it is on the list and does not run
  not listed  it runs, and primaries do not use it: mpbond fleet add

CPU is the share of all processors of the machine that the server uses.`,
		Example: "  mpbond fleet status\n  mpbond fleet status --json | jq -r '.servers[] | select(.running) | .name'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.runReader(cmd.Context(), func(s fleet.Store) error {
				v, err := fleet.ReadStatus(cmd.Context(), s)
				if err != nil {
					return err
				}
				r := fleetReport{Name: v.Name, Key: v.Key, Expires: v.Expires, Servers: []api.FleetServer{}}
				if v.Problem != nil {
					r.Problem = v.Problem.Error()
					if hint := fault.HintOf(v.Problem); hint != "" {
						r.Problem += ": " + hint
					}
				}
				for _, one := range v.Servers {
					f := toFleetServer(one.Server, one.IsListed)
					if f.Running = new(bool); one.State != nil {
						addServerState(&f, *one.State)
					}
					r.Servers = append(r.Servers, f)
				}
				if o.asJSON {
					return cli.PrintJSON(cmd.OutOrStdout(), r)
				}
				return printFleet(cmd.OutOrStdout(), r)
			})
		},
	}
}

// describeServerState describes the state of a server in one or two words.
func describeServerState(s api.FleetServer) string {
	switch running := s.Running != nil && *s.Running; {
	case s.Running == nil:
		return "-"
	case !running:
		return "silent"
	case !s.Listed:
		return "not listed"
	case s.Draining:
		return "drains"
	case s.Full:
		return "full"
	}
	return "runs"
}

// expiryWarning is how long before its end the expiry of the list is pointed out.
const expiryWarning = fleet.ListLife / 3

// printFleet prints the servers of a fleet for people.
func printFleet(w io.Writer, r fleetReport) error {
	fmt.Fprintf(w, "fleet %s, key %v\n", text.Printable(r.Name), r.Key)
	switch {
	case r.Problem != "":
		fmt.Fprintln(w, text.Printable(r.Problem))
	case time.Until(r.Expires) < expiryWarning:
		fmt.Fprintf(w, "the list of servers expires on %s: run mpbond fleet renew\n",
			r.Expires.Local().Format(time.DateOnly))
	}
	if len(r.Servers) == 0 {
		fmt.Fprintln(w, "no server yet: start one with mpbond server --fleet, and run mpbond fleet add")
		return nil
	}
	return printFleetServers(w, r.Servers)
}

// printFleetServers prints a table of servers.
func printFleetServers(w io.Writer, list []api.FleetServer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tREGION\tSTATE\tBONDS\tSTREAMS\tRATE\tCPU\tMEMORY\tADDRESS")
	for _, s := range list {
		load := []string{"-", "-", "-", "-", "-"}
		if s.Running != nil && *s.Running {
			load = []string{fmt.Sprint(s.Bonds), fmt.Sprint(s.Streams), s.RateBps.String(), fmt.Sprintf("%.0f %%",
				100*s.CPU),
				s.MemoryBytes.String()}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", text.Printable(s.Name), cmp.Or(text.Printable(s.Region), "-"),
			describeServerState(s),
			strings.Join(load, "\t"), text.Printable(strings.Join(s.Addresses, " ")))
	}
	return t.Flush()
}

func fleetAddCommand(o *fleetOptions) *cobra.Command {
	var key, region string
	var addrs []string
	cmd := &cobra.Command{
		Use: "add NAME", ValidArgsFunction: o.completeServers, Args: cobra.ExactArgs(1),
		Short: "put a server on the fleet's list, or change its entry",
		Long: `Put a server on the fleet's list, in place of one with that name: primaries use it then.
The server prints its key when it starts; mpbond keygen does so too.`,
		Example: "  mpbond fleet add eu1 --key mpb1… --addr eu1.example.org:7600 --region eu",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.runOperator(cmd.Context(), func(s fleet.Store, op *fleet.Operator) error {
				if key == "" || len(addrs) == 0 {
					return describeReported(cmd.Context(), s, args[0])
				}
				k, err := identity.ParsePublicKey(key)
				if err != nil {
					return err
				}
				err = op.AddServer(cmd.Context(), fleet.Server{Name: args[0], Region: region, Key: k, Addresses: addrs})
				if err != nil {
					return err
				}
				cmd.PrintErrf("%s is on the list; primaries learn of it within ten seconds of use\n", args[0])
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the server's public `KEY`, mpb1…")
	cmd.Flags().StringSliceVar(&addrs, "addr", nil, "the server's `HOST:PORT` for devices; repeatable, best first")
	cmd.Flags().StringVar(&region, "region", "", "the server's `REGION`, like eu-west")
	return cmd
}

// describeReported returns the error for a server without a key or address: with what the server itself reports, to
// compare.
func describeReported(ctx context.Context, s fleet.Store, name string) error {
	v, err := fleet.ReadStatus(ctx, s)
	if err != nil {
		return err
	}
	hint := "write both: --key KEY --addr HOST:PORT"
	for _, one := range v.Servers {
		if one.Name == name && one.State != nil {
			st := one.State
			hint = fmt.Sprintf("%s reports the following; compare the key with what it prints when it starts: "+
				"mpbond fleet add %[1]s --key %v --addr %s", name, st.Key, strings.Join(st.Addresses, ","))
			if st.Region != "" {
				hint += " --region " + st.Region
			}
		}
	}
	return fault.New(fault.Usage, errors.New("a server needs its key and an address"), hint)
}

func fleetRemoveCommand(o *fleetOptions) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", ValidArgsFunction: o.completeServers, Args: cobra.ExactArgs(1),
		Short: "take a server off the fleet's list",
		Long: `Take a server off the fleet's list. Primaries stop using it when they learn of the new
list. Any other server sends it to them within ten seconds of use. To end its
connections without a cut, drain it first.`,
		Example: "  mpbond fleet drain eu1\n  mpbond fleet remove eu1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.runOperator(cmd.Context(), func(_ fleet.Store, op *fleet.Operator) error {
				if err := op.RemoveServer(cmd.Context(), args[0]); err != nil {
					return err
				}
				cmd.PrintErrf("%s is off the list; primaries learn of it within ten seconds of use\n", args[0])
				return nil
			})
		},
	}
}

func fleetRenewCommand(o *fleetOptions) *cobra.Command {
	return &cobra.Command{
		Use: "renew", Short: "sign the list of servers again, for another 90 days", Args: cobra.NoArgs,
		Long: `Sign the list of servers again, so that it is valid for another 90 days. Each change of the
list does the same. mpbond fleet status warns a month before.`,
		Example: "  mpbond fleet renew",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.runOperator(cmd.Context(), func(_ fleet.Store,
				op *fleet.Operator) error {
				return op.Renew(cmd.Context())
			})
		},
	}
}

func fleetDrainCommand(o *fleetOptions, draining bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain SERVER", ValidArgsFunction: o.completeServers, Args: cobra.ExactArgs(1),
		Short: "move the devices of a server to others, without a cut",
		Long: `Order a server to drain: it accepts no new bonds, and primaries open new connections at
another server. Connections that exist go on until they end, for at most the server's
--drain, ten minutes. mpbond fleet status shows how many are left.`,
		Example: "  mpbond fleet drain eu1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.runOperator(cmd.Context(), func(_ fleet.Store, op *fleet.Operator) error {
				if err := op.Drain(cmd.Context(), args[0], draining); err != nil {
					return err
				}
				what := "drains: it is empty when mpbond fleet status shows no bonds"
				if !draining {
					what = "serves again"
				}
				cmd.PrintErrf("%s %s\n", args[0], what)
				return nil
			})
		},
	}
	if !draining {
		cmd.Use, cmd.Short, cmd.Example = "undrain SERVER", "let a server serve again", "  mpbond fleet undrain eu1"
		cmd.Long = "Let a server that drains serve again."
	}
	return cmd
}

func fleetLeaveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "leave", Short: "remove the fleet that this primary has joined", Args: cobra.NoArgs,
		Long: `Remove the fleet that this primary has joined, and its servers, from this device. The
fleet still knows the device until its operator revokes it.`,
		Example: "  mpbond fleet leave",
		RunE: func(cmd *cobra.Command, _ []string) error {
			trust, err := cli.OpenTrust()
			if err != nil {
				return err
			}
			j, err := loadJoinedFleet(trust)
			if err != nil {
				return err
			}
			if j == nil {
				return fault.New(fault.NotFound, errors.New("this device has joined no fleet"), "")
			}
			return j.Leave()
		},
	}
}
