// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"mpbond/internal/cli"
	"mpbond/lab"
)

// labRecordCommand returns "mpbond-lab record".
func labRecordCommand(f *labFlags) *cobra.Command {
	var messages, truth string
	var length time.Duration
	c := &cobra.Command{
		Use: "record NETWORK", Short: "record the control messages and ground truth of a mobile network",
		Args:    cobra.ExactArgs(1),
		Example: "  mpbond-lab record tower --for 10s --messages tower.cells --truth tower.jsonl",
		Long: `Record the control messages of a mobile network of the lab, and the ground truth
about its users, until --for has passed or the command is interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if messages == "" && truth == "" {
				return cli.UsageError("give a file: --messages, --truth or both")
			}
			if messages == truth {
				return cli.UsageError("--messages and --truth are the same file")
			}
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, length)
				defer cancel()
			}
			var to [2]io.Writer
			for i, name := range []string{messages, truth} {
				if name == "" {
					continue
				}
				file, err := os.Create(name)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, file.Close()) }()
				to[i] = file
			}
			return l.Record(ctx, args[0], to[0], to[1])
		},
	}
	c.Flags().StringVar(&messages, "messages", "", "write control messages to `FILE`, as a recording")
	c.Flags().StringVar(&truth, "truth", "", "write the ground truth about each user in each subframe to `FILE`, "+
		"as JSON lines")
	c.Flags().DurationVar(&length, "for", 0, "record for this time (0: until interrupted)")
	return c
}
