package main

import "github.com/spf13/cobra"

func statusCommand() *cobra.Command { return &cobra.Command{Use: "status"} }
