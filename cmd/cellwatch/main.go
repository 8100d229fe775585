// Command cellwatch reads the control messages of mobile cells: it decodes them from
// samples of the air, shows them, and computes what a device can have there. This package
// has flags, texts and wiring; package pbe has the rest.
package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

// commands returns the subcommands in the order of the help text.
func commands() []*cobra.Command {
	return []*cobra.Command{
		scanCommand(),
		watchCommand(),
		statsCommand(),
		gridCommand(),
		capacityCommand(),
		cli.VersionCommand(),
		cli.ManCommand(),
	}
}

const rootHelp = `cellwatch reads the control messages of mobile cells: decode them from samples of
the air, record them, and show who uses the cell and what a device can have there.
mpbond primary --cell paces downloads by the same messages; cellwatch needs no bond.`

const rootExample = `  cellwatch scan walk.cf32
  cellwatch watch walk.cf32 --record walk.cells
  cellwatch stats walk.cells
  cellwatch capacity unix:/run/cells.sock --rnti 0x4601`

// thisProgram returns this program.
func thisProgram() cli.Program {
	return cli.Program{Name: "cellwatch", Short: "read the control messages of mobile cells", Long: rootHelp, Example: rootExample, Commands: commands}
}

func main() { thisProgram().Main() }
