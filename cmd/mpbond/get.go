package main

import "github.com/spf13/cobra"

func getCommand() *cobra.Command { return &cobra.Command{Use: "get URL"} }
