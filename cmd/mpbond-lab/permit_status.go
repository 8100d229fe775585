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
		Use: "status [HOST:PORT]", Short: "show loads, what is granted, and who has permits until when", Args: cobra.MaximumNArgs(1),
		Long: `Show what the service that runs on this machine, or at HOST:PORT, grants now: the
load of each cell, whether there are permits for it or why not, and who has one
until when. It tells that only to who has its own key: run this as the same user
as mpbond-lab permit serve, with the same $MPBOND_HOME.`,
		Example: `  mpbond-lab permit status
  mpbond-lab permit status --json | jq '.cells[] | {name, load, held: (.permits | length)}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := cli.KeyPath()
			if err != nil {
				return err
			}
			key, err := identity.LoadKey(path) // none is made: it would not be the service's
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
