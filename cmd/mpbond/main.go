// SPDX-License-Identifier: Apache-2.0

// Command mpbond bonds the links of several devices. It is the product's program: it reads
// flags and files, connects the packages of the data path with each other, and turns errors
// into texts and exit codes. The file NAME.go has the subcommand NAME; other files have a part of
// one, or what several share.
package main

import (
	"github.com/spf13/cobra"

	"mpbond/internal/cli"
	"mpbond/link/wire"
)

// apiVersion is the version of the local HTTP API: the number in its paths.
const apiVersion = 2

// mpbondCommands returns the subcommands in the order of the help text.
func mpbondCommands() []*cobra.Command {
	return []*cobra.Command{
		primaryCommand(),
		helperCommand(),
		serverCommand(),
		dualCommand(),
		runCommand(),
		getCommand(),
		putCommand(),
		playCommand(),

		pairCommand(),
		acceptCommand(),
		devicesCommand(),
		renameCommand(),
		pauseCommand(),
		resumeCommand(),
		revokeCommand(),
		fleetCommand(),

		statusCommand(),
		topCommand(),
		streamsCommand(),
		adviseCommand(),
		handoffsCommand(),
		eventsCommand(),
		usageCommand(),
		doctorCommand(),
		consoleCommand(),

		policyCommand(),
		checkCommand(),

		keygenCommand(),
		trustCommand(),
		cli.VersionCommandWith("mpbond", cli.Protocols{Wire: wire.Version, API: apiVersion}),

		cli.ManCommand(),
		cli.TopicCommand("files", "where files are", filesHelp),
		cli.TopicCommand("exit-codes", "what exit codes mean", exitCodesHelp),
		cli.MovedCommand("lab", "mpbond-lab", map[string]string{"bench": "mpbond-lab exp run bench"}),
		cli.MovedCommand("exp", "mpbond-lab exp", nil),
		cli.MovedCommand("permit", "mpbond-lab permit", nil),
		cli.MovedCommand("cell", "cellwatch", nil),
	}
}

// groups arranges the commands in the overview that `mpbond --help` prints.
var groups = []cli.Group{
	{Title: "Use it", Commands: []string{"primary", "helper", "server", "dual", "run", "get", "put", "play"}},
	{Title: "Devices", Commands: []string{"pair", "accept", "devices", "rename", "pause", "resume", "revoke", "fleet"}},
	{Title: "Look", Commands: []string{"status", "top", "streams", "advise", "handoffs", "events", "usage", "doctor",
		"console"}},
	{Title: "Rules, settings, keys", Commands: []string{"policy", "check", "keygen", "trust", "version"}},
}

const (
	rootHelp = `Reach the Internet by several devices at once: apps run on the primary, helpers share their links.

` + filesHelp + "\n\n" + exitCodesHelp

	filesHelp = `Files are in $MPBOND_HOME. If it is not set they are in $XDG_CONFIG_HOME/mpbond or
~/.config/mpbond; for root in /var/lib/mpbond, with the configuration in /etc/mpbond.`

	exitCodesHelp = `Exit codes
  0  success
  1  failure
  2  invalid command line or configuration
  3  no connection: mpbond is not running, or an address does not answer
  4  refused: an unknown or wrong device, or missing rights
  5  corrupt or unexpected data
  130  interrupted
mpbond run ends with the exit code of its command.`
)

const rootExample = `  mpbond server                       # on a VPS: prints a code
  mpbond helper                       # on a spare device: prints a code
  mpbond pair CODE CODE               # on the laptop, with both codes; then
  mpbond primary
  mpbond status --why                 # which device carries what, and why`

// mpbondProgram returns the description of this program.
func mpbondProgram() cli.Program {
	return cli.Program{
		Name: "mpbond", Short: "bond the links of several devices",
		Long: rootHelp, Example: rootExample, Commands: mpbondCommands, Groups: groups,
	}
}

func main() { mpbondProgram().Main() }
