package main

import "github.com/spf13/cobra"

// labMeasureCommands are the lab's subcommands that measure.
func labMeasureCommands(f *labFlags) []*cobra.Command { return nil }
