// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is the number of columns of help texts.
const helpWidth = 100

// printCommandUsage prints how c is called: its forms, examples, subcommands and flags.
func printCommandUsage(c *cobra.Command) error {
	w := c.OutOrStderr()
	forms := []string{}
	if c.Runnable() {
		forms = append(forms, strings.Replace(c.UseLine(), "[flags]", "[FLAGS]", 1))
	}
	if c.HasAvailableSubCommands() {
		forms = append(forms, c.CommandPath()+" COMMAND")
	}
	fmt.Fprintf(w, "Usage: %s\n", strings.Join(forms, "\n       "))
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, s := range c.Commands() {
			if s.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s %s\n", s.NamePadding(), s.Name(), s.Short)
			}
		}
	}
	fmt.Fprint(w, describeFlags(FlagGroups(c)))
	if inherited := c.InheritedFlags(); inherited.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags of all commands:\n%s", inherited.FlagUsagesWrapped(helpWidth))
	}
	return nil
}
