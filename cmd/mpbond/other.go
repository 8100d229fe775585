// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

func runCommand() *cobra.Command {
	return cli.OnlyOnLinux("run", "run one app over the bond",
		"configure the app to use the SOCKS5 or HTTP proxy of `mpbond primary` (`mpbond status` shows its address)")

}
