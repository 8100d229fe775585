// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"mpbond/lab"
)

func labFleetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "fleet", Short: "show several servers for the same devices: one ends, one drains", Args: cobra.NoArgs,
		Example: "  mpbond-lab fleet",
		Long: `Emulate three servers in two regions, an engine of three nodes, and two devices that
join by one code each. Kill the server of one, drain that of the other during a download,
and revoke a device. It prints a line for each step, takes two minutes and leaves nothing
behind. The engine is NATS if the program nats-server is there, else a directory.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return lab.FleetDemo(c.Context(), func(format string, args ...any) {
				fmt.Fprintf(c.OutOrStdout(), format+"\n", args...)
			})
		},
	}
}
