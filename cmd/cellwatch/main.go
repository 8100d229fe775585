// SPDX-License-Identifier: Apache-2.0

// Command cellwatch decodes the control messages of mobile cells from IQ samples, shows them, and
// computes the capacity of a device. This package has flags, texts and wiring; package pbe does the
// work.
package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

// cellwatchCommands returns the subcommands in the order of the help text.
func cellwatchCommands() []*cobra.Command {
	return []*cobra.Command{
		scanCommand(),
		watchCommand(),
		checkCommand(),
		statsCommand(),
		gridCommand(),
		capacityCommand(),
		cli.VersionCommand("cellwatch"),
		cli.ManCommand(),
	}
}

const rootHelp = `Monitor mobile cells: decode their control messages from IQ samples, record them, and
show the users of a cell and the capacity of a device.
mpbond primary --cell paces downloads with the same messages; cellwatch works without a bond.`

const rootExample = `  cellwatch scan walk.cf32
  cellwatch watch walk.cf32 --record walk.cells
  cellwatch stats walk.cells
  cellwatch capacity unix:cells.sock --rnti 0x4601`

// cellwatchProgram describes this program.
func cellwatchProgram() cli.Program {
	return cli.Program{Name: "cellwatch", Short: "monitor the control messages of mobile cells", Long: rootHelp,
		Example: rootExample, Commands: cellwatchCommands}
}

func main() { cellwatchProgram().Main() }
