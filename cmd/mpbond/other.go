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
