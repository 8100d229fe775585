// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
)

// MovedCommand returns a hidden command for an old name. It fails, and its hint is the new command
// line with the arguments that were given. Special maps subcommands to replacements of their own
// and may be nil.
func MovedCommand(old, replacement string, special map[string]string) *cobra.Command {
	cmd := &cobra.Command{
		Use: old, Short: "moved to " + replacement, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, line := cmd.CommandPath(), replacement
			if len(args) > 0 && special[args[0]] != "" {
				path, line = path+" "+args[0], special[args[0]]
				args = args[1:]
			}
			now := line
			for _, arg := range args {
				line += " " + quoteShellArg(arg)
			}
			return fault.New(fault.Usage, fmt.Errorf("`%s` is `%s` now", path, now), "write `"+line+"`")
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		program, _, _ := strings.Cut(replacement, " ")
		fmt.Fprintf(cmd.OutOrStdout(), "`%s` is now `%s`, of the program %s: run `%[2]s --help`.\n",
			cmd.CommandPath(), replacement, program)
	})
	return cmd
}

// quoteShellArg quotes an argument for a shell if it needs that.
func quoteShellArg(arg string) string {
	plain := arg != ""
	for _, r := range arg {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./:=,@%+", r))
	}
	if plain {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
