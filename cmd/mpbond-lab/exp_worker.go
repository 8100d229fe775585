// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/lab/exp"
	"mpbond/lab/queue"
	"mpbond/lab/radio"
)

// queueFlags are the flags of commands that use a queue.
type queueFlags struct{ urls, creds, ca string }

// add adds the flags to a command.
func (f *queueFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.urls, "queue", "", "use the queue at these NATS servers: `URL[,URL]`")
	c.Flags().StringVar(&f.creds, "creds", "", "use the credentials in `FILE` for the queue")
	c.Flags().StringVar(&f.ca, "ca", "", "trust the authority whose certificate is in `FILE` for the queue")
}

func (f *queueFlags) isSet() bool { return f.urls != "" || f.creds != "" || f.ca != "" }

// open opens the queue, and lets p show when it does not answer.
func (f *queueFlags) open(ctx context.Context, p *runProgress) (*queue.Queue, error) {
	if f.urls == "" {
		return nil, cli.UsageError("--queue is missing")
	}
	return queue.Open(ctx, queue.Options{URLs: f.urls, CredsFile: f.creds, CAFile: f.ca, Report: p.printProgressLine})
}

func expWorkerCommand() *cobra.Command {
	var w exp.Worker
	var f queueFlags
	c := &cobra.Command{
		Use: "worker", Short: "measure cells of runs of other machines", Args: cobra.NoArgs,
		Example: "  mpbond-lab exp worker --queue nats://nats.example.org",
		Long: `Take cells that "mpbond-lab exp run --queue" puts into the queue, one at a time,
measure each as a run on this machine would, and deliver the results. The version must
be that of the run. Before its first cell with real packets the worker calibrates this
machine. It ends with an error if the machine is not accurate enough, or lacks what a
cell needs. Several workers on one machine take turns, except for cells that are
computed. Do not run anything else meanwhile.

An interrupted worker gives its cell back. The cell of one that dies goes to another
worker after ` + queue.DefaultLease.String() + `. When three have died with it, it is given up.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if w.Idle < 0 {
				return cli.UsageError("--idle must be at least 0")
			}
			p := &runProgress{out: c.ErrOrStderr(), lastPrint: time.Now()}
			q, err := f.open(c.Context(), p)
			if err != nil {
				return err
			}
			defer q.Close()
			if w.Rows, err = (&expFlags{set: radio.Sets[0].Name}).selectRows(nil); err != nil {
				return err
			}
			w.Machine = cmp.Or(w.Machine, lab.ThisMachine().Name)
			w.Version, w.PrintLine = cli.Version, p.printProgressLine
			w.Progress = func(text string) { p.showProgress(text, false) }
			w.Take = func(ctx context.Context) (exp.Task, error) {
				t, err := q.Take(ctx, cli.Version)
				if err != nil {
					return nil, err
				}
				return t, nil
			}
			return w.Work(c.Context())
		},
	}
	f.add(c)
	c.Flags().StringVar(&w.Machine, "name", "", "call this machine `NAME` in the results (default: its host name)")
	c.Flags().DurationVar(&w.Idle, "idle", 0, "end when there was no cell for this time (0: when interrupted)")
	return c
}
