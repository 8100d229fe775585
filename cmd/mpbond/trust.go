// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/internal/cli"
)

func trustCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "trust", Short: "trust devices by their keys, without a code",
		Long: `Trust other devices by their keys and give them roles, without a code. mpbond pair
does the same on both devices at once.

Run it at both ends of each connection:
  primary  trusts the server and each helper
  server   trusts the primary
  helper   trusts the primary, which sends it the addresses of its servers
mpbond keygen prints the key of a device. A running mpbond applies changes at once and
closes its connections with a removed device.`,
		Example: `  mpbond trust add home --role server --key mpb1… --addr vps.example.org:7600
  mpbond trust add phone --role helper --key mpb1…
  mpbond trust list
  mpbond trust remove phone`,
	}
	cmd.AddCommand(trustAddCommand(), trustListCommand(), trustRemoveCommand())
	return cmd
}

func trustAddCommand() *cobra.Command {
	var roles, addresses []string
	var key string
	cmd := &cobra.Command{
		Use: "add NAME --role ROLE --key KEY [--addr HOST:PORT]", Short: "trust a device", Args: cobra.ExactArgs(1),
		Example: "  mpbond trust add home --role server --key mpb1… --addr vps.example.org:7600",
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" || len(roles) == 0 {
				return cli.UsageError("--key and --role are required")
			}
			peer := identity.Peer{Name: args[0], Addresses: addresses}
			for _, r := range roles {
				peer.Roles = append(peer.Roles, identity.Role(r))
			}
			if peer.HasRole(identity.RoleServer) && len(addresses) == 0 {
				return cli.UsageError("a server needs its address: --addr HOST:PORT")
			}
			var err error
			if peer.Key, err = identity.ParsePublicKey(key); err != nil {
				return fault.New(fault.Usage, err, fault.HintOf(err))
			}
			if path, err := cli.KeyPath(); err == nil {
				if own, err := identity.LoadKey(path); err == nil && own.Public() == peer.Key {
					return cli.UsageError("--key is the key of this device itself: use that of the other device")
				}
			}
			trust, err := cli.OpenTrust()
			if err != nil {
				return err
			}
			if err := trust.Add(peer); err != nil {
				return err
			}
			return printDeviceResult(cmd, peer, "%s is trusted as %s; its ID is %v", peer.Name,
				strings.Join(roles, " and "), peer.Key.ID())
		},
	}
	cmd.Flags().StringSliceVar(&roles, "role", nil,
		"let it be this `ROLE` for this device: server, helper or primary; repeatable")
	cmd.Flags().StringVar(&key, "key", "", "use this public `KEY`, as mpbond keygen prints it there")
	cmd.Flags().StringSliceVar(&addresses, "addr", nil, "connect to it at this `HOST:PORT`, or for a primary "+
		"rfcomm://ADDRESS/CHANNEL; repeatable: a server's are tried in turn, a primary's are all used")
	cli.CompleteWith(cmd, "role", listRoleNames(identity.Roles())...)
	return addJSONFlag(cmd)
}

func trustListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "list the trusted devices", Args: cobra.NoArgs,
		Example: "  mpbond trust list\n  mpbond trust list --json | jq -r '.[].key'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			trust, err := cli.OpenTrust()
			if err != nil {
				return err
			}
			peers := trust.Peers()
			if asJSON {
				if peers == nil {
					peers = []identity.Peer{}
				}
				return cli.PrintJSON(cmd.OutOrStdout(), peers)
			}
			if len(peers) == 0 {
				cmd.PrintErrln("no device is trusted yet: see `mpbond trust add --help`")
				return nil
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tROLES\tID\tADDRESSES")
			for _, p := range peers {
				fmt.Fprintf(w, "%s\t%s\t%v\t%s\n", p.Name, joinRoleNames(p.Roles), p.Key.ID(),
					strings.Join(p.Addresses, " "))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with the keys")
	return cmd
}

func trustRemoveCommand() *cobra.Command {
	return addJSONFlag(&cobra.Command{
		Use: "remove NAME", Short: "stop trusting a device", Args: cobra.ExactArgs(1),
		Example:           "  mpbond trust remove phone",
		ValidArgsFunction: completeDevice,
		RunE:              revokeByName,
	})
}
