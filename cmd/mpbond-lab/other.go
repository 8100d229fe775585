// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

// labCommands returns commands that explain that they need Linux.
func labCommands() []*cobra.Command {
	return []*cobra.Command{
		cli.OnlyOnLinux("run", "measure transfers over an emulated network", "use a Linux machine, or a virtual one"),
		cli.OnlyOnLinux("exp", "reproduce published results", "use a Linux machine, or a virtual one"),
	}
}
