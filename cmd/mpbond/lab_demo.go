package main

import "github.com/spf13/cobra"

func labDemo() *cobra.Command { return &cobra.Command{Use: "demo"} }
