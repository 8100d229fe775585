// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"mpbond/base/identity"
	"mpbond/internal/cli"
)

func keygenCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "keygen", Short: "create this device's key and print its public half", Args: cobra.NoArgs,
		Example: "  mpbond keygen\n  mpbond keygen --json | jq -r .key",
		Long: `Create this device's key and print its public half and ID.

An existing key is printed and never replaced. The private half stays in the file
device.key. Give the public half to other devices with mpbond trust add. The ID is a
short form of it, to compare on both screens.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := cli.KeyPath()
			if err != nil {
				return err
			}
			key, created, err := identity.LoadOrCreateKey(path)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), struct {
					Key     identity.PublicKey `json:"key"`
					ID      identity.ID        `json:"id"`
					File    string             `json:"file"`
					Created bool               `json:"created"`
				}{key.Public(), key.ID(), path, created})
			}
			verb := "existing key in"
			if created {
				verb = "created the key in"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "key %v\nid  %v\n", key.Public(), key.ID())
			cmd.PrintErrf("%s %s\n", verb, path)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
