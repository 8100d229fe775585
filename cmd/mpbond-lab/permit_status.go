// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/identity"
	"mpbond/internal/cli"
	"mpbond/onload/permit"
)

func permitStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status [HOST:PORT]", Short: "show loads, permits and their holders", Args: cobra.MaximumNArgs(1),
		Long: `Show the state of the service on this machine, or at HOST:PORT: the load of each
cell, whether it grants permits or why not, and the holders of permits with their
times of expiry. The service answers only clients with its own key: run this as
the same user as mpbond-lab permit serve, with the same $MPBOND_HOME.`,
		Example: `  mpbond-lab permit status
  mpbond-lab permit status --json | jq '.cells[] | {name, load, held: (.permits | length)}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := cli.KeyPath()
			if err != nil {
				return err
			}
			key, err := identity.LoadKey(path) // do not make a key: it would not be the service's
			if err != nil {
				return err
			}
			at := "127.0.0.1:" + strconv.Itoa(permit.Port)
			if len(args) > 0 {
				at = args[0]
			}
			r, err := permit.Client{Key: key, Address: at, Service: key.Public()}.FetchReport(cmd.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			return r.Print(cmd.OutOrStdout(), time.Now())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
