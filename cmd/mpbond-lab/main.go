// SPDX-License-Identifier: Apache-2.0

// Command mpbond-lab emulates networks on one machine and measures mpbond and its baselines over
// them. It reproduces published experiments, and runs the permit service of an operator of cells.
// This package has flags, texts and wiring; package lab has the rest.
package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

// subcommands returns the subcommands in the order of the help text.
func subcommands() []*cobra.Command {
	return append(labCommands(), permitCommand(), cli.VersionCommand("mpbond-lab"), cli.ManCommand())
}

const rootHelp = `mpbond-lab emulates networks in network namespaces and measures transfers over them.
Links have rate, delay, queue, loss, schedules, traces and outages. No kernel modules
are needed. mpbond-lab runs the programs mpbond and cellwatch beside it, or those in
PATH. Operators of mobile cells grant permits for onloading with mpbond-lab permit.`

const rootExample = `  mpbond-lab demo                       # one download over one link, kernel MPTCP and mpbond
  mpbond-lab run --links 8/10/5 --get 2MB --reps 5
  mpbond-lab exp run m1 --quick         # a published table or figure
  mpbond-lab up --links 8/10/5          # primary, helper1, server and web
  mpbond-lab exec primary -- curl http://web/
  mpbond-lab down`

// mpbondLabProgram describes this program.
func mpbondLabProgram() cli.Program {
	return cli.Program{Name: "mpbond-lab", Short: "emulate networks and measure transfers over them", Long: rootHelp,
		Example: rootExample, Commands: subcommands}
}

func main() { mpbondLabProgram().Main() }
