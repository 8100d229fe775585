//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

// What needs Linux is refused in words, with what to use instead.

func runCommand() *cobra.Command {
	return cli.OnlyOnLinux("run", "Run one app over the bond", "tell the app of the SOCKS5 or HTTP proxy of `mpbond primary` (mpbond status shows where it is)")
}

func labCommand() *cobra.Command {
	return cli.OnlyOnLinux("lab", "emulate networks and measure", "use a Linux machine, or a virtual one")
}

func expCommand() *cobra.Command {
	return cli.OnlyOnLinux("exp", "the published tables and figures, and ours", "use a Linux machine, or a virtual one")
}
