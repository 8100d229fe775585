// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// Completion completes an argument, or the value of a flag, in a shell.
type Completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// CompleteFlag completes the value of a flag. It panics if cmd has no such flag.
func CompleteFlag(cmd *cobra.Command, flag string, f Completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}

// CompleteWith completes the value of a flag with these words.
func CompleteWith(cmd *cobra.Command, flag string, words ...string) {
	CompleteFlag(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
