//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
)

// What needs Linux is refused in words, with what to use instead.

func runCommand() *cobra.Command {
	return onlyOnLinux("run", "Run one app over the bond", "tell the app of the SOCKS5 or HTTP proxy of `mpbond primary` (mpbond status shows where it is)")
}

func labCommand() *cobra.Command {
	return onlyOnLinux("lab", "emulate networks and measure", "use a Linux machine, or a virtual one")
}

func expCommand() *cobra.Command {
	return onlyOnLinux("exp", "the published tables and figures, and ours", "use a Linux machine, or a virtual one")
}

func onlyOnLinux(name, short, hint string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short + " (on Linux only)", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			for _, a := range args {
				if a == "--help" || a == "-h" {
					return c.Help()
				}
			}
			return fault.New(fault.Unsupported, fmt.Errorf("mpbond %s does not work on %s", name, runtime.GOOS), hint)
		}}
}
