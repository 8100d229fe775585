// Command mpbond bonds the links of several devices. This package stands
// before everything else: it reads flags and files, wires the packages together,
// and turns errors into words and exit codes. One file holds one subcommand.
package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

// commands lists the subcommands in the order of the help text.
func commands() []*cobra.Command {
	return []*cobra.Command{
		serverCommand(),
		primaryCommand(),
		helperCommand(),
		dualCommand(),
		pairCommand(),
		acceptCommand(),
		devicesCommand(),
		renameCommand(),
		pauseCommand(),
		resumeCommand(),
		revokeCommand(),
		keygenCommand(),
		trustCommand(),
		runCommand(),
		getCommand(),
		putCommand(),
		playCommand(),
		statusCommand(),
		streamsCommand(),
		usageCommand(),
		eventsCommand(),
		topCommand(),
		policyCommand(),
		consoleCommand(),
		doctorCommand(),
		cli.VersionCommand(),
		cli.ManCommand(),
		cli.MovedCommand("lab", "mpbond-lab", map[string]string{"bench": "mpbond-lab exp run bench"}),
		cli.MovedCommand("exp", "mpbond-lab exp", nil),
		cli.MovedCommand("permit", "mpbond-lab permit", nil),
		cli.MovedCommand("cell", "cellwatch", nil),
	}
}

const rootHelp = `mpbond lets the devices that you own reach the Internet together. Apps run on
the primary; helpers lend it their links; a server at the far end splits and
joins the traffic. Apps and Internet servers notice nothing.

Files are in $MPBOND_HOME; without it in $XDG_CONFIG_HOME/mpbond or
~/.config/mpbond, and for root in /var/lib/mpbond, with the configuration in
/etc/mpbond.

Exit codes
  0  done
  1  failure
  2  wrong command line or configuration
  3  no connection: mpbond is not running, or an address does not answer
  4  refused: a device is unknown or another one, or rights are missing
  5  data is not what it should be
  130  interrupted
mpbond run ends with the exit code of its command.`

const rootExample = `  mpbond server                       # on a VPS: shows a code
  mpbond helper                       # on a spare device: shows a code
  mpbond pair CODE CODE               # on the laptop, with both codes; then
  mpbond primary
  mpbond get https://example.org/big.iso
  mpbond status --why                 # who carries what, at which rate, and why`

// thisProgram returns this program.
func thisProgram() cli.Program {
	return cli.Program{Name: "mpbond", Short: "bond the links of several devices", Long: rootHelp, Example: rootExample, Commands: commands}
}

func main() { thisProgram().Main() }
