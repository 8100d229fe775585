//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

// labCommands returns commands that refuse what needs Linux.
func labCommands() []*cobra.Command {
	return []*cobra.Command{
		cli.OnlyOnLinux("run", "Measure transfers over an emulated network", "use a Linux machine, or a virtual one"),
		cli.OnlyOnLinux("exp", "Reproduce published tables and figures", "use a Linux machine, or a virtual one"),
	}
}
