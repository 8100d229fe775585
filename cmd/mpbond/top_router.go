// SPDX-License-Identifier: Apache-2.0

//go:build router

package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

func topCommand() *cobra.Command {
	return cli.NotInRouterBuild("top", "watch devices, subflows and apps live",
		"use `mpbond status --watch`, or `mpbond console` from another machine")
}
