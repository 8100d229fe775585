package main

import "github.com/spf13/cobra"

func labBench() *cobra.Command { return &cobra.Command{Use: "bench"} }
