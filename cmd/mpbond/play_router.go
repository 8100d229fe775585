// SPDX-License-Identifier: Apache-2.0

//go:build router

package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

func playCommand() *cobra.Command {
	return cli.NotInRouterBuild("play", "fetch videos ahead of a player",
		"run it on the device with the player; this router can help it with --onload")
}
