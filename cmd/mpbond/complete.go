// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/identity"
	"mpbond/internal/cli"
)

// completeDevice completes the first argument with the name of a device.
func completeDevice(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeNames(identity.Roles()...)
}

// completeNames returns the sorted names of devices that have any of these roles.
func completeNames(roles ...identity.Role) ([]string, cobra.ShellCompDirective) {
	trust, err := cli.OpenTrust()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, p := range trust.Peers() {
		if slices.ContainsFunc(roles, p.HasRole) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSubflow completes arguments with the devices of subflows of the primary that runs here.
func completeSubflow(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c := client.New(api.SocketPath("primary"))
	defer c.Close()
	list, _ := c.Subflows(cmd.Context()) // without a primary there is nothing to complete
	var names []string
	for _, f := range list {
		if f.Bond != "" && !slices.Contains(names, f.Device) && !slices.Contains(args, f.Device) {
			names = append(names, f.Device)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
