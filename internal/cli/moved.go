package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
)

// MovedCommand returns a hidden command for an old name. It fails and prints the new name,
// with the arguments that were given. Besides, if given, maps subcommands that have names
// of their own.
func MovedCommand(old, replacement string, besides map[string]string) *cobra.Command {
	return &cobra.Command{
		Use: old, Short: "moved to " + replacement, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, line := cmd.CommandPath(), replacement
			if len(args) > 0 && besides[args[0]] != "" {
				path, line = path+" "+args[0], besides[args[0]]
				args = args[1:]
			}
			now := line
			for _, arg := range args {
				line += " " + quoteArg(arg)
			}
			return fault.New(fault.Usage, fmt.Errorf("`%s` is `%s` now", path, now), "write `"+line+"`")
		},
	}
}

// quoteArg returns an argument as a shell takes it.
func quoteArg(arg string) string {
	plain := arg != ""
	for _, r := range arg {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
	}
	if plain {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
